"""What people would use instead: the most popular items, and the nearest neighbours of what was seen.

Both are measured beside every model. Besides the letters of `segue.model`: U users, V items, K neighbours.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.apps.recommend.histories import Histories, Ints

NEIGHBOURS = 100
BLOCK = 256
USERS = 2048
"""Items, and users, that are counted together."""
LAST = 100
"""Events of a history whose neighbours count."""


def counts(histories: Histories, until_U: Ints, *, items: int) -> Ints:
    """How often each item was seen, [V], in the first events of each user."""
    found = np.zeros(items + 1, dtype=np.int64)
    for user in range(len(histories.users)):
        start = int(histories.starts_U[user])
        np.add.at(found, histories.items_N[start : start + int(until_U[user])], 1)
    return found


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The items that were seen by the same users, by the cosine."""

    near_VK: Ints
    alike_VK: NDArray[np.float32]

    def scores(self, history: Ints) -> NDArray[np.float32]:
        """How near each item is to the last events."""
        found = np.zeros(len(self.near_VK), dtype=np.float32)
        recent = history[-LAST:]
        np.add.at(found, self.near_VK[recent].ravel(), self.alike_VK[recent].ravel())
        found[0] = 0.0
        return found


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
