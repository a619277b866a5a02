"""The work of the processes of test_resume: whole pretraining runs, one after the other, in one start."""

import os
from contextlib import nullcontext
from pathlib import Path
from signal import Signals

from segue.config import load
from segue.train import pretrain as module
from segue.train.distributed import processes, rank
from segue.train.loop import StepReport
from segue.train.pretrain import Ended, pretrain


def part(config: Path, run: Path, stop: tuple[int, str, int] | None) -> None:
    """From where the run is to its end, or to where it is stopped."""
    ended = None
    for event in pretrain(load(config), run):
        if stop is not None and isinstance(event, StepReport) and event.step == stop[0] and rank() == stop[2]:
            os.kill(os.getpid(), Signals[stop[1]])
        if isinstance(event, Ended):
            ended = event
    assert ended is not None
    if stop is None:
        assert ended.finished
    else:
        assert (ended.step, ended.saved, ended.stopped_by) == (stop[0], stop[0], Signals[stop[1]])


Run = tuple[Path, Path, list[tuple[int, str, int]]]
"""The config file, the run folder, and the steps after which a signal stops it, each with the signal and the process
that gets it. It is resumed after each stop, to its end."""


def main(runs: list[Run]) -> None:
    with processes() as device:
        module.processes = lambda: nullcontext(device)  # type: ignore[assignment]  # one group for all runs
        for config, run, stops in runs:
            for stop in [*stops, None]:
                part(config, run, stop)
