"""A study that is small enough for tests, its text, and ways to do its jobs: in this process, and in a forked one."""

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from segue.study import pool, worker
from segue.study.data import corpus_of, tables_of
from segue.study.load import Study, open_study
from segue.study.plan import Plan, plan_study
from segue.train.run_folder import Stop
from tests.forked import forked_call
from tests.tasks.models import ENGLISH

STUDY = """
title = "Does memory help?"
question = "With and without."
seeds = [1, 2]

[corpus]
files = ["texts.txt"]
kind = "characters"
validation_share = 0.3

[budget]
tokens = 64
points = 2

[base.model]
num_layers = 1
width = 16
num_heads = 2
inner_width = 32
memory = { length = 8 }

[base.data]
lanes = 2
segment_length = 8

[base.train]
learning_rate = 0.01

[[variants]]
name = "memory"

[[variants]]
name = "no memory"
without = ["model.memory"]
"""
MEASURES = """
[measures]
unit = "bits_per_character"
memory_lengths = [4]
contexts = [2, 4]
context_tokens = 20
validation_tokens = 40

[[paper]]
source = "a table"
values = { "memory" = 24.0, "no memory" = 27.0 }
"""
TASK = """
[[measures.tasks]]
name = "films"
train = "table.jsonl"
test = "table.jsonl"
settings.train = { epochs = 1, restarts = 0 }
settings.read.segment_length = 32
"""


def write_study(folder: Path, text: str = STUDY) -> Path:
    """The file of a study, with its text beside it."""
    lines = [f"{number} {line}" for number, line in enumerate(ENGLISH.splitlines() * 3)]
    (folder / "texts.txt").write_text("\n\n".join(lines), encoding="utf-8")
    rows = [f'{{"text": "a {word} film", "label": "{word}"}}\n' for word in ("good", "bad")] * 12
    (folder / "table.jsonl").write_text("".join(rows), encoding="utf-8")
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def planned(path: Path, out: Path, overrides: Sequence[str] = ()) -> Plan:
    study: Study = open_study(path, overrides)
    out.mkdir(parents=True, exist_ok=True)
    corpus = corpus_of(study.settings.corpus, out)
    tables = {task.name: tables_of(task, out) for task in study.settings.measures.tasks}
    return plan_study(study, corpus, tables)


def do_jobs(plan: Plan, out: Path) -> int:
    """All that are not done, as a worker does them; returns how many."""
    before, count = Path.cwd(), 0
    os.chdir(out)
    try:
        for job in plan.jobs:
            if not job.is_done(Path()):
                worker._do({**job.order, "threads": 1}, Stop())
                count += 1
    finally:
        os.chdir(before)
    return count


def forked_worker(folder: Path, *, threads: int) -> pool._Worker:
    """In the place of `pool._started`: a real process, which has imported everything already."""
    orders, own = os.pipe()
    told, tell = os.pipe()
    said = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)

    def work() -> int:
        for number, other in enumerate((orders, tell, said.fileno())):
            os.dup2(other, number)
        os.closerange(3, 1024)  # as a new program has it: no other end of these pipes, no lock of the study
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
        os.setsid()
        os.chdir(folder)
        return worker.main()

    process: Any = forked_call(work)
    os.close(orders)
    os.close(tell)
    process.stdin, process.stdout = open(own, "wb"), open(told, "rb")  # noqa: SIM115
    process.terminate = lambda: process.send_signal(signal.SIGTERM)
    return pool._Worker(process=process, said=said)
