"""Training examples from labels of single entities.

In: labelled rows and the list of entities. Out: the clauses about each labelled entity, with markers in place of names
(`said`), and the number of labels that could not be used.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from segue.apps.monitor.entities import Entities
from segue.apps.monitor.labelled import Labelled
from segue.apps.monitor.said import around, said_of

LEAST = 20
"""Minimum number of labels of entities to train and evaluate weights for them."""
NOT_NAMED = "labels of entities that are not in the list, or not named in their text"
TOO_FEW = f"labels of entities that are fewer than {LEAST}, or all the same"


@dataclass(frozen=True, kw_only=True)
class Target:
    """The clauses of a row about an entity, and the index of the sentiment."""

    row: int
    """Index of the row."""
    text: str
    sentiment: int


def targets_of(rows: Sequence[Labelled], entities: Entities) -> tuple[list[Target], Counter[str]]:
    """Return all usable labels, and the number of those that cannot be used, by reason."""
    found: list[Target] = []
    problems: Counter[str] = Counter()
    for number, row in enumerate(rows):
        labels = labels_by_code(row, entities)
        problems[NOT_NAMED] += len(row.entities) - len(labels)
        mentions = entities.mentions(row.text) if labels else []
        spans = around(row.text, mentions)
        for code, sentiment in labels.items():
            said = said_of(row.text, spans[code], entity=code, mentions=mentions, marked=True)
            found.append(Target(row=number, text=said.text, sentiment=sentiment))
    if len(found) < LEAST or len({one.sentiment for one in found}) < 2:
        problems[TOO_FEW] += len(found)
        found = []
    return found, +problems


def labels_by_code(row: Labelled, entities: Entities) -> dict[str, int]:
    """Return the indices of sentiments by code, for entities that are in the list and in the text."""
    if not row.entities:
        return {}
    named = {one.entity for one in entities.mentions(row.text)}
    found = {}
    for given, sentiment in row.entities:
        code = given if given in entities.codes else next((one.entity for one in entities.mentions(given)), None)
        if code in named:
            found[code] = sentiment
    return found
