"""Checks for optimistic metrics: texts shared by training and evaluation examples, equal texts with different labels,
and too few examples.

In: examples by their split. Out: warnings for users. Texts are equal if they differ at most in case, white space, and
characters that are compatible in Unicode (NFKC).
"""

import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from segue.evaluation.metrics.bootstrap import FEWEST
from segue.tasks.answer import Answer
from segue.tasks.generate import Generate
from segue.tasks.rank import Rank
from segue.tasks.task import Example, Task

NAMES = {"valid": "validation"}


def warnings_of(task: Task, train: Sequence[Example], others: Mapping[str, Sequence[Example]]) -> list[str]:
    """Return warnings about overlap between the training examples and those that select and evaluate the model."""
    single = not isinstance(task, Answer | Generate)  # other tasks may have several correct answers
    golds: dict[bytes, set[Any]] = {}
    for example in train:
        golds.setdefault(text_key(task, example), set()).add(example.gold)
    warnings = _conflicts(task, train, golds) if single else []
    seen = dict(golds)
    before = ["training"]
    for name, examples in others.items():
        keys = [text_key(task, example) for example in examples]
        for part in before:
            known = golds if part == "training" else seen
            both = [n for n, key in enumerate(keys) if key in known]
            other = sum(examples[n].gold not in known[keys[n]] for n in both)
            warnings += _shared(NAMES.get(name, name), part, len(both), len(keys), other if single else 0)
        seen = {}
        for key, example in zip(keys, examples, strict=True):
            seen.setdefault(key, set()).add(example.gold)
        before.append(NAMES.get(name, name))
        if examples and len(examples) < FEWEST:
            warnings.append(_few(NAMES.get(name, name), len(examples)))
    return warnings


def _shared(name: str, part: str, both: int, every: int, other: int) -> list[str]:
    if not both:
        return []
    have = "example has" if both == 1 else "examples have"
    differ = f", {other:,} of them with another answer" if other else ""
    why = (
        "metrics on them say nothing about new texts"
        if part == "training"
        else ("selecting the model on one biases the other")
    )
    return [
        f"{both:,} of {every:,} {name} {have} the text of a {part} example{differ}: {why}. Remove them from one of "
        "the two."
    ]


def _conflicts(task: Task, train: Sequence[Example], golds: Mapping[bytes, set[Any]]) -> list[str]:
    texts = sum(len(found) > 1 for found in golds.values())
    if not texts:
        return []
    places: dict[bytes, list[int]] = {}
    examples = 0
    for example in train:
        key = text_key(task, example)
        if len(golds[key]) > 1:
            examples += 1
            if not places or key in places:
                places.setdefault(key, []).append(example.number)
    first = ", ".join(map(str, next(iter(places.values()))[:5]))
    what = "text occurs" if texts == 1 else "texts occur"
    return [
        f"{texts:,} training {what} with different answers ({examples:,} examples; the first: line or record {first}): "
        "they cannot all be right. Check them."
    ]


def _few(name: str, count: int) -> str:
    what = "example is" if count == 1 else "examples are"
    how = "to select and evaluate the model" if name == "validation" else "to evaluate the model"
    return (
        f"{count} {name} {what} too few {how}: other examples may give quite different results, so no intervals are "
        f"given. Use at least {FEWEST}, better a few hundred."
    )


def text_key(task: Task, example: Example) -> bytes:
    """Return a short hash of the texts of an example, the same for texts that count as equal."""
    texts = example.texts[:1] if isinstance(task, Rank) else example.texts
    plain = (" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in texts)
    return hashlib.blake2b("\0".join(plain).encode("utf-8", "replace"), digest_size=12).digest()
