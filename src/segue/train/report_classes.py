"""Report sections for tasks with classes: baselines, metrics of each class, confusion matrix, calibration.

In: evaluated examples, and the results of the baselines. Out: blocks of a page.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from segue.evaluation.metrics.bootstrap import Metric, wilson
from segue.evaluation.metrics.classification import CALIBRATION_BINS, confusion, per_class, reliability
from segue.report.charts import Point, Series, chart
from segue.report.pages import Block, Heading, Paragraph, Picture, Table, clean
from segue.tasks.classify import Classify
from segue.tasks.task import Task
from segue.train.events import Compared, Judged, SimpleMethod
from segue.train.joining import ALONE, has_class

MOST_CLASSES = 20
MOST_LISTED = 100
WITH_NGRAMS = "this model, combined with n-grams"
PART_NAMES = {"valid": "validation"}


def examples_of(part: Judged) -> str:
    """Return the number and the name of the examples."""
    return f"{len(part.examples):,} {PART_NAMES.get(part.name, part.name)} examples"


def cells(metric: Metric | None) -> list[str]:
    """Return a value and its interval as table cells."""
    if metric is None:
        return ["", ""]
    interval = "" if metric.low is None or metric.high is None else f"{metric.low:.4f} to {metric.high:.4f}"
    return [f"{metric.value:.4f}", interval]


# --------------------------------------------------------------------------------------------------- comparison


def no_better(compared: Compared | None, judged: Sequence[Judged], metric: str, *, joined: bool) -> str | None:
    """Return a sentence if the model is not better than a baseline on the last evaluated part; otherwise None."""
    if compared is None or not judged:
        return None
    part = judged[-1]
    own = part.metrics[metric].value
    better = [method for method in compared.methods if method.metrics[part.name][metric].value >= own]
    if not better:
        return None
    best = max(better, key=lambda method: method.metrics[part.name][metric].value)
    whole = "The model with its n-grams" if joined else "The model"
    remedy = "" if joined else "combine it with the model with --wide, "
    return (
        f"{whole} is not better than a baseline: {metric} {own:.4f} on {examples_of(part)}, and "
        f"{best.metrics[part.name][metric].value:.4f} by {best.name}. The baseline is smaller and faster: use it, "
        f"{remedy}pretrain on texts of this kind, or train longer."
    )


def beside_rows(
    methods: Sequence[SimpleMethod], alone: Sequence[Judged]
) -> list[tuple[str, Mapping[str, Mapping[str, Metric]]]]:
    """Return the rows beside the model, by name: the model without n-grams if they are joined to it, and the
    baselines."""
    own = {part.name: part.metrics for part in alone}
    return [*([(ALONE, own)] if own else []), *((method.name, method.metrics) for method in methods)]


def comparison_blocks(
    compared: Compared | None, judged: Sequence[Judged], metric: str, *, alone: Sequence[Judged] = ()
) -> list[Block]:
    """Return a table of the model and the baselines; without results of the model, of the baselines alone."""
    if compared is None:
        return []
    parts = list(compared.methods[0].metrics)
    own = {part.name: part.metrics for part in judged}
    header = ["method", *(cell for part in parts for cell in (f"{metric}, {part}", "95 % interval", "macro F1"))]
    rows = []
    title = WITH_NGRAMS if alone else "this model"
    every: list[tuple[str, Mapping[str, Mapping[str, Metric]]]] = [(title, own)]
    for title, found in every + beside_rows(compared.methods, alone):
        if found:
            of = [found.get(part, {}) for part in parts]
            values = (cell for one in of for cell in (*cells(one.get(metric)), cells(one.get("macro_f1"))[0]))
            rows.append([title, *values])
    details = "".join(f" {method.name}: {method.detail}." for method in compared.methods if method.detail)
    words = (
        "Baselines: the most frequent class of the training examples, whatever the text, and TF-IDF with logistic "
        f"regression, whose penalty (C) and unit (words or characters) are chosen on the validation examples.{details} "
        f"They took {compared.seconds:.1f} s."
    )
    if alone:
        words += " This model combines the fine-tuned model and this TF-IDF; they are saved together."
    blocks: list[Block] = [Heading(text="Comparison with baselines")]
    worse = no_better(compared, judged, metric, joined=bool(alone))
    blocks += [Paragraph(text=worse)] if worse is not None else []
    blocks += [Table(header=header, rows=rows, numbers=frozenset(range(1, len(header)))), Paragraph(text=words)]
    return [*blocks, Paragraph(text=compared.remark)] if compared.remark is not None else blocks


# ------------------------------------------------------------------------------------------------------ classes


def class_blocks(task: Task, part: Judged) -> list[Block]:
    """Return precision, recall and F1 of each class, the most frequent first."""
    if not isinstance(task, Classify):
        return []
    values_NC = np.stack([prediction.value for prediction in part.predictions])
    if task.settings.multiple:
        predicted_NC = values_NC >= task.settings.threshold
    else:
        predicted_NC = values_NC.argmax(axis=1)[:, None] == np.arange(len(task.labels))
    found = per_class(has_class(task, part.examples), predicted_NC)
    order = sorted(range(len(found)), key=lambda n: (-found[n].support, n))[:MOST_LISTED]
    rows = [
        [
            short_name(task.labels[n], longest=40),
            f"{found[n].precision:.4f}" if found[n].predicted else "–",
            f"{found[n].recall:.4f}" if found[n].support else "–",
            f"{found[n].f1:.4f}",
            f"{found[n].support:,}",
            f"{found[n].predicted:,}",
        ]
        for n in order
    ]
    words = (
        f"On the {examples_of(part)}: support is the number of examples with the class, predicted the number "
        "assigned to it."
    )
    if len(found) > MOST_LISTED:
        words += f" The {MOST_LISTED} most frequent of {len(found)} classes are listed."
    header = ["class", "precision", "recall", "F1", "support", "predicted"]
    return [
        Heading(text=f"Classes, {PART_NAMES.get(part.name, part.name)}"),
        Paragraph(text=words),
        Table(header=header, rows=rows, numbers=frozenset(range(1, 6))),
    ]


def confusion_blocks(task: Task, part: Judged) -> list[Block]:
    """Return the confusion matrix of gold and predicted classes."""
    if not isinstance(task, Classify) or task.settings.multiple:
        return []
    golds = [example.gold for example in part.examples]
    predicted = [int(prediction.value.argmax()) for prediction in part.predictions]
    matrix, names = capped(confusion(golds, predicted, num_labels=len(task.labels)), task.labels)
    words = f"Rows are the gold classes of the {examples_of(part)}, columns the predicted ones."
    others = len(task.labels) > MOST_CLASSES
    if others:
        words += (
            f" The {MOST_CLASSES} most frequent of the {len(task.labels)} gold classes have a row and a column of "
            "their own; the others are summed in the last ones."
        )
    rows, shades = [], []
    for place, (name, counts) in enumerate(zip(names, matrix, strict=True)):
        total = int(counts.sum())
        alone = not (others and place == MOST_CLASSES)  # unknown for the merged classes
        right = f"{counts[place] / total:.1%}" if total and alone else ""
        shown = [f"{count:,}" if count else "·" for count in counts]
        rows.append([short_name(name, longest=40), *shown, f"{total:,}", right])
        shades.append([0.0, *(float(count) / max(1, total) for count in counts)])
    header = ["gold \\ predicted", *(short_name(name, longest=20) for name in names), "all", "correct"]
    return [
        Heading(text=f"Confusion, {PART_NAMES.get(part.name, part.name)}"),
        Paragraph(text=words),
        Table(header=header, rows=rows, numbers=frozenset(range(1, len(header))), shades=shades),
    ]


def capped(matrix: NDArray[np.int64], labels: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the matrix of the most frequent gold classes in their original order, with the others merged in a last row
    and column."""
    if len(labels) <= MOST_CLASSES:
        return matrix, list(labels)
    often = sorted(range(len(labels)), key=lambda n: (-int(matrix[n].sum()), n))[:MOST_CLASSES]
    kept = sorted(often)
    group = np.full(len(labels), MOST_CLASSES)
    group[kept] = np.arange(MOST_CLASSES)
    merge = np.eye(MOST_CLASSES + 1, dtype=np.int64)[group]
    return merge.T @ matrix @ merge, [*(labels[n] for n in kept), f"{len(labels) - MOST_CLASSES} others"]


def short_name(name: str, *, longest: int) -> str:
    """Return the name of a class, shortened for the side of a table."""
    line = " ".join(clean(name).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


# -------------------------------------------------------------------------------------------------- calibration


def calibration_blocks(task: Task, part: Judged) -> list[Block]:
    """Return a reliability diagram: accuracy against confidence."""
    if not isinstance(task, Classify) or task.settings.multiple:
        return []
    values_NC = np.stack([prediction.value for prediction in part.predictions]).astype(np.float64)
    correct_N = values_NC.argmax(axis=1) == np.array([example.gold for example in part.examples])
    bins = reliability(values_NC.max(axis=1), correct_N)
    points = []
    for one in bins:
        low, high = wilson(one.accuracy * one.count, one.count)
        points.append(Point(x=one.confidence, y=one.accuracy, low=low, high=high, full=True))
    least = min(1 / len(task.labels), *(one.confidence for one in bins))
    honest = Series(name="perfectly calibrated", points=[Point(x=least, y=least), Point(x=1, y=1)], faint=True)
    svg = chart(
        [honest, Series(name="the model", points=points, colour="second", dots=True)],
        title="Reliability diagram",
        x_label="mean probability of the answer",
        y_label="share correct (bars: 95 % intervals)",
    )
    error = part.metrics["calibration_error"].value
    sure = float(values_NC.max(axis=1).mean() - correct_N.mean())
    way = "overconfident" if sure > 0 else "underconfident"
    words = (
        f"Expected calibration error {error:.4f} on {examples_of(part)}: the mean distance of the dots from the line, "
        f"weighted by the number of answers ({CALIBRATION_BINS} bins of equal width). On the whole the model is {way}, "
        f"by {abs(sure):.4f}."
    )
    rows = [[f"{one.confidence:.4f}", f"{one.accuracy:.4f}", f"{one.count:,}"] for one in bins]
    return [
        Heading(text=f"Calibration, {PART_NAMES.get(part.name, part.name)}"),
        Paragraph(text=words),
        *([Picture(svg=svg)] if svg else []),
        Table(header=["mean probability", "share correct", "answers"], rows=rows, numbers=frozenset(range(3))),
    ]
