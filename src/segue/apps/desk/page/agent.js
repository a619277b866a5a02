// The agents' page: conversations, proposals to learn from, statistics, personal data.
import { get, ServerError } from "./api.js";
import { el, put } from "./dom.js";
import { askForKey, fail, failed, frame } from "./frame.js";
import { inboxPanel } from "./inbox.js";
import { peoplePanel } from "./people.js";
import { reviewPanel } from "./review.js";
import { statisticsPanel } from "./statistics.js";

const find = (id) => document.getElementById(id);
const [tabs, places, keyButton] = ["tabs", "panels", "key-button"].map(find);
const panels = [inboxPanel(), reviewPanel(), statisticsPanel(), peoplePanel()];
let open = null;

for (const panel of panels) {
  panel.place = el("section", { id: `panel-${panel.name}`, role: "tabpanel", "aria-labelledby": `tab-${panel.name}`, hidden: true }, panel.root);
  panel.tab = el("button", { type: "button", role: "tab", id: `tab-${panel.name}`, t: `tab.${panel.name}`, "aria-controls": `panel-${panel.name}`,
    on: { click: () => show(panel) } });
  tabs.append(panel.tab);
  places.append(panel.place);
}

function show(chosen) {
  open?.hide?.();
  open = chosen;
  for (const panel of panels) {
    panel.place.hidden = panel !== chosen;
    panel.tab.setAttribute("aria-selected", panel === chosen);
    panel.tab.tabIndex = panel === chosen ? 0 : -1;
  }
  fail(null);
  chosen.show?.();
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
