// The page: panels under tabs, the language, the colours, the key.
import { get, ServerError, useKey } from "./api.js";
import { el, put, putText } from "./dom.js";
import { explainPanel } from "./explanation.js";
import { gapsPanel } from "./gaps.js";
import { readPanel } from "./read.js";
import { searchPanel } from "./search.js";
import { statusPanel } from "./status.js";
import { example, inAnotherLanguage, language, setLanguage } from "./words.js";
import { writePanel } from "./write.js";

const find = (id) => document.getElementById(id);
const [tabs, places, error, notice, keyForm, keyField, keyButton] =
  ["tabs", "panels", "error", "notice", "key-form", "key-field", "key-button"].map(find);
const shared = { fail, failed, example, compareLanguages };
const panels = [writePanel(shared), gapsPanel(shared), readPanel(shared), searchPanel(shared), explainPanel(shared), statusPanel(shared)];
let open = null;
let models = [];

function fail(message) {
  error.hidden = !message;
  putText(error, message ?? "");
}

/** Shows a warning about a text in another language than the model's; otherwise removes it. */
function compareLanguages(model, text) {
  notice.hidden = !inAnotherLanguage(model, text);
  if (!notice.hidden) put(notice, "another_language", { model: model.id });
}

/** Shows an error to the user; nothing if the user stopped the request. */
function failed(problem) {
  if (problem.name === "AbortError") return;
  if (problem instanceof ServerError) {
    if (problem.status === 401) askForKey();
    else fail(problem.message);
  } else {
    error.hidden = false;
    put(error, "unreachable");
    if (!(problem instanceof TypeError) || problem.message !== "Failed to fetch") console.error(problem);
  }
}

function askForKey() {
  keyButton.hidden = false;
  keyForm.hidden = false;
  keyField.focus();
}

for (const panel of panels) {
  panel.missing = el("p", { class: "card missing", t: `missing.${panel.name}`, hidden: true });
  panel.place = el("section", { id: `panel-${panel.name}`, role: "tabpanel", "aria-labelledby": `tab-${panel.name}`, hidden: true }, panel.missing, panel.root);
  panel.tab = el("button", { type: "button", role: "tab", id: `tab-${panel.name}`, t: `tab.${panel.name}`, "aria-controls": `panel-${panel.name}`,
    on: { click: () => go(panel) } });
  tabs.append(panel.tab);
  places.append(panel.place);
}

function show(name) {
  const chosen = panels.find((panel) => panel.name === name) ?? panels[0];
  if (chosen === open) return;
  open?.hide?.();
  open = chosen;
  for (const panel of panels) {
    panel.place.hidden = panel !== chosen;
    panel.tab.setAttribute("aria-selected", panel === chosen);
    panel.tab.tabIndex = panel === chosen ? 0 : -1;
  }
  fail(null);
  notice.hidden = true;
  chosen.show?.();
}

function go(panel) {
  location.hash = panel.name;
  show(panel.name);
}

tabs.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = panels[(panels.indexOf(open) + step + panels.length) % panels.length];
  go(next);
  next.tab.focus();
  event.preventDefault();
});
window.addEventListener("hashchange", () => show(location.hash.slice(1)));

async function load() {
  try {
    models = (await get("/v1/models")).data;
    for (const panel of panels) {
      const able = !(panel.ability || panel.tasks)
        || models.some((model) => model.abilities.includes(panel.ability) || panel.tasks?.includes(model.task));
      panel.missing.hidden = able;
      panel.root.hidden = !able;
      panel.update(models);
    }
    keyForm.hidden = true;
    document.documentElement.dataset.ready = "yes";
  } catch (problem) {
    failed(problem);
  }
}

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(keyField.value.trim());
  keyField.value = "";
  fail(null);
  load();
});
keyButton.addEventListener("click", () => {
  keyForm.hidden = !keyForm.hidden;
  keyField.focus();
});

// ------------------------------------------------------------------------------------------------ language and colours

const languageButton = find("language");
const themeButton = find("theme");
const themes = ["system", "light", "dark"];
let theme = localStorage.getItem("segue.theme") ?? "system";

languageButton.addEventListener("click", () => {
  setLanguage(language() === "en" ? "zh" : "en");
  localStorage.setItem("segue.language", language());
  for (const panel of panels) panel.update(models);
});
themeButton.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  localStorage.setItem("segue.theme", theme);
  paint();
});

function paint() {
  document.documentElement.dataset.theme = theme;
  put(themeButton, `theme.${theme}`);
}

put(languageButton, "language");
paint();
setLanguage(localStorage.getItem("segue.language") ?? (/^zh\b/i.test(navigator.languages[0] ?? navigator.language) ? "zh" : "en"));
show(location.hash.slice(1));
load();
