// The current load of the server: tokens per second, sessions, memory.
import { get, send } from "./api.js";
import { button, bytes, count, el, put, putText } from "./dom.js";
import { say } from "./words.js";

const EVERY = 1000;
const POINTS = 90;
const SVG = "http://www.w3.org/2000/svg";

export function statusPanel({ fail, failed }) {
  let timer = null;
  let before = null;
  const rates = [];
  const figure = (key) => {
    const value = el("b", { text: "–" });
    return { value, card: el("div", { class: "card number" }, value, el("span", { t: key })) };
  };
  const figures = Object.fromEntries(["rate", "writing", "requests", "sessions", "memory", "uptime"].map((name) => [name, figure(`status.${name}`)]));
  const chart = document.createElementNS(SVG, "svg");
  chart.setAttribute("class", "chart");
  chart.setAttribute("viewBox", `0 0 ${POINTS} 30`);
  chart.setAttribute("preserveAspectRatio", "none");
  const area = chart.appendChild(document.createElementNS(SVG, "polygon"));
  const curve = chart.appendChild(document.createElementNS(SVG, "polyline"));
  const most = el("span", { class: "hint" });
  const models = el("tbody");
  const sessions = el("tbody");
  const about = el("p", { class: "hint" });
  const root = el("div", { class: "stack" },
    el("div", { class: "numbers" }, ...Object.values(figures).map((one) => one.card)),
    el("section", { class: "card" }, el("div", { class: "row" }, el("h2", { t: "status.chart" }), el("span", { class: "gap" }), most), chart),
    el("section", { class: "card scroll" }, el("h2", { t: "status.models" }), el("table", {}, heads("name", "kind", "parameters", "reach", "abilities"), models)),
    el("section", { class: "card scroll" }, el("h2", { t: "status.own" }), el("table", {}, heads("id", "model", "tokens", "bytes", "place", "nothing"), sessions)),
    about);

  function heads(...names) {
    return el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { t: `column.${name}` }))));
  }

  async function look() {
    try {
      const load = await get("/load");
      const now = performance.now();
      const tokens = load.tokens_written + load.tokens_read;
      if (before) rates.push(Math.max(0, ((tokens - before.tokens) / (now - before.now)) * 1000));
      if (rates.length > POINTS) rates.shift();
      before = { tokens, now };
      putText(figures.rate.value, rates.length ? count(Math.round(rates.at(-1))) : "–");
      putText(figures.writing.value, count(load.writing));
      putText(figures.requests.value, count(load.requests));
      putText(figures.sessions.value, count(load.sessions));
      putText(figures.memory.value, bytes(load.session_bytes));
      putText(figures.uptime.value, lasting(load.uptime));
      draw();
      const own = await get("/v1/sessions?limit=50");
      sessions.replaceChildren(...own.data.map(row));
      fail(null);
    } catch (error) {
      before = null;
      failed(error);
    }
    if (timer !== null) timer = setTimeout(look, EVERY);
  }

  function draw() {
    const top = Math.max(1, ...rates);
    const at = (rate, place) => `${POINTS - rates.length + place},${(29 - (27 * rate) / top).toFixed(2)}`;
    const points = rates.map(at).join(" ");
    curve.setAttribute("points", points);
    area.setAttribute("points", rates.length ? `${POINTS - rates.length},30 ${points} ${POINTS - 1},30` : "");
    put(most, "status.most", { rate: count(Math.round(top)) });
  }

  function row(session) {
    const remove = button("delete", () => send("DELETE", `/v1/sessions/${session.id}`).catch(failed), { class: "quiet" });
    return el("tr", {}, el("td", {}, el("code", { text: `${session.id.slice(0, 10)}…` })), el("td", { text: session.model }),
      el("td", { class: "right", text: count(session.tokens) }), el("td", { class: "right", text: bytes(session.bytes) }),
      el("td", { t: `place.${session.place}` }), el("td", { class: "right" }, remove));
  }

  return {
    name: "status",
    root,
    update(all) {
      models.replaceChildren(...all.map((one) => el("tr", {}, el("td", {}, el("b", { text: one.id })), el("td", one.task ? { text: one.task } : { t: `objective.${one.objective}` }),
        el("td", { class: "right", text: `${(one.parameters / 1e6).toFixed(1)} M` }),
        el("td", { class: "right", text: one.memory_length === null ? "–" : count(one.memory_length) }), el("td", { text: one.abilities.join(", ") }))));
      get("/version").then(({ version }) => put(about, "status.about", { version })).catch(() => {});
    },
    show() {
      timer = 0;
      before = null;
      look();
    },
    hide() {
      clearTimeout(timer);
      timer = null;
    },
    focus: () => {},
  };
}

function lasting(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  if (hours >= 48) return say("lasting.days", { days: Math.floor(hours / 24) });
  if (hours) return say("lasting.hours", { hours, minutes });
  return minutes ? say("lasting.minutes", { minutes }) : say("lasting.seconds", { seconds: Math.floor(seconds) });
}
