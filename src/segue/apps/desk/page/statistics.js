// What the desk has achieved, and the error that is accepted, with the curve that the threshold comes from.
import { get, send } from "./api.js";
import { bar, button, count, el, field, percent } from "./dom.js";
import { failed } from "./frame.js";

const SVG = "http://www.w3.org/2000/svg";

export function statisticsPanel() {
  const root = el("div", { class: "stack", id: "statistics" });

  async function load() {
    try {
      show(await get("/v1/agent/statistics"));
    } catch (problem) {
      failed(problem);
    }
  }

  function show(found) {
    const share = (value) => (value === null ? "–" : percent(value));
    const numbers = [["statistics.conversations", count(found.conversations)], ["statistics.questions", count(found.questions)],
      ["statistics.answered", share(found.share_answered)], ["statistics.right", share(found.feedback.share_right)],
      ["statistics.seconds", found.mean_seconds === null ? "–" : `${(1000 * found.mean_seconds).toFixed(0)} ms`],
      ["statistics.waiting", count(found.states.waiting ?? 0)]];
    root.replaceChildren(
      el("section", { class: "card numbers" }, ...numbers.map(([name, value]) => el("div", { class: "number" }, el("b", { text: value }), el("span", { t: name })))),
      decision(found.decision),
      el("div", { class: "halves" }, bars("statistics.topics", found.topics, "topic"), bars("statistics.lacking", found.without_answer, "question")),
      bars("statistics.reasons", found.not_answered, "reason"));
  }

  function bars(title, rows, name) {
    const most = Math.max(1, ...rows.map((row) => row.count));
    const label = (row) => (name === "reason" ? el("span", { t: `reason.${row.reason}` }).textContent : row[name]);
    return el("section", { class: "card stack" }, el("h2", { t: title }),
      ...(rows.length ? rows.map((row) => bar(label(row), row.count / most, count(row.count))) : [el("p", { class: "hint", t: "statistics.none" })]));
  }

  function decision(found) {
    const input = el("input", { type: "number", min: 0.1, max: 50, step: 0.1, id: "error-percent" });
    input.value = (100 * found.accepted_error).toFixed(1);
    const set = button("statistics.set", async () => {
      try {
        await send("PUT", "/v1/operator/error", { error: Number(input.value) / 100 });
        await load();
      } catch (problem) {
        failed(problem);
      }
    }, { id: "set-error" });
    const expected = found.expected_error === null ? el("p", { class: "hint", t: "statistics.never" })
      : el("p", { class: "hint", t: "statistics.expected", v: { answered: percent(found.expected_answered), error: percent(found.expected_error),
        inside: count(found.inside), count: count(found.answered), wrong: count(found.wrong), most: percent(found.wrong_up_to) } });
    const never = found.never_answered ? [el("p", { class: "hint", t: "statistics.never_answered", v: { count: count(found.never_answered), inside: count(found.inside) } })] : [];
    const outside = found.outside ? [el("p", { class: "hint", t: "statistics.outside", v: { count: count(found.outside_answered), outside: count(found.outside) } })] : [];
    return el("section", { class: "card stack" }, el("h2", { t: "statistics.decision" }), curve(found), expected, ...never, ...outside,
      el("div", { class: "row" }, field("statistics.error", input), set));
  }

  /** Errors, upwards, against the share that is answered, to the right; the dashed line is the error that is accepted. */
  function curve(found) {
    const picture = document.createElementNS(SVG, "svg");
    picture.setAttribute("viewBox", "0 0 100 100");
    picture.setAttribute("preserveAspectRatio", "none");
    picture.setAttribute("class", "curve");
    const top = Math.max(0.01, found.accepted_error * 1.2, ...found.curve.map(([, , error]) => error));
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("points", found.curve.map(([, answered, error]) => `${100 * answered},${100 - (100 * error) / top}`).join(" "));
    const wanted = document.createElementNS(SVG, "line");
    const height = 100 - (100 * found.accepted_error) / top;
    for (const [name, value] of [["x1", 0], ["x2", 100], ["y1", height], ["y2", height]]) wanted.setAttribute(name, value);
    picture.append(line, wanted);
    return el("div", {}, picture, el("p", { class: "hint", t: "statistics.curve", v: { top: percent(top) } }));
  }

  return { name: "statistics", root, show: load };
}
