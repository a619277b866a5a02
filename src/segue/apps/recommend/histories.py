"""User histories as arrays, and their splits into training, validation and test events.

An item is identified by its place: 1, 2, ... in the order in which items became known; 0 is padding or a mask.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
GAPS = 24
"""Number of time-gap buckets: none, up to a minute, then doubling, up to years."""


@dataclass(frozen=True, kw_only=True)
class Histories:
    """Events of all users, one user after another, each in order of time."""

    users: tuple[str, ...]
    starts_U: Ints
    """Index of the first event of each user, followed by the number of events: [U + 1]."""
    items_N: Ints
    kinds_N: Ints
    times_N: Floats
    numbers_N: Ints
    """Numbers of the events in the database."""

    def of(self, user: int) -> slice:
        """Return the slice of the events of a user."""
        return slice(int(self.starts_U[user]), int(self.starts_U[user + 1]))

    @property
    def lengths(self) -> Ints:
        """Number of events of each user."""
        return np.diff(self.starts_U)

    def first_events(self, until_U: Ints) -> NDArray[np.bool_]:
        """Return a mask of the first events of each user, `until_U` of them: [N]."""
        place_N = np.arange(len(self.items_N)) - np.repeat(self.starts_U[:-1], self.lengths)
        first_N: NDArray[np.bool_] = place_N < np.repeat(until_U, self.lengths)
        return first_N

    def gaps(self) -> Ints:
        """Return the gap bucket before each event: [N]."""
        gaps_N = gap_steps(np.diff(self.times_N, prepend=0.0))
        gaps_N[self.starts_U[:-1][self.lengths > 0]] = 0
        return gaps_N

    @cached_property
    def events(self) -> Ints:
        """Item, kind and gap bucket of each event: [N, 3]."""
        return np.stack([self.items_N, self.kinds_N, self.gaps()], axis=1)


def gap_steps(seconds: Floats) -> Ints:
    """Return the buckets of gaps in seconds; negative gaps, of events out of order, count as 0."""
    minutes = np.maximum(seconds, 0.0) / 60
    steps: Ints = np.minimum(GAPS - 1, 1 + np.log2(1 + minutes)).astype(np.int64)
    return steps


def gap_step(seconds: float) -> int:
    """Return the bucket of one gap in seconds."""
    return min(GAPS - 1, int(1 + math.log2(1 + max(seconds, 0.0) / 60)))


def histories_of(
    rows: Sequence[tuple[int, str, str, str, float]], *, items: Mapping[str, int], kinds: Mapping[str, int]
) -> Histories:
    """Build histories from rows (number, user, item, kind, time), sorted by user and time. A kind that is not in
    `kinds` becomes 0."""
    users: list[str] = []
    starts: list[int] = []
    for place, row in enumerate(rows):
        if not users or users[-1] != row[1]:
            users.append(row[1])
            starts.append(place)
    return Histories(
        users=tuple(users),
        starts_U=np.array([*starts, len(rows)], dtype=np.int64),
        items_N=np.array([items[row[2]] for row in rows], dtype=np.int64),
        kinds_N=np.array([kinds.get(row[3], 0) for row in rows], dtype=np.int64),
        times_N=np.array([row[4] for row in rows], dtype=np.float64),
        numbers_N=np.array([row[0] for row in rows], dtype=np.int64),
    )


@dataclass(frozen=True, kw_only=True)
class Split:
    """Split of each history: the first `learned_U` events are for training, those up to `chosen_U` for validation, and
    the rest for testing."""

    learned_U: Ints
    chosen_U: Ints


def split_by_time(histories: Histories, *, held_back: float) -> Split:
    """Split at two points in time, the same for all users, so that nothing leaks from the future of any user. Where
    many events share a time, as dates without hours do, the cut is at an earlier time."""
    times = np.sort(histories.times_N)
    first, second = (float(times[int((len(times) - 1) * (1 - share))]) for share in (2 * held_back, held_back))
    second = _cut(times, second, end=float(times[-1]))
    return Split(
        learned_U=_before(histories, _cut(times, first, end=second)),
        chosen_U=_before(histories, second),
    )


def _cut(times: Floats, time: float, *, end: float) -> float:
    """Return a time, or the latest of the sorted `times` before `end` if it is not before that: no events would be
    between them. It is not moved if fewer than half of the events would be left."""
    if time < end:
        return time
    earlier = times[times < end]
    return float(earlier[-1]) if 2 * len(earlier) >= len(times) else time


def split_last(histories: Histories) -> Split:
    """Split by leave-one-out: the last event of each user is for testing, the one before it for validation. It leaks
    the future of other users, and is meant for comparison with published figures."""
    lengths = histories.lengths
    return Split(learned_U=np.maximum(lengths - 2, 0), chosen_U=np.maximum(lengths - 1, 0))


def _before(histories: Histories, time: float) -> Ints:
    early_N = (histories.times_N <= time).astype(np.int64)
    return np.add.reduceat(np.append(early_N, 0), histories.starts_U[:-1]) if len(histories.users) else early_N


def latest_time(histories: Histories, until_U: Ints) -> float | None:
    """Return the time of the latest among the first events of each user, `until_U` of them; None if there are none."""
    times = histories.times_N[histories.first_events(until_U)]
    return float(times.max()) if len(times) else None


def later_than(histories: Histories, wanted: Sequence[tuple[int, int]], moments: Iterable[float | None]) -> list[bool]:
    """Return for each (user, place) True if the event is later than all these moments; None is no moment."""
    cut = max((one for one in moments if one is not None), default=-math.inf)
    return [float(histories.times_N[int(histories.starts_U[user]) + place]) > cut for user, place in wanted]


def late_from(histories: Histories, until_U: Ints) -> Ints:
    """Return the index of the first event of each user in the latest tenth of the training events: [U]."""
    read_N = np.concatenate(
        [
            histories.times_N[int(start) : int(start) + int(until)]
            for start, until in zip(histories.starts_U[:-1], until_U, strict=True)
        ]
        or [np.zeros(0)]
    )
    if not len(read_N):
        return until_U
    cut = _cut(np.sort(read_N), float(np.quantile(read_N, 0.9)), end=float(read_N.max()))
    return np.minimum(_before(histories, cut), until_U)


def wanted_events(histories: Histories, start_U: Ints, stop_U: Ints, *, most: int, seed: int) -> list[tuple[int, int]]:
    """Return (user, place in the history) of the events to predict, a random sample of at most `most`. First events of
    users, which have no history, are left out."""
    found = [
        (user, place)
        for user, (start, stop) in enumerate(zip(start_U.tolist(), stop_U.tolist(), strict=True))
        for place in range(max(1, start), stop)
    ]
    if len(found) > most:
        chosen = np.random.default_rng(seed).choice(len(found), most, replace=False)
        found = [found[place] for place in sorted(chosen.tolist())]
    return found
