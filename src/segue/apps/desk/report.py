"""The report of a desk: what it knows, how good it is on unseen questions, what it confuses, what lacks an answer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.learn import Fitted, Held, Measured
from segue.apps.desk.parts import PARTS
from segue.report.charts import Point, Series, chart
from segue.report.pages import Block, Bullets, Heading, Paragraph, Picture, Table

MOST_ROWS = 25
TITLE = "Evaluation of the desk"
SHOWN = 120


def summary(knowledge: Knowledge, measured: Measured, fitted: Fitted) -> dict[str, Any]:
    """The numbers that are kept with the model."""
    answered = [one for one in measured.held if one.confidence >= fitted.threshold]
    return {
        "topics": len(knowledge.topics),
        "questions": len(knowledge.asked),
        "without_answer": sum(topic.answer is None for topic in knowledge.topics),
        "held_back": len(measured.held),
        "shortened": measured.shortened,
        "right": round(measured.top1, 4),
        "right_in_three": round(measured.recall(3), 4),
        "accepted_error": measured.error,
        "answered": round(len(answered) / max(1, len(measured.held)), 4),
        "error_of_answered": round(sum(not one.right for one in answered) / max(1, len(answered)), 4),
        "outside_found": None if measured.outside_found is None else round(measured.outside_found, 4),
        "alone": {name: round(value, 4) for name, value in measured.alone.items()},
        "notes": [*_left_out(knowledge), *knowledge.notes],
        "curve": [[round(one.threshold, 4), round(one.answered, 4), round(one.error, 4)] for one in measured.curve],
    }


def report(knowledge: Knowledge, measured: Measured, fitted: Fitted, about: Mapping[str, Any]) -> list[Block]:
    """All of it, as blocks for markdown and HTML."""
    return [
        *_knows(knowledge, about),
        *_quality(measured, fitted),
        *_threshold(measured, fitted),
        *_confusions(knowledge, measured),
        *_missing(knowledge, measured, fitted),
    ]


def _left_out(knowledge: Knowledge) -> list[str]:
    return [f"Left out or mended: {count:,} {reason}." for reason, count in knowledge.left_out.items()]


def _knows(knowledge: Knowledge, about: Mapping[str, Any]) -> list[Block]:
    counts = Counter(topic for one in knowledge.asked for topic in one.topics)
    rows = [
        (topic.name, f"{counts[place]:,}", _short(topic.answer or "none: a person answers"))
        for place, topic in enumerate(knowledge.topics)
    ]
    rows.sort(key=lambda row: -int(row[1].replace(",", "")))
    models = ", ".join(dict(about["encoders"]).values()) or "none"
    lines = [
        f"{len(knowledge.topics):,} topics with {len(knowledge.asked):,} different questions; "
        f"{len(knowledge.outside):,} of them are out of scope.",
        f"Vectors: {models}.",
        *_left_out(knowledge),
        *knowledge.notes,
    ]
    few = sum(counts[place] < 5 for place in range(len(knowledge.topics)))
    if few:
        lines.append(f"{few:,} topics have fewer than five questions: more wordings would make them more reliable.")
    return [
        Heading(text="What it knows"),
        Bullets(texts=lines),
        Table(header=("topic", "questions", "answer"), rows=rows[:MOST_ROWS], numbers=frozenset({1})),
        *_more(len(rows), "topics"),
    ]


def _quality(measured: Measured, fitted: Fitted) -> list[Block]:
    how = (
        "Too few topics have several wordings, so questions were asked with a third of their words removed. Real "
        "visitors use other words: expect lower accuracy."
        if measured.shortened
        else "Questions were held out, and asked after training on the others."
    )
    rows = [
        (name, f"{value:.1%}", f"{fitted.weights_K[PARTS.index(name)]:.2f}") for name, value in measured.alone.items()
    ]
    rows.append(("all combined", f"{measured.top1:.1%}", ""))
    return [
        Heading(text="Accuracy on held-out questions"),
        Paragraph(
            text=f"{how} {len(measured.held):,} were asked. The correct topic was first for {measured.top1:.1%}, "
            f"and among the first three for {measured.recall(3):.1%}."
        ),
        Table(header=("part", "accuracy alone", "weight"), rows=rows, numbers=frozenset({1, 2})),
        *([Paragraph(text=measured.choice)] if measured.choice else []),
    ]


def _threshold(measured: Measured, fitted: Fitted) -> list[Block]:
    answered = [one for one in measured.held if one.confidence >= fitted.threshold]
    wrong = sum(not one.right for one in answered)
    if answered:
        said = (
            f"With an accepted error rate of {measured.error:.1%}, the desk answers "
            f"{len(answered) / len(measured.held):.1%} of the questions, and {wrong / len(answered):.1%} of these "
            "answers were wrong. The others go to a person."
        )
    else:
        said = (
            f"No threshold reaches an error of {measured.error:.1%} on the held-out questions: every question goes to "
            "a person. Give more questions for each topic, or accept a higher error rate."
        )
    blocks: list[Block] = [Heading(text="When it answers"), Paragraph(text=said)]
    if measured.outside_found is not None:
        blocks.append(
            Paragraph(
                text=f"Of questions about hidden topics, or known to be out of scope, {measured.outside_found:.1%} "
                "were detected, while 95% of in-scope questions are kept."
            )
        )
    points = [Point(x=100 * one.answered, y=100 * one.error) for one in measured.curve]
    picture = chart(
        [Series(name="held back", points=points)], title="Error rate against coverage", x_label="answered, %",
        y_label="wrong, %",
    )  # fmt: skip
    rows = [(f"{one.answered:.1%}", f"{one.error:.1%}", f"{one.threshold:.3f}") for one in measured.curve[::4]]
    blocks += [Picture(svg=picture)] if picture else []
    blocks.append(Table(header=("answered", "wrong", "threshold"), rows=rows, numbers=frozenset({0, 1, 2})))
    return blocks


def _confusions(knowledge: Knowledge, measured: Measured) -> list[Block]:
    wrong: dict[tuple[int, int], list[Held]] = {}
    for one in measured.held:
        if one.topics and one.ranked and not one.right:
            wrong.setdefault((one.topics[0], one.ranked[0]), []).append(one)
    rows = [
        (knowledge.topics[gold].name, knowledge.topics[taken].name, f"{len(some)}", _short(some[0].question))
        for (gold, taken), some in sorted(wrong.items(), key=lambda item: -len(item[1]))
    ]
    if not rows:
        return [Heading(text="Confused topics"), Paragraph(text="None among the held-out questions.")]
    header = ("asked about", "taken for", "times", "for example")
    return [
        Heading(text="Confused topics"),
        Table(header=header, rows=rows[:MOST_ROWS], numbers=frozenset({2})),
        *_more(len(rows), "pairs"),
    ]


def _missing(knowledge: Knowledge, measured: Measured, fitted: Fitted) -> list[Block]:
    lacking = [topic.name for topic in knowledge.topics if topic.answer is None]
    unsure = sorted((one for one in measured.held if one.topics), key=lambda one: one.confidence)
    low = [one for one in unsure if one.confidence < fitted.threshold]
    blocks: list[Block] = [Heading(text="Questions without an answer")]
    if lacking:
        shown = ", ".join(lacking[:MOST_ROWS])
        blocks.append(Paragraph(text=f"{len(lacking):,} topics have no answer and go to a person: {shown}."))
    rows = [(_short(one.question), f"{one.confidence:.2f}", knowledge.topics[one.topics[0]].name) for one in low]
    if rows:
        blocks.append(Paragraph(text="Held-back questions with the lowest confidence:"))
        blocks.append(Table(header=("question", "confidence", "topic"), rows=rows[:MOST_ROWS], numbers=frozenset({1})))
        blocks += _more(len(rows), "questions")
    if not lacking and not rows:
        blocks.append(Paragraph(text="None."))
    return blocks


def _more(count: int, what: str) -> Sequence[Block]:
    return [Paragraph(text=f"And {count - MOST_ROWS:,} {what} more.")] if count > MOST_ROWS else []


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
