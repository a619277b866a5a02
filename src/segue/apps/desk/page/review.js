// Agents' answers that the desk could learn from: accepted, changed or rejected by a person.
import { get, send } from "./api.js";
import { button, el, field } from "./dom.js";
import { failed } from "./frame.js";

export function reviewPanel() {
  const list = el("div", { id: "reviews" });
  const root = el("div", { class: "stack" }, el("p", { class: "hint", t: "review.about" }), list);

  async function load() {
    try {
      const { data } = await get("/v1/agent/reviews");
      list.replaceChildren(...data.map(proposal));
      if (!data.length) list.append(el("p", { class: "card missing", t: "review.none" }));
    } catch (problem) {
      failed(problem);
    }
  }

  function proposal(one) {
    const question = el("textarea", { rows: 2 });
    const answer = el("textarea", { rows: 3 });
    const topic = el("input", { maxlength: 200, placeholder: "review.topic.hint" });
    [question.value, answer.value, topic.value] = [one.question, one.answer, one.topic ?? ""];
    const pick = el("select", { class: "pick" }, el("option", { value: "", t: "review.pick.choose" }), ...one.asked.map((text) => el("option", { value: text, text })));
    pick.value = one.asked.includes(one.question) ? one.question : "";
    pick.addEventListener("change", () => pick.value && (question.value = pick.value));
    const given = (input) => input.value.trim() || null;
    const decide = async (body) => {
      try {
        await send("PUT", `/v1/agent/reviews/${one.message}`, body);
        await load();
      } catch (problem) {
        failed(problem);
      }
    };
    return el("section", { class: "card review", "data-message": one.message }, one.asked.length > 1 ? field("review.pick", pick) : null,
      field("review.question", question), field("review.answer", answer),
      field("review.topic", topic), el("div", { class: "row" }, 
        button("review.accept", () => decide({ accepted: true, question: given(question), answer: given(answer), topic: given(topic) }), { class: "main" }),
        button("review.outside", () => decide({ accepted: true, outside: true, question: given(question) }), { class: "outside" }),
        button("review.reject", () => decide({ accepted: false }))));
  }

  return { name: "review", root, show: load };
}
