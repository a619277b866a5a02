"""How far a long call is: events for whoever asks for them, and a line on standard error.

In a terminal or a notebook the line moves and is gone at the end; elsewhere a line is written now and then.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from segue.train.distributed import rank

R = TypeVar("R")

PATIENCE = 1.0
"""Seconds of work before a moving line appears."""
LINE_EVERY = 10.0
"""Seconds from one line to the next where lines do not move."""
WIDTH = 78


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a call is."""

    what: str
    """What is being done: "score", say."""
    done: int
    total: int | None
    """None where nobody knows yet."""
    unit: str
    """What is counted: tokens, rows, bytes."""


Tell: TypeAlias = Callable[[int, int | None], None]
"""Takes how much is done, and of how much."""


def is_first_process() -> bool:
    """Whether this process is the one that speaks, where several train together: all of them get the events."""
    return rank() == 0


class StatusLine:
    """One line on standard error."""

    def __init__(self, *, show: bool) -> None:
        self.show = show
        self.moves = show and (sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel"))
        self._started = self._said = time.monotonic()
        self._shown = ""

    def update(self, text: str) -> None:
        """The newest state; shown if it is time for it."""
        now = time.monotonic()
        if self.moves and now - self._started >= PATIENCE and now - self._said >= 0.1:
            self._said = now
            text = text[:WIDTH]
            self._write("\r" + text.ljust(len(self._shown)))
            self._shown = text
        elif self.show and not self.moves and now - self._said >= LINE_EVERY:
            self._said = now
            self._write(f"{text}\n")

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.show:
            self.clear()
            self._write(f"{text}\n")

    def clear(self) -> None:
        """Takes the moving line away."""
        if self._shown:
            self._write("\r" + " " * len(self._shown) + "\r")
            self._shown = ""

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def told(
    what: str, *, unit: str, progress: bool, on_event: Callable[[Progress], object] | None = None
) -> Iterator[Tell]:
    """Gives a function that is to be called as the work goes on."""
    line = StatusLine(show=progress)
    started = time.monotonic()

    def tell(done: int, total: int | None) -> None:
        if on_event is not None:
            on_event(Progress(what=what, done=done, total=total, unit=unit))
        line.update(f"{what}: {_share(done, total, unit)}{_left(started, done, total)}")

    try:
        yield tell
    finally:
        line.clear()


def streamed(rows: Iterable[R], held: ExitStack) -> Iterator[R]:
    """The rows as they come; `held`, what shows their progress, is let go at their end."""
    with held:
        yield from rows


def counted(tell: Tell) -> Callable[[int], None]:
    """The same for work that says how much more is done, and does not know how much there is."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        tell(done, None)

    return count


def _share(done: int, total: int | None, unit: str) -> str:
    return f"{done:,} {unit}" if not total else f"{done:,} of {total:,} {unit}, {done / total:.0%}"


def _left(started: float, done: int, total: int | None) -> str:
    if not total or not done:
        return ""
    return f", {duration((time.monotonic() - started) * (total - done) / done)} left"


def duration(seconds: float) -> str:
    """A duration as a person would say it.

    >>> duration(4.21), duration(35), duration(425), duration(7800)
    ('4.2 s', '35 s', '7 min 5 s', '2 h 10 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
