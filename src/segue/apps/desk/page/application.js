// The agents' page: conversations, proposals to learn from, statistics, personal data.
import { inboxPanel } from "./inbox.js";
import { peoplePanel } from "./people.js";
import { reviewPanel } from "./review.js";
import { statisticsPanel } from "./statistics.js";
import { showPanels } from "./tabs.js";

function kept(found) {
  const messages = found.conversations.reduce((sum, one) => sum + one.messages.length, 0);
  return { conversations: found.conversations.length, messages };
}

showPanels("segue desk: agents", [inboxPanel(), reviewPanel(), statisticsPanel(), peoplePanel({ kept, deleted: (found) => found.deleted_conversations })]);
