// A text, and the session of the server that has read it. It can be rewound to any of its tokens: the server keeps a fork
// of the session at the start of each part, and the tokens after it are read again by their ids, exactly.
import { events, get, post, send } from "./api.js";

const mine = new Set();
const TOP = 5;
const LONGEST = 30000;

/** Deletes the sessions that this page has created. */
export function deleteSessions() {
  for (const id of mine) send("DELETE", `/v1/sessions/${id}`, undefined, { keepalive: true }).catch(() => {});
  mine.clear();
}

async function fork(id) {
  const made = await post(`/v1/sessions/${id}/fork`);
  mine.add(made.id);
  return made;
}

export class Line {
  constructor(model) {
    this.model = model;
    this.session = null;
    this.pieces = [];
    this.marks = [];
    this.usage = null;
  }

  /** Creates the session if there is none; it has read the end-of-document token, if the tokeniser has one. */
  async begin() {
    if (this.session) return;
    const made = await post("/v1/sessions", { model: this.model });
    mine.add(made.id);
    const { session } = await post(`/v1/sessions/${made.id}/score`, { text: "", keep: true });
    this.session = session;
    await this.mark();
  }

  /** Saves a fork of the current session. */
  async mark() {
    if (this.marks.at(-1)?.at === this.pieces.length) return;
    this.marks.push({ at: this.pieces.length, session: (await fork(this.session.id)).id });
  }

  /** Returns another line that starts with the first pieces of this one. */
  async branch(at) {
    const other = new Line(this.model);
    other.pieces = this.pieces.slice(0, at);
    other.marks = this.marks.filter((mark) => mark.at <= at);
    const mark = other.marks.at(-1);
    const session = await fork(mark.session);
    const ids = other.pieces.slice(mark.at).flatMap((piece) => piece.ids);
    if (ids.length)
      await post("/v1/completions", { model: this.model, session: session.id, prompt: ids, max_tokens: 0, echo: true });
    other.session = await get(`/v1/sessions/${session.id}`);
    return other;
  }

  /** Reads a text, and returns the probabilities of its tokens. */
  async read(text, { signal, each }) {
    await this.begin();
    if (text.length > LONGEST) return this.feed(new Blob([text]), { signal, each, text });
    const body = { text, logprobs: TOP, keep: true };
    const found = await post(`/v1/sessions/${this.session.id}/score`, body, { signal });
    const characters = Array.from(text);
    let end = 0;
    for (const token of found.tokens) {
      const part = characters.slice(end, Math.max(end, token.end)).join("");
      end = Math.max(end, token.end);
      this.add({ ...token, text: part }, { read: true, each, backwards: true });
    }
    if (end < characters.length) this.pieces.at(-1).text += characters.slice(end).join("");
    this.session = found.session;
    this.count(found.usage);
  }

  /** Reads a file of any length, without showing its content. */
  async feed(file, { signal, each, text }) {
    await this.begin();
    const found = await (await send("POST", `/v1/sessions/${this.session.id}/feed`, file, { signal })).json();
    const piece = { fed: true, name: file.name ?? null, size: file.size, text: text ?? "", ids: [], logprob: null, top: [], read: true };
    this.pieces.push(piece);
    each?.(piece);
    this.session = found.session;
    this.count(found.usage);
    await this.mark();
  }

  /** Generates text, piece by piece. After a signal the session is at the end of the text. */
  async write(settings, { signal, each }) {
    await this.begin();
    await this.mark();
    const id = this.session.id;
    const start = this.session.tokens;
    const first = this.pieces.length;
    this.pending = null;
    try {
      const body = { ...settings, logprobs: TOP, stream: true };
      for await (const event of events(`/v1/sessions/${id}/write`, body, { signal })) {
        if (event.object === "session.token") this.add(event, { each });
        else {
          this.close(each);
          this.session = event.session;
          this.count(event.usage);
          return event.finish_reason;
        }
      }
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      await this.settle(start + this.pieces.slice(first).reduce((sum, piece) => sum + piece.ids.length, 0));
      return "stopped";
    } finally {
      this.pending = null;
    }
    return "stopped";
  }

  /** Restores the session after a stop, if it is not at the end of the text. */
  async settle(tokens) {
    for (let tries = 0; tries < 40; tries++) {
      const found = await get(`/v1/sessions/${this.session.id}`);
      if (!found.busy) {
        this.session = found.tokens === tokens ? found : (await this.branch(this.pieces.length)).session;
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    this.session = (await this.branch(this.pieces.length)).session;
  }

  /** Adds a token. Several tokens of one character are one piece. */
  add(token, { read = false, each, backwards = false }) {
    const ids = token.id === null ? [] : [token.id];
    const last = this.pieces.at(-1);
    if (!token.text && backwards && last && !last.fed) {
      last.ids.push(...ids);
      last.logprob = last.logprob === null ? null : last.logprob + token.logprob;
      return;
    }
    if (!token.text && !backwards) {
      this.pending ??= { ids: [], logprob: 0, top: token.top, token: token.token };
      this.pending.ids.push(...ids);
      this.pending.logprob += token.logprob ?? 0;
      return;
    }
    const before = this.pending ?? { ids: [], logprob: 0, top: null, token: token.token };
    this.pending = null;
    const piece = {
      text: token.text,
      token: before.ids.length ? before.token + token.token : token.token,
      ids: [...before.ids, ...ids],
      logprob: token.logprob === null && !before.ids.length ? null : before.logprob + (token.logprob ?? 0),
      top: before.top ?? token.top,
      read,
    };
    this.pieces.push(piece);
    each?.(piece);
  }

  /** Adds tokens at the end without text, such as the end of a document, as a piece. */
  close(each) {
    if (!this.pending) return;
    const piece = { ...this.pending, text: "", read: false };
    this.pending = null;
    this.pieces.push(piece);
    each?.(piece);
  }

  /** Adds to the token counts since `usage` was last set to null. */
  count(usage) {
    const details = usage.prompt_tokens_details;
    this.usage ??= { reused: details.cached_tokens, read: 0, written: 0 };
    this.usage.read += details.read_tokens + details.skipped_tokens;
    this.usage.written += usage.completion_tokens;
  }
}
