"""Targets and their order for the permutation objective, drawn like XLNet's data pipeline, but online.

In: the beginnings of words and sentences in a text, and a source of randomness. Out: the tokens to predict, their
order, and the location of the two texts of a pair. The visibility follows from the ranks, by `masks.permutation_mask`.

A segment of pairs is `first half | A SEP B SEP CLS`. The halves are permuted separately; the ranks are such that the
first half sees nothing of the second, and the second sees all of the first, targets included. So the states of the
first half, which become the memory when the next segment begins at the second half, have not seen the tokens there.

All random choices go through `Draws`, so that draws recorded from the original code can be replayed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segue.config import PermutationConfig
from segue.data.lanes import Region

SpanUnit: TypeAlias = Literal["pieces", "words", "characters"]


class Draws(Protocol):
    """The random choices."""

    def span(self) -> int:
        """Return the number of units of the next span."""

    def context(self, size: int) -> int:
        """Return how much of a window of this size comes before its span."""

    def single(self, length: int) -> int:
        """Return a position of a text of this length, to be predicted alone."""

    def continues(self) -> bool:
        """Return True if B is the continuation of A."""

    def cut(self, points: Sequence[int]) -> int:
        """Return one of these positions, to end A there."""

    def place(self, highest: int) -> int:
        """Return the beginning of B, from 0 to `highest`."""

    def shuffle(self, size: int) -> NDArray[np.int64]:
        """Return a random order of this number of tokens."""


class SeededDraws:
    """Draws from a generator; single numbers come from a buffer, because drawing each separately is slow."""

    def __init__(self, generator: np.random.Generator, *, longest_span: int) -> None:
        weights = [1 / n for n in range(1, longest_span + 1)]
        self._generator = generator
        whole = sum(weights)
        self._cumulative = [total / whole for total in accumulate(weights)][:-1]
        self._supply: list[float] = []

    def _uniform(self) -> float:
        if not self._supply:
            self._supply = self._generator.random(128).tolist()
        return self._supply.pop()

    def span(self) -> int:
        return bisect_right(self._cumulative, self._uniform()) + 1

    def context(self, size: int) -> int:
        return int(self._uniform() * size)

    def single(self, length: int) -> int:
        return int(self._uniform() * length)

    def continues(self) -> bool:
        return self._uniform() >= 0.5

    def cut(self, points: Sequence[int]) -> int:
        return points[int(self._uniform() * len(points))]

    def place(self, highest: int) -> int:
        return int(self._uniform() * (highest + 1))

    def shuffle(self, size: int) -> NDArray[np.int64]:
        return self._generator.permutation(size)


# ---------------------------------------------------------------------------------------------------- targets


def sample_spans(
    starts_Q: NDArray[np.bool_], *, goal: int | None, context_ratio: float, spans: SpanUnit, draws: Draws
) -> list[tuple[int, int]]:
    """Return the spans to predict as (begin, end), ascending, with at most `goal` tokens together; None is no limit.

    Each is in a window of `context_ratio` times its units. Its begin moves to the next word (`characters`: stays where
    it is); a span that would touch the end is discarded and is the last. In the released code a span has n *pieces*,
    because the search for its end looks at its begin. `words` gives it n whole words, as was intended; of these it
    keeps as many as the goal has room for.
    """
    length = len(starts_Q)
    begins = list(range(length)) if spans == "characters" else np.flatnonzero(starts_Q).tolist()
    found: list[tuple[int, int]] = []
    position = taken = 0
    while position < length and (goal is None or taken < goal):
        room = length if goal is None else goal - taken
        count = min(draws.span(), room)
        window = int(count * context_ratio)
        before = draws.context(window)
        word = bisect_left(begins, position + before)
        if word == len(begins):
            break
        begin = begins[word]
        if spans == "words":
            ends = begins[word + 1 : word + count + 1]
            if len(ends) < count:
                break
            ends = [begin, *(end for end in ends if end - begin <= room)]
            end = ends[-1]
        else:
            end = begin + count
            if end >= length:
                break
        if end > begin:
            found.append((begin, end))
            taken += end - begin
        position = max(end, begin + 1) + window - before
    return found


def sample_mask(
    starts_Q: NDArray[np.bool_],
    *,
    reverse: bool,
    goal: int | None,
    context_ratio: float,
    spans: SpanUnit,
    draws: Draws,
) -> NDArray[np.bool_]:
    """Return the mask of tokens to predict: spans, then single tokens up to the goal. For a reversed text, spans are
    drawn in its original direction."""
    length = len(starts_Q)
    chosen = [False] * length
    ordered_Q = starts_Q[::-1] if reverse else starts_Q
    taken = 0
    for begin, end in sample_spans(ordered_Q, goal=goal, context_ratio=context_ratio, spans=spans, draws=draws):
        chosen[begin:end] = [True] * (end - begin)
        taken += end - begin
    while goal is not None and taken < min(goal, length):
        at = draws.single(length)
        taken += not chosen[at]
        chosen[at] = True
    mask_Q = np.array(chosen, dtype=np.bool_)
    return mask_Q[::-1] if reverse else mask_Q


# ------------------------------------------------------------------------------------------------------ order


def local_permutation(
    masked_Q: NDArray[np.bool_], functional_Q: NDArray[np.bool_], *, permutation_size: int, draws: Draws
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rank of each token, and the mask of targets.

    Chunks of `permutation_size` tokens follow each other; inside, all have the same random order. Tokens that are
    neither masked nor functional (SEP, CLS) are context, with rank -1. Functional tokens have a rank, but are never
    targets.
    """
    chunks = len(masked_Q) // permutation_size
    rank_Q = (np.arange(chunks)[:, None] * permutation_size + draws.shuffle(permutation_size)).reshape(-1)
    return np.where(masked_Q | functional_Q, rank_Q, -1), masked_Q & ~functional_Q


def order_segment(
    starts_Q: NDArray[np.bool_],
    functional_Q: NDArray[np.bool_],
    *,
    real: int,
    halves: bool,
    goal: int,
    settings: PermutationConfig,
    reverse: bool,
    draws: Draws,
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return ranks and targets of a whole segment, in which the first `real` positions are tokens and the rest is
    padding.

    Of two halves, the first has the odd target. A part that is not full has one target in `one_in` tokens, but at least
    one. The context of the second half has a rank above all of the first half, so that the first does not see it.
    """
    length = len(starts_Q)
    part = length // 2 if halves else length
    size = settings.permutation_size or length // 2
    ranks, targets = [], []
    for number, begin in enumerate(range(0, length, part)):
        tokens = min(max(real - begin, 0), part)
        share = goal if not halves else goal // 2 if number else goal - goal // 2
        if tokens < part:
            share = min(share, max(tokens // settings.one_in, 1))
        masked_Q = np.zeros(part, dtype=np.bool_)
        masked_Q[:tokens] = sample_mask(
            starts_Q[begin : begin + tokens],
            reverse=reverse,
            goal=share,
            context_ratio=settings.context_ratio,
            spans=settings.spans,
            draws=draws,
        )
        functional = functional_Q[begin : begin + part]
        rank_Q, target_Q = local_permutation(masked_Q, functional, permutation_size=size, draws=draws)
        ranks.append(rank_Q + number * (part + 1))
        targets.append(target_Q)
    return np.concatenate(ranks), np.concatenate(targets)


# ------------------------------------------------------------------------------------------------------ pairs


class Sentences:
    """Beginnings of lines inside a region, in its own direction. Position 0 and the end are not borders."""

    def __init__(self, region: Region, line_starts: NDArray[np.uint64]) -> None:
        self._region = region
        self._starts = line_starts
        self._low = self._index(region.start + 1)
        self._high = self._index(region.stop)

    def _index(self, offset: int) -> int:
        """Return the index of the first line that begins at this offset or after it."""
        # A plain int would convert the whole array.
        return int(np.searchsorted(self._starts, np.uint64(offset)))

    def between(self, begin: int, end: int) -> list[int]:
        """Return the borders p with begin <= p < end, ascending."""
        region = self._region
        if region.backward:
            first, last = self._index(region.stop - end + 1), self._index(region.stop - begin + 1)
        else:
            first, last = self._index(region.start + begin), self._index(region.start + end)
        inside = self._starts[max(first, self._low) : max(min(last, self._high), self._low)].astype(np.int64)
        borders: list[int] = (region.stop - inside[::-1] if region.backward else inside - region.start).tolist()
        return borders

    def at_or_before(self, position: int) -> int:
        """Return the nearest border to the left; 0 if there is none."""
        region = self._region
        if region.backward:
            later = self._first_from(region.stop - position)
            return 0 if later is None else region.stop - later
        earlier = self._last_up_to(region.start + position)
        return 0 if earlier is None else earlier - region.start

    def at_or_after(self, position: int) -> int:
        """Return the nearest border to the right; the end if there is none."""
        region = self._region
        if region.backward:
            earlier = self._last_up_to(region.stop - position)
            return region.length if earlier is None else region.stop - earlier
        later = self._first_from(region.start + position)
        return region.length if later is None else later - region.start

    def _first_from(self, offset: int) -> int | None:
        index = max(self._index(offset), self._low)
        return int(self._starts[index]) if index < self._high else None

    def _last_up_to(self, offset: int) -> int | None:
        index = min(self._index(offset + 1), self._high) - 1
        return int(self._starts[index]) if index >= self._low else None


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The texts A and B, as positions in a region."""

    a_begin: int
    a_end: int
    b_begin: int
    b_end: int
    continues: bool
    """Whether B is the continuation of A."""


def split_a_and_b(sentences: Sentences, *, length: int, begin: int, total: int, draws: Draws) -> Pair | None:
    """Return A, which begins at `begin` and ends with a sentence, and B, which follows it or, half of the time and if
    no sentence ends in time, comes from a random position of the region and is extended to whole sentences. The longer
    one is truncated on its right until both have `total` tokens together. None if the region ends too early."""
    if begin + total >= length:
        return None
    cuts = sentences.between(begin + 1, begin + total)
    beyond = sentences.at_or_after(begin + total)
    continues = bool(cuts) and draws.continues()
    a_end = draws.cut(cuts) if cuts else beyond
    if continues:
        b_begin, b_end = a_end, beyond
    else:
        b_length = max(1, total - (a_end - begin))
        place = draws.place(length - 1 - b_length)
        b_begin = sentences.at_or_before(place)
        b_end = min(sentences.at_or_after(place + b_length), length - 1)
    a_length, b_length = _trimmed(a_end - begin, b_end - b_begin, total)
    return Pair(
        a_begin=begin,
        a_end=begin + a_length,
        b_begin=b_begin,
        b_end=b_begin + b_length,
        continues=continues,
    )


def _trimmed(a_length: int, b_length: int, total: int) -> tuple[int, int]:
    """Return the lengths after truncating the longer one, B if they are equal, to `total` together."""
    excess = max(0, a_length + b_length - total)
    from_longer = min(excess, abs(a_length - b_length))
    if a_length > b_length:
        a_length -= from_longer
    else:
        b_length -= from_longer
    rest = excess - from_longer
    return a_length - rest // 2, b_length - (rest + 1) // 2


def leak_free_pair(
    sentences: Sentences, *, length: int, begin: int, total: int, known: tuple[int, int], draws: Draws
) -> Pair:
    """Return a pair like `split_a_and_b`, but with a B that does not copy other parts of the segment or of the memory:
    the positions from `known[0]` up to `known[1]`, and A. The original has no such check. After eight attempts, B is
    the continuation of A."""
    for _ in range(8):
        pair = split_a_and_b(sentences, length=length, begin=begin, total=total, draws=draws)
        if pair is None:
            break
        copied = pair.b_begin < max(pair.a_end, known[1]) and pair.b_end > known[0]
        if pair.continues or not copied:
            return pair
    middle = begin + total // 2
    return Pair(a_begin=begin, a_end=middle, b_begin=middle, b_end=begin + total, continues=True)
