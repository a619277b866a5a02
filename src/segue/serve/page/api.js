// Requests and event streams to the server of the page.

const FRAME = 12; // milliseconds

let key = sessionStorage.getItem("segue.key") ?? "";

/** Sets the key of further requests. It is kept as long as the tab. */
export function useKey(value) {
  key = value;
  if (value) sessionStorage.setItem("segue.key", value);
  else sessionStorage.removeItem("segue.key");
}

/** An error response of the server. */
export class ServerError extends Error {
  constructor(status, problem) {
    super(problem?.message ?? `HTTP ${status}`);
    this.status = status;
    this.code = problem?.code ?? null;
  }
}

export async function send(method, path, body, { signal, keepalive } = {}) {
  const headers = {};
  if (key) headers.authorization = `Bearer ${key}`;
  let data;
  if (typeof body === "string" || body instanceof Blob) {
    headers["content-type"] = "text/plain; charset=utf-8";
    data = body;
  } else if (body !== undefined) {
    headers["content-type"] = "application/json";
    data = JSON.stringify(body);
  }
  const response = await fetch(path, { method, headers, body: data, signal, keepalive, cache: "no-store" });
  if (!response.ok) {
    const found = await response.json().catch(() => null);
    throw new ServerError(response.status, found?.error);
  }
  return response;
}

export async function get(path, options) {
  return (await send("GET", path, undefined, options)).json();
}

export async function post(path, body, options) {
  return (await send("POST", path, body, options)).json();
}

/** Yields the events of a stream until it ends; leaving the loop or the signal ends the request. */
export async function* events(path, body, { signal }) {
  const response = await send("POST", path, body, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let rested = performance.now();
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) return;
      if (performance.now() - rested > FRAME) { // a fast stream must leave time for clicks and for drawing
        await new Promise((resolve) => setTimeout(resolve));
        rested = performance.now();
      }
      signal?.throwIfAborted();
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new ServerError(500, event.error);
        yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
