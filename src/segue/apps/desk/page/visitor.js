// The visitor's page: one conversation, which goes on after a reload.
import { get, post } from "./api.js";
import { button, el, put } from "./dom.js";
import { clock, fail, failed, follow, frame } from "./frame.js";
import { language } from "./words.js";

const find = (id) => document.getElementById(id);
const [list, field, sendButton, stateLine] = ["messages", "text", "send", "state"].map(find);
const query = new URLSearchParams(location.search);
const shown = new Map(); // by number
let conversation = null;
let streaming = null;

async function begin() {
  try {
    conversation = sessionStorage.getItem("segue.conversation");
    let found = null;
    if (conversation) found = await get(`/v1/conversations/${encodeURIComponent(conversation)}`).catch((problem) => {
      if (problem.status !== 404) throw problem;
      return null;
    });
    if (!found) found = await open();
    show(found);
    listen();
    document.documentElement.dataset.ready = "yes";
  } catch (problem) {
    failed(problem);
  }
}

async function open() {
  const person = query.get("person");
  const found = await post("/v1/conversations", { language: language(), ...(person ? { person } : {}) });
  conversation = found.id;
  sessionStorage.setItem("segue.conversation", conversation);
  return found;
}

function listen() {
  streaming?.abort();
  streaming = new AbortController();
  const last = () => Math.max(0, ...shown.keys());
  follow(() => `/v1/conversations/${encodeURIComponent(conversation)}/events?after=${last()}`, show, streaming.signal);
}

function show(found) {
  for (const one of found.messages) if (!shown.has(one.number)) add(one);
  const waiting = { waiting: "visitor.waiting", agent: "visitor.agent", resolved: "visitor.resolved" }[found.state];
  if (waiting) put(stateLine, waiting, { agent: found.agent ?? "" });
  else put(stateLine, "visitor.desk");
}

function add(one) {
  const under = el("div", { class: "under" }, el("span", { text: clock(one.created) }));
  const item = el("li", { class: `message ${one.author}`, "data-number": one.number }, el("div", { class: "bubble", dir: "auto", text: one.text }));
  const { kind, source, suggestions } = one.about;
  if (one.author === "agent") under.append(el("span", { text: one.name }));
  if (kind === "answer" && source) under.append(el("span", { t: "visitor.source", v: { source } }));
  if (kind === "generated") item.append(el("p", { class: "generated", t: "visitor.generated" }));
  if (kind === "suggestion" || kind === "generated") {
    item.append(el("div", { class: "suggestions" }, ...suggestions.map(({ topic, question }) =>
      el("button", { type: "button", text: question, on: { click: () => say(question, topic) } })),
    button("visitor.person", () => say(document.documentElement.lang.startsWith("zh") ? "转人工" : "I want to talk to a person"))));
  }
  if (kind === "answer" || kind === "generated" || one.author === "agent") under.append(...feedback(one));
  item.append(under);
  shown.set(one.number, item);
  list.append(item);
  item.scrollIntoView({ block: "end" });
}

function feedback(one) {
  const choices = [[true, "visitor.good"], [false, "visitor.bad"]].map(([good, name]) =>
    button(name, async () => {
      try {
        await post(`/v1/conversations/${encodeURIComponent(conversation)}/feedback`, { message: one.number, good });
        choices.forEach((other, place) => other.setAttribute("aria-pressed", (place === 0) === good));
      } catch (problem) {
        failed(problem);
      }
    }, { "aria-pressed": one.good === good }));
  return choices;
}

async function say(text, topic) {
  if (!text.trim() || !conversation) return; // while a new conversation is opened, the text stays in its field
  fail(null);
  sendButton.disabled = true;
  const body = { text, id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, ...(topic ? { topic } : {}) };
  try {
    show(await sent(body));
    if (field.value === text) field.value = ""; // else the visitor has typed on meanwhile
    grow();
  } catch (problem) {
    failed(problem);
  } finally {
    sendButton.disabled = false;
    field.focus();
  }
}

/** Sends a message, again if the server went away meanwhile: its id keeps it from being written twice. */
async function sent(body) {
  for (let tries = 0; ; tries++) {
    try {
      return await post(`/v1/conversations/${encodeURIComponent(conversation)}/messages`, body);
    } catch (problem) {
      if (problem.status !== undefined || tries >= 3) throw problem;
      await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** tries));
    }
  }
}

function grow() {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

find("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  say(field.value);
});
field.addEventListener("input", grow);
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    say(field.value);
  }
});
find("new").addEventListener("click", async () => {
  streaming?.abort();
  sessionStorage.removeItem("segue.conversation");
  shown.clear();
  list.replaceChildren();
  await begin();
});
frame({ again: begin });
begin();
