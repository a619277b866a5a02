"""Detection of collapsed fine-tuning: the model no longer distinguishes its inputs, and will not recover by itself.

Three signs: the loss or the gradient is not finite; the loss was clearly below that of a constant prediction and has
returned to it; the loss is still there at the end of an epoch, after the warm-up, and every prediction is the same.
"""

import math
from collections import deque

_WINDOW = 50
"""Number of updates over which the loss is averaged."""
_LEARNED, _LOST = 0.85, 0.98
"""Shares of the chance loss: below the first, the model has learned something; above the second, it has lost it
again."""


class CollapseDetector:
    """Watches one attempt."""

    def __init__(self, *, chance: float | None) -> None:
        self.chance = chance
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._best = math.inf

    def after_step(self, *, loss: float, gradient_norm: float) -> str | None:
        """Return what is wrong, or None."""
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            return f"the loss or its gradient is not finite: {loss}, {gradient_norm}"
        self._recent.append(loss)
        if self.chance is None or len(self._recent) < _WINDOW:
            return None
        mean = sum(self._recent) / _WINDOW
        self._best = min(self._best, mean)
        if self._best < _LEARNED * self.chance and mean > _LOST * self.chance:
            return f"the loss was down at {self._best:.3f} and is back at {mean:.3f}; guessing gives {self.chance:.3f}"
        return None

    def after_epoch(self, *, answers: int) -> str | None:
        """Return what is wrong, or None. `answers` is the number of distinct predictions for the validation
        examples."""
        if self.chance is None or answers != 1 or len(self._recent) < _WINDOW:
            return None
        mean = sum(self._recent) / _WINDOW
        if mean > _LOST * self.chance:
            return (
                f"after an epoch all answers are the same and the loss is {mean:.3f}; guessing gives {self.chance:.3f}"
            )
        return None
