// The panel with a text to explain, which opens the tab with the explanation.
import { button, el, field, modelChoice, onEnter } from "./dom.js";

export const ASKED = "segue.explain";
const TASKS = [null, "classify", "regress", "tag"]; // tasks with one text; the others are explained in their own panel

/** Opens the explanation in a new tab, which inherits the storage of this one: the key and the request. */
export function explain(model, input) {
  sessionStorage.setItem(ASKED, JSON.stringify({ model, input }));
  window.open("/page/explain.html", "_blank");
}

export function explainPanel({ example, compareLanguages }) {
  const model = modelChoice();
  const text = el("textarea", { id: "explained", rows: 8, label: "explain.text", placeholder: "explain.placeholder" });
  const open = () => {
    compareLanguages(model.model(), text.value);
    if (text.value.trim()) explain(model.value, text.value);
  };
  const root = el("section", { class: "card composer" }, field("model", model), text,
    el("div", { class: "row" }, button("explain.go", open, { class: "main", id: "explain" }), el("span", { class: "gap" }),
      button("example", () => ((text.value = example("review", model.model())), open()))),
    el("p", { class: "hint", t: "explain.about" }));
  onEnter(text, open);
  return {
    name: "explain",
    root,
    ability: "explain",
    update: (all) => model.refill(all.filter((one) => one.abilities.includes("explain") && TASKS.includes(one.task))),
    focus: () => text.focus(),
  };
}
