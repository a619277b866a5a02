"""Labels of single entities as samples to learn from.

In: labelled rows and the list of entities. Out: what each row says of each entity that has a label, with marks in place
of the names (`said`), and why others could not be used.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from segue.apps.monitor.entities import Entities
from segue.apps.monitor.labelled import Labelled
from segue.apps.monitor.said import around, said_of

LEAST = 20
"""Labels of entities from which a model of them is learned: it must be measured too."""
NOT_NAMED = "labels of entities that are not in the list, or not named in their text"
TOO_FEW = f"labels of entities that are fewer than {LEAST}, or all the same"


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a row says of an entity, and the place of its sentiment."""

    row: int
    """Number of the row."""
    text: str
    sentiment: int


def targets_of(rows: Sequence[Labelled], entities: Entities) -> tuple[list[Target], Counter[str]]:
    """All that can be used, and how many labels cannot."""
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
    """Places of sentiments by code, of entities that the list has and the text names."""
    if not row.entities:
        return {}
    named = {one.entity for one in entities.mentions(row.text)}
    found = {}
    for given, sentiment in row.entities:
        code = given if given in entities.codes else next((one.entity for one in entities.mentions(given)), None)
        if code in named:
            found[code] = sentiment
    return found
