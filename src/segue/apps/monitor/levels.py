"""Alarm thresholds for a budget of false alarms, by a block bootstrap of a subject's history.

In: the increments of the cumulative sums for each text of the history, and its time. Out: the lowest thresholds with
which the detector raises no more alarms than the budget on resampled days of that history. Whole days are drawn, so
that bursts stay intact, and alarms within the cool-down of an earlier one do not count, as in the detector. The
history contains real events too, so the thresholds err on the quiet side.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DAY = 86_400.0
MONTH = 30 * DAY
BLOCK = 2 * DAY
"""Length of a block in seconds; shorter if the history would have fewer than LEAST_BLOCKS blocks."""
LEAST_BLOCKS = 14
MONTHS = 16
"""Length of the resampled history in months."""
MOST_DRAWN = 6000
"""Maximum number of texts in the resampled history."""
LOWEST, HIGHEST = 0.3, 30.0
HALVINGS = 7
FEW = 4.0
"""Minimum number of alarms for a reliable count. For smaller budgets the threshold is extrapolated from there: one
that is higher by 1 raises e times fewer alarms, as for all logarithms of likelihood ratios."""
AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class Past:
    """The history of a subject, sorted by time."""

    times_N: Floats
    shifts_NM: Floats
    """Increments of the sums for shifts."""
    surges_N: Floats
    """Increments of the sum for surges."""
    clock_N: Floats
    """Decrements of the sum for surges, accumulated until each text."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A resampled history. The last of the K sums is that of surges."""

    times_N: Floats
    steps_NK: Floats
    """Increments of each sum before a text is judged; sums are never below 0."""
    peaks_NK: Floats
    """Increments by the text itself, for the comparison with the threshold; they are part of the next step."""
    seconds: float


def draw_days(past: Past, *, seed: int) -> Drawn:
    """Draw blocks of the history with replacement, and join them."""
    since_N = past.times_N - past.times_N[0]
    block = max(1.0, min(BLOCK, float(since_N[-1]) / LEAST_BLOCKS))
    blocks_N = (since_N // block).astype(int)
    firsts = np.searchsorted(blocks_N, np.arange(blocks_N[-1] + 2))
    clocks = np.append(past.clock_N, past.clock_N[-1])[firsts]
    wanted = min(MONTHS * MONTH / block, MOST_DRAWN * (len(firsts) - 1) / len(blocks_N))
    chosen = np.random.default_rng(seed).integers(0, len(firsts) - 1, max(1, math.ceil(wanted)))
    taken = [np.arange(firsts[one], firsts[one + 1]) for one in chosen]
    many, places_N = [len(one) for one in taken], np.concatenate(taken)
    before = np.concatenate([[0.0], np.cumsum(np.diff(clocks)[chosen])[:-1]])
    clock_N = past.clock_N[places_N] + np.repeat(before - clocks[chosen], many)
    peaks_N = past.surges_N[places_N]
    surges_N = np.concatenate([[0.0], peaks_N[:-1]]) - np.diff(clock_N, prepend=0.0)
    return Drawn(
        times_N=past.times_N[places_N] + np.repeat((np.arange(len(chosen)) - chosen) * block, many),
        steps_NK=np.column_stack([past.shifts_NM[places_N], surges_N]),
        peaks_NK=np.column_stack([np.zeros((len(places_N), past.shifts_NM.shape[1])), peaks_N]),
        seconds=len(chosen) * block,
    )


def alarms(drawn: Drawn, *, shift: float, surge: float, cool_down: float, most: float = math.inf) -> int:
    """Return the number of alarms with these thresholds; counting stops above `most`. Default: no limit."""
    levels_K = np.full(drawn.steps_NK.shape[1], shift)
    levels_K[-1] = surge
    sums_K = np.zeros(len(levels_K))
    place, count, quiet = 0, 0, -math.inf
    while place < len(drawn.times_N) and count <= most:
        steps_NK = drawn.steps_NK[place : place + AT_ONCE]
        totals_NK = np.cumsum(steps_NK, axis=0)
        lowest_NK = np.minimum(np.minimum.accumulate(totals_NK, axis=0), -sums_K)
        paths_NK = totals_NK - lowest_NK
        raised = np.flatnonzero(np.any(paths_NK + drawn.peaks_NK[place : place + AT_ONCE] > levels_K, axis=1))
        if not len(raised):
            sums_K, place = paths_NK[-1], place + len(steps_NK)
            continue
        place += int(raised[0])
        if drawn.times_N[place] >= quiet:
            quiet, count = drawn.times_N[place] + cool_down, count + 1
        sums_K, place = -drawn.peaks_NK[place], place + 1  # all sums begin anew, without what this text adds
    return count


def levels(past: Past, *, shift: float, surge: float, cool_down: float, seed: int) -> tuple[float, float]:
    """Return the thresholds of shifts and surges for their budgets of alarms in 30 days."""
    drawn = draw_days(past, seed=seed)
    months = drawn.seconds / MONTH

    def lowest(budget: float, of_shift: bool) -> float:
        allowed = max(budget * months, FEW)
        low, high = math.log(LOWEST), math.log(HIGHEST)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            tried = (math.exp(middle), math.inf) if of_shift else (math.inf, math.exp(middle))
            raised = alarms(drawn, shift=tried[0], surge=tried[1], cool_down=cool_down, most=allowed)
            low, high = (low, middle) if raised <= allowed else (middle, high)
        return math.exp(high) + math.log(allowed / (budget * months))

    return lowest(shift, True), lowest(surge, False)
