"""Histories -> batches: rows go on through a history segment by segment, so that memory carries what came before.

In: histories, and for each user up to where they may be read. Out: `Segment`s; row b of one goes on where row b of the
one before ended, or begins another user.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from segue.apps.recommend.histories import Histories, Ints


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One segment of each row."""

    items_BQ: Tensor
    kinds_BQ: Tensor
    gaps_BQ: Tensor
    next_BQ: Tensor
    """The item after each event; 0 where there is none."""
    next_kinds_BQ: Tensor
    real_BQ: Tensor
    starts_B: Tensor
    """Rows that begin a history."""
    users_B: Ints
    """Whose history it is; -1 where a row has none left."""
    first_B: Ints
    """Where in the history the row begins."""


def segments(
    histories: Histories,
    until_U: Ints,
    *,
    rows: int,
    length: int,
    draw: np.random.Generator | None = None,
    predict_last: bool = False,
) -> Iterator[Segment]:
    """All histories once, in the order drawn, or in their own. With `draw`, the first segment of a history has any
    length, so that its cuts are not always at the same events. The last event has nothing to predict, and is read only
    with `predict_last`."""
    shortest = 1 if predict_last else 2
    users = [user for user in range(len(histories.users)) if until_U[user] >= shortest]
    if draw is not None:
        users = [users[place] for place in draw.permutation(len(users)).tolist()]
    if not users:
        return
    gaps_N = histories.gaps()
    waiting = iter(users)
    lanes: list[tuple[int, int]] = [(next(waiting, -1), 0) for _ in range(rows)]
    while any(user >= 0 for user, _ in lanes):
        parts = []
        for lane, (user, place) in enumerate(lanes):
            if user < 0:
                parts.append((-1, 0, 0))
                continue
            stop = int(until_U[user]) - (0 if predict_last else 1)
            count = min(length, stop - place)
            if draw is not None and place == 0:
                count = min(count, int(draw.integers(max(1, length // 2), length + 1)))
            parts.append((user, place, count))
            lanes[lane] = (user, place + count) if place + count < stop else (next(waiting, -1), 0)
        yield _segment(histories, gaps_N, until_U, parts)


def _segment(histories: Histories, gaps_N: Ints, until_U: Ints, parts: list[tuple[int, int, int]]) -> Segment:
    length = max(1, *(count for _, _, count in parts))
    values = np.zeros((6, len(parts), length), dtype=np.int64)
    for row, (user, place, count) in enumerate(parts):
        if user >= 0:
            start = int(histories.starts_U[user]) + place
            ahead = min(count, int(until_U[user]) - place - 1)
            values[0, row, :count] = histories.items_N[start : start + count]
            values[1, row, :count] = histories.kinds_N[start : start + count]
            values[2, row, :count] = gaps_N[start : start + count]
            values[3, row, :ahead] = histories.items_N[start + 1 : start + 1 + ahead]
            values[4, row, :ahead] = histories.kinds_N[start + 1 : start + 1 + ahead]
            values[5, row, :count] = 1
    items, kinds, gaps, following, following_kinds, real = (torch.from_numpy(one) for one in values)
    return Segment(
        items_BQ=items,
        kinds_BQ=kinds,
        gaps_BQ=gaps,
        next_BQ=following,
        next_kinds_BQ=following_kinds,
        real_BQ=real.bool(),
        starts_B=torch.tensor([place == 0 for _, place, _ in parts]),
        users_B=np.array([user for user, _, _ in parts], dtype=np.int64),
        first_B=np.array([place for _, place, _ in parts], dtype=np.int64),
    )
