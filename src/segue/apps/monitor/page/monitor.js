// The page of a monitor: what comes now, trends, a comparison, alarms, corrections, sources, people.
import { alarmsPanel } from "./alarms.js";
import { get, ServerError } from "./api.js";
import { comparePanel } from "./compare.js";
import { correctionsPanel } from "./corrections.js";
import { el, put } from "./dom.js";
import { askForKey, fail, failed, frame } from "./frame.js";
import { authorsPanel } from "./authors.js";
import { nowPanel } from "./now.js";
import { sourcesPanel } from "./sources.js";
import { trendsPanel } from "./trends.js";

const find = (id) => document.getElementById(id);
const [tabs, places, keyButton] = ["tabs", "panels", "key-button"].map(find);
const shared = { topics: [], end: 0, role: "", go };
const panels = [nowPanel(shared), trendsPanel(shared), comparePanel(shared), alarmsPanel(shared), correctionsPanel(shared), sourcesPanel(shared), authorsPanel(shared)];
let open = null;

for (const panel of panels) {
  panel.place = el("section", { id: `panel-${panel.name}`, role: "tabpanel", "aria-labelledby": `tab-${panel.name}`, hidden: true }, panel.root);
  panel.tab = el("button", { type: "button", role: "tab", id: `tab-${panel.name}`, t: `tab.${panel.name}`, "aria-controls": `panel-${panel.name}`,
    on: { click: () => show(panel) } });
  tabs.append(panel.tab);
  places.append(panel.place);
}

/** Another panel, with what it is to show. */
function go(name, what) {
  show(panels.find((panel) => panel.name === name), what);
  scrollTo(0, 0);
}

function show(chosen, what) {
  open?.hide?.();
  open = chosen;
  for (const panel of panels) {
    panel.place.hidden = panel !== chosen;
    panel.tab.setAttribute("aria-selected", panel === chosen);
    panel.tab.tabIndex = panel === chosen ? 0 : -1;
  }
  fail(null);
  chosen.show?.(what);
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
    shared.role = role;
    const found = await get("/v1/overview?days=1&limit=1");
    shared.topics = found.topic_names;
    shared.end = found.end;
    for (const panel of panels) panel.tab.hidden = panel.role === "operator" && role !== "operator";
    put(keyButton, "key");
    show(open ?? panels[0]);
    document.documentElement.dataset.ready = "yes";
  } catch (problem) {
    if (problem.status === 401) keyButton.hidden = false;
    failed(problem);
  }
}

keyButton.addEventListener("click", askForKey);
frame({ again: begin, translated: () => open?.show?.() });
begin();
