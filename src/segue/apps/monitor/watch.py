"""What is usual for a subject, and when it turns.

A subject is an entity, a topic, or all texts. Its texts come in the order of their own times. Two streams of values are
watched, both with mean 0 and deviation 1 as long as nothing changes:

- surge: at each negative text, 1 minus the number of negative texts that were to be expected since the one before, by
  the subject's own history for the hour of the day and the day of the week;
- shift: at each text, the logarithm of how much likelier it is if some of the texts were drawn from negative ones. As
  probabilities are calibrated, that is 1 - s + s p / q for a text that is negative with probability p, where q is the
  subject's mean and s the share, in deviations around its mean.

`river`'s Page-Hinkley test tells a rise of either mean; its threshold follows from the budget (`levels`). `river`'s
ADWIN looks at the second stream too, for changes too slow for it. Until there is enough history a subject is only
learned. What is usual is learned again every four weeks, from the past alone.
"""

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.apps.monitor.levels import FORGET, MONTH, WARM, threshold_for
from segue.errors import ConfigError

Floats = NDArray[np.float64]
HOUR, DAY, WEEK = 3600.0, 86_400.0, 604_800.0
MONDAY = 345_600.0
"""Seconds from 1970 to the first Monday."""
LEAST_TEXTS, LEAST_TIME = 40, 14 * DAY
"""History from which a subject is watched."""
AGAIN = 28 * DAY
"""Seconds after which what is usual is learned again."""
HISTORY = 56 * DAY
MOST_HISTORY = 3000
SMOOTH = 10.0
"""Texts that count for each weekday and hour before any was seen."""
KEPT = 300
"""Values that are remembered, to say since when."""
SMALL = 0.2
"""Rise of ADWIN's mean, in deviations, that is no change."""
CAUTIOUS = (1e-2, 1e-3, 1e-4, 1e-6)
"""What ADWIN's delta may be."""
SHARES = {"surge": 0.35, "shift": 0.55, "drift": 0.1}
"""Share of the false-alarm budget for each kind of alarm."""
SURGE = 0.4
"""Rise of the mean of the first stream that is no change: halfway to three times as many negative texts."""
REPLACED = 0.4
"""The share s that is looked for."""
LEAST_SHARE = 0.01
"""Smallest q."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A text of a subject, as the watch sees it."""

    time: float
    number: int
    negative: float
    positive: float

    @property
    def is_negative(self) -> bool:
        """Whether it counts as one."""
        return self.negative >= 0.5

    @property
    def score(self) -> float:
        """From -1 to 1; larger is more negative."""
        return self.negative - self.positive


@dataclass(frozen=True, kw_only=True)
class Usual:
    """What is usual for a subject, as its history has it."""

    learned: float
    """When."""
    rate: float
    """Negative texts a week."""
    weekdays: tuple[float, ...]
    hours: tuple[float, ...]
    """Factors, of mean 1."""
    mean: float
    """Mean sentiment score."""
    share: float
    """Mean probability of being negative."""
    centre: float
    deviation: float
    """Mean and deviation of the logarithms of the second stream."""
    surge: float
    shift: float
    """Thresholds."""
    cautious: float
    """ADWIN's delta."""
    texts: int
    """Texts of the history."""

    def shifted(self, negative: float) -> float:
        """The value of the second stream."""
        return (math.log(1 - REPLACED + REPLACED * negative / self.share) - self.centre) / self.deviation

    @property
    def slack(self) -> float:
        """Rise of the mean of the second stream that is no change: with it the sums are those of the logarithms."""
        return max(0.05, -self.centre / self.deviation)

    def expected(self, start: float, end: float) -> float:
        """Negative texts between two times."""
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
        """For JSON."""
        return dict(vars(self))


def usual_of(values: Mapping[str, Any]) -> Usual:
    """From JSON."""
    return Usual(**{**values, "weekdays": tuple(values["weekdays"]), "hours": tuple(values["hours"])})


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """What a watch has seen."""

    kind: str
    """surge or shift."""
    time: float
    since: float
    """Time of the first text of the change."""
    numbers: tuple[int, ...]
    """Texts behind it, the last ones."""
    figures: dict[str, float]


def learn_usual(
    history: Sequence[Seen], negatives: Sequence[tuple[float, int]], *, texts: int, now: float, budget: float
) -> Usual | None:
    """What is usual, from the last texts in the order of their times, the negative ones of each hour (when it began,
    how many), and the number of all; None where there is too little."""
    if texts < LEAST_TEXTS or len(history) < 2 or not negatives or now - negatives[0][0] < LEAST_TIME:
        return None
    rate = max(sum(count for _, count in negatives), 0.5) / (now - negatives[0][0]) * WEEK
    starts, counts = (np.array(column, dtype=np.float64) for column in zip(*negatives, strict=True))
    chances = np.array([one.negative for one in history])
    share = max(float(chances.mean()), LEAST_SHARE)
    logs = np.log(1 - REPLACED + REPLACED * chances / share)
    values: dict[str, Any] = {
        "learned": now,
        "rate": rate,
        "weekdays": _factors((starts - MONDAY) % WEEK // DAY, counts, 7),
        "hours": _factors(starts % DAY // HOUR, counts, 24),
        "mean": float(np.mean([one.score for one in history])),
        "share": share,
        "centre": float(logs.mean()),
        "deviation": max(float(logs.std()), 0.05),
        "texts": texts,
    }
    usual = Usual(**values, surge=0.0, shift=0.0, cautious=0.0)
    month = MONTH / max(now - history[0].time, HOUR)
    shifts = (logs - usual.centre) / usual.deviation
    gaps = _surges(usual, [one for one in history if one.is_negative], history[0].time)
    budgets = {kind: budget * share for kind, share in SHARES.items()}
    return Usual(
        **values,
        surge=threshold_for(gaps, delta=SURGE, a_month=len(gaps) * month, budget=budgets["surge"], seed=texts),
        shift=threshold_for(
            shifts, delta=usual.slack, a_month=len(shifts) * month, budget=budgets["shift"], seed=texts
        ),
        cautious=_cautious(shifts, a_month=len(shifts) * month, budget=budgets["drift"], seed=texts),
    )


def _factors(places: Floats, counts: Floats, many: int) -> tuple[float, ...]:
    found = np.bincount(places.astype(int), weights=counts, minlength=many) + SMOOTH
    return tuple((found / found.mean()).tolist())


def _surges(usual: Usual, negative: Sequence[Seen], start: float) -> Floats:
    times = [start, *(one.time for one in negative)]
    found = [1 - usual.expected(a, b) for a, b in itertools.pairwise(times)]
    return np.array(found or [0.0])


def _cautious(values: Floats, *, a_month: float, budget: float, seed: int) -> float:
    """The largest delta with which ADWIN says nothing to the history in another order, or no more than the budget."""
    shuffled = np.random.default_rng(seed).permutation(values)[:MOST_HISTORY].tolist()
    allowed = budget * len(shuffled) / max(a_month, 1e-9)
    for delta in CAUTIOUS[:-1]:
        adwin = _river().ADWIN(delta=delta)
        raised = 0
        for value in shuffled:
            adwin.update(value)
            raised += bool(adwin.drift_detected)
        if raised <= allowed:
            return delta
    return CAUTIOUS[-1]


def check_river() -> None:
    """Raises where the package is missing."""
    _river()


def _river() -> Any:
    try:
        return import_module("river.drift")
    except ImportError:
        raise ConfigError(
            "segue monitor needs the package river to tell a change; it is not installed. Install it: pip install "
            "'segue[monitor]'."
        ) from None


@dataclass
class _Value:
    seen: Seen
    worth: float


@dataclass
class Subject:
    """The watch of one subject. What it says hangs on the texts since `begun` and on `usual` alone, so that it can be
    built again from the database."""

    usual: Usual | None = None
    begun: float = 0.0
    """Time of the last alarm, or when what is usual was learned: what came before is forgotten."""
    first: int = 0
    """Number of the text with which that was; it is forgotten too."""
    quiet_until: float = 0.0
    """End of the cool-down."""
    last_negative: float | None = None
    _tests: dict[str, Any] = field(default_factory=dict, repr=False)
    _kept: dict[str, deque[_Value]] = field(default_factory=dict, repr=False)

    def begin(self, time: float, number: int) -> None:
        """Forgets what came before, and the text with this number."""
        self.begun, self.first, self.last_negative, self._tests, self._kept = time, number, None, {}, {}

    def see(self, one: Seen) -> Alarm | None:
        """The next text. An alarm within the cool-down is none, but begins anew."""
        usual = self.usual
        if usual is None:
            return None
        found = None
        if one.is_negative:
            before = self.begun if self.last_negative is None else self.last_negative
            self.last_negative = one.time
            if self._test("surge", usual.surge, SURGE, 1 - usual.expected(before, one.time), one):
                found = "surge"
        shift = usual.shifted(one.negative)
        if self._test("shift", usual.shift, usual.slack, shift, one) or self._drifts(usual, shift):
            found = found or "shift"
        if found is None:
            return None
        alarm = self._alarm(found, one)
        self.begin(one.time, one.number)
        return alarm

    def _test(self, kind: str, threshold: float, delta: float, value: float, one: Seen) -> bool:
        if kind not in self._tests:
            test = _river().PageHinkley(min_instances=1, delta=delta, threshold=threshold, alpha=FORGET, mode="up")
            for _ in range(WARM):
                test.update(0.0)
            self._tests[kind], self._kept[kind] = test, deque(maxlen=KEPT)
        self._kept[kind].append(_Value(one, value))
        self._tests[kind].update(value)
        return bool(self._tests[kind].drift_detected)

    def _drifts(self, usual: Usual, value: float) -> bool:
        """Whether ADWIN sees a change, and one for the worse."""
        adwin = self._tests.get("drift")
        if adwin is None:
            adwin = self._tests["drift"] = _river().ADWIN(delta=usual.cautious)
        before = adwin.estimation
        adwin.update(value)
        return bool(adwin.drift_detected) and adwin.estimation > max(before, SMALL)

    def _alarm(self, kind: str, last: Seen) -> Alarm:
        usual = self.usual
        assert usual is not None
        kept = list(self._kept[kind])
        delta = SURGE if kind == "surge" else usual.slack
        sums = np.cumsum([0.0, *(one.worth - delta for one in kept)])
        first = min(int(np.argmin(sums[:-1])), len(kept) - 1)  # the change begins where the sum is lowest
        behind = kept[first:]
        scores = [one.seen.score for one in behind]
        since = behind[0].seen.time
        figures = {
            "texts": len(behind),
            "negative": sum(one.seen.is_negative for one in behind),
            "expected_negative": round(usual.expected(since, last.time), 3) if last.time > since else 0.0,
            "mean": round(-float(np.mean(scores)), 4),
            "usual_mean": round(-usual.mean, 4),
            "statistic": round(float(sums[-1] - sums.min()), 3),
            "threshold": round(usual.surge if kind == "surge" else usual.shift, 3),
        }
        numbers = tuple(one.seen.number for one in behind[-100:])
        return Alarm(kind=kind, time=last.time, since=since, numbers=numbers, figures=figures)
