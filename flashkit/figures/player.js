// The step player: draws a figure's plain data (wire.py) as SVG and moves through its frames. It computes nothing:
// every number and every sentence comes from Python. With page.js before it, it is an anywidget, and a stand-alone page.

const SVG = "http://www.w3.org/2000/svg";
const DWELL = 2000; // milliseconds a frame stays at speed 1
const SPEEDS = [0.5, 1, 2, 4, 16];
const KEYS = [
  ["Space", "play or pause"],
  ["← →", "one step back, one step on"],
  ["Home End", "first step, last step"],
  ["L", "loop on or off"],
  ["F", "full screen on or off"],
  ["?", "this list on or off"],
];
const ICONS = {
  play: "M5 3 L17 10 L5 17 Z",
  pause: "M5 3 H8.5 V17 H5 Z M11.5 3 H15 V17 H11.5 Z",
  back: "M13 3 L4 10 L13 17 Z M14 3 H16 V17 H14 Z",
  on: "M7 3 L16 10 L7 17 Z M4 3 H6 V17 H4 Z",
  loop: "M10 3 A7 7 0 1 1 3.6 7.2 L5.5 8 A5 5 0 1 0 10 5 V8 L5.5 4 L10 0 Z",
  full: "M3 3 H8 V5 H5 V8 H3 Z M12 3 H17 V8 H15 V5 H12 Z M3 12 H5 V15 H8 V17 H3 Z M15 12 H17 V17 H12 V15 H15 Z",
};

const STYLE = `
:host { display: block; }
.player { box-sizing: border-box; max-width: 960px; padding: 10px 12px; border: 1px solid var(--line); border-radius: 6px;
  background: var(--paper); color: var(--ink); font: 16px/1.4 system-ui, -apple-system, "Segoe UI", sans-serif; }
.player * { box-sizing: border-box; }
.head { display: flex; flex-wrap: wrap; gap: 6px 18px; align-items: center; justify-content: space-between; }
.title { font-weight: 700; font-size: 18px; }
.choices { display: flex; flex-wrap: wrap; gap: 6px 16px; margin: 6px 0; }
.choices label { display: flex; gap: 6px; align-items: center; }
.stage { outline-offset: -2px; }
/* Picture, caption and buttons fit a laptop's screen together, below JupyterLab's bars and above its status line. */
svg.picture { display: block; width: 100%; height: auto; max-height: max(340px, calc(100vh - 360px)); }
svg.picture text { font-family: inherit; font-variant-numeric: tabular-nums; dominant-baseline: central; }
.tween svg.picture g { transition: transform 0.35s ease; }
.tween svg.picture rect { transition: width 0.35s ease, height 0.35s ease; }
.caption { margin: 6px 0; min-height: 2.8em; font-size: 17px; }
.bar { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; }
.line { flex: 1 1 260px; padding: 0 10px; }
button, select { font: inherit; color: var(--ink); background: var(--raised); border: 1px solid var(--edge); border-radius: 5px;
  min-height: 36px; min-width: 36px; padding: 4px 8px; cursor: pointer; }
button svg { width: 18px; height: 18px; display: block; margin: auto; fill: currentColor; }
button[aria-pressed="true"] { background: var(--ink); color: var(--paper); }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
input[type="range"] { width: 100%; margin: 0; accent-color: var(--focus); height: 24px; }
.choices input[type="range"] { width: 140px; }
.ticks { position: relative; height: 18px; margin: 0 8px; font-size: 12px; }
.ticks span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.ticks span::before { content: ""; position: absolute; left: 50%; top: -5px; height: 5px; border-left: 1px solid var(--ink); }
.keys { font-size: 14px; margin: 6px 0 0; }
kbd { font: inherit; border: 1px solid var(--edge); border-radius: 3px; padding: 0 4px; background: var(--raised); }
.help { margin: 6px 0 0; display: grid; grid-template-columns: max-content 1fr; gap: 4px 14px; font-size: 15px; }
.help[hidden], .bar [hidden], .keys[hidden], .caption[hidden] { display: none; }
.help dd { margin: 0; }
.big { max-width: none; width: 100%; height: 100%; border: 0; border-radius: 0; display: flex; flex-direction: column; }
.big .stage { flex: 1; min-height: 0; }
.big svg.picture { height: 100%; max-height: none; }
.big .title { font-size: clamp(18px, 2.2vw, 32px); }
.big .caption { font-size: clamp(17px, 2vw, 30px); }
dialog { padding: 0; border: 0; width: 100vw; height: 100vh; max-width: none; max-height: none; }
`;

function drawn(tag, attributes = {}) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function button(icon, name) {
  const svg = drawn("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" });
  svg.append(drawn("path", { d: ICONS[icon] }));
  return element("button", { type: "button", "aria-label": name, title: name }, [svg]);
}

// ---- shapes: one <g> a name, which stays while the name stays, so that a frame change touches only what differs ----

const HATCHES = { diagonal: "M-2 2 L2 -2 M0 10 L10 0 M8 12 L12 8", cross: "M0 0 L10 10 M10 0 L0 10", dots: "" };

function definitions() {
  const defs = drawn("defs");
  for (const [id, d] of Object.entries(HATCHES)) {
    const pattern = drawn("pattern", { id, width: 10, height: 10, patternUnits: "userSpaceOnUse" });
    const mark = d ? drawn("path", { d }) : drawn("circle", { cx: 3, cy: 3, r: 1.3 });
    mark.style.cssText = d ? "stroke: var(--hatch); stroke-width: 1" : "fill: var(--hatch)";
    pattern.append(mark);
    defs.append(pattern);
  }
  return defs;
}

class Picture {
  constructor(data) {
    this.data = data;
    this.svg = drawn("svg", { class: "picture", "aria-hidden": "true" });
    this.svg.append(definitions());
    this.layer = drawn("g");
    this.svg.append(this.layer);
    this.nodes = new Map(); // name -> { g, kind, shape (its number) }
  }

  fit({ width, height }) {
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  }

  show(numbers) {
    const wanted = new Set(numbers.map((n) => this.data.shapes[n].name));
    for (const [name, node] of this.nodes) {
      if (!wanted.has(name)) {
        node.g.remove();
        this.nodes.delete(name);
      }
    }
    let cursor = this.layer.firstChild;
    for (const n of numbers) {
      const { g } = this.place(n);
      if (g === cursor) cursor = cursor.nextSibling;
      else this.layer.insertBefore(g, cursor);
    }
  }

  place(n) {
    const shape = this.data.shapes[n];
    let node = this.nodes.get(shape.name);
    if (node && node.kind !== shape.kind) {
      node.g.remove();
      node = undefined;
    }
    if (!node) {
      node = { g: drawn("g"), kind: shape.kind, shape: -1 };
      this.nodes.set(shape.name, node);
    }
    if (node.shape !== n) {
      (shape.kind === "rect" ? this.rect : shape.kind === "text" ? this.words : this.stroke).call(this, node, shape);
      node.shape = n;
    }
    return node;
  }

  rect(node, { x, y, w = 0, h = 0, fill, strength = 1, hatch, stroke = 1.5, dashed, ...shape }) {
    style(node.g, `transform: translate(${x}px, ${y}px)`);
    const size = `width: ${w}px; height: ${h}px`;
    const colour = fill ? `color-mix(in srgb, ${this.data.colours[fill][0]} ${strength * 100}%, var(--paper))` : "none";
    const line = `stroke: var(--ink); stroke-width: ${stroke}; stroke-dasharray: ${dashed ? "6 4" : "none"}`;
    style(part(node, "box", (fill || !hatch) && "rect"), `${size}; fill: ${colour}; ${hatch ? "" : line}`);
    style(part(node, "marks", hatch && "rect"), `${size}; fill: url(#${hatch}); ${line}`); // the outline lies on top
    const text = part(node, "text", shape.text && "text");
    if (text) {
      const place = { start: 6, middle: w / 2, end: w - 6 }[shape.align || "middle"];
      write(text, shape, place, h / 2, fill && strength > 0.5 ? this.data.colours[fill][1] : "var(--ink)");
    }
  }

  words(node, { x, y, ...shape }) {
    style(node.g, `transform: translate(${x}px, ${y}px)`);
    write(part(node, "text", "text"), shape, 0, 0, "var(--ink)");
  }

  stroke(node, { kind, x, y, w = 0, h = 0, stroke = 1.5, dashed }) {
    const long = Math.hypot(w, h) || 1;
    const head = kind === "arrow" ? 5 + 3 * stroke : 0;
    const [ux, uy] = [w / long, h / long];
    const line = part(node, "line", "path");
    line.setAttribute("d", `M${x} ${y} L${x + w - ux * head} ${y + h - uy * head}`);
    style(line, `stroke: var(--ink); stroke-width: ${stroke}; stroke-dasharray: ${dashed ? "6 4" : "none"}`);
    const tip = part(node, "tip", head && "path");
    if (!tip) return;
    const [bx, by, half] = [x + w - ux * head, y + h - uy * head, head * 0.45];
    tip.setAttribute("d", `M${x + w} ${y + h} L${bx - uy * half} ${by + ux * half} L${bx + uy * half} ${by - ux * half} Z`);
    style(tip, "fill: var(--ink)");
  }
}

const PARTS = ["box", "marks", "text"]; // in drawing order

// The named part of a node, made with `tag` when it is missing, removed when `tag` is empty.
function part(node, name, tag) {
  if (!tag) {
    node[name]?.remove();
    delete node[name];
  } else if (!node[name]) {
    node[name] = drawn(tag);
    const above = PARTS.slice(PARTS.indexOf(name) + 1).find((each) => node[each]);
    node.g.insertBefore(node[name], node[above] ?? null);
  }
  return node[name];
}

// Sets a style only when it differs: most shapes of a frame are those of the frame before.
function style(drawing, css) {
  if (!drawing || drawing.css === css) return;
  drawing.css = css;
  drawing.style.cssText = css;
}

function write(text, { text: words = "", size = 18, align = "middle", bold }, x, y, colour) {
  style(text, `font-size: ${size}px; text-anchor: ${align}; font-weight: ${bold ? 700 : 400}; fill: ${colour}`);
  const lines = words.split("\n");
  const top = y - ((lines.length - 1) / 2) * size * 1.25;
  const spans = lines.slice(1).map((line, at) => {
    const span = drawn("tspan", { x, y: top + (at + 1) * size * 1.25 });
    span.textContent = line;
    return span;
  });
  text.setAttribute("x", x);
  text.setAttribute("y", top);
  text.replaceChildren(lines[0], ...spans);
}

// ---- the player ----

class Player {
  constructor(data) {
    this.data = data;
    this.choice = data.controls.map((control) => control.chosen);
    this.at = 0;
    this.timer = 0;
    this.speed = 1;
    this.looping = false;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.picture = new Picture(data);
    this.build();
    this.listen();
    this.choose();
  }

  get scene() {
    return this.data.scenes[this.choice.join(",")];
  }

  get frames() {
    return this.scene.frames;
  }

  get playing() {
    return this.timer !== 0;
  }

  build() {
    const { data } = this;
    this.stage = element("div", { class: "stage", role: "img", tabindex: "0" }, [this.picture.svg]);
    this.caption = element("p", { class: "caption", "aria-live": "polite" });
    this.buttons = {
      back: button("back", "Step back"),
      play: button("play", "Play"),
      on: button("on", "Step on"),
      loop: button("loop", "Loop"),
      full: button("full", "Full screen"),
      help: element("button", { type: "button", "aria-label": "Keys", title: "Keys", "aria-expanded": "false" }, ["?"]),
    };
    this.buttons.loop.setAttribute("aria-pressed", "false");
    this.buttons.full.setAttribute("aria-pressed", "false");
    this.scrub = element("input", { type: "range", min: 0, step: 1, value: 0, "aria-label": "Step" });
    this.ticks = element("div", { class: "ticks", "aria-hidden": "true" });
    const options = SPEEDS.map((speed) => element("option", { value: speed }, [`${speed}×`]));
    this.rate = element("select", { "aria-label": "Speed" }, options);
    this.rate.value = "1";
    this.help = element("dl", { class: "help", hidden: "" }, KEYS.flatMap(([keys, does]) => [
      element("dt", {}, keys.split(" ").flatMap((key) => [element("kbd", {}, [key]), " "])), element("dd", {}, [does]),
    ]));
    const { back, play, on, loop, full, help } = this.buttons;
    const line = element("div", { class: "line" }, [this.scrub, this.ticks]);
    this.bar = element("div", { class: "bar" }, [back, play, on, line, this.rate, loop, full, help]);
    const hint = [["Space", " plays · "], ["←", " "], ["→", " step · "], ["F", " full screen · "], ["?", " all keys"]];
    const words = hint.flatMap(([key, says]) => [element("kbd", {}, [key]), says]);
    this.keys = element("p", { class: "keys" }, words);
    const head = element("div", { class: "head" }, [element("div", { class: "title" }, [data.title])]);
    this.root = element("section", { class: "player", role: "group", "aria-label": data.title }, [
      head, this.chooser(), this.stage, this.caption, this.bar, this.keys, this.help,
    ]);
    this.dialog = element("dialog", { "aria-label": data.title });
  }

  chooser() {
    const inputs = this.data.controls.map((control, at) => {
      const show = (chosen) => {
        this.choice[at] = chosen;
        this.choose();
      };
      if (control.kind === "select") {
        const options = control.options.map((text, n) => element("option", { value: n }, [text]));
        const select = element("select", {}, options);
        select.value = control.chosen;
        select.addEventListener("change", () => show(+select.value));
        return element("label", {}, [control.label, select]);
      }
      const value = element("output", {}, [control.options[control.chosen]]);
      const range = element("input", { type: "range", min: 0, max: control.options.length - 1, "aria-label": control.label });
      range.value = control.chosen;
      const say = () => range.setAttribute("aria-valuetext", (value.textContent = control.options[+range.value]));
      say();
      range.addEventListener("input", () => (say(), show(+range.value)));
      return element("label", {}, [control.label, range, value]);
    });
    return element("div", { class: "choices" }, inputs);
  }

  listen() {
    const { back, play, on, loop, full, help } = this.buttons;
    back.addEventListener("click", () => this.step(-1));
    on.addEventListener("click", () => this.step(1));
    play.addEventListener("click", () => this.toggle());
    loop.addEventListener("click", () => this.loop());
    full.addEventListener("click", () => this.full());
    help.addEventListener("click", () => this.showHelp());
    this.rate.addEventListener("change", () => (this.speed = +this.rate.value));
    this.scrub.addEventListener("input", () => (this.pause(), this.go(+this.scrub.value, false)));
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("close", () => this.leaveDialog());
    this.root.addEventListener("fullscreenchange", () => this.grown(this.isFull()));
    document.addEventListener("fullscreenchange", (this.onFull = () => this.grown(this.isFull())));
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.key === "Tab") return;
    event.stopPropagation(); // no notebook shortcut may follow from a key that the player was given
    const target = event.composedPath()[0];
    const choosing = target.tagName === "SELECT" || target.closest?.(".choices");
    if (choosing || (target.tagName === "BUTTON" && (event.key === " " || event.key === "Enter"))) return;
    const does = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.step(-1),
      ArrowRight: () => this.step(1),
      Home: () => (this.pause(), this.go(0)),
      End: () => (this.pause(), this.go(this.frames.length - 1)),
      l: () => this.loop(),
      f: () => this.full(),
      "?": () => this.showHelp(),
    }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }

  choose() {
    const { frames } = this;
    const still = frames.length === 1;
    const { back, play, on, loop } = this.buttons;
    for (const each of [back, play, on, loop, this.scrub.parentNode, this.rate, this.keys]) each.hidden = still;
    this.scrub.max = frames.length - 1;
    this.picture.fit(this.scene);
    this.mark();
    this.go(Math.min(this.at, frames.length - 1));
  }

  mark() {
    const last = this.frames.length - 1 || 1;
    let before = null;
    const labels = this.frames.flatMap(({ tick }, at) => {
      const place = (100 * at) / last;
      const needed = before && 0.8 * (before.length + tick.length) + 1.5; // percent: half of each label, and a gap
      if (!tick || (before && place - before.place < needed)) return [];
      before = { place, length: tick.length };
      return [element("span", { style: `left: ${place}%` }, [tick])];
    });
    this.ticks.replaceChildren(...labels);
  }

  go(at, tween = true) {
    this.at = Math.max(0, Math.min(at, this.frames.length - 1));
    const frame = this.frames[this.at];
    this.root.classList.toggle("tween", tween && !this.calm.matches && this.speed < 4);
    this.picture.show(frame.show);
    this.caption.textContent = frame.caption;
    this.stage.setAttribute("aria-label", `${this.data.alt} ${frame.caption}`);
    this.scrub.value = this.at;
    this.scrub.setAttribute("aria-valuetext", `step ${this.at + 1} of ${this.frames.length}`);
  }

  step(by) {
    this.pause();
    this.go(this.at + by);
  }

  toggle() {
    if (this.playing) return this.pause();
    if (this.frames.length === 1) return;
    if (this.at === this.frames.length - 1) this.go(0);
    this.caption.setAttribute("aria-live", "off"); // a reader cannot follow a running film; each step speaks
    this.wait();
    this.face("pause", "Pause");
  }

  wait() {
    this.timer = setTimeout(() => {
      const end = this.at === this.frames.length - 1;
      if (end && !this.looping) return this.pause();
      this.go(end ? 0 : this.at + 1);
      this.wait();
    }, DWELL / this.speed);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.caption.setAttribute("aria-live", "polite");
    this.face("play", "Play");
  }

  face(icon, name) {
    const { play } = this.buttons;
    play.querySelector("path").setAttribute("d", ICONS[icon]);
    play.setAttribute("aria-label", name);
    play.title = name;
  }

  loop() {
    this.looping = !this.looping;
    this.buttons.loop.setAttribute("aria-pressed", this.looping);
  }

  showHelp() {
    this.help.hidden = !this.help.hidden;
    this.buttons.help.setAttribute("aria-expanded", !this.help.hidden);
  }

  isFull() {
    return this.dialog.open || this.root.getRootNode().fullscreenElement === this.root;
  }

  async full() {
    if (this.dialog.open) return this.dialog.close();
    if (this.isFull()) return document.exitFullscreen();
    try {
      await this.root.requestFullscreen();
    } catch {
      this.enterDialog(); // no permission, or no such thing here: the whole window instead of the whole screen
    }
    this.grown(this.isFull());
  }

  enterDialog() {
    this.home = this.root.parentNode;
    this.home.append(this.dialog);
    this.dialog.append(this.root);
    this.dialog.showModal();
    this.stage.focus();
  }

  leaveDialog() {
    this.home.append(this.root);
    this.dialog.remove();
    this.grown(false);
    this.stage.focus();
  }

  grown(big) {
    this.root.classList.toggle("big", big);
    this.buttons.full.setAttribute("aria-pressed", big);
  }

  close() {
    this.pause();
    document.removeEventListener("fullscreenchange", this.onFull);
  }
}

function render({ model, el }) {
  const data = model.get("data");
  const player = new Player(data);
  const unfollow = shelter(el, data.themes, STYLE, player.root);
  if (data.autoplay && !player.calm.matches) player.toggle();
  return () => {
    player.close();
    unfollow();
  };
}

export default { render };
