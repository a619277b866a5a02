// All words of the page, in English and Chinese.

import { useWords } from "./language.js";
import { SHARED } from "./shared.js";
export { language, say, setLanguage, translateOne } from "./language.js";

const WORDS = {
  en: {
    ...SHARED.en,
    "title": "Recommend",
    "tab.browse": "Browse", "tab.quality": "Quality",
    "browse.user": "User", "browse.kind": "A click counts as", "browse.search": "Search items", "browse.items": "Items (a click is an event of this user)",
    "browse.past": "History, latest first", "browse.nothing": "No events yet: the list shows popular items.",
    "browse.diversity": "Diversity", "browse.novelty": "Novelty", "browse.tag": "Tag", "browse.any": "any", "browse.why": "Show reasons", "browse.other": "Compare with", "browse.none": "none",
    "browse.list": "Recommended by model {model}", "browse.because": "because of {title} ({fall} without it)", "browse.none-because": "no single event is the reason", "browse.if": "What if?", "browse.if-title": "Show the list as if the user had chosen this item", "browse.new": "new", "browse.real": "Back to the real history",
    "browse.what-if": "The list as if the user had chosen {title}. This is not stored.", "browse.empty": "No item matches.",
    "quality.about": "The latest {events} events were held out and predicted one by one; the next item is ranked among all items.",
    "quality.mixed": "segue ranks by a combination of the network, item-kNN, popularity, trend, price and tags, which was best on the validation events.",
    "quality.alone": "segue ranks by {method} alone, which was best on the validation events.",
    "quality.method": "Method", "quality.hr": "HR@10", "quality.ndcg": "NDCG@10", "quality.mrr": "MRR", "quality.learned": "Model {model}: {users} users, {items} items, {events} events.",
    "people.person": "Id of the user", "people.found": "Events: {events}.", "people.deleted": "Events deleted: {count}.",
    "people.models": "Trained on these events: {models}. Retrain for a model without them.",
  },
  zh: {
    ...SHARED.zh,
    "title": "推荐",
    "tab.browse": "浏览", "tab.quality": "质量",
    "browse.user": "用户", "browse.kind": "点击表示", "browse.search": "搜索物品", "browse.items": "物品：点击即为该用户的一个事件",
    "browse.past": "用户的历史，最近的在前", "browse.nothing": "还没有事件：列表按热门程度排列。",
    "browse.diversity": "多样性", "browse.novelty": "新颖性", "browse.tag": "只要标签", "browse.any": "任意", "browse.why": "说明理由", "browse.other": "对比模型", "browse.none": "不对比",
    "browse.list": "模型 {model}：接下来", "browse.because": "因为 {title}（去掉后 {fall}）", "browse.none-because": "没有单个事件起决定作用", "browse.if": "如果选它？", "browse.if-title": "假设用户选了它，查看列表", "browse.new": "新", "browse.real": "回到真实情况",
    "browse.what-if": "假设用户接下来选择 {title} 时的列表，不会保存。", "browse.empty": "没有合适的物品。",
    "quality.about": "最近的 {events} 个事件被留出，逐个预测，并在全部物品中排名。",
    "quality.mixed": "segue 按网络、item-kNN、热门程度、近期热度、价格和标签的加权组合排名，它在验证集上最好。",
    "quality.alone": "segue 只按 {method} 排名，它在验证集上最好。",
    "quality.method": "方法", "quality.hr": "HR@10", "quality.ndcg": "NDCG@10", "quality.mrr": "MRR", "quality.learned": "模型 {model}：{users} 个用户，{items} 件物品，{events} 个事件。",
    "people.person": "用户 ID", "people.found": "{events} 个事件。", "people.deleted": "已删除 {count} 个事件。",
    "people.models": "模型 {models} 是在这些事件删除之前训练的。请重新学习，得到不含这些事件的模型。",
  },
};

useWords(WORDS);
