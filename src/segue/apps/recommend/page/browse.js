// Browse and click: each click is an event, the list changes at once, and says because of what.
import { get, post } from "./api.js";
import { button, el, field, put } from "./dom.js";
import { failed } from "./frame.js";

const SHOWN = 10;

export function browsePanel(shared) {
  const user = el("input", { id: "user", value: "guest" });
  const kind = el("select", { id: "kind" });
  const search = el("input", { id: "search", placeholder: "browse.search" });
  const items = el("div", { class: "list", id: "items" });
  const past = el("div", { class: "past", id: "past" });
  const lists = el("div", { class: "lists", id: "lists" });
  const diversity = el("input", { type: "range", id: "diversity", min: 0, max: 1, step: 0.1, value: 0 });
  const novelty = el("input", { type: "range", id: "novelty", min: 0, max: 1, step: 0.1, value: 0 });
  const tag = el("select", { id: "tag" });
  const why = el("input", { type: "checkbox", id: "why", checked: true });
  const other = el("select", { id: "other" });
  const what = el("p", { class: "hint", id: "what-if" });
  const real = button("browse.real", () => { then = []; refresh(); }, { id: "real", hidden: true });
  const root = el("div", { class: "browse" },
    el("section", { class: "card stack" },
      el("div", { class: "settings" }, field("browse.user", user), field("browse.kind", kind)),
      el("h2", { t: "browse.past" }), past, el("h2", { t: "browse.items" }), search, items),
    el("section", { class: "card stack" },
      el("div", { class: "settings dials" }, field("browse.diversity", diversity), field("browse.novelty", novelty), field("browse.tag", tag), field("browse.other", other)),
      el("label", { class: "check" }, why, el("span", { t: "browse.why" })), what, real, lists));
  let then = [];
  let before = new Map();
  let asked = 0;

  for (const input of [diversity, novelty, tag, why, other]) input.addEventListener("change", refresh);
  user.addEventListener("change", () => { then = []; before = new Map(); refresh(); });
  search.addEventListener("input", find);

  async function find() {
    try {
      const words = search.value;
      const found = await get(`/v1/items?${new URLSearchParams({ words, limit: 30 })}`);
      if (words !== search.value) return;
      items.replaceChildren(...found.items.map((one) => card(one, null)));
    } catch (problem) {
      failed(problem);
    }
  }

  async function click(item) {
    try {
      then = [];
      const id = `page-${crypto.getRandomValues(new Uint32Array(3)).join("-")}`;
      await post("/v1/events", { events: [{ user: user.value.trim(), item, kind: kind.value, id }] });
      await refresh();
    } catch (problem) {
      failed(problem);
    }
  }

  function card(one, place) {
    const head = el("span", { class: "item-head" }, place === null ? "" : el("span", { class: "hint place", text: String(place + 1) }), el("span", { class: "name", dir: "auto", text: one.title || one.item }));
    const made = el("button", { type: "button", class: "item", "data-item": one.item, on: { click: () => click(one.item) } }, head, el("span", { class: "hint", dir: "auto", text: one.tags.join(" · ") }));
    return made;
  }

  /** How far an item has moved since the list before. */
  function moved(place, was) {
    if (was === undefined) return el("span", { class: "move", t: "browse.new" });
    if (was === place) return "";
    return el("span", { class: "move", text: `${was > place ? "▲" : "▼"} ${Math.abs(was - place)}` });
  }

  function listed(found, main, began) {
    const rows = found.items.map((one, place) => {
      const made = card(one, place);
      const was = before.get(one.item);
      if (main && before.size) {
        if (was === undefined || was > place) made.classList.add("risen");
        made.querySelector(".item-head").append(moved(place, was));
      }
      if (why.checked && began) {
        made.append(one.because
          ? el("span", { class: "hint because", t: "browse.because", v: { title: one.because.title || one.because.item, fall: (-one.because.fall).toFixed(2) } })
          : el("span", { class: "hint", t: "browse.none-because" }));
      }
      const consider = button("browse.if", () => { then = [one]; refresh(); }, { class: "quiet", title: "browse.if-title" });
      return el("div", { class: "row-of-list" }, made, main ? consider : "");
    });
    if (main) before = new Map(found.items.map((one, place) => [one.item, place]));
    if (!rows.length) rows.push(el("p", { class: "missing", t: "browse.empty" }));
    return el("div", { class: "column", "data-model": found.model }, el("h2", { t: "browse.list", v: { model: found.model } }), ...rows);
  }

  async function refresh() {
    const person = user.value.trim();
    if (!person) return;
    const own = ++asked;
    const wish = { diversity: Number(diversity.value), novelty: Number(novelty.value), only_tags: tag.value ? [tag.value] : [] };
    const body = { user: person, count: SHOWN, wish, why: why.checked, then: then.map((one) => ({ item: one.item, kind: kind.value })) };
    try {
      const models = [null, ...(other.value ? [other.value] : [])];
      const found = await Promise.all(models.map((model) => post("/v1/recommend", { ...body, model })));
      const { events } = await get(`/v1/users/${encodeURIComponent(person)}?limit=30`);
      if (own !== asked) return;
      past.replaceChildren(...events.map((one) => el("span", { class: "chip", dir: "auto", text: one.title || one.item })));
      if (!events.length) past.append(el("span", { class: "hint", t: "browse.nothing" }));
      real.hidden = !then.length;
      if (then.length) put(what, "browse.what-if", { title: then[0].title || then[0].item });
      else { delete what.dataset.t; what.textContent = ""; }
      lists.replaceChildren(...found.map((one, place) => listed(one, place === 0, events.length > 0 || then.length > 0)));
    } catch (problem) {
      failed(problem);
    }
  }

  return {
    name: "browse",
    root,
    async show() {
      if (!kind.options.length) {
        kind.replaceChildren(...shared.kinds.map((name) => el("option", { value: name, text: name })));
        kind.value = shared.kinds.includes("view") ? "view" : shared.kinds[0];
        tag.replaceChildren(el("option", { value: "", t: "browse.any" }), ...shared.tags.map((name) => el("option", { value: name, text: name })));
      }
      const compared = other.value;
      other.replaceChildren(el("option", { value: "", t: "browse.none" }), ...shared.models.map((name) => el("option", { value: name, text: name })));
      other.value = shared.models.includes(compared) ? compared : "";
      await Promise.all([find(), refresh()]);
    },
  };
}
