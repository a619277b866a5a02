"""Run by torchrun in test_resume: whole pretraining runs, one after the other, in the processes of one start.

The argument is a JSON list of runs: the config file, the run folder, and the steps after which a signal stops it, each
with the signal and the process that gets it. Each run is resumed after each stop, to its end.
"""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from signal import Signals

import torch

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


def main(runs: list[tuple[str, str, list[tuple[int, str, int]]]]) -> None:
    torch.set_num_threads(1)
    with processes() as device:
        module.processes = lambda: nullcontext(device)  # type: ignore[assignment]  # one group for all runs
        for config, run, stops in runs:
            for stop in [*stops, None]:
                part(Path(config), Path(run), stop)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
