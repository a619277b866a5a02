// One text: the words that decided, coloured; what was told of it; a correction.
import { get, send } from "./api.js";
import { moment, score } from "./chart.js";
import { button, el, field, percent } from "./dom.js";
import { fail, failed } from "./frame.js";
import { say } from "./words.js";

const TONES = ["negative", "neutral", "positive"];

export function reader(shared) {
  const root = el("section", { class: "card stack", id: "reader", "aria-live": "polite", hidden: true });

  async function open(number, entity = "") {
    try {
      show(await get(`/v1/texts/${number}?${new URLSearchParams({ entity })}`));
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
        const changed = Object.fromEntries(towards.filter(({ code, select, told }) => select.value !== told || one.label?.entities[code]).map(({ code, select }) => [code, select.value]));
        await send("PUT", `/v1/texts/${one.number}/label`, { sentiment: tone.value, topic: shared.topics.length ? topic.value : null, entities: changed });
        show(await get(`/v1/texts/${one.number}`));
      } catch (problem) {
        failed(problem);
      }
    }, { id: "correct", class: "main" });
    const given = Object.entries(one.label?.entities ?? {}).map(([code, name]) => `${code} ${say(`tone.${name}`)}`).join(", ");
    if (one.label) said.append(el("span", { t: "reader.label", v: { sentiment: [one.label.sentiment ? say(`tone.${one.label.sentiment}`) : "", given].filter(Boolean).join("; "), state: say(`state.${one.label.state}`) } }));
    const towards = Object.entries(one.entities).map(([code, [negative, positive]]) => {
      const values = [negative, 1 - negative - positive, positive];
      const told = TONES[values.indexOf(Math.max(...values))];
      const select = el("select", { label: "reader.towards" }, ...TONES.map((name) => el("option", { value: name, t: `tone.${name}` })));
      select.dataset.entity = code;
      select.value = one.label?.entities[code] ?? told;
      const row = el("div", { class: "row towards", "data-entity": code },
        el("button", { type: "button", class: "chip", on: { click: () => shared.go("trends", { entity: code }) } }, el("b", { text: code }), ` ${score(positive - negative)}`),
        el("span", { class: `badge ${told}` }, el("span", { t: `tone.${told}` }), ` ${percent(Math.max(...values))}`),
        button("reader.why", () => open(one.number, one.about.entity === code ? "" : code), { class: "quiet", "aria-pressed": String(one.about.entity === code) }), select);
      return { code, told, select, row };
    });
    root.replaceChildren(
      el("div", { class: "item-head" }, el("span", { text: `${moment(one.time)} UTC · ${one.source}${one.author ? ` · ${one.author}` : ""}` }),
        button("reader.close", () => (root.hidden = true), { class: "quiet" })),
      el("p", { class: "reading", dir: "auto" }, ...one.pieces.map(piece)),
      el("p", { class: "hint", id: "about", t: one.about.entity ? "reader.words_towards" : "reader.words", v: { tone: say(`tone.${one.about.sentiment}`), entity: one.about.entity } }),
      one.network === null ? "" : el("p", { class: "hint", id: "network", t: one.network < 0 ? "reader.against" : "reader.for", v: { tone: say(`tone.${one.about.sentiment}`), weight: score(one.network) } }),
      el("div", { class: "row" }, ...[["negative", one.negative], ["neutral", neutral], ["positive", one.positive]].map(([name, value]) =>
        el("span", { class: `badge ${name}` }, el("span", { t: `tone.${name}` }), ` ${percent(value)}`)),
        one.topic ? el("span", { class: "badge", text: one.topic }) : null,
        one.repeated ? el("span", { class: "badge", t: "reader.repeated", v: { count: one.repeated } }) : null),
      ...towards.map(({ row }) => row),
      el("div", { class: "row" }, field("reader.tone", tone), shared.topics.length ? field("reader.topic", topic) : "", correct), said);
    fail(null);
  }

  return { root, open };
}
