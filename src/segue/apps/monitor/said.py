"""The clauses of a text about each of its entities, optionally with markers in place of names.

In: a text and its mentions. Out: a `Said` for each entity. A sentence is divided into clauses at commas and at words
such as but and while, and between two entities at words such as and and as. A clause belongs to the entities that it
names, and to those of preceding clauses that consist of names only: "Acme, Globex and Initech rose" is about all three.
A clause without names belongs to the entities before it.

With markers, the entity in question looks the same whatever its name is, and so do the others; a model that is trained
on labels of single entities can then distinguish "THIS sues" from "sues THIS".
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from segue.apps.monitor.entities import Mention
from segue.text.unicode import is_unspaced

_SENTENCE = re.compile(r"[。！？!?；;\n]+|\.(?=\s|$)")
_CLAUSE = re.compile(r"[，,：:、]|\b(?:but|while|whereas|although|however)\b|但是?|而|然而", re.IGNORECASE)
_JOINING = re.compile(r"\b(?:and|as|after|when|though|yet|or)\b|[和与及并且却&]", re.IGNORECASE)
"""Words that divide a clause only between two entities."""
_WORD = re.compile(r"[^\W_]")
THIS, OTHER = "ꙮ", "ꙭ"
"""Markers among words: letters that contemporary texts lack. One-letter words share no subwords with others."""
THIS_UNSPACED, OTHER_UNSPACED = "㐂", "㐃"
"""Markers in scripts without spaces."""
MARKS = (THIS, OTHER, THIS_UNSPACED, OTHER_UNSPACED)

Span = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Said:
    """A part of a text, composed of pieces."""

    pieces: tuple[tuple[str, int, int], ...]
    """Characters, and the span of the whole text that they stand for; a marker may differ from its span in length."""

    @cached_property
    def text(self) -> str:
        """The characters of all pieces."""
        return "".join(letters for letters, _, _ in self.pieces)

    @cached_property
    def places(self) -> list[Span]:
        """Span of the whole text for each character."""
        found: list[Span] = []
        for letters, start, end in self.pieces:
            if len(letters) == end - start:
                found += [(place, place + 1) for place in range(start, end)]
            else:
                found += [(start, end)] * len(letters)
        return found


def around(text: str, mentions: Sequence[Mention]) -> dict[str, list[Span]]:
    """Return the spans about each entity; the whole text if it names only one entity."""
    codes = list(dict.fromkeys(one.entity for one in mentions))
    if len(codes) < 2:
        return {code: [(0, len(text))] for code in codes}
    said: dict[str, list[Span]] = {code: [] for code in codes}
    for start, end in _pieces(text, 0, len(text), _SENTENCE, mentions):
        inside = _between(mentions, start, end)
        for span, named in _owners(text, _pieces(text, start, end, _CLAUSE, inside), inside):
            for code in named:
                said[code].append(span)
    return said


def _owners(text: str, clauses: Sequence[Span], mentions: Sequence[Mention]) -> list[tuple[Span, list[str]]]:
    """Return the clauses of a sentence, or parts of them, with the entities that each is about."""
    found: list[tuple[Span, list[str]]] = []
    current: list[str] = []
    waiting: list[str] = []
    """Entities of clauses that consist of names only; the next clause is about them too."""
    for first, last in clauses:
        own = _between(mentions, first, last)
        if not own:
            if waiting and not _says_nothing(text, first, last, ()):  # "Acme, which rose, ..."
                current, waiting = waiting, []
            found.append(((first, last), current))
            continue
        spoke = False
        for start, end in _parted(text, first, last, own):
            here = _between(own, start, end)
            named = list(dict.fromkeys(one.entity for one in here))
            if not _says_nothing(text, start, end, here):
                current, waiting, spoke = list(dict.fromkeys([*waiting, *named])), [], True
                found.append(((start, end), current))
            elif spoke and end == last:  # "lifts Acme and Globex": the clause before is of both, so its list grows
                current += named
                found.append(((start, end), named))
            else:
                waiting += named
                found.append(((start, end), named))
    if waiting:  # names alone at the end of a sentence: what came before is said of them too
        last_ones = [*current, *dict.fromkeys(waiting)]
        found = [(span, last_ones if named is current or named == current else named) for span, named in found]
    once = {id(named): list(dict.fromkeys(named)) for _, named in found}
    return [(span, once[id(named)]) for span, named in found]


def _between(mentions: Sequence[Mention], start: int, end: int) -> Sequence[Mention]:
    """Return the mentions, which are in order, that begin between two places."""
    return mentions[bisect_left(mentions, start, key=_start) : bisect_left(mentions, end, key=_start)]


def _start(one: Mention) -> int:
    return one.start


def _says_nothing(text: str, start: int, end: int, mentions: Sequence[Mention]) -> bool:
    """Return True if there is no word besides names and conjunctions."""
    left = list(text[start:end])
    for one in mentions:
        left[one.start - start : one.end - start] = " " * (min(one.end, end) - one.start)
    return _WORD.search(_CLAUSE.sub(" ", _JOINING.sub(" ", "".join(left)))) is None


def _parted(text: str, start: int, end: int, mentions: Sequence[Mention]) -> list[Span]:
    """Return the parts of a clause, divided at conjunctions between two entities."""
    found = []
    for before, after in pairwise(mentions):
        if before.entity == after.entity:
            continue
        match = _JOINING.search(text, before.end, after.start)
        if match is not None:
            found.append((start, match.end()))
            start = match.end()
    return [*found, (start, end)]


def said_of(
    text: str, spans: Sequence[Span], *, entity: str = "", mentions: Sequence[Mention] = (), marked: bool = False
) -> Said:
    """Return the concatenation of spans of a text; with `marked`, names are replaced by markers."""
    pieces: list[tuple[str, int, int]] = []
    for start, end in spans:
        for one in _between(mentions, start, end) if marked else ():
            if one.end <= end:
                pieces.append((text[start : one.start], start, one.start))
                pieces.append((_mark(text, one, this=one.entity == entity), one.start, one.end))
                start = one.end
        pieces.append((text[start:end], start, end))
    return Said(pieces=tuple(pieces))


def _mark(text: str, one: Mention, *, this: bool) -> str:
    beside = text[max(0, one.start - 1) : one.start] + text[one.end : one.end + 1]
    if any(is_unspaced(letter) for letter in beside):
        return THIS_UNSPACED if this else OTHER_UNSPACED
    return THIS if this else OTHER


def _pieces(text: str, start: int, end: int, pattern: re.Pattern[str], mentions: Sequence[Mention]) -> list[Span]:
    """Return the spans between matches; a match belongs to the span before it, and is never inside a name."""
    found = []
    for match in pattern.finditer(text, start, end):
        before = bisect_left(mentions, match.end(), key=_start)
        inside = before > 0 and match.start() < mentions[before - 1].end  # mentions do not overlap
        if match.end() > start and not inside:
            found.append((start, match.end()))
            start = match.end()
    if start < end:
        found.append((start, end))
    return found
