// Gaps in a text, filled by an XLNet.
import { post } from "./api.js";
import { button, el, field, modelChoice, onEnter } from "./dom.js";
import { details, legend, shown, tokenElement, tokenKeys } from "./surprise.js";

const GAP = "___";

export function gapsPanel({ fail, failed, example, compareLanguages }) {
  let running = null;
  const model = modelChoice();
  const text = el("textarea", { id: "gap-text", rows: 5, label: "gaps.text", placeholder: "gaps.placeholder" });
  const length = el("input", { type: "number", min: 1, max: 100, value: 2 });
  const order = el("select", {}, ...["left_to_right", "right_to_left", "surest_first", "random"].map((name) =>
    el("option", { value: name, t: `order.${name}` })));
  const temperature = el("input", { type: "number", min: 0, max: 10, step: 0.1, value: 0 });
  const go = button("gaps.go", fill, { class: "main", id: "fill" });
  const stop = button("stop", () => running?.abort(), { class: "danger", disabled: true });
  const result = el("div", { class: "paper", id: "filled", "aria-live": "polite" }, el("p", { class: "empty", t: "gaps.empty" }));
  const steps = el("ol", { class: "chips" });
  const inspector = el("div", { class: "inspector" }, el("p", { class: "hint", t: "token.none" }));
  const side = el("section", { class: "card" }, el("h2", { t: "token" }), legend(), inspector);
  const main = el("div", { class: "stack" },
    el("section", { class: "card composer" }, text,
      el("div", { class: "row" }, go, stop, button("gaps.insert", insert), el("span", { class: "gap" }),
        button("example", () => ((text.value = example("gaps", model.model())), fill()))),
      el("div", { class: "settings" }, field("model", model), field("gaps.length", length), field("gaps.order", order),
        field("write.temperature", temperature))),
    el("section", { class: "card sheet" }, result, steps));
  onEnter(text, fill);
  tokenKeys(main, (token) => inspector.replaceChildren(...details(token.piece, {})));

  function insert() {
    text.setRangeText(GAP, text.selectionStart, text.selectionEnd, "end");
    text.focus();
  }

  async function fill() {
    if (running) return;
    fail(null);
    compareLanguages(model.model(), text.value);
    running = new AbortController();
    go.disabled = true;
    stop.disabled = false;
    try {
      const body = { model: model.value, text: text.value, gap: GAP, length: Number(length.value) || 1, order: order.value, logprobs: 5 };
      if (Number(temperature.value) > 0) body.temperature = Number(temperature.value);
      show(text.value.split(GAP), await post("/v1/infill", body, { signal: running.signal }));
    } catch (error) {
      failed(error);
    } finally {
      running = null;
      go.disabled = false;
      stop.disabled = true;
    }
  }

  /** Shows the text with its gaps filled, and each position in the order in which it was filled. */
  function show(parts, found) {
    const pieces = found.tokens.map((one) => ({ ...one, text: shown(one.token), ids: [one.id] }));
    result.replaceChildren();
    parts.forEach((part, number) => {
      result.append(el("span", { text: part }));
      const gap = found.gaps[number];
      if (gap === undefined) return;
      if (gap.startsWith(" ") && part && !/\s$/.test(part)) result.append(" ");
      result.append(el("mark", { class: "filled", text: gap.trim() || gap }));
    });
    steps.replaceChildren(...pieces.map((piece) => el("li", {}, tokenElement(piece))));
    steps.querySelector(".token")?.setAttribute("tabindex", "0");
  }

  return {
    name: "gaps",
    root: el("div", { class: "with-side" }, main, el("aside", { class: "stack side" }, side)),
    ability: "infill",
    update: (all) => model.refill(all.filter((one) => one.abilities.includes("infill"))),
    focus: () => text.focus(),
  };
}
