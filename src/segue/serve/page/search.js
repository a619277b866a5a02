// Lines sorted by a query: by the embeddings of a language model, or by a model fine-tuned for ranking.
import { post } from "./api.js";
import { bar, button, el, field, modelChoice, onEnter, put } from "./dom.js";

const AT_ONCE = 64;

export function searchPanel({ fail, failed, example, compareLanguages }) {
  let models = [];
  let running = null;
  const vectors = new Map(); // by model and text: another query embeds only itself
  const model = modelChoice();
  const query = el("input", { type: "search", id: "query" });
  const lines = el("textarea", { id: "lines", rows: 14, placeholder: "search.placeholder" });
  const go = button("search.go", search, { class: "main", id: "search" });
  const stop = button("stop", () => running?.abort(), { class: "danger", disabled: true });
  const state = el("p", { class: "hint", "aria-live": "polite" });
  const result = el("div", { class: "result", id: "found" }, el("p", { class: "empty", t: "search.empty" }));
  const root = el("div", { class: "halves" },
    el("section", { class: "card composer" }, field("model", model), field("search.query", query), field("search.lines", lines),
      el("div", { class: "row" }, go, stop, el("span", { class: "gap" }),
        button("example", fillIn)), state),
    el("section", { class: "card sheet" }, result));
  onEnter(lines, search);
  query.addEventListener("keydown", (event) => event.key === "Enter" && !event.isComposing && search());

  function fillIn() {
    lines.value = example("lines", model.model());
    query.value = example("query", model.model());
    search();
  }

  async function search() {
    if (running) return;
    fail(null);
    compareLanguages(model.model(), lines.value);
    const texts = lines.value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!texts.length || !query.value.trim()) {
      put(state, "search.missing");
      return;
    }
    running = new AbortController();
    go.disabled = true;
    stop.disabled = false;
    try {
      const ranks = models.find((one) => one.id === model.value)?.task === "rank";
      show(await (ranks ? reranked(texts) : embedded(texts)), ranks);
      put(state, "search.done", { lines: texts.length });
    } catch (error) {
      put(state, "reason.stopped");
      failed(error);
    } finally {
      running = null;
      go.disabled = false;
      stop.disabled = true;
    }
  }

  async function reranked(texts) {
    const body = { model: model.value, query: query.value, documents: texts, return_documents: false };
    const found = await post("/v1/rerank", body, { signal: running.signal });
    return found.results.map((one) => [texts[one.index], one.relevance_score]);
  }

  async function embedded(texts) {
    const name = (text) => `${model.value}\n${text}`;
    const missing = [...new Set([query.value, ...texts])].filter((text) => !vectors.has(name(text)));
    for (let start = 0; start < missing.length; start += AT_ONCE) {
      put(state, "search.reading", { done: start, all: missing.length });
      const part = missing.slice(start, start + AT_ONCE);
      const found = await post("/v1/embeddings", { model: model.value, input: part }, { signal: running.signal });
      found.data.forEach((one, place) => vectors.set(name(part[place]), one.embedding));
    }
    const wanted = vectors.get(name(query.value));
    return texts.map((text) => [text, dot(wanted, vectors.get(name(text)))]).sort((a, b) => b[1] - a[1]);
  }

  function show(found, ranks) {
    const values = found.map(([, score]) => score);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const width = (score) => (high > low ? 0.08 + (0.92 * (score - low)) / (high - low) : 1);
    result.replaceChildren(el("p", { class: "hint", t: ranks ? "search.by_score" : "search.by_cosine" }),
      ...found.map(([text, score]) => bar(text, width(score), score.toFixed(3))));
  }

  return {
    name: "search",
    root,
    ability: "embeddings",
    tasks: ["rank"],
    update(all) {
      models = all.filter((one) => one.abilities.includes("embeddings") || one.task === "rank");
      model.refill(models);
    },
    focus: () => query.focus(),
  };
}

function dot(first, second) {
  return first.reduce((sum, value, place) => sum + value * second[place], 0);
}
