"""Report of a desk: knowledge, accuracy on held-out questions, thresholds, confused topics, missing answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from segue.apps.desk.confidence import NEVER, Counts
from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.learn import Fitted, Held, Measured
from segue.apps.desk.parts import PARTS
from segue.apps.desk.ranker import LEAST
from segue.report.charts import Point, Series, chart
from segue.report.pages import Block, Bullets, Heading, Paragraph, Picture, Table

MOST_ROWS = 25
"""Maximum number of rows in a table."""
TITLE = "Evaluation of the desk"
SHOWN = 120
"""Maximum number of characters shown of a text."""
NO_ANSWERS = "No topic has an answer: a person answers every question."
LOOKS = {
    "questions": "words shared with the known questions of a topic",
    "answers": "words shared with its answer",
    "linear": "words that are typical of it (logistic regression)",
    "near": "embeddings of its known questions: the nearest",
    "meaning": "embedding of its answer",
    "dense": "embeddings that are typical of it (logistic regression)",
    "network": "a model that was fine-tuned to tell topics apart",
    "pairs": "a model that was fine-tuned to read a question beside what is known",
}
"""Description of each part."""


def summary(knowledge: Knowledge, measured: Measured, fitted: Fitted) -> dict[str, Any]:
    """Return the figures stored with the model. Shares of answers refer to in-scope questions. A desk without answers
    answers nothing, although it has confidences for its topics."""
    lacking = sum(topic.answer is None for topic in knowledge.topics)
    counts = measured.outcomes.at(NEVER if lacking == len(knowledge.topics) else fitted.threshold)
    found = measured.outside_found
    return {
        "topics": len(knowledge.topics),
        "questions": len(knowledge.asked),
        "columns": list(knowledge.columns),
        "without_answer": lacking,
        "held_back": len(measured.held),
        "shortened": measured.shortened,
        "right": round(measured.top1, 4),
        "right_in_three": round(measured.recall(3), 4),
        "accepted_error": measured.error,
        "outside_share": round(measured.outside_share, 4),
        "answered": round(counts.share_answered, 4),
        "error_of_answered": round(counts.share_wrong, 4),
        "counts": counted(counts),
        "crosswise": counted(measured.crosswise),
        "calibration_error": round(measured.calibration, 4),
        "outside_found": None if found is None else round(found[0] / found[1], 4),
        "outside_counts": None if found is None else list(found),
        "alone": {name: round(value, 4) for name, value in measured.alone.items()},
        "notes": [*_left_out(knowledge), *knowledge.notes],
        "curve": [[one.threshold, round(one.answered, 4), round(one.error, 4)] for one in measured.curve],
    }


def counted(counts: Counts) -> dict[str, Any]:
    """Return counts as stored in models and sent over HTTP."""
    return {
        "inside": counts.inside,
        "answered": counts.answered,
        "wrong": counts.wrong,
        "wrong_up_to": round(counts.up_to, 4),
        "outside": counts.outside,
        "outside_answered": counts.outside_answered,
        "never_answered": counts.never,
    }


def said_of(counts: Mapping[str, Any]) -> str:
    """Describe counts in words, with the upper confidence bound of the share of wrong answers.

    >>> said_of({"inside": 180, "answered": 147, "wrong": 0, "wrong_up_to": 0.0248})
    '81.7% of the questions in scope are answered (147 of 180); none of these answers is wrong (0 of 147, up to 2.5%)'
    """
    answered, wrong = counts["answered"], counts["wrong"]
    if not answered:
        return f"none of the {_count(counts['inside'], 'question')} in scope is answered"
    share = f"{wrong / answered:.1%} of these answers are wrong" if wrong else "none of these answers is wrong"
    return (
        f"{answered / counts['inside']:.1%} of the questions in scope are answered ({answered:,} of "
        f"{counts['inside']:,}); {share} ({wrong:,} of {answered:,}, up to {counts['wrong_up_to']:.1%})"
    )


def outside_said(counts: Mapping[str, Any]) -> str:
    """Describe the answers to out-of-scope questions; empty if there are none."""
    if not counts["outside"]:
        return ""
    return (
        f"Of out-of-scope questions, {counts['outside_answered'] / counts['outside']:.1%} would be answered "
        f"({counts['outside_answered']:,} of {counts['outside']:,})"
    )


def found_said(found: Sequence[int]) -> str:
    """Describe how many out-of-scope questions are recognised."""
    return f"Of out-of-scope questions, {found[0] / found[1]:.1%} were recognised ({found[0]:,} of {found[1]:,})."


def share_said(share: float) -> str:
    """Describe how answers to out-of-scope questions count."""
    if not share:
        return "The error counts questions in scope only, not answers to out-of-scope questions."
    return f"{share:.1%} of all questions are expected to be out of scope; an answer to one of them counts as wrong."


def report(knowledge: Knowledge, measured: Measured, fitted: Fitted, about: Mapping[str, Any]) -> list[Block]:
    """Return the report as blocks for Markdown and HTML."""
    return [
        *_knows(knowledge, about),
        *_quality(measured, fitted),
        *_threshold(knowledge, measured, fitted),
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
    outside = len(knowledge.outside)
    lines = [
        f"{_count(len(knowledge.topics), 'topic')} with {_count(len(knowledge.asked), 'different question')}; "
        f"{outside:,} of them {'is' if outside == 1 else 'are'} out of scope.",
        f"Embedding models: {models}.",
        *(f"Read from {one}." for one in knowledge.columns),
        *_left_out(knowledge),
        *knowledge.notes,
    ]
    few = sum(counts[place] < 5 for place in range(len(knowledge.topics)))
    if few:
        have = "topic has" if few == 1 else "topics have"
        lines.append(f"{few:,} {have} fewer than five questions: more wordings would make answers more reliable.")
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
        (name, LOOKS[name], f"{value:.1%}", f"{fitted.weights_K[PARTS.index(name)]:.2f}")
        for name, value in measured.alone.items()
    ]
    rows.append(("all combined", "", f"{measured.top1:.1%}", ""))
    inside = sum(bool(one.topics) for one in measured.held)
    weighed = (
        f"With fewer than {LEAST} questions, the weights are not fitted: these are the defaults. Each question was "
        "held out on its own, which leaves its topic with even fewer, so a part can look worse than it is."
        if inside < LEAST and not measured.shortened
        else "Weights depend on the scale of each part, and cannot be compared with each other."
    )
    return [
        Heading(text="Accuracy on held-out questions"),
        Paragraph(
            text=f"{how} {_count(len(measured.held), 'question')} were asked, {inside:,} of them in scope. The "
            f"correct topic came first in {measured.top1:.1%} of these, and among the first three in "
            f"{measured.recall(3):.1%}."
        ),
        Table(header=("part", "what it looks at", "accuracy alone", "weight"), rows=rows, numbers=frozenset({2, 3})),
        Paragraph(text=weighed),
        *([Paragraph(text=measured.choice)] if measured.choice else []),
    ]


def _threshold(knowledge: Knowledge, measured: Measured, fitted: Fitted) -> list[Block]:
    counts = measured.outcomes.at(fitted.threshold)
    now, crossed = counted(counts), counted(measured.crosswise)
    blocks: list[Block] = [Heading(text="When it answers")]
    if all(topic.answer is None for topic in knowledge.topics):
        blocks.append(Paragraph(text=f"{NO_ANSWERS} The figures below assume that every topic had one."))
    if counts.answered:
        said = (
            f"With an accepted error rate of {measured.error:.1%} and a threshold of {fitted.threshold:.4f}, "
            f"{said_of(now)}. The others go to a person."
        )
    else:
        said = (
            f"No threshold reaches an error of {measured.error:.1%} on the held-out questions: every question goes to "
            "a person. Give more questions for each topic, or accept a higher error rate."
        )
    blocks.append(Paragraph(text=f"{said} {share_said(measured.outside_share)}"))
    lines = [
        "Each confidence was fitted without the question it judges, but the threshold was chosen on all questions. If "
        f"each threshold is also chosen without the questions it judges, {said_of(crossed)}.",
        f"The confidence is off by {measured.calibration:.1%} on average (expected calibration error, on "
        f"{_count(len(measured.held), 'question')} that it was not fitted to).",
    ]
    if counts.never:
        lines.append(
            f"{counts.never:,} of the {_count(counts.inside, 'question')} in scope are never answered, whatever error "
            "is accepted: they look out of scope, as up to one in twenty may, or their topic has no answer."
        )
    if measured.outside_found is not None:
        lines.append(f"{found_said(measured.outside_found)} {outside_said(now)}.")
        lines.append(
            "Out-of-scope questions are those marked as such, and those of topics that were hidden for a while: the "
            "latter resemble the desk's own, and are harder to recognise than most."
        )
    points = [Point(x=100 * one.answered, y=100 * one.error) for one in measured.curve]
    picture = chart(
        [Series(name="held out", points=points)], title="Error rate against coverage", x_label="answered, %",
        y_label="wrong, %",
    )  # fmt: skip
    blocks.append(Bullets(texts=lines))
    blocks += [Picture(svg=picture)] if picture else []
    header = ("answered, of those in scope", "wrong among them", "threshold", "")
    blocks.append(Table(header=header, rows=_rows(measured, fitted), numbers=frozenset({0, 1, 2})))
    return blocks


def _rows(measured: Measured, fitted: Fitted) -> list[tuple[str, str, str, str]]:
    """Return rows for points of the curve, including the last one and the one in use, without apparent duplicates."""
    values = [one.threshold for one in measured.curve]
    shown = {f"{value:.3f}": value for value in [*values[::4], *values[-1:]]}
    kept = sorted({*shown.values(), *([fitted.threshold] if fitted.threshold <= 1 else [])}, reverse=True)
    rows = []
    for value in kept:
        one = measured.outcomes.at(value)
        wrong = f"{one.share_wrong:.1%} ({one.wrong:,} of {one.answered:,}, up to {one.up_to:.1%})"
        used = "in use" if value == fitted.threshold else ""
        rows.append((f"{one.share_answered:.1%}", wrong, f"{value:.3f}", used))
    return rows


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
    blocks: list[Block] = [Heading(text="Topics without an answer")]
    if lacking:
        shown = ", ".join(lacking[:MOST_ROWS])
        have = "topic has" if len(lacking) == 1 else "topics have"
        blocks.append(Paragraph(text=f"{len(lacking):,} {have} no answer; their questions go to a person: {shown}."))
        blocks += _more(len(lacking), "topics")
    else:
        blocks.append(Paragraph(text="None."))
    rows = [(_short(one.question), f"{one.confidence:.2f}", knowledge.topics[one.topics[0]].name) for one in low]
    blocks.append(Heading(text="Questions it was least sure of"))
    if rows:
        text = (
            "Held-out questions below the threshold; confidence 0: it looked out of scope, or its topic has no answer."
        )
        blocks.append(Paragraph(text=text))
        blocks.append(Table(header=("question", "confidence", "topic"), rows=rows[:MOST_ROWS], numbers=frozenset({1})))
        blocks += _more(len(rows), "questions")
    else:
        blocks.append(Paragraph(text="None."))
    return blocks


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _more(count: int, what: str) -> Sequence[Block]:
    return [Paragraph(text=f"And {count - MOST_ROWS:,} {what} more.")] if count > MOST_ROWS else []


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
