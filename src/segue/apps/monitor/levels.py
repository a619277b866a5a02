"""Thresholds for a budget of false alarms: what the watch would have said to days of the past, drawn anew.

In: what each text of a subject's history adds to the sums of the watch, and when it came. Out: the lowest thresholds
with which the watch, run over days of that history in another order, raises no more alarms than the budget. Days are
drawn whole, so that texts that came in a burst stay one, and alarms within the cool-down of an earlier one are none, as
they are in the watch. The history holds real events too, so the thresholds err on the quiet side.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DAY = 86_400.0
MONTH = 30 * DAY
BLOCK = 2 * DAY
"""Seconds that are drawn together; less where the history is so short that there would be fewer than LEAST_BLOCKS."""
LEAST_BLOCKS = 14
MONTHS = 16
"""Length of what is drawn,"""
MOST_DRAWN = 6000
"""and the most texts of it."""
LOWEST, HIGHEST = 0.3, 30.0
HALVINGS = 7
FEW = 4.0
"""Alarms that a draw must have for their number to mean something. Where the budget is smaller, the threshold is
carried on from there: one that is higher by 1 raises e times fewer, as for all logarithms of likelihood ratios."""
AT_ONCE = 256


@dataclass(frozen=True, kw_only=True)
class Past:
    """Texts of a subject in the order of their times."""

    times_N: Floats
    shifts_NM: Floats
    """What each adds to the sums that tell a shift."""
    surges_N: Floats
    """What each adds to the sum that tells a surge,"""
    clock_N: Floats
    """and what the time until then has taken from it."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Days of the past in another order. The last of the K sums is that of surges."""

    times_N: Floats
    steps_NK: Floats
    """What is added to each sum before a text is looked at; sums are never below 0."""
    peaks_NK: Floats
    """What the text itself adds, when the sum is compared with its threshold; it is part of the next step."""
    seconds: float


def draw_days(past: Past, *, seed: int) -> Drawn:
    """Blocks of the past put together."""
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
    """How many alarms thresholds raise; no more are counted than the first above `most`. Default: all."""
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
    """Thresholds of shifts and of surges, for budgets of alarms in 30 days."""
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
