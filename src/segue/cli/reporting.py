"""Progress of long work on standard error: a bar in a terminal, elsewhere a line every few seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from segue.cli.console import duration

Report: TypeAlias = Callable[[int, int], None]
"""Callback that takes the amount done and the total."""
PATIENCE = 1.0
"""Seconds of work before a bar appears."""
LINE_EVERY = 10.0
"""Seconds between lines if there is no terminal."""


@contextmanager
def reporting(what: str) -> Iterator[Report]:
    """Yield a callback for progress. `what` names the work at the start of each line."""
    console = Console(stderr=True, highlight=False, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(what, total=None)
    started = said = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal said
        now = time.monotonic()
        if console.is_terminal:
            if now - started >= PATIENCE:
                bar.start()
            bar.update(task, completed=done, total=total)
        elif now - said >= LINE_EVERY:
            said = now
            left = (now - started) * (total - done) / max(1, done)
            console.print(
                f"{what}: {done:,} of {total:,}, {done / max(1, total):.0%}, {duration(left)} left", soft_wrap=True
            )

    try:
        yield report
    finally:
        if bar.live.is_started:  # otherwise it would print an empty line
            bar.stop()
