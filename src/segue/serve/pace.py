"""Choice of the number of threads for a generation step.

A token passes through the layers in many short stages, and all threads wait for the slowest after each. If another
program uses one of the cores, they wait for the thread that shares it, and a single thread can be faster. Any number of
threads computes sums in the same order, so only the time depends on it.
"""

import statistics
from collections import deque

import torch

_ENOUGH = 3
"""Number of timings from which a choice can be judged."""
_AGAIN = 50
"""Number of steps after which the other choice is tried again; as long as it is faster, it is repeated at once."""


class Pace:
    """Chooses between one thread and all threads, by the times of the last steps with as many rows."""

    def __init__(self, most: int | None = None) -> None:
        most = torch.get_num_threads() if most is None else most
        self._choices = sorted({1, most}, reverse=True)
        self._times: dict[tuple[int, int], deque[float]] = {}
        self._steps = 0
        self._last = (0, 0, 0.0)
        """Rows, choice and seconds of the last step."""

    def choose(self, rows: int) -> int:
        """Return the number of threads for the next step."""
        if len(self._choices) == 1:
            return self._choices[0]
        self._steps += 1
        known = {choice: self._of(rows, choice) for choice in self._choices}
        new = [choice for choice, times in known.items() if len(times) < _ENOUGH]
        if new:
            return new[0]
        usual = {choice: statistics.median(times) for choice, times in known.items()}
        best = min(self._choices, key=lambda choice: usual[choice])
        other = next(choice for choice in self._choices if choice != best)
        last_rows, last, seconds = self._last
        found_quicker = (last_rows, last) == (rows, other) and seconds < usual[best]
        return other if found_quicker or self._steps % _AGAIN == 0 else best

    def note(self, rows: int, choice: int, seconds: float) -> None:
        """Record the time of a step."""
        self._of(rows, choice).append(seconds)
        self._last = rows, choice, seconds

    def _of(self, rows: int, choice: int) -> deque[float]:
        return self._times.setdefault((rows, choice), deque(maxlen=2 * _ENOUGH - 1))
