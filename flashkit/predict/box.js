// A predict box: a labelled number field or a choice, a button, and a line that says how the answer did.

const STYLE = `
:host { display: block; }
form { box-sizing: border-box; max-width: 960px; padding: 10px 14px; border: 1px solid var(--line); border-left: 6px solid var(--focus);
  border-radius: 6px; background: var(--paper); color: var(--ink); font: 16px/1.4 system-ui, -apple-system, "Segoe UI", sans-serif; }
fieldset { border: 0; margin: 0; padding: 0; }
.ask { font-weight: 700; padding: 0; margin: 0 0 8px; display: block; }
.line { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; }
.choices { display: grid; gap: 6px; margin-bottom: 8px; }
.choices label { display: flex; gap: 8px; align-items: center; min-height: 28px; }
input[type="text"], button { font: inherit; color: var(--ink); background: var(--raised); border: 1px solid var(--edge);
  border-radius: 5px; min-height: 36px; padding: 4px 10px; }
input[type="text"] { width: 9em; }
input[type="radio"] { accent-color: var(--focus); width: 18px; height: 18px; margin: 0; }
button { cursor: pointer; }
:focus-visible { outline: 3px solid var(--focus); outline-offset: 2px; }
.says { margin: 8px 0 0; min-height: 1.4em; }
`;

function numberField({ ask, unit }) {
  const input = element("input", { type: "text", inputmode: "decimal", autocomplete: "off", id: "answer" });
  const label = element("label", { class: "ask", for: "answer" }, [unit ? `${ask} (in ${unit})` : ask]);
  return { parts: [label], line: [input], read: () => input.value };
}

function choiceField({ ask, choices }) {
  const labels = choices.map((choice) => {
    const radio = element("input", { type: "radio", name: "answer", value: choice });
    return element("label", {}, [radio, choice]);
  });
  const list = element("div", { class: "choices" }, labels);
  const set = element("fieldset", {}, [element("legend", { class: "ask" }, [ask]), list]);
  return { parts: [set], line: [], read: () => list.querySelector("input:checked")?.value ?? "" };
}

function render({ model, el }) {
  const data = model.get("data");
  const field = data.choices.length ? choiceField(data) : numberField(data);
  const button = element("button", { type: "submit" }, ["Answer"]);
  const says = element("p", { class: "says", role: "status" });
  const form = element("form", { "aria-label": `Predict: ${data.ask}` }, [
    ...field.parts, element("div", { class: "line" }, [...field.line, button]), says,
  ]);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    model.send({ answer: field.read() });
  });
  form.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
  });
  const show = () => (says.textContent = model.get("verdict").says ?? "");
  model.on("change:verdict", show);
  show();
  const unfollow = shelter(el, data.themes, STYLE, form);
  return () => {
    model.off("change:verdict", show);
    unfollow();
  };
}

export default { render };
