// What comes in, live, and who is talked about most.
import { get } from "./api.js";
import { item, moment, score } from "./chart.js";
import { button, count, el, field } from "./dom.js";
import { failed, follow } from "./frame.js";
import { reader } from "./reader.js";

const SHOWN = 40;

export function nowPanel(shared) {
  let streaming = null;
  let last = 0;
  let stale = 0;
  const days = el("select", { id: "days" }, ...[1, 7, 30, 90].map((number) => el("option", { value: number, t: `days.${number}` })));
  days.value = 7;
  days.addEventListener("change", load);
  const figures = el("section", { class: "card numbers", id: "figures" });
  const table = el("tbody", { id: "entities" });
  const topics = el("tbody", { id: "topics" });
  const stream = el("div", { class: "list", id: "stream", "aria-live": "off" });
  const one = reader(shared);
  const day = el("input", { type: "date", id: "report-day" });
  const head = (...names) => el("tr", {}, ...names.map((name) => el("th", { t: name })));
  const root = el("div", { class: "stack" }, figures, one.root,
    el("div", { class: "halves" },
      el("section", { class: "card stack" }, el("div", { class: "row" }, field("now.days", days)),
        el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head("now.entity", "now.texts", "now.negative", "now.mean", "now.before")), table)),
        el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head("now.topic", "now.texts", "now.negative", "now.mean")), topics)),
        el("div", { class: "row" }, field("now.day", day), button("now.report", report, { id: "report" }))),
      el("section", { class: "card stack" }, el("h2", { t: "now.stream" }), stream)));

  async function load() {
    try {
      show(await get(`/v1/overview?days=${days.value}`));
    } catch (problem) {
      failed(problem);
    }
  }

  function show(found) {
    shared.end = found.end;
    shared.topics = found.topic_names;
    if (!day.value) day.value = new Date(1000 * found.end).toISOString().slice(0, 10);
    const all = found.topics.reduce((sum, row) => ({ texts: sum.texts + row.texts, negative: sum.negative + row.negative }), { texts: 0, negative: 0 });
    const numbers = [["now.texts", count(all.texts)], ["now.negative", count(all.negative)], ["now.entities", count(found.entities.length)],
      ["now.alarms", count(found.open_alarms)], ["now.until", found.span ? moment(found.span[1], true) : "–"], ["now.model", found.model]];
    figures.replaceChildren(...numbers.map(([name, value]) => el("div", { class: "number" }, el("b", { text: value }), el("span", { t: name }))));
    table.replaceChildren(...found.entities.map((row) => el("tr", { "data-entity": row.entity },
      el("td", {}, el("button", { type: "button", class: "link", text: row.name === row.entity ? row.entity : `${row.entity} ${row.name}`, on: { click: () => shared.go("trends", { entity: row.entity }) } })),
      el("td", { text: count(row.texts) }), el("td", { text: count(row.negative) }), mean(row), el("td", { text: score(row.before.mean) }))));
    topics.replaceChildren(...found.topics.filter((row) => row.topic).map((row) => el("tr", {},
      el("td", {}, el("button", { type: "button", class: "link", text: row.topic, on: { click: () => shared.go("trends", { topic: row.topic }) } })),
      el("td", { text: count(row.texts) }), el("td", { text: count(row.negative) }), mean(row))));
  }

  function mean(row) {
    return el("td", { title: "now.interval" }, el("b", { text: score(row.mean) }), el("span", { class: "hint interval", text: row.mean === null ? "" : `${score(row.low)} … ${score(row.high)}` }));
  }

  async function report() {
    try {
      const start = Date.parse(`${day.value}T00:00:00Z`) / 1000;
      const { send } = await import("./api.js");
      const page = await (await send("GET", `/v1/report?day=${start}`)).blob();
      const link = el("a", { download: `report-${day.value}.html` });
      link.href = URL.createObjectURL(page);
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (problem) {
      failed(problem);
    }
  }

  return {
    name: "now",
    root,
    show() {
      load();
      streaming?.abort();
      streaming = new AbortController();
      follow(() => `/v1/events?after=${last}`, (found) => {
        if (found.texts.length) last = found.texts[found.texts.length - 1].number;
        stream.prepend(...found.texts.toReversed().map((text) => item(text, one.open)));
        while (stream.children.length > SHOWN) stream.lastChild.remove();
        clearTimeout(stale);
        if (found.texts.length) stale = setTimeout(load, 1500);
      }, streaming.signal);
    },
    hide() {
      streaming?.abort();
      clearTimeout(stale);
    },
  };
}
