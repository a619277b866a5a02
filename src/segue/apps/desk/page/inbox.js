// Conversations: those that wait for a person first; what was said, what the desk would have answered; an answer, live.
import { get, post } from "./api.js";
import { bar, button, count, el, percent, put } from "./dom.js";
import { clock, failed, follow } from "./frame.js";

const STATES = ["waiting", "agent", "desk", "resolved", ""];

export function inboxPanel() {
  let chosen = null;
  let streaming = null;
  let unsent = null;
  let state = "waiting";
  const filters = el("div", { class: "row" }, ...STATES.map((name) =>
    button(`state.${name || "all"}`, () => ((state = name), refresh()), { "data-state": name, class: "quiet" })));
  const search = el("input", { type: "search", id: "search", placeholder: "inbox.search", label: "inbox.search" });
  const list = el("div", { class: "list", id: "list" });
  const said = el("ol", { class: "messages", id: "talk", "aria-live": "polite" });
  const field = el("textarea", { id: "reply", rows: 3, placeholder: "inbox.placeholder", label: "inbox.placeholder", maxlength: 20000 });
  const answer = button("inbox.send", say, { class: "main", id: "answer" });
  const acts = el("div", { class: "row" }, button("inbox.take", () => act("take"), { id: "take" }),
    button("inbox.release", () => act("release"), { id: "release" }), button("inbox.resolve", () => act("resolve"), { id: "resolve" }));
  const record = el("section", { class: "card record" });
  const talk = el("section", { class: "card talk", hidden: true }, acts, said, el("div", { class: "composer-bar" }, field, answer));
  const empty = el("p", { class: "card missing", t: "inbox.choose" });
  const root = el("div", { class: "inbox" }, el("section", { class: "card stack" }, filters, search, list), el("div", {}, empty, talk), record);
  record.hidden = true;
  search.addEventListener("input", refresh);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) say();
  });

  async function refresh() {
    try {
      const query = new URLSearchParams({ ...(state ? { state } : {}), ...(search.value.trim() ? { search: search.value.trim() } : {}) });
      const { data } = await get(`/v1/agent/conversations?${query}`);
      for (const one of filters.children) one.setAttribute("aria-pressed", one.dataset.state === state);
      list.replaceChildren(...data.map(item));
      if (!data.length) list.append(el("p", { class: "hint", t: "inbox.none" }));
      if (chosen) await open(chosen, false);
    } catch (problem) {
      failed(problem);
    }
  }

  function item(one) {
    return el("button", { type: "button", class: "item", "data-id": one.id, "aria-current": one.id === chosen, on: { click: () => open(one.id, true) } },
      el("span", { class: "item-head" }, el("span", { text: one.person }), el("span", { text: clock(one.updated) })),
      el("span", { class: "item-text", text: one.last?.text ?? "" }),
      el("span", { class: "item-head" }, el("span", { class: `badge ${one.state}`, t: `state.${one.state}` }),
        one.reason ? el("span", { t: `reason.${one.reason}` }) : null));
  }

  async function open(id, focus) {
    try {
      show(await get(`/v1/agent/conversations/${encodeURIComponent(id)}`));
      if (focus) field.focus();
    } catch (problem) {
      if (problem.status !== 404) failed(problem);
      chosen = null;
      talk.hidden = record.hidden = true;
      empty.hidden = false;
    }
  }

  function show(found) {
    chosen = found.id;
    talk.hidden = record.hidden = false;
    empty.hidden = true;
    for (const one of list.querySelectorAll(".item")) one.setAttribute("aria-current", one.dataset.id === chosen);
    const known = new Set([...said.children].map((one) => one.dataset.number));
    if (said.dataset.id !== chosen || found.messages.length < known.size) said.replaceChildren();
    said.dataset.id = chosen;
    const there = new Set([...said.children].map((one) => one.dataset.number));
    for (const one of found.messages) if (!there.has(String(one.number))) said.append(message(one));
    said.scrollTop = said.scrollHeight;
    record.replaceChildren(el("h2", { t: "inbox.record" }),
      el("div", { class: "facts" }, fact("inbox.person", found.person), fact("inbox.state", null, `state.${found.state}`),
        found.reason ? fact("inbox.reason", null, `reason.${found.reason}`) : null,
        found.agent ? fact("inbox.agent", found.agent) : null, fact("inbox.count", count(found.messages.length))),
      el("h2", { t: "inbox.candidates" }),
      ...(found.candidates.length ? found.candidates.map(candidate) : [el("p", { class: "hint", t: "inbox.no_candidates" })]));
  }

  function candidate(one) {
    return el("div", { class: "candidate" }, bar(one.topic, one.probability, percent(one.probability)),
      one.source ? el("p", { class: "hint file", t: "inbox.file", v: { source: one.source } }) : null,
      one.answer ? el("p", { class: "hint", text: one.answer.slice(0, 300) }) : null,
      one.answer && !one.missing?.length ? button("inbox.use", () => ((field.value = one.answer), field.focus())) : null);
  }

  function message(one) {
    const { kind, topic, confidence, reason, source } = one.about;
    return el("li", { class: `message ${one.author}`, "data-number": one.number }, el("div", { class: "bubble", dir: "auto", text: one.text }),
      el("div", { class: "under" }, el("span", { text: clock(one.created) }), one.name ? el("span", { text: one.name }) : null,
        one.author === "desk" && kind ? el("span", { class: "badge", t: `kind.${kind}` }) : null,
        reason ? el("span", { t: `reason.${reason}` }) : null,
        topic ? el("span", { text: topic }) : null, confidence !== undefined ? el("span", { text: percent(confidence) }) : null,
        kind === "answer" && source ? el("span", { class: "file", t: "inbox.file", v: { source } }) : null,
        one.good === null ? null : el("span", { t: one.good ? "visitor.good" : "visitor.bad" })));
  }

  function fact(name, text, key) {
    return el("div", { class: "fact" }, el("span", { t: name }), key ? el("b", { t: key }) : el("b", { text }));
  }

  async function act(action) {
    try {
      show(await post(`/v1/agent/conversations/${encodeURIComponent(chosen)}/${action}`));
    } catch (problem) {
      failed(problem);
    }
  }

  async function say() {
    const text = field.value;
    if (!text.trim() || !chosen || answer.disabled) return;
    answer.disabled = true;
    // The same text again, after a request that failed, has the same id: the server then writes it once.
    if (unsent?.text !== text || unsent.to !== chosen) unsent = { to: chosen, text, id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` };
    try {
      show(await post(`/v1/agent/conversations/${encodeURIComponent(chosen)}/messages`, { text, id: unsent.id }));
      unsent = null;
      field.value = "";
    } catch (problem) {
      failed(problem);
    } finally {
      answer.disabled = false;
      field.focus();
    }
  }

  return {
    name: "inbox",
    root,
    show() {
      streaming?.abort();
      streaming = new AbortController();
      follow(() => "/v1/agent/events", (found) => {
        for (const one of filters.children)
          if (one.dataset.state) put(one, `state.${one.dataset.state}.count`, { count: found.states[one.dataset.state] ?? 0 });
        refresh();
      }, streaming.signal);
    },
    hide: () => streaming?.abort(),
  };
}
