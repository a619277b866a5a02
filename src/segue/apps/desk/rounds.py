"""Which questions are held back, and what the parts learn from meanwhile.

Questions are held back in turn (whole dialogues together). Where there are few, each is held back alone. Where most
topics have a single question there is nothing to hold back; then these questions are asked with a third of their words
left out, which the report says.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.parts import Parts, Vectors, fit_parts
from segue.text.unicode import is_chinese

FOLDS = 5
MANY = 600
"""Held-back questions that are enough to measure: no more folds are asked than it takes."""
ENOUGH = 50
"""Held-back questions with which a fifth can be held back at a time; with fewer it is one at a time,"""
LEAST = 8
"""down to so many, and half of all questions; with fewer, shortened ones are asked."""
MOST_ASKED = 3000
"""Questions that are asked in a round."""

Ask = tuple[str, tuple[int, ...], int | None]
"""A question, its topics, and its number, if it has one."""


def rounds_of(
    knowledge: Knowledge, vectors: Vectors | None, *, seed: int, told: Callable[[str], object]
) -> Iterator[tuple[Parts, list[Ask], list[int]]]:
    """Parts that learned from some questions, the others, and the numbers of the first."""
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
    """With a third of its words left out, or of its characters in a script without spaces."""
    chinese = is_chinese(text)
    words = list(text) if chinese else text.split()
    kept = sorted(draw.permutation(len(words))[: max(1, len(words) - len(words) // 3)].tolist())
    return ("" if chinese else " ").join(words[place] for place in kept)
