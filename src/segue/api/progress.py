"""Progress of long calls: events for callbacks, and a status line on standard error.

In a terminal or notebook the line is updated in place and removed at the end; elsewhere a line is printed periodically.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

R = TypeVar("R")

PATIENCE = 1.0
"""Seconds of work before a status line appears."""
LINE_EVERY = 10.0
"""Seconds between lines if they cannot be updated in place."""
WIDTH = 78


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a call."""

    what: str
    """Name of the work, e.g. "score"."""
    done: int
    total: int | None
    """Total amount; None if not known yet."""
    unit: str
    """Unit that is counted: tokens, rows or bytes."""


Tell: TypeAlias = Callable[[int, int | None], None]
"""Callback that takes the amount done and the total."""


class StatusLine:
    """A status line on standard error."""

    def __init__(self, *, show: bool) -> None:
        self.show = show
        self.moves = show and (sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel"))
        self._started = self._said = time.monotonic()
        self._shown = ""

    def update(self, text: str) -> None:
        """Set the latest state, and show it if it is due."""
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
        """Print a permanent line."""
        if self.show:
            self.clear()
            self._write(f"{text}\n")

    def clear(self) -> None:
        """Remove the status line."""
        if self._shown:
            self._write("\r" + " " * len(self._shown) + "\r")
            self._shown = ""

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def progress_callback(
    what: str, *, unit: str, progress: bool, on_event: Callable[[Progress], object] | None = None
) -> Iterator[Tell]:
    """Yield a callback with which the work reports its progress."""
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
    """Yield the rows, and close `held`, which shows their progress, at the end."""
    with held:
        yield from rows


def counted(tell: Tell) -> Callable[[int], None]:
    """Return a callback for work that reports increments and has no known total."""
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
    """Return a duration in readable form.

    >>> duration(4.21), duration(35), duration(425), duration(7800)
    ('4.2 s', '35 s', '7 min 5 s', '2 h 10 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
