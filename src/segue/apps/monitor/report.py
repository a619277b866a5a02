"""The evaluation report of a model, and the numbers that are stored with it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from segue.apps.monitor.entities import Entities
from segue.apps.monitor.joining import SURE, WORTH
from segue.apps.monitor.labelled import SENTIMENTS, LabelledRows
from segue.apps.monitor.learn import Held, Learned
from segue.report.pages import Block, Bullets, Heading, Paragraph, Table

TITLE = "Evaluation of the monitor"
MOST_ROWS = 25
BINS = 5
WORDS = 15
_WHAT = {"entity": "sentiment towards single entities"}
RULE = (
    f"It is used if the loss is lower by {WORTH:.0%} and by {SURE:g} standard errors of the difference, and accuracy "
    "is no lower."
)


def summary(rows: LabelledRows, learned: Learned, entities: Entities) -> dict[str, Any]:
    """Return the numbers that are stored with the model."""
    counts = Counter(row.sentiment for row in rows.rows if row.sentiment is not None)
    return {
        "rows": len(rows.rows),
        "sentiments": {SENTIMENTS[place]: counts[place] for place in sorted(counts)},
        "topics": len(learned.topics),
        "entities": len(entities.all),
        "left_out": rows.left_out,
        **{name: held.numbers() for name, held in learned.held.items()},
        **({} if learned.tried is None else {"network": learned.tried.numbers()}),
    }


def network_sentence(tried: Mapping[str, Any]) -> str:
    """Describe the evaluation of a network."""
    if "why" in tried:
        return f"The network {tried['model']} was not tried: {tried['why']}."
    return (
        f"The network {tried['model']}, fine-tuned on {tried['learned']:,} rows, was evaluated on {tried['asked']:,} "
        f"others: combined with the linear model, accuracy {tried['right_now']:.1%} and mean loss "
        f"{tried['loss_now']:.3f}; the linear model alone, {tried['right_before']:.1%} and {tried['loss_before']:.3f}. "
        f"It is {'used' if tried['used'] else 'not used'}."
    )


def report(rows: LabelledRows, learned: Learned, numbers: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of the report."""
    kinds = ", ".join(f"{count:,} {name}" for name, count in numbers["sentiments"].items())
    lines = [
        f"{numbers['rows']:,} rows: {kinds}; {numbers['topics']:,} topics, {numbers['entities']:,} entities.",
        *(f"Skipped or corrected: {count:,} {reason}." for reason, count in rows.left_out.items()),
    ]
    blocks: list[Block] = [Heading(text="What it knows"), Bullets(texts=lines)]
    if "network" in numbers:
        blocks += [
            Heading(text="Effect of the network"),
            Paragraph(text=f"{network_sentence(numbers['network'])} {RULE}"),
        ]
    names = {"sentiment": SENTIMENTS, "topic": learned.topics, "entity": SENTIMENTS}
    for name, held in learned.held.items():
        blocks += _quality(name, held, names[name], numbers[name])
    blocks += _words(learned)
    return blocks


def _quality(name: str, held: Held, classes: tuple[str, ...], numbers: Mapping[str, Any]) -> list[Block]:
    answers = held.probabilities_NC.argmax(axis=1)
    gold = np.array(held.labels)
    rows = []
    for place, label in enumerate(classes):
        own = gold == place
        if own.any():
            told = answers == place
            found = int((own & told).sum())
            precision = f"{found / max(1, int(told.sum())):.1%}"
            rows.append((label, f"{int(own.sum()):,}", f"{found / int(own.sum()):.1%}", precision))
    sure = held.probabilities_NC.max(axis=1)
    bins = []
    for low in np.arange(BINS) / BINS:
        here = (sure >= low) & (sure < low + 1 / BINS if low + 1 / BINS < 1 else sure <= 1)
        if here.any():
            right = float((answers == gold)[here].mean())
            bins.append((f"{low:.0%} to {low + 1 / BINS:.0%}", f"{int(here.sum()):,}", f"{sure[here].mean():.1%}",
                         f"{right:.1%}"))  # fmt: skip
    what = "labels" if name == "entity" else "rows"
    return [
        Heading(text=f"Accuracy on held-out {what}: {_WHAT.get(name, name)}"),
        Paragraph(
            text=f"{numbers['held_back']:,} {what} were held out. Accuracy {numbers['accuracy']:.1%}; macro F1 "
            f"{numbers['macro_f1']:.1%}; expected calibration error {numbers['calibration_error']:.1%}."
        ),
        Table(
            header=("class", what, "recall", "precision"),
            rows=rows[:MOST_ROWS],
            numbers=frozenset({1, 2, 3}),
        ),
        Paragraph(text=f"Calibration: {what} by predicted probability, and the share of them that is correct."),
        Table(header=("probability", what, "mean probability", "correct"), rows=bins, numbers=frozenset({1, 2, 3})),
    ]


def _words(learned: Learned) -> list[Block]:
    """Return a table of the terms with the largest weights for each sentiment."""
    terms = learned.linear.vocabulary.terms
    weight_VC = learned.linear.weight_VC[:, : len(SENTIMENTS)]
    whole = [place for place, term in enumerate(terms) if not term.startswith("~")]
    rows = []
    for place, label in enumerate(SENTIMENTS):
        weights = weight_VC[whole, place] - weight_VC[whole].mean(axis=1)
        best = np.argsort(-weights)[:WORDS]
        if len(best) and weights[best[0]] > 0:
            rows.append((label, ", ".join(terms[whole[n]] for n in best.tolist() if weights[n] > 0)))
    joined = learned.tried is not None and learned.tried.joined is not None
    heading = "Most influential words" + (", in the linear model" if joined else "")
    return [Heading(text=heading), Table(header=("sentiment", "terms"), rows=rows)]
