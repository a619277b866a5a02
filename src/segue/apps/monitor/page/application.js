// The page of a monitor: what comes now, trends, a comparison, alarms, corrections, sources, people.
import { alarmsPanel } from "./alarms.js";
import { get } from "./api.js";
import { comparePanel } from "./compare.js";
import { correctionsPanel } from "./corrections.js";
import { nowPanel } from "./now.js";
import { peoplePanel } from "./people.js";
import { sourcesPanel } from "./sources.js";
import { go, showPanels } from "./tabs.js";
import { trendsPanel } from "./trends.js";

const shared = { topics: [], end: 0, role: "", go };
const panels = [nowPanel(shared), trendsPanel(shared), comparePanel(shared), alarmsPanel(shared), correctionsPanel(shared), sourcesPanel(shared),
  peoplePanel({ kept: (found) => ({ texts: found.texts.length }), deleted: (found) => found.deleted_texts })];

showPanels("segue monitor", panels, async (role) => {
  const found = await get("/v1/overview?days=1&limit=1");
  Object.assign(shared, { role, topics: found.topic_names, end: found.end });
});
