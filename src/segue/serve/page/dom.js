// Creation of elements without markup: all text is inserted as text.
import { language, say, translateOne } from "./words.js";

/** Creates an element. `t` names its text in words.js, with the values `v`; `text` is text as it is; `on` are listeners. */
export function el(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  const { t, v, text, on, label, placeholder, title, ...rest } = options;
  for (const [name, value] of Object.entries(rest)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  if (label) made.dataset.tLabel = label;
  if (placeholder) made.dataset.tPlaceholder = placeholder;
  if (title) made.dataset.tTitle = title;
  if (t) put(made, t, v);
  else translateOne(made);
  if (text !== undefined) made.textContent = text;
  for (const [event, listener] of Object.entries(on ?? {})) made.addEventListener(event, listener);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Sets the text of an element to one of words.js; it follows the language. */
export function put(element, key, values = {}) {
  element.dataset.t = key;
  element.dataset.tValues = JSON.stringify(values);
  element.textContent = say(key, values);
}

/** Sets the text of an element. */
export function putText(element, text) {
  delete element.dataset.t;
  element.textContent = text;
}

/** Creates a field with its label above it. */
export function field(key, input) {
  return el("label", { class: "field" }, el("span", { t: key }), input);
}

export function button(key, listener, options = {}) {
  return el("button", { type: "button", t: key, ...options, on: { click: listener } });
}

/** Creates a choice between models; `refill` replaces the models, `model` is the chosen one. Until the user chooses one
 * or `keep` is called, it is the first model for the language of the page. */
export function modelChoice() {
  let models = [];
  let kept = false;
  const choice = el("select");
  choice.addEventListener("change", choice.keep = () => (kept = true));
  choice.model = () => models.find((model) => model.id === choice.value);
  choice.refill = (all) => {
    const chosen = kept && all.find((model) => model.id === choice.value);
    const usual = all.find((model) => model.languages.includes(language())) ?? all[0];
    models = all;
    choice.replaceChildren(...all.map((model) => el("option", { value: model.id, text: model.id })));
    choice.value = (chosen || usual)?.id ?? "";
  };
  return choice;
}

/** Creates a bar for a share of 1, with a name and a number. */
export function bar(name, part, figure, options = {}) {
  const fill = el("span", { class: "bar-fill" });
  fill.style.width = `${Math.max(0, Math.min(1, part)) * 100}%`;
  return el(
    options.on ? "button" : "div",
    { class: "bar", type: options.on ? "button" : null, ...options },
    fill,
    el("span", { class: "bar-name", text: name }),
    el("span", { class: "bar-figure", text: figure }),
  );
}

/** Runs `action` on Ctrl+Enter or Cmd+Enter in a field. */
export function onEnter(input, action) {
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) {
      event.preventDefault();
      action();
    }
  });
}

const numbers = { en: new Intl.NumberFormat("en"), zh: new Intl.NumberFormat("zh-CN") };

export function count(value) {
  return (numbers[document.documentElement.lang.slice(0, 2)] ?? numbers.en).format(value);
}

export function bytes(value) {
  for (const [size, unit] of [[2 ** 30, "GB"], [2 ** 20, "MB"], [2 ** 10, "KB"]])
    if (value >= size) return `${(value / size).toFixed(value >= 10 * size ? 0 : 1)} ${unit}`;
  return `${value} B`;
}

export function percent(part) {
  const value = 100 * part;
  return value >= 9.95 ? `${value.toFixed(0)} %` : value >= 0.095 ? `${value.toFixed(1)} %` : "< 0.1 %";
}
