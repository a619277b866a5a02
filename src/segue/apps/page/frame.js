// What the pages of applications share: the language, the colours, the key, errors, and a stream of events that comes back by itself.
import { send, ServerError, useKey } from "./api.js";
import { put, putText } from "./dom.js";
import { language, setLanguage } from "./words.js";

const find = (id) => document.getElementById(id);
const [error, keyForm, keyField] = ["error", "key-form", "key-field"].map(find);
const THEMES = ["system", "light", "dark"];

export function fail(message) {
  error.hidden = !message;
  putText(error, message ?? "");
}

/** What went wrong, for the person; nothing if it was stopped. */
export function failed(problem) {
  if (problem.name === "AbortError") return;
  if (problem instanceof ServerError) {
    if (problem.status === 401) askForKey();
    else fail(problem.message);
  } else {
    error.hidden = false;
    put(error, "unreachable");
  }
}

export function askForKey() {
  keyForm.hidden = false;
  keyField.focus();
}

/** Language, colours and key of a page; `again` is called when there is a new key, `translated` after a change of language. */
export function frame({ again, translated = () => {} }) {
  const languageButton = find("language");
  const themeButton = find("theme");
  let theme = localStorage.getItem("segue.theme") ?? "system";
  const paint = () => {
    document.documentElement.dataset.theme = theme;
    put(themeButton, `theme.${theme}`);
  };
  languageButton.addEventListener("click", () => {
    setLanguage(language() === "en" ? "zh" : "en");
    localStorage.setItem("segue.language", language());
    translated();
  });
  themeButton.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem("segue.theme", theme);
    paint();
  });
  keyForm.addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(keyField.value.trim());
    keyField.value = "";
    keyForm.hidden = true;
    fail(null);
    again();
  });
  put(languageButton, "language");
  paint();
  setLanguage(localStorage.getItem("segue.language") ?? (/^zh\b/i.test(navigator.languages[0] ?? navigator.language) ? "zh" : "en"));
}

/** Calls `take` with each event of a stream. A stream that breaks is asked for again, with the path that `path` gives then. */
export async function follow(path, take, signal) {
  let wait = 500;
  while (!signal.aborted) {
    try {
      const response = await send("GET", path(), undefined, { signal });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      while (true) {
        const { value, done } = await reader.read();
        if (done) break;
        wait = 500;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) if (line.startsWith("data:")) take(JSON.parse(line.slice(5)));
      }
    } catch (problem) {
      if (signal.aborted || problem.status === 404 || problem.status === 401) return;
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(2 * wait, 10000);
  }
}

export function clock(seconds) {
  return new Date(1000 * seconds).toLocaleTimeString(document.documentElement.lang, { hour: "2-digit", minute: "2-digit" });
}
