// A tab for an explanation: requests it, and shows it in a frame that can access nothing of this page.
import { send } from "./api.js";
import { ASKED } from "./explanation.js";
import { put, putText } from "./dom.js";
import { language, setLanguage } from "./words.js";

const state = document.getElementById("state");
const frame = document.getElementById("explanation");
const asked = JSON.parse(sessionStorage.getItem(ASKED) ?? "null");

setLanguage(localStorage.getItem("segue.language") ?? (/^zh\b/i.test(navigator.languages[0] ?? navigator.language) ? "zh" : "en"));
if (asked === null) put(state, "explain.nothing");
else {
  put(state, "explain.busy", { model: asked.model });
  try {
    const page = await (await send("POST", "/v1/explain", asked)).text();
    frame.srcdoc = page.replace("<html ", `<html data-language="${language()}" `);
    document.title = `${asked.model} · segue explain`;
    state.hidden = true;
    frame.hidden = false;
    document.documentElement.dataset.ready = "yes";
  } catch (problem) {
    state.className = "error";
    if (problem.status) putText(state, problem.message);
    else put(state, "unreachable");
  }
}
