// What is kept of a person: found, exported and deleted by an id.
import { get, send } from "./api.js";
import { button, count, el, field } from "./dom.js";
import { failed } from "./frame.js";

/** `kept` gives numbers of what was found, by the names that the words for it have; `deleted` how much was deleted. */
export function peoplePanel({ kept, deleted }) {
  const person = el("input", { id: "person" });
  const result = el("div", { class: "stack", id: "person-found" });
  const root = el("section", { class: "card stack" }, field("people.person", person),
    el("div", { class: "row" }, button("people.find", find, { class: "main", id: "find" })), result);
  person.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && find());
  const path = () => `/v1/operator/people/${encodeURIComponent(person.value.trim())}`;

  async function find() {
    if (!person.value.trim()) return;
    try {
      const found = await get(path());
      const numbers = Object.entries(kept(found));
      result.replaceChildren(el("p", { t: "people.found", v: Object.fromEntries(numbers.map(([name, many]) => [name, count(many)])) }));
      if (!numbers.some(([, many]) => many)) return;
      result.append(el("div", { class: "row" }, button("people.export", () => save(found)), button("people.delete", remove, { class: "danger", id: "delete-person" })),
        el("pre", { text: JSON.stringify(found, null, 1).slice(0, 100000), class: "scroll" }));
    } catch (problem) {
      failed(problem);
    }
  }

  function save(found) {
    const link = el("a", { download: `${person.value.trim()}.json` });
    link.href = URL.createObjectURL(new Blob([JSON.stringify(found, null, 1)], { type: "application/json" }));
    link.click();
    URL.revokeObjectURL(link.href);
  }

  async function remove() {
    try {
      const found = await (await send("DELETE", path())).json();
      result.replaceChildren(el("p", { t: "people.deleted", v: { count: count(deleted(found)) } }));
      if (found.models.length)
        result.append(el("p", { class: "hint", id: "models-kept", t: "people.models", v: { models: found.models.join(", "), command: found.command } }));
    } catch (problem) {
      failed(problem);
    }
  }

  return { name: "people", root, role: "operator" };
}
