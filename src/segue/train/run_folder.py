"""What every training run does with its folder and its signals: one run at a time, lines of metrics, a clean stop."""

import fcntl
import json
import math
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from segue.errors import DataError
from segue.train.distributed import rank


class Metrics:
    """A JSON line for each logged step. Lines beyond the step that a run resumes from are dropped first."""

    def __init__(self, path: Path, *, step: int) -> None:
        self.path = path
        if rank() == 0 and path.exists():
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if _step_of(line) <= step]
            new = path.with_suffix(".new")
            new.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            new.replace(path)

    def write(self, values: dict[str, Any]) -> None:
        if rank() == 0:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")


def _step_of(line: str) -> float:
    try:
        step: float = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line that a killed process left half-written
    return step


@contextmanager
def one_at_a_time(run: Path) -> Iterator[None]:
    """One run at a time in a folder."""
    if rank() != 0:
        yield
        return
    run.mkdir(parents=True, exist_ok=True)
    with (run / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                f"{run} must be used by one run at a time; got a second one. Wait, or use another --out."
            ) from None
        yield


@dataclass
class Stop:
    """Whether someone asked to stop."""

    asked: bool = False


@contextmanager
def stop_signal() -> Iterator[Stop]:
    """The first SIGINT or SIGTERM asks to stop after the step; a second one ends the process at once."""
    stop = Stop()

    def handle(number: int, _: FrameType | None) -> None:
        if stop.asked:
            os._exit(128 + number)
        stop.asked = True

    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
