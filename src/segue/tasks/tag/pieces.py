"""Alignment of the units of a text with the pieces of a tokeniser: entities to tags of pieces, and tags to entities.

In: units and entities of a text (`rows`), and the offsets of the pieces; or scores of tags for every piece. Out: tags
(O is 0, B of type k is 1 + 2k, I of type k is 2 + 2k), or entities with their probabilities.

A piece that continues a unit of the previous piece (a word in two pieces, a character in three bytes) is glued to it:
no entity may begin or end between the two. So predicted entities always consist of whole units.
"""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.evaluation.metrics.entities import Span
from segue.tasks.layout import Part
from segue.tasks.tag.rows import Marked
from segue.text.tokenizer import Encoding, Tokenizer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """The units that the pieces of a text cover."""

    begin: int
    """Index of the first piece in its document."""
    first: Ints
    """First unit of each piece."""
    last: Ints
    """Unit after the last of each piece; equal to `first` if a piece covers none, such as white space."""
    glued: Bools
    blank: Bools
    """True for pieces that cover no unit."""

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True, kw_only=True)
class Found:
    """An entity, as a range of pieces."""

    kind: int
    first: int
    end: int
    probability: float


def pieces_of(marked: Marked, part: Part) -> Pieces:
    """Return the units of the pieces of a text."""
    first = np.searchsorted(marked.ends, part.starts, side="right").astype(np.int64)
    last = np.searchsorted(marked.starts, part.ends, side="left").astype(np.int64)
    last = np.where(part.ends > part.starts, np.maximum(first, last), first)
    reached = np.concatenate([[0], np.maximum.accumulate(last)[:-1]]) if len(last) else last
    return Pieces(begin=part.begin, first=first, last=last, glued=reached > first, blank=first == last)


def cut_at_units(encoding: Encoding, marked: Marked, tokenizer: Tokenizer) -> Encoding:
    """Split every piece that covers several units, by encoding these units one by one."""
    whole = pieces_of(marked, Part(begin=0, starts=encoding.starts, ends=encoding.ends))
    ids, starts, ends = [], [], []
    for number in range(len(whole)):
        first, last = int(whole.first[number]), int(whole.last[number])
        begin, stop = int(encoding.starts[number]), int(encoding.ends[number])
        if last - first < 2:
            ids.append(encoding.ids[number : number + 1])
            starts.append(np.array([begin]))
            ends.append(np.array([stop]))
            continue
        for unit in range(first, last):
            # White space before a unit stays with it, as in the piece.
            left = begin if unit == first else int(marked.ends[unit - 1])
            right = min(stop, int(marked.ends[unit]))
            new = tokenizer.encode_with_offsets(marked.text[left:right])
            there = new.ends > new.starts  # released models add a mark before each text
            ids.append(new.ids[there])
            starts.append(new.starts[there] + left)
            ends.append(new.ends[there] + left)
    if not ids:
        return encoding
    return Encoding(ids=np.concatenate(ids), starts=np.concatenate(starts), ends=np.concatenate(ends))


# ------------------------------------------------------------------------------------------------- entities to tags


def unit_kinds(marked: Marked, types: Sequence[str]) -> tuple[list[tuple[int, int, int]], int]:
    """Return the entities as (type, first unit, end), and the number of those dropped because they overlap: the longest
    are kept."""
    assert marked.spans is not None
    kept: list[tuple[int, int, int]] = []
    taken = np.zeros(len(marked.starts), dtype=np.bool_)
    ordered = sorted(marked.spans, key=lambda span: (span[1] - span[2], span[1], span[0]))
    for kind, start, end in ordered:
        first = int(np.searchsorted(marked.ends, start, side="right"))
        last = int(np.searchsorted(marked.starts, end, side="left"))
        if not taken[first:last].any():
            taken[first:last] = True
            kept.append((types.index(kind), first, last))
    return sorted(kept, key=lambda entity: entity[1]), len(ordered) - len(kept)


def tag_pieces(entities: Sequence[tuple[int, int, int]], pieces: Pieces, *, units: int) -> Ints:
    """Return a tag for each piece. A piece across a boundary belongs to the entity with most of its units, the first in
    a tie; to none if more of its units are outside."""
    owner_U = np.full(units, -1)
    for number, (_, first, last) in enumerate(entities):
        owner_U[first:last] = number
    owners = np.where(pieces.blank, -1, owner_U[np.minimum(pieces.first, units - 1)])
    for place in np.flatnonzero(pieces.last - pieces.first > 1):
        counts = Counter(owner_U[pieces.first[place] : pieces.last[place]].tolist())
        owners[place] = max(counts, key=lambda owner: (counts[owner], owner >= 0, -owner))
    _fill_blanks(owners, pieces.blank)
    tags = np.zeros(len(pieces), dtype=np.int64)
    inside = np.flatnonzero(owners >= 0)
    kinds = np.array([kind for kind, _, _ in entities], dtype=np.int64)
    goes_on = (inside > 0) & (owners[inside - 1] == owners[inside])
    tags[inside] = 1 + 2 * kinds[owners[inside]] + goes_on
    return tags


def _fill_blanks(owners: NDArray[np.int_], blank: Bools) -> None:
    """Assign white space between two pieces of an entity to the entity."""
    before, waiting = -1, []
    for place in range(len(owners)):
        if blank[place]:
            waiting.append(place)
            continue
        if before >= 0 and owners[place] == before:
            owners[waiting] = before
        before, waiting = int(owners[place]), []


# ------------------------------------------------------------------------------------------------- tags to entities


def found_in(tags: Ints) -> list[tuple[int, int, int]]:
    """Return the entities of valid tags as (type, first piece, end)."""
    found: list[tuple[int, int, int]] = []
    for place, tag in enumerate(tags.tolist()):
        if tag % 2:
            found.append((tag // 2, place, place + 1))
        elif tag:
            kind, first, _ = found[-1]
            found[-1] = (kind, first, place + 1)
    return found


def in_units(first: int, end: int, pieces: Pieces, marked: Marked) -> tuple[int, int] | None:
    """Return the units of an entity in pieces; None if it has only white space."""
    inside = first + np.flatnonzero(~pieces.blank[first:end])
    if not len(inside):
        return None
    left, right = int(pieces.first[inside[0]]), int(pieces.last[inside[-1]])
    if marked.tokens:
        return left, right
    return _trimmed(left, right, int(pieces.last[inside[0]]), int(pieces.first[inside[-1]]), marked)


def _trimmed(left: int, right: int, left_limit: int, right_limit: int, marked: Marked) -> tuple[int, int]:
    """Remove punctuation of the outermost pieces; brackets whose partner is inside are kept."""

    def drops(unit: int, partners: tuple[str, str]) -> bool:
        text = marked.text[marked.starts[unit] : marked.ends[unit]]
        if not unicodedata.category(text[0]).startswith("P"):
            return False
        if unicodedata.category(text[0]) not in ("Ps", "Pi", "Pe", "Pf"):
            return True
        inside = marked.text[marked.starts[left] : marked.ends[right - 1]]
        return not any(unicodedata.category(character) in partners for character in inside)

    first, end = left, right
    while first + 1 < left_limit and first + 1 < end and drops(first, ("Pe", "Pf")):
        first += 1
    while end - 1 > right_limit and end - 1 > first and drops(end - 1, ("Ps", "Pi")):
        end -= 1
    return first, end


def in_characters(kind: str, first: int, end: int, marked: Marked) -> Span:
    """Return units as a span of characters."""
    return kind, int(marked.starts[first]), int(marked.ends[end - 1])


# -------------------------------------------------------------------------------------------------------- decoding


def decode(score_BTC: Floats, glued_BT: Bools, lengths: Sequence[int]) -> list[tuple[list[Found], float]]:
    """Return the most probable valid tags of each row, as entities, and the joint probability of all its tags.

    Scores are logarithms. Valid: I of a type follows only B or I of that type; a glued piece continues the previous
    one. The probability of an entity is that of its type at exactly these pieces, over all valid tag sequences of the
    row.
    """
    rows, length, _ = score_BTC.shape
    best_BC, forward_BC = _first(score_BTC[:, 0]), _first(score_BTC[:, 0])
    back_BTC = np.zeros(score_BTC.shape, dtype=np.int16)
    forward_BTC = np.empty_like(score_BTC)
    forward_BTC[:, 0] = forward_BC
    bests = np.empty_like(score_BTC)
    bests[:, 0] = best_BC
    for place in range(1, length):
        glued_B = glued_BT[:, place]
        entering_BC, back_BTC[:, place] = _best_into(best_BC, glued_B)
        best_BC = entering_BC + score_BTC[:, place]
        forward_BC = _sum_into(forward_BC, glued_B) + score_BTC[:, place]
        bests[:, place], forward_BTC[:, place] = best_BC, forward_BC
    results: list[tuple[list[Found], float]] = []
    for row in range(rows):
        size = lengths[row]
        if not size:  # a text for which the tokeniser gives no tokens
            results.append(([], 1.0))
            continue
        total = float(np.logaddexp.reduce(forward_BTC[row, size - 1]))
        tags = np.zeros(size, dtype=np.int64)
        tags[-1] = bests[row, size - 1].argmax()
        for place in range(size - 1, 0, -1):
            tags[place - 1] = back_BTC[row, place, tags[place]]
        entities = found_in(tags)
        backward_TC = _backward(score_BTC[row, :size], glued_BT[row, :size]) if entities else forward_BTC[row]
        found = [
            Found(
                kind=kind,
                first=first,
                end=end,
                probability=_probability(score_BTC[row], forward_BTC[row], backward_TC, (kind, first, end), total),
            )
            for kind, first, end in entities
        ]
        results.append((found, float(np.exp(bests[row, size - 1].max() - total))))
    return results


def _first(score_BC: Floats) -> Floats:
    """Forbid I tags at the first piece."""
    start_BC = score_BC.copy()
    start_BC[:, 2::2] = -np.inf
    return start_BC


def _best_into(best_BC: Floats, glued_B: Bools) -> tuple[Floats, Ints]:
    """Return the best score of the paths into each tag, and the previous tag of the best path (Viterbi)."""
    entering_BC, back_BC = np.empty_like(best_BC), np.empty(best_BC.shape, dtype=np.int64)
    from_B = best_BC.argmax(axis=1)
    top_B = best_BC.max(axis=1)
    entering_BC[:, 0], back_BC[:, 0] = np.where(glued_B, best_BC[:, 0], top_B), np.where(glued_B, 0, from_B)
    entering_BC[:, 1::2] = np.where(glued_B, -np.inf, top_B)[:, None]
    back_BC[:, 1::2] = from_B[:, None]
    begun_BK, inside_BK = best_BC[:, 1::2], best_BC[:, 2::2]
    entering_BC[:, 2::2] = np.maximum(begun_BK, inside_BK)
    back_BC[:, 2::2] = np.arange(1, best_BC.shape[1], 2) + (inside_BK > begun_BK)
    return entering_BC, back_BC


def _sum_into(forward_BC: Floats, glued_B: Bools) -> Floats:
    """Return the log-sum of all paths into each tag (the forward algorithm)."""
    entering_BC = np.empty_like(forward_BC)
    all_B = np.logaddexp.reduce(forward_BC, axis=1)
    entering_BC[:, 0] = np.where(glued_B, forward_BC[:, 0], all_B)
    entering_BC[:, 1::2] = np.where(glued_B, -np.inf, all_B)[:, None]
    entering_BC[:, 2::2] = np.logaddexp(forward_BC[:, 1::2], forward_BC[:, 2::2])
    return entering_BC


def _backward(score_TC: Floats, glued_T: Bools) -> Floats:
    """Return the log-sum of all paths from each tag of each piece to the end (the backward algorithm)."""
    backward_TC = np.zeros_like(score_TC)
    for place in range(len(score_TC) - 2, -1, -1):
        ahead_C = score_TC[place + 1] + backward_TC[place + 1]
        leave = ahead_C[0] if glued_T[place + 1] else np.logaddexp.reduce(np.append(ahead_C[1::2], ahead_C[0]))
        backward_TC[place, 0] = leave
        out = -np.inf if glued_T[place + 1] else leave
        backward_TC[place, 1::2] = backward_TC[place, 2::2] = np.logaddexp(out, ahead_C[2::2])
    return backward_TC


def _probability(
    score_TC: Floats, forward_TC: Floats, backward_TC: Floats, entity: tuple[int, int, int], total: float
) -> float:
    kind, first, end = entity
    inside = 2 + 2 * kind
    path = forward_TC[first, 1 + 2 * kind] + score_TC[first + 1 : end, inside].sum()
    longer = -np.inf  # paths in which the entity continues
    if end < len(backward_TC):
        longer = score_TC[end, inside] + backward_TC[end, inside]
    on = backward_TC[end - 1, inside]
    return float(np.clip(np.exp(path + on - total) - np.exp(path + longer - total), 0.0, 1.0))
