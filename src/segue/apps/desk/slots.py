"""Slots: places in an answer that a conversation fills, `Your order {order} is on its way.`

In: an answer with slots, questions with slots (`Where is my order {order}?`) and what a visitor wrote. Out: the values
that were found, and the slots that are still open; the desk asks for those.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SLOT = re.compile(r"\{(\w{1,40})\}")
LONGEST = 200
"""Characters of a value."""
_GAP = rf"[\s:#：]*(?P<value>[!-+\--:<->@-~]{{1,{LONGEST}}}|[^\s,?!;，。？！；]{{1,{LONGEST}}}?)"
"""A value: a run of ASCII, or the shortest text that fits."""


@dataclass(frozen=True, kw_only=True)
class Slots:
    """The slots of an answer."""

    values: Mapping[str, str]
    missing: tuple[str, ...]


def slots_in(answer: str, templates: Sequence[str], question: str) -> Slots:
    """The slots of an answer, filled where the question fits a template."""
    names = tuple(dict.fromkeys(SLOT.findall(answer)))
    values: dict[str, str] = {}
    for template in templates if names else ():
        for name, value in _fitted(template, question).items():
            values.setdefault(name, value)
    return Slots(values=values, missing=tuple(name for name in names if name not in values))


def filled(answer: str, values: Mapping[str, str]) -> str:
    """The answer with the values that are known; the others stay as they are."""
    return SLOT.sub(lambda found: values.get(found[1], found[0])[:LONGEST], answer)


def _fitted(template: str, question: str) -> dict[str, str]:
    """Values where a question has the words around a slot: those right before it, or right after it."""
    found = {}
    parts = SLOT.split(template)
    for place in range(1, len(parts), 2):
        left, right = parts[place - 1].split()[-2:], parts[place + 1].split()[:2]
        before = r"\W+".join(map(re.escape, (word.strip("?!.,:;？！。，：；") for word in left)))
        after = r"\W+".join(map(re.escape, (word.strip("?!.,:;？！。，：；") for word in right)))
        if not before and not after:
            continue
        for pattern in ((rf"{before}{_GAP}(?=\s*{after})",) if after else ()) + (
            (rf"{before}{_GAP}",) if before else ()
        ):
            if match := re.search(pattern, question, re.IGNORECASE):
                found[parts[place]] = match["value"]
                break
    return found
