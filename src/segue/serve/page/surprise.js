// Tokens coloured by how much they surprised the model.
import { bar, button, count, el, percent } from "./dom.js";

const STEPS = 9;

/** Converts a natural logarithm to bits of surprise. */
export function bits(logprob) {
  return Math.max(0, -logprob / Math.LN2);
}

/** Returns the colour step of a token: one for every 1⅓ bits, rounded. */
function heat(logprob, tokens = 1) {
  return Math.min(STEPS, Math.round((bits(logprob) / tokens) * 0.75));
}

/** Creates the element of a piece of text; `piece` is {text, ids, logprob, top, read}. */
export function tokenElement(piece) {
  const made = el("span", { class: piece.read ? "token read" : "token", role: "button", tabindex: -1 });
  const text = piece.text || "¶";
  const space = /^ +(?=.)/.exec(text)?.[0] ?? ""; // not coloured: at the end of a line it would hang over
  made.append(space, el("span", { class: "tint", text: text.slice(space.length) }));
  if (piece.logprob !== null) made.dataset.heat = heat(piece.logprob, piece.ids.length);
  made.piece = piece;
  return made;
}

export function legend() {
  const steps = Array.from({ length: STEPS + 1 }, (_, step) => el("span", { "data-heat": step, class: "swatch" }));
  return el("div", { class: "legend" }, el("span", { t: "heat.sure" }), el("span", { class: "swatches" }, ...steps),
    el("span", { t: "heat.surprised" }));
}

/** Returns a token with visible spaces, as pieces of SentencePiece have them, and visible line ends. */
export function shown(token) {
  return token.replaceAll("▁", "␣").replaceAll("\n", "⏎") || "∅";
}

/** Returns the elements that describe a token; `take(text)` is called with an alternative that can be read as text. */
export function details(piece, { rewind, fork, take }) {
  const figures = piece.logprob === null
    ? el("p", { class: "hint", t: "token.unknown" })
    : el("p", { class: "figures", t: "token.figures", v: {
        probability: percent(Math.exp(piece.logprob)), bits: bits(piece.logprob).toFixed(1), ids: piece.ids.map(count).join(", ") } });
  const bars = (piece.top ?? []).map((one) => {
    const text = plain(one.token);
    const chosen = one.token === piece.token;
    const options = take && text !== null && !chosen
      ? { on: { click: () => take(text) }, title: "token.take" }
      : { class: chosen ? "bar chosen" : "bar" };
    return bar(shown(one.token), Math.exp(one.logprob), percent(Math.exp(one.logprob)), options);
  });
  const actions = rewind ? [el("div", { class: "row" }, button("token.rewind", rewind), button("token.fork", fork))] : [];
  return [el("h3", { text: shown(piece.token ?? piece.text) }), figures,
    ...(bars.length ? [el("p", { class: "hint", t: take ? "token.instead" : "token.likeliest" }), ...bars] : []), ...actions];
}

/** Returns the text of a token, or null if it has none of its own. */
function plain(token) {
  if (/^<.*>$/.test(token) || token.includes("\ufffd")) return null;
  return token.replaceAll("▁", " ") || null;
}

/** Lets arrow keys move from token to token in a text; Enter and click select one. */
export function tokenKeys(paper, choose) {
  const move = (from, step) => {
    const tokens = [...paper.querySelectorAll(".token")];
    const place = Math.max(0, Math.min(tokens.length - 1, tokens.indexOf(from) + step));
    focusToken(paper, tokens[place]);
  };
  paper.addEventListener("click", (event) => {
    const token = event.target.closest(".token");
    if (token) focusToken(paper, token), choose(token);
  });
  paper.addEventListener("keydown", (event) => {
    const token = event.target.closest?.(".token");
    if (!token) return;
    if (event.key === "ArrowRight") move(token, 1);
    else if (event.key === "ArrowLeft") move(token, -1);
    else if (event.key === "Home") move(token, -1e9);
    else if (event.key === "End") move(token, 1e9);
    else if (event.key === "Enter" || event.key === " ") choose(token);
    else return;
    event.preventDefault();
  });
}

function focusToken(paper, token) {
  paper.querySelector('.token[tabindex="0"]')?.setAttribute("tabindex", "-1");
  token.setAttribute("tabindex", "0");
  token.focus({ preventScroll: false });
}

/** Makes the last token reachable with the Tab key. */
export function reachable(paper) {
  if (!paper.querySelector('.token[tabindex="0"]')) paper.querySelector(".token:last-of-type")?.setAttribute("tabindex", "0");
}
