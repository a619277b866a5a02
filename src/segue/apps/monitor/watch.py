"""The baseline of a subject, and the detection of changes.

A subject is an entity, a topic, or all texts. Its texts are processed in the order of their own times. Two kinds of
change are detected, each by cumulative sums of log-likelihood ratios (Page's test), which restart at 0:

- shift: texts are more negative than before. The likelihood ratio of a text if sentiment is tilted by t is exp(t x)
  over its mean in the history, where x is the score of the text, from -1 to 1. There is one sum for each of several
  tilts: small ones detect many texts that are a little worse, large ones a few that are very bad.
- surge: negative texts arrive several times as often as the subject's own history predicts for the hour of the day and
  the day of the week (a Poisson process).

Thresholds follow from the budget of false alarms (`levels`). A subject is not watched before it has enough history. The
baseline is estimated again every two weeks, from the past alone, and the last week is then processed again with it.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.apps.monitor.levels import Past, levels

Floats = NDArray[np.float64]
HOUR, DAY, WEEK = 3600.0, 86_400.0, 604_800.0
MONDAY = 345_600.0
"""Seconds from 1970-01-01 to the first Monday."""
LEAST_TEXTS, LEAST_TIME = 20, 14 * DAY
"""Minimum number of texts, and of seconds of history, of a watched subject."""
AGAIN = 14 * DAY
"""Seconds after which the baseline is estimated again."""
HISTORY = 56 * DAY
FARTHEST = 180 * DAY
"""Maximum length of history in seconds if HISTORY has fewer than ENOUGH texts."""
ENOUGH, MOST_HISTORY = 200, 3000
SMOOTH = 10.0
"""Pseudo-count of texts for each weekday and each hour."""
KEPT = 300
"""Maximum number of texts that are kept to find the beginning of a change."""
TILTS = (2.0, 4.0, 8.0)
TIMES = 3.0
"""Rate of negative texts in a surge, relative to the baseline."""
SURGES = 0.1
"""Share of the false-alarm budget for surges; shifts have the rest."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A text of a subject, as the detector sees it."""

    time: float
    number: int
    negative: float
    positive: float

    @property
    def is_negative(self) -> bool:
        """True if it counts as negative."""
        return self.negative >= 0.5

    @property
    def score(self) -> float:
        """Score from -1 to 1; larger is more negative."""
        return self.negative - self.positive


@dataclass(frozen=True, kw_only=True)
class Usual:
    """The baseline of a subject."""

    learned: float
    """Time of the estimate."""
    rate: float
    """Negative texts per week."""
    weekdays: tuple[float, ...]
    hours: tuple[float, ...]
    """Factors of weekdays and hours, with mean 1."""
    mean: float
    """Mean score; larger is more negative."""
    normal: tuple[float, ...]
    """Logarithm of the mean of exp(t x) for each tilt."""
    shift: float
    surge: float
    """Thresholds of shifts and surges."""
    texts: int
    """Number of texts in the history."""

    def expected(self, start: float, end: float) -> float:
        """Return the expected number of negative texts between two times."""
        return self._until(end) - self._until(start)

    def _until(self, time: float) -> float:
        weeks, rest = divmod(time - MONDAY, WEEK)
        day, rest = divmod(rest, DAY)
        hour, rest = divmod(rest, HOUR)
        days = sum(self.weekdays[: int(day)]) * 24
        now = self.weekdays[min(6, int(day))] * (
            sum(self.hours[: int(hour)]) + self.hours[min(23, int(hour))] * rest / HOUR
        )
        return self.rate * (weeks + (days + now) / 168)

    def to_values(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return dict(vars(self))


def usual_of(values: Mapping[str, Any]) -> Usual | None:
    """Return the baseline from JSON values; None if another version wrote them, so that it is estimated again."""
    if set(values) != {one.name for one in fields(Usual)}:
        return None
    return Usual(
        **{
            **values,
            "weekdays": tuple(values["weekdays"]),
            "hours": tuple(values["hours"]),
            "normal": tuple(values["normal"]),
        }
    )


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A detected change."""

    kind: str
    """Kind of change: surge or shift."""
    time: float
    since: float
    """Time of the first text of the change."""
    numbers: tuple[int, ...]
    """Numbers of the last texts behind it."""
    figures: dict[str, float]


def learn_usual(
    history: Sequence[Seen],
    negatives: Sequence[tuple[float, int]],
    *,
    texts: int,
    now: float,
    budget: float,
    cool_down: float,
) -> Usual | None:
    """Estimate the baseline from the last texts sorted by time, pairs of hour and number of negative texts, and the
    number of all texts; return None if there is too little history."""
    if texts < LEAST_TEXTS or len(history) < 2 or not negatives or now - negatives[0][0] < LEAST_TIME:
        return None
    starts, counts = (np.array(column, dtype=np.float64) for column in zip(*negatives, strict=True))
    scores_N = np.array([one.score for one in history])
    tilted_NM = scores_N[:, None] * np.array(TILTS)
    normal_M = np.log(np.exp(tilted_NM).mean(axis=0))
    values: dict[str, Any] = {
        "learned": now,
        "rate": max(float(counts.sum()), 0.5) / (now - negatives[0][0]) * WEEK,
        "weekdays": _factors((starts - MONDAY) % WEEK // DAY, counts, 7),
        "hours": _factors(starts % DAY // HOUR, counts, 24),
        "mean": float(scores_N.mean()),
        "normal": tuple(normal_M.tolist()),
        "texts": texts,
    }
    usual = Usual(**values, shift=0.0, surge=0.0)
    times = [one.time for one in history]
    past = Past(
        times_N=np.array(times),
        shifts_NM=tilted_NM - normal_M,
        surges_N=math.log(TIMES) * np.array([float(one.is_negative) for one in history]),
        clock_N=(TIMES - 1) * np.array([usual.expected(times[0], time) for time in times]),
    )
    shift, surge = levels(past, shift=budget * (1 - SURGES), surge=budget * SURGES, cool_down=cool_down, seed=texts)
    return Usual(**values, shift=shift, surge=surge)


def _factors(places: Floats, counts: Floats, many: int) -> tuple[float, ...]:
    found = np.bincount(places.astype(int), weights=counts, minlength=many) + SMOOTH
    return tuple((found / found.mean()).tolist())


@dataclass
class Subject:
    """The detector of one subject. Its state depends only on the texts since `begun` and on `usual`, so it can be
    rebuilt from the database."""

    usual: Usual | None = None
    begun: float = 0.0
    """Time of the last alarm, or of the first text that was processed; earlier texts are ignored."""
    first: int = 0
    """Number of the text at that time; it is ignored too."""
    quiet_until: float = 0.0
    """End of the cool-down."""
    last: float = 0.0
    """Time of the last text."""
    _shifts: list[float] = field(default_factory=lambda: [0.0] * len(TILTS), repr=False)
    _surge: float = field(default=0.0, repr=False)
    _negative: float | None = field(default=None, repr=False)
    """Time of the last negative text."""
    _kept: deque[Seen] = field(default_factory=lambda: deque(maxlen=KEPT), repr=False)

    def begin(self, time: float, number: int) -> None:
        """Reset the sums; texts before this time, and the one with this number, are ignored."""
        self.begun, self.first = time, number
        self._shifts, self._surge, self._negative = [0.0] * len(TILTS), 0.0, None
        self._kept.clear()

    def renew(self, usual: Usual, past: Sequence[Seen]) -> None:
        """Set another baseline, and process the last week again with it. `past` are the last texts."""
        self.usual = usual
        known = (past[0].time, past[0].number - 1)
        self.begin(*max((self.begun, self.first), (usual.learned - WEEK, -1), known))
        self.look_again(past)

    def look_again(self, past: Sequence[Seen]) -> None:
        """Process past texts that are not ignored, without raising alarms."""
        since = (self.begun, self.first)
        for one in past:
            if (one.time, one.number) > since:
                self.see(one)

    def see(self, one: Seen) -> Alarm | None:
        """Process the next text; return an alarm, and reset the sums, if a threshold is exceeded. The cool-down is for
        the caller."""
        self.last = one.time
        usual = self.usual
        if usual is None:
            return None
        self._kept.append(one)
        score = one.score
        self._shifts = [
            max(0.0, total + tilt * score - normal)
            for total, tilt, normal in zip(self._shifts, TILTS, usual.normal, strict=True)
        ]
        found = "shift" if max(self._shifts) > usual.shift else None
        if one.is_negative:
            before = self.begun if self._negative is None else self._negative
            self._negative = one.time
            taken = (TIMES - 1) * usual.expected(before, one.time)
            self._surge = max(0.0, self._surge - taken) + math.log(TIMES)
            if self._surge > usual.surge:
                found = "surge"
        if found is None:
            return None
        alarm = self._alarm(found, usual, one)
        self.begin(one.time, one.number)
        return alarm

    def _alarm(self, kind: str, usual: Usual, last: Seen) -> Alarm:
        kept = list(self._kept)
        if kind == "surge":
            statistic, threshold = self._surge, usual.surge
            kept = [one for one in kept if one.is_negative]
            gaps = [0.0, *(usual.expected(a.time, b.time) for a, b in pairwise(kept))]
            steps = math.log(TIMES) - (TIMES - 1) * np.array(gaps)
        else:
            statistic, threshold = max(self._shifts), usual.shift
            tilt = self._shifts.index(statistic)
            steps = TILTS[tilt] * np.array([one.score for one in kept]) - usual.normal[tilt]
        sums = np.cumsum([0.0, *steps])
        behind = kept[int(np.argmin(sums[:-1])) :]  # the change begins where the sum is lowest
        since = behind[0].time
        figures = {
            "texts": len(behind),
            "negative": sum(one.is_negative for one in behind),
            "expected_negative": round(usual.expected(since, last.time), 3) if last.time > since else 0.0,
            "mean": round(-float(np.mean([one.score for one in behind])), 4),
            "usual_mean": round(-usual.mean, 4),
            "statistic": round(statistic, 3),
            "threshold": round(threshold, 3),
        }
        numbers = tuple(one.number for one in behind[-100:])
        return Alarm(kind=kind, time=last.time, since=since, numbers=numbers, figures=figures)
