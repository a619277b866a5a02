// All words of the page, in English and Chinese, and examples to try.

import { language, useWords } from "./language.js";
export { language, say, setLanguage, translateOne } from "./language.js";

export const WORDS = {
  en: {
    "language": "中文", "theme.system": "Auto", "theme.light": "Light", "theme.dark": "Dark",
    "tab.write": "Write", "tab.gaps": "Fill gaps", "tab.read": "Read", "tab.search": "Search", "tab.explain": "Explain", "tab.status": "Status",
    "key": "Key", "key.ask": "This server asks for a key", "key.use": "Use it",
    "key.hint": "It is kept in this tab until you close it, and sent to this server only.",
    "model": "Model", "stop": "Stop", "stop.keys": "Esc", "close": "Close", "delete": "Delete", "example": "Example",
    "unreachable": "The server does not answer. Is it still running?",
    "another_language": "The text seems to be in another language than {model}, so its answer means little. Choose a model of that language.",
    "missing.write": "No model here writes. Start the server with a Transformer-XL, GPT or XLNet: segue serve MODEL",
    "missing.gaps": "No model here fills gaps. Start the server with an XLNet: segue serve MODEL",
    "missing.read": "No model here was fine-tuned for a task. Make one with segue finetune, and start the server with it.",
    "missing.search": "No model here makes vectors or ranks. Start the server with a language model: segue serve MODEL",
    "missing.explain": "No model here can be explained.",
    "missing.status": "",
    "write.paper": "The text", "write.prompt": "Text for the model to read", "write.placeholder": "Type the beginning of a text…",
    "write.empty": "Type something below and let the model go on. Every word is coloured by how much it surprised the model; click one to see what else it thought of, to go back to it, or to try another way from there.",
    "write.go": "Write", "write.two": "Compare two", "write.new": "New", "write.keys": "Ctrl+Enter",
    "write.feed": "Read a file", "write.feed.about": "The model reads a text file of any length; the session does not grow.",
    "write.fed": "{name} · {size} read", "write.tokens": "Tokens", "write.temperature": "Temperature", "write.top_p": "Top-p",
    "write.seed": "Seed", "write.random": "random", "write.busy": "Writing…", "write.keep": "Keep this one",
    "write.mean": "{bits} bits a token, {tokens} tokens",
    "reason.length": "Written; it can go on.", "reason.stop": "The text came to its end.", "reason.stopped": "Stopped. The session is where the text ends.",
    "reason.read": "Read.", "reason.rewound": "Back at this point.",
    "memory": "Memory", "memory.none": "The session begins with the first text.", "memory.tokens": "Tokens so far",
    "memory.reach": "In the memory of a layer", "memory.bytes": "Size of the session", "memory.reused": "Reused",
    "memory.read": "Read now", "memory.written": "Written",
    "memory.about": "What was read is never read again, and the session stays this size however long the text grows. Pale words are beyond the memory of one layer.",
    "token": "Token", "token.none": "Click a word, or reach it with Tab and the arrow keys.",
    "token.unknown": "Nothing came before it, so it has no probability.",
    "token.figures": "{probability} · {bits} bits · id {ids}", "token.likeliest": "The likeliest here:", "token.instead": "The likeliest here; choose one to go on with it instead:",
    "token.take": "Go on with this instead, beside the text as it is", "token.rewind": "Rewind to here", "token.fork": "Fork here",
    "heat.sure": "sure", "heat.surprised": "surprised",
    "gaps.text": "A text with gaps", "gaps.placeholder": "A text with ___ at each gap", "gaps.go": "Fill", "gaps.insert": "Insert a gap",
    "gaps.length": "Tokens in each gap", "gaps.order": "Order", "gaps.empty": "XLNet sees both sides of a gap, and can fill several in any order.",
    "order.left_to_right": "left to right", "order.right_to_left": "right to left", "order.surest_first": "surest first", "order.random": "random",
    "read.document": "Document", "read.placeholder": "Paste a document…", "read.second": "Second text", "read.question": "Question",
    "read.options": "Options, one a line", "read.go": "Ask the model", "read.empty": "The answer appears here.",
    "read.tokens": "{tokens} tokens read", "read.nothing": "Nothing was found.", "read.no_answer": "No answer in this text",
    "search.query": "Query", "search.lines": "Lines to search", "search.placeholder": "One passage a line…", "search.go": "Search",
    "search.empty": "The lines appear here, the nearest first.", "search.missing": "Give a query and some lines.",
    "search.reading": "Reading: {done} of {all}", "search.done": "{lines} lines", "search.by_cosine": "By the cosine of the vectors",
    "search.by_score": "By the score of the model",
    "explain.text": "Text to explain", "explain.placeholder": "Paste a short text…", "explain.go": "Explain",
    "explain.words": "Which words decided?", "explain.busy": "{model} reads the text, and its attention is taken apart…",
    "explain.nothing": "Nothing was asked. Open this page with Explain.",
    "explain.about": "A language model: what its heads look at, and what their scores are made of. A fine-tuned model: which words decided its answer. Opens in a tab of its own; segue explain writes the same as a file.",
    "status.rate": "tokens a second", "status.writing": "being written", "status.requests": "requests", "status.sessions": "sessions",
    "status.memory": "sessions in memory", "status.uptime": "up", "status.chart": "Tokens a second, read and written",
    "status.most": "most: {rate}", "status.models": "Models", "status.own": "Your sessions", "status.about": "segue {version} · /docs · /metrics",
    "column.name": "Name", "column.kind": "Kind", "column.parameters": "Parameters", "column.reach": "Memory", "column.abilities": "Can do",
    "column.id": "Session", "column.model": "Model", "column.tokens": "Tokens", "column.bytes": "Size", "column.place": "Where", "column.nothing": "",
    "place.memory": "in memory", "place.disk": "on disk",
  },
  zh: {
    "language": "English", "theme.system": "自动", "theme.light": "浅色", "theme.dark": "深色",
    "tab.write": "续写", "tab.gaps": "填空", "tab.read": "阅读", "tab.search": "搜索", "tab.explain": "解释", "tab.status": "状态",
    "key": "密钥", "key.ask": "此服务器需要密钥", "key.use": "使用",
    "key.hint": "密钥只保存在此标签页中，关闭即失效，且只发送给此服务器。",
    "model": "模型", "stop": "停止", "stop.keys": "Esc", "close": "关闭", "delete": "删除", "example": "示例",
    "unreachable": "服务器没有响应。它还在运行吗？",
    "another_language": "文本的语言似乎与模型 {model} 的不同，结果没有多大意义。请选择该语言的模型。",
    "missing.write": "这里没有能续写的模型。请用 Transformer-XL、GPT 或 XLNet 启动服务器：segue serve MODEL",
    "missing.gaps": "这里没有能填空的模型。请用 XLNet 启动服务器：segue serve MODEL",
    "missing.read": "这里没有针对任务微调过的模型。请先用 segue finetune 微调，再用它启动服务器。",
    "missing.search": "这里没有能生成向量或排序的模型。请用语言模型启动服务器：segue serve MODEL",
    "missing.explain": "这里没有可以解释的模型。",
    "missing.status": "",
    "write.paper": "文本", "write.prompt": "给模型读的文本", "write.placeholder": "输入一段开头……",
    "write.empty": "在下面输入一段文字，让模型接着写。每个词的颜色表示它让模型有多意外；点击一个词，可以看到模型还想到了什么，回到那里，或从那里另写一条。",
    "write.go": "续写", "write.two": "对比续写", "write.new": "新建", "write.keys": "Ctrl+Enter",
    "write.feed": "读入文件", "write.feed.about": "模型可以读任意长的文本文件，会话不会变大。",
    "write.fed": "{name} · 已读 {size}", "write.tokens": "词元数", "write.temperature": "温度", "write.top_p": "Top-p",
    "write.seed": "随机种子", "write.random": "随机", "write.busy": "正在写……", "write.keep": "保留这个",
    "write.mean": "每词元 {bits} 比特，共 {tokens} 个词元",
    "reason.length": "写完了，可以继续。", "reason.stop": "文本自然结束。", "reason.stopped": "已停止，会话停在文本末尾。",
    "reason.read": "已读。", "reason.rewound": "已回到此处。",
    "memory": "记忆", "memory.none": "输入第一段文本后，会话开始。", "memory.tokens": "累计词元",
    "memory.reach": "每层记忆中", "memory.bytes": "会话大小", "memory.reused": "复用",
    "memory.read": "本次读入", "memory.written": "本次写出",
    "memory.about": "读过的内容不会重读；无论文本多长，会话都保持这个大小。颜色变淡的词已超出单层记忆的范围。",
    "token": "词元", "token.none": "点击一个词，或用 Tab 键和方向键选中它。",
    "token.unknown": "它之前没有内容，所以没有概率。",
    "token.figures": "{probability} · {bits} 比特 · 编号 {ids}", "token.likeliest": "此处最可能的词元：", "token.instead": "此处最可能的词元，选一个即可改用它继续写：",
    "token.take": "改用它继续写，与现有文本并排比较", "token.rewind": "回到此处", "token.fork": "从此处分叉",
    "heat.sure": "确定", "heat.surprised": "意外",
    "gaps.text": "带空位的文本", "gaps.placeholder": "在要填的地方写 ___", "gaps.go": "填空", "gaps.insert": "插入空位",
    "gaps.length": "每空词元数", "gaps.order": "顺序", "gaps.empty": "XLNet 能看到空位两侧的内容，并能按任意顺序填写多个空位。",
    "order.left_to_right": "从左到右", "order.right_to_left": "从右到左", "order.surest_first": "最有把握的先填", "order.random": "随机",
    "read.document": "文档", "read.placeholder": "粘贴一篇文档……", "read.second": "第二段文本", "read.question": "问题",
    "read.options": "选项，每行一个", "read.go": "询问模型", "read.empty": "结果显示在这里。",
    "read.tokens": "读了 {tokens} 个词元", "read.nothing": "没有找到。", "read.no_answer": "文中没有答案",
    "search.query": "查询", "search.lines": "要搜索的文本行", "search.placeholder": "每行一段……", "search.go": "搜索",
    "search.empty": "结果按相近程度排列在这里。", "search.missing": "请输入查询和若干行文本。",
    "search.reading": "正在读：{done} / {all}", "search.done": "共 {lines} 行", "search.by_cosine": "按向量的余弦排序",
    "search.by_score": "按模型的分数排序",
    "explain.text": "要解释的文本", "explain.placeholder": "粘贴一段短文本……", "explain.go": "解释",
    "explain.words": "哪些词起了决定作用？", "explain.busy": "{model} 正在读文本，随后拆解它的注意力……",
    "explain.nothing": "没有要解释的内容。请通过“解释”打开本页。",
    "explain.about": "语言模型：各注意力头在看什么，分数由哪些项组成。微调过的模型：哪些词决定了它的答案。结果在新标签页打开；segue explain 可以把它写成文件。",
    "status.rate": "词元/秒", "status.writing": "正在写", "status.requests": "请求", "status.sessions": "会话",
    "status.memory": "内存中的会话", "status.uptime": "已运行", "status.chart": "每秒读写的词元",
    "status.most": "最高：{rate}", "status.models": "模型", "status.own": "你的会话", "status.about": "segue {version} · /docs · /metrics",
    "column.name": "名称", "column.kind": "类型", "column.parameters": "参数", "column.reach": "记忆", "column.abilities": "功能",
    "column.id": "会话", "column.model": "模型", "column.tokens": "词元", "column.bytes": "大小", "column.place": "位置", "column.nothing": "",
    "place.memory": "内存", "place.disk": "磁盘",
  },
};

const EXAMPLES = {
  en: {
    gaps: "The old man walked down to the ___ and looked at the ___ for a long time.",
    review: "The room was clean and the staff were very kind to us. We would come again.",
    story: "She was born in Paris in 1906 and moved to London with her family. He wants to buy a new coat for his wife.",
    second: "The staff were friendly.", question: "Where was she born?", options: "in Paris\nin London\nin New York",
    query: "a bad film",
    lines: "The room was clean and the staff were very kind to us.\nA dull film with a weak story; I nearly fell asleep.\nShe was born in Paris and moved to London with her family.\nThe company said that profit rose by ten per cent.\nTwo young men are playing football in the park.",
  },
  zh: {
    gaps: "他出生于___，后来随父母搬到___。",
    review: "房间很干净，服务员的态度也非常好，下次还会再来。",
    story: "他出生于北京，后来随父母搬到上海，在那里读完了大学。",
    second: "服务员很热情。", question: "他出生在哪里？", options: "北京\n上海\n广州",
    query: "难看的书",
    lines: "房间很干净，服务员的态度也非常好。\n这本书写得太差了，看了一半就不想看下去。\n他出生于北京，后来随父母搬到上海。\n公司表示，今年第一季度的利润增长了百分之十。\n两个年轻人正在河边的公园里踢足球。",
  },
};

useWords(WORDS);

/** An example in a language of the model; if that is not known, in the one of the page. */
export function example(name, model) {
  const known = model?.languages.filter((one) => one in EXAMPLES) ?? [];
  return EXAMPLES[known.length && !known.includes(language()) ? known[0] : language()][name];
}

/** Whether a text seems to be in another language than the model: told for English and Chinese, by their script. */
export function inAnotherLanguage(model, text) {
  if (model?.languages.length !== 1 || !(model.languages[0] in EXAMPLES)) return false;
  const [han, latin] = [/\p{Script=Han}/gu, /\p{Script=Latin}/gu].map((script) => text.match(script)?.length ?? 0);
  return han + latin >= 4 && (3 * han > latin) !== (model.languages[0] === "zh");
}
