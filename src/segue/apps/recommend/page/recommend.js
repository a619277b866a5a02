// The page of a recommender: browse and see the list change, how good it is, and the data of people.
import { get, ServerError } from "./api.js";
import { browsePanel } from "./browse.js";
import { el, put } from "./dom.js";
import { askForKey, fail, failed, frame } from "./frame.js";
import { peoplePanel } from "./people.js";
import { qualityPanel } from "./quality.js";

const find = (id) => document.getElementById(id);
const [tabs, places, keyButton] = ["tabs", "panels", "key-button"].map(find);
const shared = { models: [], model: "", kinds: [], tags: [], summary: null };
const panels = [browsePanel(shared), qualityPanel(shared), peoplePanel()];
let open = null;

for (const panel of panels) {
  panel.place = el("section", { id: `panel-${panel.name}`, role: "tabpanel", "aria-labelledby": `tab-${panel.name}`, hidden: true }, panel.root);
  panel.tab = el("button", { type: "button", role: "tab", id: `tab-${panel.name}`, t: `tab.${panel.name}`, "aria-controls": `panel-${panel.name}`,
    on: { click: () => show(panel) } });
  tabs.append(panel.tab);
  places.append(panel.place);
}

async function show(chosen) {
  open = chosen;
  for (const panel of panels) {
    panel.place.hidden = panel !== chosen;
    panel.tab.setAttribute("aria-selected", panel === chosen);
    panel.tab.tabIndex = panel === chosen ? 0 : -1;
  }
  fail(null);
  await chosen.show?.();
}

tabs.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const seen = panels.filter((panel) => !panel.tab.hidden);
  const next = seen[(seen.indexOf(open) + step + seen.length) % seen.length];
  show(next);
  next.tab.focus();
  event.preventDefault();
});

async function begin() {
  try {
    const { role } = await get("/v1/me");
    if (role === "visitor") throw new ServerError(401, { message: "" });
    const found = await get("/v1/models");
    Object.assign(shared, { models: found.models, model: found.in_use, kinds: found.kinds, tags: found.tags, summary: found.summary });
    for (const panel of panels) panel.tab.hidden = panel.role === "operator" && role !== "operator";
    put(keyButton, "key");
    await show(open ?? panels[0]);
    document.documentElement.dataset.ready = "yes";
  } catch (problem) {
    if (problem.status === 401) keyButton.hidden = false;
    failed(problem);
  }
}

keyButton.addEventListener("click", askForKey);
frame({ again: begin, translated: () => open?.show?.() });
begin();
