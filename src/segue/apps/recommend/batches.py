"""Batches of histories for segment-level recurrence.

In: histories, and for each user the number of events that may be read. Out: `Segment`s. Users with histories of similar
length form a group and are read side by side, segment by segment, so that memory carries what came before and there is
little padding. The first segment of a group has no memory; later ones contain the rows whose histories continue, and
`rows_B` gives their rows in the previous segment.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from segue.apps.recommend.histories import Histories, Ints
from segue.model import Memory

MOST_ROWS = 16
"""Maximum ratio of the rows in a group of short histories to those in a group of long ones."""
JITTER = 0.1
"""Maximum relative noise on lengths when groups are formed, so that groups differ between epochs."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A batch with one segment of each history."""

    items_BQ: Tensor
    kinds_BQ: Tensor
    gaps_BQ: Tensor
    next_BQ: Tensor
    """Item after each event; 0 if there is none."""
    next_kinds_BQ: Tensor
    real_BQ: Tensor
    users_B: Ints
    """Index of the user of each row."""
    first_B: Ints
    """Place in the history of the first event of each row."""
    rows_B: Ints | None
    """Row of each history in the previous segment; None if all histories begin here."""

    def past(self, memory: Memory | None) -> Memory | None:
        """Return the memory of these rows, given the memory after the previous segment."""
        if self.rows_B is None or memory is None:
            return None
        kept = memory if len(self.rows_B) == memory.rows else memory.select(self.rows_B.tolist())
        return kept.compact()


def segments(
    histories: Histories,
    until_U: Ints,
    *,
    rows: int,
    length: int,
    draw: np.random.Generator | None = None,
    predict_last: bool = False,
) -> Iterator[Segment]:
    """Yield the segments of all histories once, each with at most about `rows` times `length` events. With `draw`, the
    order of the groups is random, and the first of several segments has a random length, so that the boundaries differ
    between epochs. The last event has nothing to predict, and is read only with `predict_last`."""
    stop_U = until_U - (0 if predict_last else 1)
    gaps_N = histories.gaps()
    for users in groups(stop_U, rows=rows, length=length, draw=draw):
        longest = int(stop_U[users].max())
        count = length
        if draw is not None and longest > length:
            count = int(draw.integers(max(1, length // 2), length + 1))
        place, before = 0, None
        while len(users):
            yield _segment(histories, gaps_N, until_U, stop_U, users, place=place, count=count, before=before)
            place, count = place + count, length
            before = np.nonzero(stop_U[users] > place)[0]
            users = users[before]


def groups(stop_U: Ints, *, rows: int, length: int, draw: np.random.Generator | None) -> list[Ints]:
    """Return groups of users with histories of similar length: `rows` users if the histories are long, more if they
    fill less than a segment. Users without events to read are left out."""
    users = np.nonzero(stop_U > 0)[0]
    size_U = stop_U[users].astype(np.float64)
    if draw is not None:
        size_U = size_U * (1 + JITTER * draw.random(len(users)))
    users = users[np.argsort(size_U, kind="stable")]
    found: list[Ints] = []
    end = len(users)
    while end > 0:
        longest = min(length, int(stop_U[users[end - 1]]))
        start = max(0, end - min(rows * MOST_ROWS, rows * length // max(1, longest)))
        found.append(users[start:end])
        end = start
    if draw is not None:
        found = [found[place] for place in draw.permutation(len(found)).tolist()]
    return found


def _segment(
    histories: Histories,
    gaps_N: Ints,
    until_U: Ints,
    stop_U: Ints,
    users: Ints,
    *,
    place: int,
    count: int,
    before: Ints | None,
) -> Segment:
    length = min(count, int(stop_U[users].max()) - place)
    values = np.zeros((6, len(users), length), dtype=np.int64)
    for row, user in enumerate(users.tolist()):
        own = min(length, int(stop_U[user]) - place)
        start = int(histories.starts_U[user]) + place
        ahead = min(own, int(until_U[user]) - place - 1)
        values[0, row, :own] = histories.items_N[start : start + own]
        values[1, row, :own] = histories.kinds_N[start : start + own]
        values[2, row, :own] = gaps_N[start : start + own]
        values[3, row, :ahead] = histories.items_N[start + 1 : start + 1 + ahead]
        values[4, row, :ahead] = histories.kinds_N[start + 1 : start + 1 + ahead]
        values[5, row, :own] = 1
    items, kinds, gaps, following, following_kinds, real = (torch.from_numpy(one) for one in values)
    return Segment(
        items_BQ=items,
        kinds_BQ=kinds,
        gaps_BQ=gaps,
        next_BQ=following,
        next_kinds_BQ=following_kinds,
        real_BQ=real.bool(),
        users_B=users,
        first_B=np.full(len(users), place, dtype=np.int64),
        rows_B=before,
    )
