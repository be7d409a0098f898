// What every widget of the course shares: making elements, and the theme of the page around.

function element(tag, attributes = {}, children = []) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// ---- the theme of the page around: JupyterLab's, VS Code's, else the system's ----

function isDark() {
  const body = document.body;
  if (body.dataset.jpThemeLight) return body.dataset.jpThemeLight === "false";
  if (/vscode-(light|dark|high-contrast)/.test(body.className)) return !/vscode-light|high-contrast-light/.test(body.className);
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function follow(root, themes) {
  const apply = () => {
    const { paper, ink, focus } = themes[isDark() ? "dark" : "light"];
    const faded = (percent) => `color-mix(in srgb, ${ink} ${percent}%, ${paper})`;
    const variables = { paper, ink, focus, line: faded(35), edge: faded(60), raised: faded(8), hatch: faded(60) };
    root.style.colorScheme = isDark() ? "dark" : "light"; // for the browser's own controls
    for (const [name, value] of Object.entries(variables)) root.style.setProperty(`--${name}`, value);
  };
  apply();
  const watcher = new MutationObserver(apply);
  watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "class"] });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", apply);
  return () => {
    watcher.disconnect();
    system.removeEventListener("change", apply);
  };
}

// A shadow root in which notebook shortcuts sleep: the attribute covers every control inside (JupyterLab 4).
function shelter(el, themes, style, root) {
  const host = element("div", { "data-lm-suppress-shortcuts": "true" });
  host.attachShadow({ mode: "open" }).append(element("style", {}, [style]), root);
  host.addEventListener("keydown", (event) => handSaveOn(event, el));
  el.append(host);
  return follow(root, themes);
}

// Saving is the one shortcut that a reader expects everywhere, so the notebook around gets a copy of it.
function handSaveOn(event, el) {
  if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "s") return;
  if (!el.dispatchEvent(new KeyboardEvent("keydown", event))) event.preventDefault();
}
