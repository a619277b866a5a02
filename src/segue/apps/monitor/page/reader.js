// One text: the words that decided, coloured; what was told of it; a correction.
import { get, send } from "./api.js";
import { moment, score } from "./chart.js";
import { button, el, field, percent } from "./dom.js";
import { fail, failed } from "./frame.js";

const TONES = ["negative", "neutral", "positive"];

export function reader(shared) {
  const root = el("section", { class: "card stack", id: "reader", "aria-live": "polite", hidden: true });

  async function open(number) {
    try {
      show(await get(`/v1/texts/${number}`));
      root.hidden = false;
      root.scrollIntoView({ block: "nearest" });
    } catch (problem) {
      failed(problem);
    }
  }

  function piece([text, weight]) {
    const heat = Math.min(9, Math.round(Math.abs(weight) * 9));
    return heat ? el("span", { class: `word ${weight > 0 ? "for" : "against"}`, "data-heat": heat, text }) : document.createTextNode(text);
  }

  function show(one) {
    const neutral = Math.max(0, 1 - one.negative - one.positive);
    const tone = el("select", { id: "new-tone" }, ...TONES.map((name) => el("option", { value: name, t: `tone.${name}` })));
    tone.value = one.label?.sentiment ?? one.sentiment;
    const topic = el("select", { id: "new-topic" }, ...shared.topics.map((name) => el("option", { value: name, text: name })));
    topic.value = one.label?.topic ?? one.topic;
    const said = el("p", { class: "hint", id: "corrected" });
    const correct = button("reader.correct", async () => {
      try {
        await send("PUT", `/v1/texts/${one.number}/label`, { sentiment: tone.value, topic: shared.topics.length ? topic.value : null });
        show(await get(`/v1/texts/${one.number}`));
      } catch (problem) {
        failed(problem);
      }
    }, { id: "correct", class: "main" });
    if (one.label) said.append(el("span", { t: "reader.label", v: { sentiment: one.label.sentiment ?? "", state: one.label.state } }));
    const entities = Object.entries(one.entities).map(([code, [negative, positive]]) =>
      el("button", { type: "button", class: "chip", on: { click: () => shared.go("trends", { entity: code }) } }, el("b", { text: code }), ` ${score(positive - negative)}`));
    root.replaceChildren(
      el("div", { class: "item-head" }, el("span", { text: `${moment(one.time)} UTC · ${one.source}${one.author ? ` · ${one.author}` : ""}` }),
        button("reader.close", () => (root.hidden = true), { class: "quiet" })),
      el("p", { class: "reading", dir: "auto" }, ...one.pieces.map(piece)),
      el("p", { class: "hint", t: "reader.words", v: { tone: one.sentiment } }),
      one.network === null ? "" : el("p", { class: "hint", id: "network", t: one.network < 0 ? "reader.against" : "reader.for", v: { tone: one.sentiment, weight: score(one.network) } }),
      el("div", { class: "row" }, ...[["negative", one.negative], ["neutral", neutral], ["positive", one.positive]].map(([name, value]) =>
        el("span", { class: `badge ${name}` }, el("span", { t: `tone.${name}` }), ` ${percent(value)}`)),
        one.topic ? el("span", { class: "badge", text: one.topic }) : null,
        one.repeated ? el("span", { class: "badge", t: "reader.repeated", v: { count: one.repeated } }) : null),
      entities.length ? el("div", { class: "row" }, ...entities) : null ?? "",
      el("div", { class: "row" }, field("reader.tone", tone), shared.topics.length ? field("reader.topic", topic) : "", correct), said);
    fail(null);
  }

  return { root, open };
}
