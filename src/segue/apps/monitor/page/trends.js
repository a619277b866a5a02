// One entity or topic over time, its alarms, and the texts of any moment.
import { get, send } from "./api.js";
import { chart, item, moment, score } from "./chart.js";
import { button, count, el, field, percent } from "./dom.js";
import { failed } from "./frame.js";
import { reader } from "./reader.js";

const DAY = 86400;

export function trendsPanel(shared) {
  let line = null;
  const entity = el("input", { id: "entity", list: "entity-names", placeholder: "trends.all" });
  const names = el("datalist", { id: "entity-names" });
  const topic = el("select", { id: "topic" });
  const days = el("select", { id: "trend-days" }, ...[7, 14, 90, 365, 730].map((number) => el("option", { value: number, t: `days.${number}` })));
  days.value = 90;
  const tone = el("select", { id: "tone" }, ...["", "negative", "neutral", "positive"].map((name) => el("option", { value: name, t: `tone.${name || "any"}` })));
  const picture = el("div", { id: "timeline" });
  const cursor = el("input", { type: "range", id: "cursor", min: 0, value: 0, label: "trends.cursor" });
  const here = el("p", { class: "hint", id: "here" });
  const price = el("p", { class: "hint", id: "price" });
  const alarms = el("div", { class: "row", id: "trend-alarms" });
  const inside = el("div", { class: "scroll", id: "within" });
  const list = el("div", { class: "list", id: "texts" });
  const one = reader(shared);
  const more = button("trends.more", () => load(true), { id: "more" });
  let at = null;
  const root = el("div", { class: "stack" },
    el("section", { class: "card stack" },
      el("div", { class: "settings" }, field("trends.entity", entity), field("trends.topic", topic), field("now.days", days), names),
      picture, cursor, here, price, alarms, inside),
    one.root,
    el("section", { class: "card stack" },
      el("div", { class: "row" }, field("trends.tone", tone), button("trends.csv", () => save("csv")), button("trends.parquet", () => save("parquet"))), list, more));
  for (const input of [entity, topic, days]) input.addEventListener("change", draw);
  tone.addEventListener("change", () => load());
  cursor.addEventListener("input", () => {
    at = line?.points[Number(cursor.value)] ?? null;
    tell();
    load();
  });

  const query = () => ({ entity: entity.value.trim(), topic: topic.value });
  const window = () => ({ start: shared.end - Number(days.value) * DAY, end: shared.end + 1 });

  async function draw() {
    try {
      line = await get(`/v1/timeline?${new URLSearchParams({ ...query(), ...window() })}`);
      at = null;
      cursor.max = Math.max(0, line.points.length - 1);
      cursor.value = cursor.max;
      picture.replaceChildren(chart([{ name: entity.value, points: line.points }], { alarms: line.alarms, price: line.price, label: entity.value }));
      alarms.replaceChildren(...line.alarms.slice(0, 12).map((alarm) => el("button", { type: "button", class: "chip alarm-chip", on: { click: () => shared.go("alarms", { alarm: alarm.number }) } },
        el("span", { t: `kind.${alarm.kind}` }), ` ${moment(alarm.time, true)}`)));
      tell();
      beside();
      await Promise.all([divide(), load()]);
    } catch (problem) {
      failed(problem);
    }
  }

  function tell() {
    const points = at ? [at] : line.points;
    const texts = points.reduce((sum, point) => sum + point.texts, 0);
    const negative = points.reduce((sum, point) => sum + point.negative, 0);
    const total = points.reduce((sum, point) => sum + (point.mean ?? 0) * point.texts, 0);
    const time = at ? moment(at.start, line.step === DAY) : `${moment(points[0]?.start ?? 0, true)} – ${moment(points.at(-1)?.start ?? 0, true)}`;
    const usual = at?.usual ?? null;
    here.replaceChildren(el("span", { t: usual === null ? "trends.here" : "trends.here_usual", v: { time, texts: count(texts), negative: count(negative),
      mean: score(texts ? total / texts : null), usual: usual?.toFixed(1) } }));
  }

  /** The topics of the entity, or the entities of the topic; where both are chosen there is nothing left to divide. */
  async function divide() {
    inside.replaceChildren();
    const asked = query();
    if (asked.entity && asked.topic) return;
    const { data } = await get(`/v1/within?${new URLSearchParams({ ...asked, ...window(), limit: 20 })}`);
    if (!data.length) return;
    const by = asked.topic ? "entity" : "topic";
    inside.append(el("table", {}, el("thead", {}, el("tr", {}, ...[`now.${by}`, "now.texts", "now.negative", "now.mean", "now.before"].map((name) => el("th", { t: name })))),
      el("tbody", {}, ...data.map((row) => el("tr", { "data-name": row[by] },
        el("td", {}, el("button", { type: "button", class: "link", text: row[by], on: { click: () => ((by === "topic" ? topic : entity).value = row[by], draw()) } })),
        el("td", { text: count(row.texts) }), el("td", { text: count(row.negative) }), el("td", { text: score(row.mean) }), el("td", { text: score(row.before.mean) }))))));
  }

  function beside() {
    const found = line.price;
    price.hidden = !found;
    if (!found) return;
    const shown = (one) => (one ? `${score(one.correlation)} (p = ${one.p_value.toFixed(3)}, ${one.days})` : "–");
    price.replaceChildren(el("span", { t: "trends.price", v: { same: shown(found.same_day), next: shown(found.next_day) } }));
  }

  async function load(further = false) {
    try {
      const bounds = at ? { start: at.start, before: at.start + line.step } : { start: window().start, before: window().end };
      if (further && list.dataset.time) Object.assign(bounds, { before: list.dataset.time, before_number: list.dataset.number });
      const { data } = await get(`/v1/texts?${new URLSearchParams({ ...query(), sentiment: tone.value, limit: 30, ...bounds })}`);
      if (!further) list.replaceChildren();
      list.append(...data.map((text) => item(text, (number) => one.open(number, query().entity))));
      if (!list.children.length) list.append(el("p", { class: "hint", t: "trends.none" }));
      more.hidden = data.length < 30;
      if (data.length) Object.assign(list.dataset, { time: data.at(-1).time, number: data.at(-1).number });
    } catch (problem) {
      failed(problem);
    }
  }

  async function save(format) {
    try {
      const found = await (await send("GET", `/v1/export?${new URLSearchParams({ ...query(), ...window(), format })}`)).blob();
      const link = el("a", { download: `texts.${format}` });
      link.href = URL.createObjectURL(found);
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (problem) {
      failed(problem);
    }
  }

  return {
    name: "trends",
    root,
    async show(what) {
      const chosen = what?.topic ?? topic.value;
      topic.replaceChildren(el("option", { value: "", t: "trends.any" }), ...shared.topics.map((name) => el("option", { value: name, text: name })));
      topic.value = what ? what.topic ?? "" : chosen;
      if (what) entity.value = what.entity ?? "";
      one.root.hidden = true;
      try {
        const { entities, end } = await get("/v1/overview?days=90&limit=500");
        shared.end = end;
        names.replaceChildren(...entities.map((row) => el("option", { value: row.entity, text: row.name })));
      } catch (problem) {
        failed(problem);
      }
      await draw();
    },
  };
}
