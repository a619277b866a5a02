// What came from each source, what could not be read, and what the model has learned.
import { get } from "./api.js";
import { moment } from "./chart.js";
import { count, el, percent } from "./dom.js";
import { failed } from "./frame.js";

export function sourcesPanel() {
  const root = el("div", { class: "stack", id: "sources" });

  async function load() {
    try {
      show(await get("/v1/sources"));
    } catch (problem) {
      failed(problem);
    }
  }

  function show(found) {
    const table = (names, rows) => el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { t: name })))),
      el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((text) => el("td", { text })))))));
    const told = ["sentiment", "topic"].filter((name) => found.summary[name]);
    root.replaceChildren(
      el("section", { class: "card stack" }, el("h2", { t: "sources.title" }),
        table(["sources.name", "now.texts", "sources.known", "sources.refused", "sources.last", "sources.problem"],
          found.sources.map((one) => [one.name, count(one.taken), count(one.known), count(one.refused), one.last ? moment(one.last) : "–", one.problem ?? ""]))),
      el("section", { class: "card stack" }, el("h2", { t: "sources.learned", v: { model: found.model, rows: count(found.summary.rows) } }),
        table(["sources.what", "sources.right", "sources.f1", "sources.off"],
          told.map((name) => [name, percent(found.summary[name].accuracy), percent(found.summary[name].macro_f1), percent(found.summary[name].calibration_error)]))),
      found.names.length ? el("section", { class: "card stack" }, el("h2", { t: "sources.names" }),
        table(["sources.name_new", "now.texts"], found.names.map((one) => [one.name, count(one.texts)]))) : "",
      found.refused.length ? el("section", { class: "card stack" }, el("h2", { t: "sources.bad" }),
        table(["sources.name", "sources.reason", "sources.row"], found.refused.map((one) => [one.source, one.reason, one.given.slice(0, 200)]))) : "");
  }

  return { name: "sources", root, show: load };
}
