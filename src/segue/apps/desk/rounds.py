"""Rounds of cross-validation: held-out questions, and parts fitted to the others.

Questions are held out in folds, whole dialogues together. If there are few, each dialogue is held out on its own. If
most topics have a single question, nothing can be held out; questions are then asked with a third of their words left
out, and the report says so.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.parts import Parts, Vectors, fit_parts
from segue.text.unicode import is_chinese

FOLDS = 5
"""Number of folds."""
MANY = 600
"""Number of held-out questions that suffice for the evaluation; further folds are skipped."""
ENOUGH = 50
"""Minimum number of usable questions for folds; with fewer, dialogues are held out one at a time."""
LEAST = 8
"""Minimum number of usable questions, which must also be half of all, to hold any out; otherwise they are shortened."""
MOST_ASKED = 3000
"""Maximum number of questions asked in a round."""

Ask = tuple[str, tuple[int, ...], int | None]
"""A question, its topics, and its index in the knowledge; None if it was shortened."""


def rounds_of(
    knowledge: Knowledge, vectors: Vectors | None, *, seed: int, told: Callable[[str], object]
) -> Iterator[tuple[Parts, list[Ask], list[int]]]:
    """Yield for each round the fitted parts, the held-out questions, and the indices of the training questions."""
    counts = Counter(topic for one in knowledge.asked for topic in one.topics)
    groups = list(dict.fromkeys(one.group for one in knowledge.asked))
    order = np.random.default_rng(seed).permutation(len(groups))
    articles = len(counts) < len(knowledge.topics) / 2  # most answers are to be found by their own words
    numbers = [
        number
        for number, one in enumerate(knowledge.asked)
        if not one.topics or articles or any(counts[topic] > 1 for topic in one.topics)
    ]
    usable = sum(bool(knowledge.asked[number].topics) for number in numbers)
    many = FOLDS if usable >= ENOUGH else len(groups)
    fold_of = {groups[group]: place % many for place, group in enumerate(order.tolist())}
    folds: list[list[int]] = [[] for _ in range(many)]
    for number in numbers:
        folds[fold_of[knowledge.asked[number].group]].append(number)
    if usable < ENOUGH and (usable < LEAST or 2 * usable < sum(bool(one.topics) for one in knowledge.asked)):
        told("training, to be tested on shortened questions")
        everything = range(len(knowledge.asked))
        draw = np.random.default_rng(seed)
        outside: list[Ask] = [(one.text, (), number) for number, one in enumerate(knowledge.asked) if not one.topics]
        short: list[Ask] = [(_shorter(one.text, draw), one.topics, None) for one in knowledge.asked if one.topics]
        yield fit_parts(knowledge, everything, vectors), short[:MOST_ASKED] + outside, []
        return
    for place, fold in enumerate(folds[: math.ceil(many * min(1.0, MANY / usable))], start=1):
        told(f"round {place}: training without {len(fold):,} questions, and testing on them")
        away = set(fold)
        rest = [number for number in range(len(knowledge.asked)) if number not in away]
        if fold:
            asked: list[Ask] = [(knowledge.asked[n].text, knowledge.asked[n].topics, n) for n in fold[:MOST_ASKED]]
            yield fit_parts(knowledge, rest, vectors), asked, rest


def _shorter(text: str, draw: np.random.Generator) -> str:
    """Leave out a random third of the words, or of the characters in Chinese."""
    chinese = is_chinese(text)
    words = list(text) if chinese else text.split()
    kept = sorted(draw.permutation(len(words))[: max(1, len(words) - len(words) // 3)].tolist())
    return ("" if chinese else " ").join(words[place] for place in kept)
