// Several entities side by side: mean sentiment over time, and their figures.
import { get } from "./api.js";
import { chart, score } from "./chart.js";
import { button, count, el, field } from "./dom.js";
import { failed } from "./frame.js";

const DAY = 86400;
const MOST = 6;

export function comparePanel(shared) {
  const given = el("input", { id: "compared", placeholder: "compare.hint" });
  const days = el("select", { id: "compare-days" }, ...[14, 90, 365, 730].map((number) => el("option", { value: number, t: `days.${number}` })));
  days.value = 90;
  const picture = el("div", { id: "comparison" });
  const rows = el("tbody", { id: "compare-rows" });
  const root = el("section", { class: "card stack" },
    el("div", { class: "settings" }, field("compare.entities", given), field("now.days", days)), el("div", { class: "row" }, button("compare.show", draw, { class: "main", id: "compare" })),
    picture, el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...["now.entity", "now.texts", "now.negative", "now.mean", "compare.alarms"].map((name) => el("th", { t: name })))), rows)));
  given.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && draw());
  days.addEventListener("change", draw);

  async function draw() {
    const codes = [...new Set(given.value.split(/[\s,，、]+/).filter(Boolean))].slice(0, MOST);
    try {
      const bounds = { start: shared.end - Number(days.value) * DAY, end: shared.end + 1 };
      const found = await Promise.all(codes.map((entity) => get(`/v1/timeline?${new URLSearchParams({ entity, ...bounds })}`)));
      picture.replaceChildren(codes.length ? chart(found.map((one) => ({ name: one.entity, points: one.points })), { label: codes.join(", ") }) : "");
      rows.replaceChildren(...found.map((one, place) => {
        const texts = one.points.reduce((sum, point) => sum + point.texts, 0);
        const total = one.points.reduce((sum, point) => sum + (point.mean ?? 0) * point.texts, 0);
        const negative = one.points.reduce((sum, point) => sum + point.negative, 0);
        return el("tr", {}, el("td", {}, el("span", { class: "swatch-line", "data-place": place }), el("button", { type: "button", class: "link", text: one.entity, on: { click: () => shared.go("trends", { entity: one.entity }) } })),
          el("td", { text: count(texts) }), el("td", { text: count(negative) }), el("td", { text: score(texts ? total / texts : null) }), el("td", { text: count(one.alarms.length) }));
      }));
    } catch (problem) {
      failed(problem);
    }
  }

  return {
    name: "compare",
    root,
    async show() {
      try {
        if (!given.value) {
          const { entities, end } = await get("/v1/overview?days=90&limit=3");
          shared.end = end;
          given.value = entities.map((row) => row.entity).join(", ");
        }
      } catch (problem) {
        failed(problem);
      }
      await draw();
    },
  };
}
