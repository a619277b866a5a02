// Alarms: why, since when, the texts behind each in groups; acknowledged and commented on.
import { get, post } from "./api.js";
import { item, moment, score } from "./chart.js";
import { button, count, el } from "./dom.js";
import { failed } from "./frame.js";
import { reader } from "./reader.js";

export function alarmsPanel(shared) {
  let state = "open";
  let chosen = null;
  const filters = el("div", { class: "row" }, ...["open", "acknowledged", ""].map((name) =>
    button(`alarms.${name || "all"}`, () => ((state = name), load()), { "data-state": name, class: "quiet" })));
  const list = el("div", { class: "list", id: "alarms" });
  const detail = el("section", { class: "card stack", id: "alarm", hidden: true });
  const one = reader(shared);
  const root = el("div", { class: "with-list" }, el("section", { class: "card stack" }, filters, list), el("div", { class: "stack" }, one.root, detail));
  const name = (alarm) => [alarm.entity, alarm.topic].filter(Boolean).join(" · ");

  async function load() {
    try {
      const { data } = await get(`/v1/alarms?${new URLSearchParams({ state })}`);
      for (const filter of filters.children) filter.setAttribute("aria-pressed", filter.dataset.state === state);
      list.replaceChildren(...data.map((alarm) => el("button", { type: "button", class: "item", "data-alarm": alarm.number, "aria-current": alarm.number === chosen, on: { click: () => open(alarm.number) } },
        el("span", { class: "item-head" }, name(alarm) ? el("b", { text: name(alarm) }) : el("b", { t: "trends.all" }), el("span", { text: moment(alarm.time) })),
        el("span", { class: "item-head" }, el("span", { class: `badge ${alarm.state}`, t: `kind.${alarm.kind}` }),
          alarm.incident !== alarm.number ? el("span", { t: "alarms.part", v: { number: alarm.incident } }) : null))));
      if (!data.length) list.append(el("p", { class: "hint", t: "alarms.none" }));
    } catch (problem) {
      failed(problem);
    }
  }

  async function open(number) {
    try {
      show(await get(`/v1/alarms/${number}`));
    } catch (problem) {
      failed(problem);
    }
  }

  function show(alarm) {
    chosen = alarm.number;
    const figures = alarm.figures;
    const text = el("textarea", { id: "comment", rows: 2, maxlength: 4000, placeholder: "alarms.comment", label: "alarms.comment" });
    const act = async (path, body) => {
      try {
        show(await post(`/v1/alarms/${alarm.number}/${path}`, body));
        await load();
      } catch (problem) {
        failed(problem);
      }
    };
    const reason = alarm.kind === "surge" ? "alarms.surge" : "alarms.shift";
    detail.hidden = false;
    detail.replaceChildren(
      el("h3", {}, name(alarm) ? el("span", { text: name(alarm) }) : el("span", { t: "trends.all" })),
      el("p", { id: "reason", t: reason, v: { texts: count(figures.texts), negative: count(figures.negative), expected: figures.expected_negative.toFixed(1), mean: score(figures.mean), usual: score(figures.usual_mean) } }),
      el("p", { class: "hint", t: "alarms.when", v: { since: moment(alarm.since), time: moment(alarm.time), statistic: figures.statistic.toFixed(1), threshold: figures.threshold.toFixed(1) } }),
      el("div", { class: "row" },
        alarm.state === "open" ? button("alarms.acknowledge", () => act("acknowledge"), { class: "main", id: "acknowledge" })
          : el("span", { class: "badge", t: "alarms.seen", v: { agent: alarm.agent, time: moment(alarm.acknowledged) } }),
        button("alarms.trend", () => shared.go("trends", { entity: alarm.entity, topic: alarm.topic }), {})),
      alarm.related.length ? el("div", { class: "row" }, el("span", { class: "hint", t: "alarms.related" }),
        ...alarm.related.map((other) => el("button", { type: "button", class: "chip", text: `${name(other) || "*"} · ${other.number}`, on: { click: () => open(other.number) } }))) : "",
      el("h2", { t: "alarms.texts" }),
      ...alarm.groups.map((group, place) => el("details", { class: "group", open: place === 0 || alarm.groups.length < 4 },
        el("summary", {}, el("b", { text: count(group.texts.length) }), ` ${group.words.join(" · ")}`), ...group.texts.slice(0, 20).map((each) => item(each, one.open)))),
      el("h2", { t: "alarms.comments" }),
      el("ul", { class: "comments", id: "comments" }, ...alarm.comments.map((comment) => el("li", {}, el("b", { text: comment.agent }), ` ${moment(comment.created)} `, el("span", { text: comment.text })))),
      el("div", { class: "row" }, text, button("alarms.say", () => text.value.trim() && act("comments", { text: text.value }), { id: "say" })));
    for (const row of list.querySelectorAll(".item")) row.setAttribute("aria-current", Number(row.dataset.alarm) === chosen);
  }

  return {
    name: "alarms",
    root,
    async show(what) {
      if (what?.alarm) state = "";
      await load();
      if (what?.alarm ?? chosen) await open(what?.alarm ?? chosen);
    },
  };
}
