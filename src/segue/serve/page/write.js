// Generation with a model: a growing text, and two alternative continuations from any of its tokens.
import { bytes, button, count, el, field, modelChoice, onEnter, put, putText } from "./dom.js";
import { deleteSessions, Line } from "./line.js";
import { bits, details, legend, reachable, tokenElement, tokenKeys } from "./surprise.js";

export function writePanel({ fail, failed, compareLanguages }) {
  let models = [];
  let line = null; // the text; while two continuations are compared, their common part is before `split`
  let ways = null;
  let split = 0;
  let running = null;
  let grown = []; // pieces that are not shown yet

  const model = modelChoice();
  const paper = el("div", { class: "paper", role: "group", label: "write.paper", tabindex: -1 });
  const columns = el("div", { class: "columns", hidden: true });
  const prompt = el("textarea", { id: "prompt", rows: 3, placeholder: "write.placeholder", label: "write.prompt" });
  const tokens = el("input", { type: "number", min: 1, value: 60, id: "tokens" });
  const temperature = el("input", { type: "number", min: 0, max: 10, step: 0.1, value: 0.8, id: "temperature" });
  const topP = el("input", { type: "number", min: 0.05, max: 1, step: 0.05, value: 0.95, id: "top-p" });
  const seed = el("input", { type: "number", placeholder: "write.random", id: "seed" });
  const go = button("write.go", () => run(), { class: "main", id: "go", title: "write.keys" });
  const two = button("write.two", () => compare(line?.pieces.length ?? 0), { id: "two" });
  const stop = button("stop", () => running?.abort(), { class: "danger", id: "stop", disabled: true, title: "stop.keys" });
  const fresh = button("write.new", reset, { id: "new" });
  const file = el("input", { type: "file", accept: "text/*,.txt,.md,.csv,.json", hidden: true, id: "file" });
  const feed = button("write.feed", () => file.click(), { title: "write.feed.about" });
  const state = el("p", { class: "hint", id: "state", "aria-live": "polite" });
  const session = el("div", { class: "facts", id: "session" });
  const inspector = el("div", { class: "inspector", id: "inspector", "aria-live": "polite" });

  const main = el("div", { class: "stack" },
    el("section", { class: "card sheet" }, paper, columns),
    el("section", { class: "card composer" }, prompt,
      el("div", { class: "row" }, go, two, stop, el("span", { class: "gap" }), feed, fresh, file), state,
      el("div", { class: "settings" }, field("model", model), field("write.tokens", tokens), field("write.temperature", temperature),
        field("write.top_p", topP), field("write.seed", seed))));
  const side = el("aside", { class: "stack side" },
    el("section", { class: "card" }, el("h2", { t: "memory" }), session),
    el("section", { class: "card", id: "token-card" }, el("h2", { t: "token" }), legend(), inspector));
  const root = el("div", { class: "with-side" }, main, side);

  onEnter(prompt, () => run());
  root.addEventListener("keydown", (event) => event.key === "Escape" && (running ? running.abort() : inspect(null)));
  model.addEventListener("change", reset);
  file.addEventListener("change", () => file.files[0] && busy((options) => line.feed(file.files[0], options)).then(() => (file.value = "")));
  tokenKeys(main, inspect);
  window.addEventListener("pagehide", deleteSessions);

  function settings(extra = {}) {
    const found = { max_tokens: Number(tokens.value) || 60, temperature: Number(temperature.value) };
    if (Number(topP.value) > 0 && Number(topP.value) < 1) found.top_p = Number(topP.value);
    if (seed.value !== "") found.seed = Number(seed.value);
    return { ...found, ...extra };
  }

  /** Runs something that the stop button can end. */
  async function busy(action) {
    if (running) return;
    fail(null);
    running = new AbortController();
    for (const one of ways ?? [line]) if (one) one.usage = null;
    stop.disabled = false;
    go.disabled = two.disabled = fresh.disabled = feed.disabled = model.disabled = true;
    put(state, "write.busy");
    try {
      line ??= new Line(model.value);
      model.keep();
      const reason = await action({ signal: running.signal, each: () => grow(line) });
      put(state, `reason.${reason ?? "read"}`);
    } catch (error) {
      if (error.name === "AbortError") put(state, "reason.stopped");
      else putText(state, ""), failed(error);
    } finally {
      running = null;
      stop.disabled = true;
      go.disabled = two.disabled = fresh.disabled = feed.disabled = model.disabled = false;
      render();
    }
  }

  function run() {
    const text = prompt.value;
    compareLanguages(model.model(), text);
    return busy(async ({ signal }) => {
      const reasons = await Promise.all((ways ?? [line]).map(async (one, place) => {
        const options = { signal, each: () => grow(one) };
        if (text) await one.read(joined(one, text), options);
        prompt.value = "";
        return one.write(settings(ways && seed.value !== "" ? { seed: Number(seed.value) + place } : {}), options);
      }));
      return reasons[0];
    });
  }

  /** Compares two continuations: both generated, or `other` instead of the current text. */
  function compare(at, other) {
    const text = prompt.value;
    compareLanguages(model.model(), text);
    return busy(async ({ signal }) => {
      if (text && !other) {
        await line.read(joined(line, text), { signal, each: () => grow(line) });
        prompt.value = "";
        at = line.pieces.length;
      }
      await line.begin();
      const kept = at < line.pieces.length ? line : await line.branch(at);
      const second = await line.branch(at);
      ways = [kept, second];
      split = at;
      inspect(null);
      const writing = (one, place) => one.write(settings(seed.value === "" ? {} : { seed: Number(seed.value) + place }),
        { signal, each: () => grow(one) });
      if (other) await second.read(other, { signal, each: () => grow(second) });
      const reasons = await Promise.all([...(kept === line ? [] : [writing(kept, 0)]), writing(second, 1)]);
      return reasons[0];
    });
  }

  function keep(one) {
    line = one;
    ways = null;
    inspect(null);
  }

  function rewind(one, at) {
    return busy(async () => {
      const back = await one.branch(at);
      if (ways && at > split) ways[ways.indexOf(one)] = back;
      else (line = back), (ways = null);
      inspect(null);
      return "rewound";
    });
  }

  function reset() {
    running?.abort();
    deleteSessions();
    line = ways = null;
    putText(state, "");
    inspect(null);
    prompt.focus();
  }

  /** Returns the typed text, with a space if it would otherwise join the last word of the text. */
  function joined(one, text) {
    const last = one.pieces.at(-1)?.text.at(-1) ?? "";
    return /[\p{Script=Latin}\p{N}.,;:!?]/u.test(last) && /^[\p{Script=Latin}\p{N}]/u.test(text) ? ` ${text}` : text;
  }

  function inspect(token) {
    main.querySelectorAll(".token.chosen").forEach((other) => other.classList.remove("chosen"));
    inspector.replaceChildren();
    inspector.parentElement.classList.toggle("open", token !== null);
    if (!token) {
      inspector.append(el("p", { class: "hint", t: "token.none" }));
      render();
      return;
    }
    token.classList.add("chosen");
    const { one, at } = token.place;
    const act = (action) => () => running || action();
    inspector.append(button("close", () => inspect(null), { class: "quiet close" }), ...details(token.piece, {
      rewind: act(() => rewind(one, at + 1)),
      fork: act(() => ((line = one), (ways = null), compare(at + 1))),
      take: (text) => running || ((line = one), (ways = null), compare(at, text)),
    }));
  }

  function elementOf(one, at) {
    const piece = one.pieces[at];
    if (piece.fed) return el("span", { class: "fed", t: "write.fed", v: { name: piece.name ?? "", size: bytes(piece.size) } });
    const made = tokenElement(piece);
    made.place = { one, at };
    return made;
  }

  /** Shows a new piece with the next frame, and adds only this piece. */
  function grow(one) {
    if (!grown.length) requestAnimationFrame(showGrown);
    grown.push({ one, at: one.pieces.length - 1 });
  }

  function showGrown() {
    const near = window.innerHeight - main.firstElementChild.getBoundingClientRect().bottom > -120;
    let last = null;
    for (const { one, at } of grown) {
      const place = ways ? columns.querySelectorAll(".way-text")[ways.indexOf(one)] : paper;
      if (!place) continue;
      if (!at) place.querySelector(".empty")?.remove();
      last = place.appendChild(elementOf(one, at));
    }
    grown = [];
    if (near) last?.scrollIntoView({ block: "nearest" });
  }

  function render() {
    grown = [];
    const shown = line ? (ways ? line.pieces.slice(0, split) : line.pieces) : [];
    const elements = shown.map((_, at) => elementOf(line, at));
    paper.replaceChildren(...elements);
    if (!elements.length && !ways) paper.append(el("p", { class: "empty", t: "write.empty" }));
    columns.hidden = !ways;
    feed.hidden = Boolean(ways); // a file is for one text
    columns.replaceChildren(...(ways ?? []).map((one, place) => way(one, place)));
    fade();
    reachable(paper);
    columns.querySelectorAll(".way-text").forEach(reachable);
    facts();
  }

  function way(one, place) {
    const text = el("div", { class: "way-text", role: "group" }, ...one.pieces.slice(split).map((_, at) => elementOf(one, split + at)));
    const written = one.pieces.slice(split).filter((piece) => piece.logprob !== null);
    const ids = written.reduce((sum, piece) => sum + piece.ids.length, 0);
    const mean = written.reduce((sum, piece) => sum + bits(piece.logprob), 0) / Math.max(1, ids);
    return el("section", { class: "way" },
      el("header", { class: "row" }, el("strong", { text: "AB"[place] }),
        el("span", { class: "hint", t: "write.mean", v: { bits: mean.toFixed(2), tokens: count(ids) } }), el("span", { class: "gap" }),
        button("write.keep", () => running || keep(one))),
      text);
  }

  /** Makes text outside the memory of a layer pale. */
  function fade() {
    const reach = models.find((one) => one.id === line?.model)?.memory_length;
    if (!reach) return;
    for (const one of ways ?? [line]) {
      let left = reach;
      for (let at = one.pieces.length - 1; at >= 0; at--) {
        left -= one.pieces[at].ids.length;
        one.pieces[at].far = left < 0 && !(ways && at < split && one !== ways[0] && !one.pieces[at].far);
      }
    }
    main.querySelectorAll(".token").forEach((token) => token.classList.toggle("far", Boolean(token.piece.far)));
  }

  function facts() {
    const one = ways?.find((other) => other.usage) ?? ways?.[0] ?? line;
    const known = models.find((other) => other.id === (one?.model ?? model.value));
    session.replaceChildren();
    if (!one?.session) {
      session.append(el("p", { class: "hint", t: "memory.none" }));
      return;
    }
    const reach = known?.memory_length;
    const row = (key, figure) => session.append(el("div", { class: "fact" }, el("span", { t: key }), el("b", { text: figure })));
    row("memory.tokens", count(one.session.tokens));
    if (reach) row("memory.reach", count(Math.min(reach, one.session.tokens)) + " / " + count(reach));
    row("memory.bytes", bytes(one.session.bytes));
    if (one.usage) {
      const { reused, read, written } = one.usage;
      const total = Math.max(1, reused + read + written);
      const parts = [["reused", reused], ["read-now", read], ["written", written]];
      const meter = el("div", { class: "meter" }, ...parts.map(([name, part]) => {
        const made = el("span", { class: `meter-${name}` });
        made.style.flexGrow = part / total;
        return made;
      }));
      session.append(meter);
      row("memory.reused", count(reused));
      row("memory.read", count(read));
      row("memory.written", count(written));
    }
    session.append(el("p", { class: "hint", t: "memory.about" }));
  }

  return {
    name: "write",
    root,
    ability: "sessions",
    update(all) {
      models = all;
      model.refill(all.filter((one) => one.abilities.includes("sessions")));
      if (!running) inspect(null);
    },
    focus: () => prompt.focus(),
  };
}
