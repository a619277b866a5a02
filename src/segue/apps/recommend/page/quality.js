// How good the model in use is on what came later, beside what is simpler.
import { count, el, put } from "./dom.js";

export function qualityPanel(shared) {
  const learned = el("p", {});
  const about = el("p", { class: "hint" });
  const method = el("p", { id: "method" });
  const rows = el("tbody", { id: "methods" });
  const head = ["quality.method", "quality.hr", "quality.ndcg", "quality.mrr"].map((name) => el("th", { t: name }));
  const root = el("section", { class: "card stack" }, learned, about, method,
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), rows)));

  return {
    name: "quality",
    root,
    show() {
      const { users, items, events, held_back: held, final } = shared.summary;
      put(learned, "quality.learned", { model: shared.model, users: count(users), items: count(items), events: count(events) });
      put(about, "quality.about", { events: count(held.segue.events) });
      put(method, `quality.${final.method === "mixed" ? "mixed" : "alone"}`, { method: final.method });
      rows.replaceChildren(...Object.entries(held).map(([name, one]) => el("tr", {}, el("td", { text: name }),
        ...[one.hit_rate, one.ndcg, one.mrr].map((value) => el("td", { text: value.toFixed(4) })))));
    },
  };
}
