// The page of a recommender: browse and see the list change, how good it is, and the data of people.
import { get } from "./api.js";
import { browsePanel } from "./browse.js";
import { peoplePanel } from "./people.js";
import { qualityPanel } from "./quality.js";
import { showPanels } from "./tabs.js";

const shared = { models: [], model: "", kinds: [], tags: [], summary: null };
const panels = [browsePanel(shared), qualityPanel(shared),
  peoplePanel({ kept: (found) => ({ events: found.events.length }), deleted: (found) => found.deleted_events })];

showPanels("segue recommend", panels, async () => {
  const found = await get("/v1/models");
  Object.assign(shared, { models: found.models, model: found.in_use, kinds: found.kinds, tags: found.tags, summary: found.summary });
});
