"""Grouping of similar texts, for an overview of what is behind an alarm."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from segue.apps.monitor.repeats import LONGEST, plain
from segue.apps.monitor.terms import terms_of

ALIKE = 0.3
"""Minimum Jaccard similarity of the words of two texts in one group."""
NAMES = 4


def grouped(texts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return groups of texts, the largest first, each with its most characteristic words."""
    groups: list[tuple[set[str], list[Mapping[str, Any]]]] = []
    place_of: dict[int, int] = {}
    words_in = {one["number"]: words_of(one) for one in texts}
    for one in texts:
        words = words_in[one["number"]]
        place = place_of.get(one["original"] or -1)
        if place is None:
            alike = [len(words & known) / max(1, len(words | known)) for known, _ in groups]
            place = alike.index(max(alike)) if alike and max(alike) >= ALIKE else len(groups)
        if place == len(groups):
            groups.append((words, []))
        groups[place][1].append(one)
        place_of[one["number"]] = place
    everywhere = Counter(word for one in texts for word in words_in[one["number"]])
    found = []
    for _, some in sorted(groups, key=lambda group: -len(group[1])):
        here = Counter(word for one in some for word in words_in[one["number"]])
        telling = sorted(here, key=lambda word: (-here[word] * here[word] / everywhere[word], -len(word), word))
        found.append({"words": telling[:NAMES], "texts": some})
    return found


def words_of(text: Mapping[str, Any]) -> set[str]:
    """Return the content words of a text: those of four or more letters, or pairs of Chinese characters."""
    terms = terms_of(plain(f"{text['title']} {text['text']}"[:LONGEST]))
    return {
        term
        for term in terms
        if " " not in term and term[0] not in "~^#" and (len(term) == 2 if not term.isascii() else len(term) > 3)
    }
