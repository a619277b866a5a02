"""How many threads read a token: as many as are quickest now.

A token goes through the layers in many short stages, and all threads wait for the slowest after each. Where another
program takes one of the cores, they wait for the thread that has to share it, and one thread alone can be quicker. The
sums are made in the same order by any number of threads, so that only the time depends on it.
"""

import statistics
from collections import deque

import torch

_ENOUGH = 3
"""Times of a choice from which it can be judged."""
_AGAIN = 50
"""Steps after which the other choice is tried once more; as long as it is quicker, it is tried again at once."""


class Pace:
    """Chooses between one thread and all of them, by the times of the last steps with as many rows."""

    def __init__(self, most: int | None = None) -> None:
        most = torch.get_num_threads() if most is None else most
        self._choices = sorted({1, most}, reverse=True)
        self._times: dict[tuple[int, int], deque[float]] = {}
        self._steps = 0
        self._last = (0, 0, 0.0)
        """Rows, choice and seconds of the last step."""

    def choose(self, rows: int) -> int:
        """The number of threads for the next step."""
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
        """What the step took."""
        self._of(rows, choice).append(seconds)
        self._last = rows, choice, seconds

    def _of(self, rows: int, choice: int) -> deque[float]:
        return self._times.setdefault((rows, choice), deque(maxlen=2 * _ENOUGH - 1))
