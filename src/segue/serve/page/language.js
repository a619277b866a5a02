/** The language of a page, and its texts by language, which the page sets once. */

let words = { en: {} };
let chosen = "en";

export function useWords(given) {
  words = given;
}

export function language() {
  return chosen;
}

export function say(key, values = {}) {
  const text = words[chosen][key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

/** Translates the labels and hints of an element, and its text if it is one of the translated texts. */
export function translateOne(element) {
  const { t, tValues, tLabel, tPlaceholder, tTitle } = element.dataset;
  if (t) element.textContent = say(t, JSON.parse(tValues ?? "{}"));
  if (tLabel) element.setAttribute("aria-label", say(tLabel));
  if (tPlaceholder) element.setAttribute("placeholder", say(tPlaceholder));
  if (tTitle) element.setAttribute("title", say(tTitle));
}

/** Switches the whole page to another language. */
export function setLanguage(name) {
  chosen = name in words ? name : "en";
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
  document.querySelectorAll("[data-t], [data-t-label], [data-t-placeholder], [data-t-title]").forEach(translateOne);
}
