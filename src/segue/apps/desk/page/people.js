// Personal data: found, exported and deleted by the id of a person.
import { get, send } from "./api.js";
import { button, count, el, field, put } from "./dom.js";
import { failed } from "./frame.js";

export function peoplePanel() {
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
      const said = found.conversations.reduce((sum, one) => sum + one.messages.length, 0);
      const text = el("pre", { text: JSON.stringify(found, null, 1).slice(0, 100000), class: "scroll" });
      result.replaceChildren(el("p", { t: "people.found", v: { conversations: count(found.conversations.length), messages: count(said) } }));
      if (!found.conversations.length) return;
      result.append(el("div", { class: "row" }, button("people.export", () => save(found)),
        button("people.delete", remove, { class: "danger", id: "delete-person" })), text);
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
      const line = el("p");
      put(line, "people.deleted", { count: count(found.deleted_conversations) });
      result.replaceChildren(line);
      if (found.models.length)
        result.append(el("p", { class: "hint", id: "models-kept", t: "people.models", v: { models: found.models.join(", "), command: found.command } }));
    } catch (problem) {
      failed(problem);
    }
  }

  return { name: "people", root, role: "operator" };
}
