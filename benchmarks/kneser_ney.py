"""N-gram language models with modified, interpolated Kneser-Ney smoothing (Chen and Goodman 1998).

In: a sequence of symbols, numbered. Out: log-probabilities of other sequences. Characters and words are treated alike.

The highest order has the counts of its n-grams; a lower order has the number of distinct symbols before each of its
n-grams. Three discounts for each order come from the counts of counts. If these are too few (one of n1, n2, n3 and n4
is zero, as for the single characters of a large text), they are 0.5, 1 and 1.5; none is below 0 or above its count. The
lowest order is interpolated with the uniform distribution over all symbols, so that unseen symbols have a probability
too.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
UNKNOWN = 0
"""The number of every symbol outside the vocabulary."""
WORD = re.compile(r"\n|[^\W_]+(?:['’][^\W_]+)*|[^\w\s]|_")


def words(text: str) -> Iterator[str]:
    """Yield words, punctuation marks and line ends: a list of them would take twenty times the memory of the text."""
    return (found.group() for found in WORD.finditer(text))


class Vocabulary:
    """Symbols by their numbers; 0 is for all others."""

    def __init__(self, symbols: Iterable[str], *, at_least: int = 1) -> None:
        counts = Counter(symbols)
        kept = [symbol for symbol, count in counts.items() if count >= at_least]
        self.numbers = {symbol: number for number, symbol in enumerate(kept, start=UNKNOWN + 1)}

    @property
    def size(self) -> int:
        """Size of the vocabulary, including the unknown symbol."""
        return len(self.numbers) + 1

    def encode(self, symbols: Iterable[str]) -> Ints:
        numbers = self.numbers
        return np.fromiter((numbers.get(symbol, UNKNOWN) for symbol in symbols), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class _Level:
    """The n-grams of one length. Number n is that of `keys[n]`: the number of its first symbols one level below, times
    the size of the vocabulary, plus its last symbol. So a context is a number of the level below."""

    keys: Ints
    counts: Ints
    discounts: Floats
    """Discounts for counts of 0, 1, 2, and 3 or more."""
    totals: Floats
    """Sum of the counts after each context."""
    left_over: Floats
    """Sum of the discounts after each context."""


class KneserNey:
    """An n-gram model of one sequence."""

    def __init__(self, symbols: Ints, *, vocabulary_size: int, order: int) -> None:
        assert order >= 1
        assert len(symbols) > order
        self.vocabulary_size, self.order = vocabulary_size, order
        below: Ints = np.zeros(len(symbols) + 1, dtype=np.int64)  # for each end, the n-gram of one symbol less
        keys_of: list[Ints] = []
        raw: Ints = np.zeros(0, dtype=np.int64)
        continuations: list[Ints] = []
        for length in range(1, order + 1):
            full = below[:-1] * vocabulary_size + symbols[length - 1 :]
            keys, first, inverse, raw = np.unique(full, return_index=True, return_inverse=True, return_counts=True)
            if length > 1:  # which n-gram of one symbol less each ends with
                continuations.append(np.bincount(below[1:][first], minlength=len(keys_of[-1])))
            keys_of.append(keys)
            below = inverse
        counts_of = [*continuations, raw]
        contexts = [1, *map(len, keys_of)]
        self.levels = [
            self._level(keys, counts, contexts=contexts[number])
            for number, (keys, counts) in enumerate(zip(keys_of, counts_of, strict=True))
        ]

    def _level(self, keys: Ints, counts: Ints, *, contexts: int) -> _Level:
        discounts = _discounts(counts)
        context = keys // self.vocabulary_size
        return _Level(
            keys=keys,
            counts=counts,
            discounts=discounts,
            totals=np.bincount(context, weights=counts, minlength=contexts),
            left_over=np.bincount(context, weights=discounts[np.minimum(counts, 3)], minlength=contexts),
        )

    def log_probabilities(self, symbols: Ints, *, known: Ints | None = None) -> Floats:
        """Return the log-probability of each symbol, given those before it: at most order - 1, and at most `known`, the
        number of earlier symbols of the same text. Default: all."""
        known = np.arange(len(symbols)) if known is None else known
        probability = np.full(len(symbols), 1.0 / self.vocabulary_size)
        context: Ints = np.zeros(len(symbols), dtype=np.int64)  # its number, -1 if it was never seen
        for length, level in enumerate(self.levels, start=1):
            usable = (context >= 0) & (known >= length - 1)
            key = np.where(usable, context * self.vocabulary_size + symbols, -1)
            place = np.minimum(np.searchsorted(level.keys, key), len(level.keys) - 1)
            seen = usable & (level.keys[place] == key)
            total = np.where(usable, level.totals[np.where(usable, context, 0)], 0.0)
            counted = total > 0
            count = np.where(seen, level.counts[place], 0)
            own = count - level.discounts[np.minimum(count, 3)]
            share = level.left_over[np.where(usable, context, 0)]
            safe = np.where(counted, total, 1.0)
            probability = np.where(counted, (own + share * probability) / safe, probability)
            # The context of the next symbol, one longer: the n-gram that ends here.
            found = np.where(seen, place, -1)
            context = np.concatenate([[-1], found[:-1]])
        return np.log(probability)


def _discounts(counts: Ints) -> Floats:
    n1, n2, n3, n4 = (int((counts == times).sum()) for times in (1, 2, 3, 4))
    if not (n1 and n2 and n3 and n4):
        return np.array([0.0, 0.5, 1.0, 1.5])
    ratio = n1 / (n1 + 2 * n2)
    found = [0.0, 1 - 2 * ratio * n2 / n1, 2 - 3 * ratio * n3 / n2, 3 - 4 * ratio * n4 / n3]
    return np.clip(found, 0.0, [0.0, 1.0, 2.0, 3.0])
