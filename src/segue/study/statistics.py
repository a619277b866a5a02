"""Means over seeds with confidence intervals by Student's t, and paired differences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean over seeds. One seed has no interval."""

    mean: float
    low: float | None
    high: float | None
    count: int

    @property
    def sign(self) -> int:
        """1 or -1 if the interval is on one side of zero; 0 if it is not, or if there is none."""
        if self.low is None or self.high is None:
            return 0
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of the values, with its interval; None for no values."""
    count = len(values)
    if not count:
        return None
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean=mean, low=None, high=None, count=1)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    half = student_quantile(count - 1) * deviation / math.sqrt(count)
    return Estimate(mean=mean, low=mean - half, high=mean + half, count=count)


def paired(values: Mapping[int, float], reference: Mapping[int, float]) -> Estimate | None:
    """Return the difference to the reference, over the seeds that both have."""
    return estimate([values[seed] - reference[seed] for seed in sorted(values.keys() & reference.keys())])


@cache
def student_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return the t for which P(-t < T < t) equals the confidence, under Student's distribution."""
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        high *= 2
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """Return P(-t < T < t): a finite sum for whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for number in range(freedom // 2):
        total += term
        above, below = (2 * number + 2, 2 * number + 3) if odd else (2 * number + 1, 2 * number + 2)
        term *= cosine * cosine * above / below
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
