// The page of an application for agents and operators: panels behind tabs, shown to whoever has the role for them.
import { get, ServerError } from "./api.js";
import { el, put } from "./dom.js";
import { askForKey, fail, failed, frame } from "./frame.js";

const find = (id) => document.getElementById(id);
const [tabs, places, keyButton] = ["tabs", "panels", "key-button"].map(find);
let panels = [];
let open = null;

/** Shows panels. `ask` gets what they share, and is called with the caller's role, also after a new key. */
export function showPanels(title, all, ask = async () => {}) {
  document.title = title;
  panels = all;
  for (const panel of panels) {
    panel.place = el("section", { id: `panel-${panel.name}`, role: "tabpanel", "aria-labelledby": `tab-${panel.name}`, hidden: true }, panel.root);
    panel.tab = el("button", { type: "button", role: "tab", id: `tab-${panel.name}`, t: `tab.${panel.name}`, "aria-controls": `panel-${panel.name}`,
      on: { click: () => show(panel) } });
    tabs.append(panel.tab);
    places.append(panel.place);
  }
  const begin = () => start(ask);
  keyButton.addEventListener("click", askForKey);
  frame({ again: begin, translated: () => open?.show?.() });
  begin();
}

/** Another panel, with what it is to show. */
export function go(name, what) {
  show(panels.find((panel) => panel.name === name), what);
  scrollTo(0, 0);
}

async function show(chosen, what) {
  open?.hide?.();
  open = chosen;
  for (const panel of panels) {
    panel.place.hidden = panel !== chosen;
    panel.tab.setAttribute("aria-selected", panel === chosen);
    panel.tab.tabIndex = panel === chosen ? 0 : -1;
  }
  fail(null);
  await chosen.show?.(what);
}

async function start(ask) {
  try {
    const { role } = await get("/v1/me");
    if (role === "visitor") throw new ServerError(401, { message: "" });
    await ask(role);
    for (const panel of panels) panel.tab.hidden = panel.role === "operator" && role !== "operator";
    put(keyButton, "key");
    await show(open ?? panels[0]);
    document.documentElement.dataset.ready = "yes";
  } catch (problem) {
    if (problem.status === 401) keyButton.hidden = false;
    failed(problem);
  }
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
