// Lines over time: mean sentiment with its interval, texts as bars, what is usual, alarms, and a price on a scale of its own.
import { el } from "./dom.js";
import { say } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000;
const HEIGHT = 320;
const MIDDLE = 190; // above it sentiment and price, below it the number of texts; several lines have all of the height
const TICKS = 5;

function shape(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) {
    const title = document.createElementNS(SVG, "title");
    title.textContent = text;
    made.append(title);
  }
  return made;
}

const joined = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

/** The parts of a line without the gaps in it. */
function parts(points, value) {
  const found = [];
  let part = [];
  for (const point of points) {
    if (value(point) === null) {
      if (part.length) found.push(part);
      part = [];
    } else part.push(point);
  }
  if (part.length) found.push(part);
  return found;
}

/** A picture with its scales and what its lines mean. `series`: [{ name, points }]; one alone has bars, intervals, alarms and a price. */
export function chart(series, { alarms = [], price = null, label = "" } = {}) {
  const points = series[0].points;
  const picture = lines(series, { alarms, price, label });
  if (!points.length) return picture;
  const several = series.length > 1;
  const most = Math.max(...points.map((point) => point.texts));
  const scale = ["+1", "0", "−1", ...(several || !most ? [] : [String(most)])].map((text, place) => el("span", { text, class: ["plus", "none", "minus", "most"][place] }));
  const first = points[0].start;
  const length = points[points.length - 1].start - first;
  const ticks = points.length < TICKS ? 1 : TICKS;
  const times = Array.from({ length: ticks }, (_, place) => el("span", { text: moment(first + (ticks > 1 ? (place / (ticks - 1)) * length : 0), true) }));
  const meaning = ["mean", "texts", "negative", "usual", ...(price?.days?.length ? ["price"] : []), ...(alarms.length ? ["alarm"] : [])];
  return el("figure", { class: several ? "timechart several" : "timechart" }, el("div", { class: "framed" }, picture, el("div", { class: "scale", "aria-hidden": "true" }, ...scale)),
    el("div", { class: "times" }, ...times),
    several ? null : el("figcaption", { class: "meaning" }, ...meaning.map((name) => el("span", { class: `means ${name}` }, el("span", { t: `chart.${name}` })))));
}

function lines(series, { alarms, price, label }) {
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "timeline", role: "img", "aria-label": label });
  const points = series[0].points;
  if (!points.length) return picture;
  const first = points[0].start;
  const step = points.length > 1 ? points[1].start - points[0].start : 3600;
  const last = points[points.length - 1].start + step;
  const x = (time) => ((time - first) / (last - first)) * WIDTH;
  const room = series.length > 1 ? HEIGHT - 10 : MIDDLE;
  const y = (mean) => room / 2 - (mean * room) / 2 + 5;
  picture.append(shape("line", { x1: 0, x2: WIDTH, y1: y(0), y2: y(0), class: "zero" }));
  const most = Math.max(1, ...points.map((point) => Math.max(point.texts, point.usual ?? 0)));
  const bar = WIDTH / points.length;
  const height = (texts) => (texts / most) * (HEIGHT - MIDDLE - 20);
  if (series.length === 1) {
    for (const point of points) {
      if (!point.texts) continue;
      picture.append(shape("rect", { x: x(point.start), y: HEIGHT - height(point.texts), width: Math.max(1, bar * 0.8), height: height(point.texts), class: "volume" }));
      picture.append(shape("rect", { x: x(point.start), y: HEIGHT - height(point.negative), width: Math.max(1, bar * 0.8), height: height(point.negative), class: "volume negative" }));
    }
    const usual = points.filter((point) => point.usual !== null).map((point) => [x(point.start + step / 2), HEIGHT - height(point.usual)]);
    if (usual.length > 1) picture.append(shape("polyline", { points: joined(usual), class: "usual" }, say("chart.usual")));
    for (const part of parts(points, (point) => point.mean)) {
      const centre = (point) => x(point.start + step / 2);
      const band = [...part.map((point) => [centre(point), y(point.high)]), ...part.toReversed().map((point) => [centre(point), y(point.low)])];
      picture.append(shape("polygon", { points: joined(band), class: "band" }));
    }
  }
  series.forEach(({ name, points: own }, place) => {
    for (const part of parts(own, (point) => point.mean)) {
      const line = part.map((point) => [x(point.start + step / 2), y(point.mean)]);
      if (line.length === 1) line.push([line[0][0] + 2, line[0][1]]);
      picture.append(shape("polyline", { points: joined(line), class: "mean", "data-place": place }, name));
    }
  });
  if (price?.days?.length) {
    const seen = price.days.filter((day) => day.start >= first && day.start < last);
    const [low, high] = [Math.min(...seen.map((day) => day.close)), Math.max(...seen.map((day) => day.close))];
    const level = (close) => MIDDLE - 5 - ((close - low) / (high - low || 1)) * (MIDDLE - 15);
    picture.append(shape("polyline", { points: joined(seen.map((day) => [x(day.start + 43200), level(day.close)])), class: "price" }, say("chart.price")));
  }
  for (const alarm of alarms) {
    picture.append(shape("line", { x1: x(alarm.time), x2: x(alarm.time), y1: 0, y2: HEIGHT, class: "alarm" }, `${say(`kind.${alarm.kind}`)} ${moment(alarm.time)}`));
  }
  return picture;
}

export function moment(seconds, short = false) {
  const options = short ? { dateStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" };
  return new Date(1000 * seconds).toLocaleString(document.documentElement.lang, { ...options, timeZone: "UTC" });
}

export function score(value) {
  return value === null || value === undefined ? "–" : `${value > 0 ? "+" : ""}${value.toFixed(2)}`;
}

/** A text as an item of a list; `open` is called with it. */
export function item(one, open) {
  const { negative, positive } = one.said ?? one;
  const tone = negative >= 0.5 ? "negative" : positive >= 0.5 ? "positive" : "neutral";
  return el("button", { type: "button", class: "item", "data-number": one.number, on: { click: () => open(one.number) } },
    el("span", { class: "item-head" }, el("span", { text: `${moment(one.time)} · ${one.source}` }),
      el("span", {}, el("span", { class: `badge ${tone}`, t: `tone.${tone}` }), ...(one.original ? [el("span", { class: "badge", t: "repeat" })] : []),
        ...(one.late ? [el("span", { class: "badge", t: "late" })] : []))),
    el("span", { class: "item-text", dir: "auto", text: [one.title, one.text].filter(Boolean).join(" · ").slice(0, 300) }),
    el("span", { class: "item-head" }, el("span", { text: Object.keys(one.entities).slice(0, 8).join(", ") }), el("span", { text: one.topic })));
}
