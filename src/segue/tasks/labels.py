"""Labels of classes as they occur in tables: normalisation, order and checks."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from segue.errors import DataError
from segue.tasks.task import UnusableRowError
from segue.text.unicode import without_surrogates

MOST_CLASSES = 10_000
MISSING = frozenset({"nan", "null", "nat", "<na>", "#n/a"})
"""Words of programs for a missing value, in any case; and None, as in Python."""


def label_text(value: Any) -> str:
    """Return a label as text: 1, 1.0 and "1" are the same class, so that tables of different formats agree. A lone
    surrogate, which no file can hold, becomes U+FFFD."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, float) and math.isnan(value):
        raise UnusableRowError("an empty label")
    text = without_surrogates(str(value)).strip() if value is not None else ""
    if not text:
        raise UnusableRowError("an empty label")
    return text


def looks_missing(label: str) -> bool:
    """Return True if a label is a program's word for a missing value."""
    return label == "None" or label.casefold() in MISSING


def check_missing(found: Sequence[tuple[int, str]]) -> None:
    """Raise DataError if labels (given with their row numbers) look missing, so that NaN does not become a class."""
    rows: dict[str, list[int]] = {}
    for number, label in found:
        if looks_missing(label):
            rows.setdefault(label, []).append(number)
    if rows:
        got = "; ".join(
            f"{label!r} in {len(numbers):,} {'row' if len(numbers) == 1 else 'rows'} (line or record "
            f"{', '.join(map(str, numbers[:5]))}{', ...' if len(numbers) > 5 else ''})"
            for label, numbers in rows.items()
        )
        raise DataError(
            f"a label must not look like a missing value unless task.missing says what that is; got {got}. If these "
            "labels are missing, set task.missing=leave_out to skip their rows; if this is the name of a class, set "
            "task.missing=class."
        )


def in_order(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct labels, sorted as numbers if they all are numbers, otherwise alphabetically; raise DataError
    if there are fewer than two."""
    different = set(labels)
    if len(different) < 2:
        found = f"only {next(iter(different))!r}" if different else "none"
        raise DataError(
            f"a task needs examples of at least two classes; got {found}. Check the label column, or add examples."
        )
    if len(different) > MOST_CLASSES:
        raise DataError(
            f"a task may have at most {MOST_CLASSES:,} classes; got {len(different):,}. Check the label column: "
            "numbers with a fraction are for the task regress."
        )
    if all(label.lstrip("-").isdecimal() for label in different):
        return tuple(sorted(different, key=int))
    return tuple(sorted(different))


def index_of(label: str, labels: Sequence[str]) -> int:
    """Return the index of a class; raise DataError if it is not in the training examples."""
    try:
        return labels.index(label)
    except ValueError:
        shown = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
        missing = (
            " If it is missing, take its row out, or fine-tune with task.missing=leave_out."
            if looks_missing(label)
            else ""
        )
        raise DataError(
            f"a label must be one of those in the training examples ({shown}); got {label!r}. "
            f"Correct it, or add examples of it.{missing}"
        ) from None


def shares(labels: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return the classes with their counts, and a warning about rare ones or a large majority."""
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
