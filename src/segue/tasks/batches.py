"""Batches of items of similar length, so that there is little padding.

The items of an epoch are shuffled, sorted by length (a stable sort: items of equal length stay shuffled) and split into
batches, and the batches are shuffled. The same seed and epoch give the same batches.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from segue.tasks.task import Item


def batches(items: Sequence[Item], *, size: int, seed: int, epoch: int) -> Iterator[list[Item]]:
    """Yield all items once, in batches of `size`."""
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(items))
    order = order[np.argsort(np.array([items[n].length for n in order]), kind="stable")]
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    for number in random.permutation(len(groups)):
        yield [items[n] for n in groups[number]]


def by_length(items: Sequence[Item], *, size: int) -> Iterator[list[int]]:
    """Yield indices of items in batches of `size`, shortest first: for predictions, whose order does not matter."""
    order = sorted(range(len(items)), key=lambda n: items[n].length)
    for start in range(0, len(order), size):
        yield order[start : start + size]
