// What came from each source, what could not be read, and what the model has learned.
import { get, send } from "./api.js";
import { moment } from "./chart.js";
import { button, count, el, percent } from "./dom.js";
import { failed } from "./frame.js";

export function sourcesPanel(shared) {
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
      el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => (typeof cell === "string" ? el("td", { text: cell }) : el("td", {}, cell))))))));
    const told = ["sentiment", "topic", "entity"].filter((name) => found.summary[name]);
    root.replaceChildren(
      el("section", { class: "card stack" }, el("h2", { t: "sources.title" }),
        table(["sources.name", "now.texts", "sources.known", "sources.refused", "sources.last", "sources.problem"],
          found.sources.map((one) => [one.name, count(one.taken), count(one.known), count(one.refused), one.last ? moment(one.last) : "–", one.problem ?? ""]))),
      el("section", { class: "card stack" }, el("h2", { t: "sources.learned", v: { model: found.model, rows: count(found.summary.rows) } }),
        table(["sources.what", "sources.right", "sources.f1", "sources.off"],
          told.map((name) => [el("span", { t: `sources.${name}` }), percent(found.summary[name].accuracy), percent(found.summary[name].macro_f1), percent(found.summary[name].calibration_error)]))),
      found.names.length ? el("section", { class: "card stack", id: "names" }, el("h2", { t: "sources.names" }), el("p", { class: "hint", t: "sources.names_about" }),
        el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...["sources.name_new", "now.texts", "sources.last_text", ""].map((name) => el("th", name ? { t: name } : {})))),
          el("tbody", {}, ...found.names.map(proposed))))) : "",
      found.refused.length ? el("section", { class: "card stack" }, el("h2", { t: "sources.bad" }),
        table(["sources.name", "sources.reason", "sources.row"], found.refused.map((one) => [one.source, one.reason, one.given.slice(0, 200)]))) : "");
  }

  /** A name with its count; an operator gives it a code, or dismisses it. */
  function proposed(one) {
    const code = el("input", { label: "sources.code", placeholder: "sources.code", size: 8, maxlength: 100 });
    const decide = async (body) => {
      try {
        await send("POST", "/v1/operator/names", body);
        await load();
      } catch (problem) {
        failed(problem);
      }
    };
    return el("tr", { "data-name": one.name }, el("td", { dir: "auto", text: one.name }), el("td", { text: count(one.texts) }), el("td", { text: moment(one.last, true) }),
      el("td", {}, shared.role === "operator" ? el("div", { class: "row" }, code,
        button("sources.take", () => code.value.trim() && decide({ taken: { [one.name]: code.value.trim() } }), { class: "main" }),
        button("sources.dismiss", () => decide({ dismissed: [one.name] }), { class: "quiet" })) : ""));
  }

  return { name: "sources", root, show: load };
}
