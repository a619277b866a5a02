// A document for a fine-tuned model: its class, its entities, the answer in it.
import { post } from "./api.js";
import { bar, button, el, field, modelChoice, onEnter, percent } from "./dom.js";
import { explain } from "./explanation.js";

const TASKS = ["classify", "pair", "regress", "tag", "answer", "choose", "generate"];

export function readPanel({ fail, failed, example, compareLanguages }) {
  let running = null;
  const model = modelChoice();
  const text = el("textarea", { id: "document", rows: 8, label: "read.document", placeholder: "read.placeholder" });
  const second = el("textarea", { id: "second", rows: 3 });
  const question = el("input", { type: "text", id: "question" });
  const options = el("textarea", { id: "options", rows: 4 });
  const fields = {
    second: field("read.second", second), question: field("read.question", question), options: field("read.options", options) };
  const go = button("read.go", ask, { class: "main", id: "ask" });
  const why = button("explain.words", () => explain(model.value, row()), { id: "why" });
  const stop = button("stop", () => running?.abort(), { class: "danger", disabled: true });
  const result = el("div", { class: "result", id: "result", "aria-live": "polite" }, el("p", { class: "empty", t: "read.empty" }));
  const root = el("div", { class: "halves" },
    el("section", { class: "card composer" }, field("model", model), text, ...Object.values(fields),
      el("div", { class: "row" }, go, stop, why, el("span", { class: "gap" }), button("example", fillIn))),
    el("section", { class: "card sheet" }, result));
  for (const input of [text, second, question, options]) onEnter(input, ask);
  question.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && ask());
  model.addEventListener("change", choose);

  function task() {
    return model.model()?.task;
  }

  function choose() {
    fields.second.hidden = !["pair", "regress"].includes(task());
    fields.question.hidden = !["answer", "choose"].includes(task());
    fields.options.hidden = task() !== "choose";
    why.hidden = !model.model()?.abilities.includes("explain");
    result.replaceChildren(el("p", { class: "empty", t: "read.empty" }));
  }

  function fillIn() {
    const found = (name) => example(name, model.model());
    text.value = found(task() === "tag" || task() === "answer" || task() === "choose" ? "story" : "review");
    second.value = task() === "pair" ? found("second") : "";
    question.value = found("question");
    options.value = found("options");
    ask();
  }

  function row() {
    const lines = options.value.split("\n").filter((line) => line.trim());
    switch (task()) {
      case "pair": return { first: text.value, second: second.value };
      case "regress": return second.value ? { text: text.value, second: second.value } : { text: text.value };
      case "answer": return { context: text.value, question: question.value };
      case "choose": return { context: text.value, question: question.value, options: lines };
      case "generate": return { source: text.value };
      default: return { text: text.value };
    }
  }

  async function ask() {
    if (running) return;
    fail(null);
    compareLanguages(model.model(), text.value);
    running = new AbortController();
    go.disabled = true;
    stop.disabled = false;
    const [kind, given] = [task(), row()];
    try {
      const found = await post(`/v1/${kind}`, { model: model.value, input: given }, { signal: running.signal });
      result.replaceChildren(...show(kind, given, found.data[0]),
        el("p", { class: "hint", t: "read.tokens", v: { tokens: found.usage.prompt_tokens } }));
    } catch (error) {
      failed(error);
    } finally {
      running = null;
      go.disabled = false;
      stop.disabled = true;
    }
  }

  function show(kind, given, found) {
    switch (kind) {
      case "classify":
      case "pair": {
        const labels = model.model()?.labels ?? [];
        const order = found.probs.map((part, place) => [labels[place] ?? String(place), part]).sort((a, b) => b[1] - a[1]);
        return [el("h3", { text: found.label }), ...order.map(([name, part]) => bar(name, part, percent(part)))];
      }
      case "regress": return [el("p", { class: "figure", text: String(found.prediction) })];
      case "tag": return tagged(given.text, found.entities);
      case "answer": return answered(given.context, found);
      case "choose": return chosen(given.options, found);
      default: return [el("p", { class: "paper", text: found.prediction ?? JSON.stringify(found) })];
    }
  }

  function tagged(whole, entities) {
    const types = [...new Set(entities.map((one) => one.type))].sort();
    const marks = entities.map((one) => ({ ...one, tint: types.indexOf(one.type) % 6 }));
    return [highlighted(whole, marks), el("p", { class: "row" }, ...types.map((type, place) =>
      el("span", { class: "tag", "data-tint": place % 6, text: `${type} · ${entities.filter((one) => one.type === type).length}` }))),
      ...(types.length ? [] : [el("p", { class: "hint", t: "read.nothing" })])];
  }

  function answered(whole, found) {
    const inside = found.start !== null && found.start !== undefined && found.answer;
    const head = found.answer ? el("h3", { text: found.answer }) : el("h3", { t: "read.no_answer" });
    const best = (found.n_best ?? []).map((one) => bar(one.text ?? one.answer ?? "", one.probability, percent(one.probability)));
    return [head, highlighted(whole, inside ? [{ start: found.start, end: found.end, tint: 0, probability: found.probability }] : []), ...best];
  }

  function chosen(lines, found) {
    return lines.map((line, place) => {
      const part = Array.isArray(found.probabilities) ? found.probabilities[place] : Object.values(found.probabilities)[place];
      return bar(line, part, percent(part), { class: line === found.option ? "bar chosen" : "bar" });
    });
  }

  return {
    name: "read",
    root,
    tasks: TASKS,
    update(all) {
      const before = model.value;
      model.refill(all.filter((one) => TASKS.includes(one.task)));
      if (model.value !== before) choose();
    },
    focus: () => text.focus(),
  };
}

/** Returns a text with marked spans, given in characters; of overlapping spans, the first. */
function highlighted(whole, marks) {
  const characters = Array.from(whole);
  const made = el("div", { class: "paper" });
  let end = 0;
  for (const mark of [...marks].sort((a, b) => a.start - b.start)) {
    if (mark.start < end) continue;
    made.append(el("span", { text: characters.slice(end, mark.start).join("") }));
    const part = el("mark", { "data-tint": mark.tint, text: characters.slice(mark.start, mark.end).join("") });
    if (mark.type) part.append(el("small", { text: mark.type }));
    if (mark.probability !== undefined) part.setAttribute("title", percent(mark.probability));
    made.append(part);
    end = mark.end;
  }
  made.append(el("span", { text: characters.slice(end).join("") }));
  return made;
}
