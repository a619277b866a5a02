// All words of the pages, in English and Chinese.

const WORDS = {
  en: {
    "language": "中文", "theme.system": "Auto", "theme.light": "Light", "theme.dark": "Dark",
    "key": "Key", "key.ask": "This page asks for a key", "key.use": "Use it", "key.hint": "It is kept in this tab until you close it, and sent to this server only.",
    "unreachable": "The server does not answer. Your message is not lost: try again in a moment.",
    "visitor.title": "Help desk", "visitor.new": "New", "visitor.placeholder": "Ask a question…", "visitor.send": "Send",
    "visitor.desk": "Ask anything. If I am not sure, a person will answer.", "visitor.waiting": "A person will answer here. You can stay on this page or come back.",
    "visitor.agent": "{agent} is answering.", "visitor.resolved": "This conversation is closed. Write to open it again.",
    "visitor.source": "from {source}", "visitor.good": "Helpful", "visitor.bad": "Not helpful", "visitor.person": "None of these: talk to a person",
    "agent.title": "Desk", "tab.inbox": "Conversations", "tab.review": "Review", "tab.statistics": "Statistics", "tab.people": "People",
    "state.waiting": "waiting", "state.agent": "with a person", "state.desk": "with the desk", "state.resolved": "resolved", "state.all": "all",
    "state.waiting.count": "waiting {count}", "state.agent.count": "with a person {count}", "state.desk.count": "with the desk {count}", "state.resolved.count": "resolved {count}",
    "reason.low_confidence": "not sure", "reason.out_of_scope": "outside its topics", "reason.no_answer": "no answer known", "reason.repeated_failure": "did not understand again",
    "reason.anger": "angry", "reason.asked_for_person": "asked for a person",
    "kind.answer": "answered", "kind.suggestion": "did you mean", "kind.follow_up": "asked back", "kind.handed_over": "handed over", "kind.resumed": "desk is back",
    "inbox.search": "Search all messages", "inbox.none": "No conversations here.", "inbox.choose": "Choose a conversation.", "inbox.placeholder": "Answer the visitor… (Ctrl+Enter sends)",
    "inbox.send": "Send", "inbox.take": "Take over", "inbox.release": "Let the desk go on", "inbox.resolve": "Resolve", "inbox.record": "Record",
    "inbox.person": "Person", "inbox.state": "State", "inbox.reason": "Handed over because", "inbox.agent": "Agent", "inbox.count": "Messages",
    "inbox.candidates": "What the desk found", "inbox.no_candidates": "Nothing yet.", "inbox.use": "Use this answer",
    "review.about": "Accepted answers are learned by: segue desk improve. Correct them first: the desk will give them to everyone who asks the like.",
    "review.none": "Nothing to review.", "review.question": "Question", "review.answer": "Answer", "review.topic": "Topic", "review.topic.hint": "the name of a known topic, or empty for a new one",
    "review.accept": "Accept", "review.reject": "Reject",
    "statistics.conversations": "conversations in 30 days", "statistics.questions": "messages of visitors", "statistics.answered": "answered by the desk", "statistics.right": "right, by feedback",
    "statistics.seconds": "to answer", "statistics.waiting": "waiting now", "statistics.topics": "Topics that were answered", "statistics.lacking": "Questions without an answer",
    "statistics.reasons": "Why it did not answer", "statistics.none": "None yet.", "statistics.decision": "When the desk answers", "statistics.error": "Wrong answers that are accepted, %",
    "statistics.set": "Set", "statistics.expected": "On questions that were held back it answers {answered}, and {error} of these answers are wrong.",
    "statistics.never": "No threshold reaches this error on the questions that were held back: everything goes to a person.",
    "statistics.curve": "To the right: share answered. Upwards: wrong among them, to {top}. Dashed: the error that is accepted.",
    "people.person": "Id of the person", "people.find": "Find", "people.found": "{conversations} conversations with {messages} messages.", "people.export": "Export", "people.delete": "Delete all of it",
    "people.deleted": "{count} conversations deleted.",
  },
  zh: {
    "language": "English", "theme.system": "自动", "theme.light": "浅色", "theme.dark": "深色",
    "key": "密钥", "key.ask": "此页面需要密钥", "key.use": "使用", "key.hint": "密钥只保存在此标签页中，关闭即失效，且只发送给此服务器。",
    "unreachable": "服务器没有响应。您的消息没有丢失，请稍后再试。",
    "visitor.title": "在线客服", "visitor.new": "新对话", "visitor.placeholder": "请输入您的问题……", "visitor.send": "发送",
    "visitor.desk": "请随意提问。没有把握时，会由人工为您解答。", "visitor.waiting": "人工客服会在这里回复您。您可以留在此页，也可以稍后再来。",
    "visitor.agent": "{agent} 正在为您服务。", "visitor.resolved": "对话已结束，发送消息即可重新开始。",
    "visitor.source": "来源：{source}", "visitor.good": "有帮助", "visitor.bad": "没帮助", "visitor.person": "都不是，转人工客服",
    "agent.title": "客服台", "tab.inbox": "对话", "tab.review": "审核", "tab.statistics": "统计", "tab.people": "用户数据",
    "state.waiting": "等待人工", "state.agent": "人工服务中", "state.desk": "机器人服务中", "state.resolved": "已解决", "state.all": "全部",
    "state.waiting.count": "等待人工 {count}", "state.agent.count": "人工 {count}", "state.desk.count": "机器人 {count}", "state.resolved.count": "已解决 {count}",
    "reason.low_confidence": "没有把握", "reason.out_of_scope": "超出范围", "reason.no_answer": "没有答案", "reason.repeated_failure": "多次未能理解",
    "reason.anger": "用户不满", "reason.asked_for_person": "要求人工",
    "kind.answer": "已回答", "kind.suggestion": "请用户选择", "kind.follow_up": "追问", "kind.handed_over": "已转人工", "kind.resumed": "机器人恢复服务",
    "inbox.search": "搜索全部消息", "inbox.none": "这里没有对话。", "inbox.choose": "请选择一个对话。", "inbox.placeholder": "回复用户……（Ctrl+Enter 发送）",
    "inbox.send": "发送", "inbox.take": "接管", "inbox.release": "交还机器人", "inbox.resolve": "标记为已解决", "inbox.record": "记录",
    "inbox.person": "用户", "inbox.state": "状态", "inbox.reason": "转人工原因", "inbox.agent": "客服", "inbox.count": "消息数",
    "inbox.candidates": "机器人找到的答案", "inbox.no_candidates": "暂无。", "inbox.use": "使用此答案",
    "review.about": "通过审核的回答由 segue desk improve 学习。请先改正：以后所有提出类似问题的用户都会看到它们。",
    "review.none": "没有待审核的内容。", "review.question": "问题", "review.answer": "回答", "review.topic": "主题", "review.topic.hint": "已有主题的名称；留空则新建主题",
    "review.accept": "通过", "review.reject": "不采用",
    "statistics.conversations": "30 天内的对话", "statistics.questions": "用户消息", "statistics.answered": "由机器人回答", "statistics.right": "回答正确（按反馈）",
    "statistics.seconds": "回答用时", "statistics.waiting": "正在等待", "statistics.topics": "已回答的主题", "statistics.lacking": "没有答案的问题",
    "statistics.reasons": "未回答的原因", "statistics.none": "暂无。", "statistics.decision": "何时由机器人回答", "statistics.error": "可接受的错误回答（%）",
    "statistics.set": "设定", "statistics.expected": "在留出的问题上，机器人回答 {answered}，其中 {error} 是错的。",
    "statistics.never": "在留出的问题上，没有阈值能达到这一错误率，所有问题都转人工。",
    "statistics.curve": "横轴：回答的比例；纵轴：其中错误的比例，最高 {top}；虚线：可接受的错误率。",
    "people.person": "用户编号", "people.find": "查找", "people.found": "{conversations} 个对话，共 {messages} 条消息。", "people.export": "导出", "people.delete": "全部删除",
    "people.deleted": "已删除 {count} 个对话。",
  },
};

let chosen = "en";

export function language() {
  return chosen;
}

export function say(key, values = {}) {
  const text = WORDS[chosen][key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

/** Names and hints of an element; its text, where it is one of the words. */
export function translateOne(element) {
  const { t, tValues, tLabel, tPlaceholder, tTitle } = element.dataset;
  if (t) element.textContent = say(t, JSON.parse(tValues ?? "{}"));
  if (tLabel) element.setAttribute("aria-label", say(tLabel));
  if (tPlaceholder) element.setAttribute("placeholder", say(tPlaceholder));
  if (tTitle) element.setAttribute("title", say(tTitle));
}

/** The whole page in another language. */
export function setLanguage(name) {
  chosen = name in WORDS ? name : "en";
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
  document.querySelectorAll("[data-t], [data-t-label], [data-t-placeholder], [data-t-title]").forEach(translateOne);
}
