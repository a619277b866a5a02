"""Classes as tables write them: found, put in order, checked."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from segue.errors import DataError
from segue.tasks.task import UnusableRowError

MOST_CLASSES = 10_000


def label_text(value: Any) -> str:
    """A label as text: 1, 1.0 and "1" are the same class, so that tables of different formats agree."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = str(value).strip() if value is not None else ""
    if not text:
        raise UnusableRowError("an empty label")
    return text


def in_order(labels: Sequence[str]) -> tuple[str, ...]:
    """The different ones, as numbers if they all are numbers, else by the alphabet; two at least."""
    different = set(labels)
    if len(different) < 2:
        found = f"only {next(iter(different))!r}" if different else "none"
        raise DataError(
            f"a task needs examples of two classes or more; got {found}. Check the label column, or add examples."
        )
    if len(different) > MOST_CLASSES:
        raise DataError(
            f"a task may have {MOST_CLASSES:,} classes; got {len(different):,}. Check the label column: "
            "numbers with a fraction are for the task regress."
        )
    if all(label.lstrip("-").isdecimal() for label in different):
        return tuple(sorted(different, key=int))
    return tuple(sorted(different))


def index_of(label: str, labels: Sequence[str]) -> int:
    """The number of a class, which training must have seen."""
    try:
        return labels.index(label)
    except ValueError:
        shown = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
        raise DataError(
            f"a label must be one of those in the training examples ({shown}); got {label!r}. "
            "Correct it, or add examples of it."
        ) from None


def shares(labels: Sequence[int], names: Sequence[str]) -> list[str]:
    """Classes with their counts, and what stands out: rare ones, or a large majority."""
    counts = Counter(labels)
    total = len(labels)
    listed = sorted(range(len(names)), key=lambda n: -counts[n])
    lines = [", ".join(f"{names[n]} {counts[n]:,} ({counts[n] / total:.1%})" for n in listed[:12])]
    if len(listed) > 12:
        lines[0] += f", and {len(listed) - 12} more"
    largest, smallest = counts[listed[0]], counts[listed[-1]]
    if largest > 10 * max(1, smallest):
        lines.append(
            f"Uneven: {names[listed[0]]} has {largest:,} examples, {names[listed[-1]]} has {smallest:,}. "
            "Look at macro F1 as well as accuracy; train.class_weights=true lets all classes count the same."
        )
    return lines
