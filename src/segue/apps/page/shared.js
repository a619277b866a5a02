// Words that the pages of all applications have.
export const SHARED = {
  en: {
    "language": "中文", "theme.system": "Auto", "theme.light": "Light", "theme.dark": "Dark",
    "key": "Key", "key.ask": "This page needs a key", "key.use": "Use this key", "key.hint": "It is kept in this tab until you close it, and sent to this server only.",
    "unreachable": "The server does not answer. Try again in a moment.",
    "tab.people": "People", "people.find": "Find", "people.export": "Export", "people.delete": "Delete everything",
  },
  zh: {
    "language": "English", "theme.system": "自动", "theme.light": "浅色", "theme.dark": "深色",
    "key": "密钥", "key.ask": "此页面需要密钥", "key.use": "使用", "key.hint": "密钥只保留在此标签页中，关闭即失效，且只发送给本服务器。",
    "unreachable": "服务器没有响应，请稍后再试。",
    "tab.people": "个人数据", "people.find": "查找", "people.export": "导出", "people.delete": "全部删除",
  },
};
