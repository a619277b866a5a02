"""Thresholds for a budget of false alarms: what a detector would have said to history drawn anew.

In: the values of a subject's own history, in their order. Out: the lowest threshold with which a detector, run over
stretches drawn from that history, raises no more alarms than the budget. The history holds real events too, so the
threshold errs on the quiet side.

Values have mean 0 and deviation 1 as long as nothing changes. The detector is `river`'s Page-Hinkley test; here many of
them run side by side with the same arithmetic (a test compares them).
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FORGET = 1 - 1e-4
"""What remains of the sum at each step, as river has it."""
WARM = 30
"""Zeros before the first value: the mean of the past, which is 0."""
THRESHOLDS = np.geomspace(1.5, 80.0, 24)
DRAWS = 20
BLOCK = 8
"""Values that are drawn together, because one follows from the other."""
LONGEST = 400
"""Values of a draw."""
MONTH = 30 * 86_400.0


def threshold_for(values: Floats, *, delta: float, a_month: float, budget: float, seed: int) -> float:
    """The threshold for a budget of alarms in 30 days, in which `a_month` values come. A rise of their mean by `delta`
    is no change."""
    length = int(np.clip(a_month, WARM, LONGEST))
    allowed = budget * length / max(a_month, 1e-9)
    drawn_BN = draws(values, length=length, seed=seed)
    counts_G = alarms(drawn_BN, THRESHOLDS, delta).mean(axis=0)
    fitting = np.flatnonzero(counts_G <= allowed)
    return float(THRESHOLDS[fitting[0]] if len(fitting) else THRESHOLDS[-1])


def draws(values: Floats, *, length: int, seed: int) -> Floats:
    """Stretches [B, N] put together from blocks of the history."""
    draw = np.random.default_rng(seed)
    block = min(BLOCK, len(values))
    starts_BK = draw.integers(0, len(values) - block + 1, (DRAWS, -(-length // block)))
    places_BN = (starts_BK[:, :, None] + np.arange(block)).reshape(DRAWS, -1)[:, :length]
    found: Floats = values[places_BN]
    return found


def alarms(values_BN: Floats, thresholds_G: Floats, delta: float) -> Floats:
    """How many alarms each threshold would have raised in each row [B, G]."""
    rows, steps = values_BN.shape
    size = (rows, len(thresholds_G))
    start = _after_warming(delta)
    seen, mean = np.full(size, float(WARM)), np.zeros(size)
    total, lowest = np.full(size, start), np.full(size, start)
    counts = np.zeros(size)
    for step in range(steps):
        value = values_BN[:, step, None]
        seen += 1
        mean += (value - mean) / seen
        total = FORGET * total + (value - mean - delta)
        np.minimum(lowest, total, out=lowest)
        raised = total - lowest > thresholds_G
        if raised.any():
            counts += raised
            seen[raised], mean[raised], total[raised], lowest[raised] = WARM, 0.0, start, start
    return counts


def _after_warming(delta: float) -> float:
    total = 0.0
    for _ in range(WARM):
        total = FORGET * total - delta
    return total
