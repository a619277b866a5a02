"""What people would use instead: the most popular items, and the nearest neighbours of what was seen.

Both are measured beside every model. Besides the letters of `segue.model`: U users, V items, K neighbours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from segue.apps.recommend.histories import Histories, Ints

NEIGHBOURS = 100
BLOCK = 256
USERS = 2048
"""Items, and users, that are counted together."""
LAST = 100
"""Events of a history whose neighbours count."""
FADES = (1.0, 0.97, 0.9, 0.8, 0.6, 0.4)
"""What the event before another may count of it."""


def counts(histories: Histories, until_U: Ints, *, items: int, from_U: Ints | None = None) -> Ints:
    """How often each item was seen, [V], in the first events of each user, or of these in those from some on."""
    place_N = np.arange(len(histories.items_N)) - np.repeat(histories.starts_U[:-1], histories.lengths)
    read_N = place_N < np.repeat(until_U, histories.lengths)
    if from_U is not None:
        read_N &= place_N >= np.repeat(from_U, histories.lengths)
    return np.bincount(histories.items_N[read_N], minlength=items + 1).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The items that were seen by the same users, by the cosine."""

    near_VK: Ints
    alike_VK: NDArray[np.float32]
    fade: float = 1.0
    """What an event counts of the one after it."""

    def scores(self, history: Ints) -> NDArray[np.float32]:
        """How near each item is to the last events; items that are not known have no neighbours."""
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
    """With the fade by which the items that came after some histories rank best, by the mean of 1 / rank."""

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
    """From the first events of each user."""
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
