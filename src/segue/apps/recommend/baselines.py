"""Baselines: popularity and item-kNN.

Both are evaluated beside every model. Besides the letters of `segue.model`: U users, V items, K neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from segue.apps.recommend.histories import Histories, Ints

NEIGHBOURS = 100
"""Number of neighbours of an item."""
BLOCK, USERS = 256, 2048
"""Number of items, and of users, whose co-occurrences are counted at a time."""
LAST = 100
"""Number of last events whose neighbours are scored."""
FADES = (1.0, 0.97, 0.9, 0.8, 0.6, 0.4)
"""Candidate decay factors from an event to the one before it."""


def counts(histories: Histories, until_U: Ints, *, items: int, from_U: Ints | None = None) -> Ints:
    """Return the number of events of each item among the first `until_U` events of each user, or among those from
    `from_U` on: [V]."""
    place_N = np.arange(len(histories.items_N)) - np.repeat(histories.starts_U[:-1], histories.lengths)
    read_N = place_N < np.repeat(until_U, histories.lengths)
    if from_U is not None:
        read_N &= place_N >= np.repeat(from_U, histories.lengths)
    return np.bincount(histories.items_N[read_N], minlength=items + 1).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Nearest neighbours of each item by the cosine of their users."""

    near_VK: Ints
    alike_VK: NDArray[np.float32]
    fade: float = 1.0
    """Decay factor from an event to the one before it."""

    def scores(self, history: Ints) -> NDArray[np.float32]:
        """Return the similarity of each item to the last events of a history. Unknown items have no neighbours."""
        recent = history[-LAST:]
        fade_N = self.fade ** np.arange(len(recent) - 1, -1, -1)
        known = recent < len(self.near_VK)
        recent, fade_N = recent[known], fade_N[known]
        weights = (self.alike_VK[recent] * fade_N[:, None]).ravel()
        found = np.bincount(self.near_VK[recent].ravel(), weights=weights, minlength=len(self.near_VK))
        found[0] = 0.0
        return found.astype(np.float32)

    def source(self, history: Ints, item: int) -> int | None:
        """Return the position in a history of the event that contributes most to the score of an item; None if none
        does."""
        shift = max(0, len(history) - LAST)
        recent = history[shift:]
        fade_N = self.fade ** np.arange(len(recent) - 1, -1, -1)
        known_N = recent < len(self.near_VK)
        share_N = np.zeros(len(recent))
        near_NK = self.near_VK[recent[known_N]] == item
        share_N[known_N] = (near_NK * self.alike_VK[recent[known_N]]).sum(axis=1) * fade_N[known_N]
        return shift + int(share_N.argmax()) if len(share_N) and share_N.max() > 0 else None


def faded(neighbours: Neighbours, asked: Sequence[tuple[Ints, int]]) -> Neighbours:
    """Return the neighbours with the decay factor that ranks the targets of (history, target) pairs best, by MRR."""

    def worth(one: Neighbours) -> float:
        total = 0.0
        for history, target in asked:
            scores_V = one.scores(history)
            if target < len(scores_V):
                total += 1 / (1 + int((scores_V > scores_V[target]).sum()))
        return total

    tried = [replace(neighbours, fade=fade) for fade in FADES]
    return max(tried, key=worth) if asked else neighbours


def learn_neighbours(histories: Histories, until_U: Ints, *, items: int) -> Neighbours:
    """Compute item-kNN from the first `until_U` events of each user."""
    size = items + 1
    seen = [
        np.unique(histories.items_N[int(start) : int(start) + int(until)])
        for start, until in zip(histories.starts_U[:-1], until_U, strict=True)
    ]
    total_V = np.zeros(size, dtype=np.float32)
    for one in seen:
        total_V[one] += 1
    keep = min(NEIGHBOURS, size)
    near_VK = np.zeros((size, keep), dtype=np.int64)
    alike_VK = np.zeros((size, keep), dtype=np.float32)
    scale_V = 1 / np.sqrt(np.maximum(total_V, 1))
    for start in range(0, size, BLOCK):
        stop = min(size, start + BLOCK)
        both = np.zeros((stop - start, size), dtype=np.float32)
        for first in range(0, len(seen), USERS):
            part = np.zeros((min(USERS, len(seen) - first), size), dtype=np.float32)
            for row, one in enumerate(seen[first : first + USERS]):
                part[row, one] = 1
            both += part[:, start:stop].T @ part
        both *= scale_V[start:stop, None] * scale_V
        both[np.arange(stop - start), np.arange(start, stop)] = 0
        best = np.argpartition(-both, keep - 1, axis=1)[:, :keep]
        near_VK[start:stop] = best
        alike_VK[start:stop] = np.take_along_axis(both, best, axis=1)
    return Neighbours(near_VK=near_VK, alike_VK=alike_VK)
