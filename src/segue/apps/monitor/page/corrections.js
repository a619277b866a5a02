// Labels that somebody corrected: accepted or rejected by an operator before they are learned.
import { get, send } from "./api.js";
import { score } from "./chart.js";
import { button, el } from "./dom.js";
import { failed } from "./frame.js";

export function correctionsPanel(shared) {
  const list = el("div", { id: "corrections" });
  const root = el("div", { class: "stack" }, el("p", { class: "hint", t: "corrections.about" }), list);

  async function load() {
    try {
      const { data } = await get("/v1/reviews");
      list.replaceChildren(...data.map(proposal));
      if (!data.length) list.append(el("p", { class: "card missing", t: "corrections.none" }));
    } catch (problem) {
      failed(problem);
    }
  }

  function proposal(one) {
    const decide = async (accepted) => {
      try {
        await send("PUT", `/v1/reviews/${one.text}`, { accepted });
        await load();
      } catch (problem) {
        failed(problem);
      }
    };
    return el("section", { class: "card stack", "data-text": one.text },
      el("p", { dir: "auto", text: [one.about.title, one.about.text].filter(Boolean).join(" · ").slice(0, 1000) }),
      el("p", { class: "hint" }, el("span", { t: `tone.${one.about.sentiment}` }), ` ${one.about.topic} → `, one.sentiment ? el("b", { t: `tone.${one.sentiment}` }) : "", ` ${one.topic ?? ""} · ${one.agent}`),
      ...Object.entries(one.entities).map(([code, name]) => el("p", { class: "hint", "data-entity": code }, el("b", { text: code }), ` ${score(one.about.entities[code]?.reduce((negative, positive) => positive - negative))} → `, el("b", { t: `tone.${name}` }))),
      shared.role === "operator" ? el("div", { class: "row" }, button("corrections.accept", () => decide(true), { class: "main" }), button("corrections.reject", () => decide(false))) : "");
  }

  return { name: "corrections", root, show: load };
}
