"""A study that is small enough for tests, its text, and a way to do its jobs in this process."""

import os
from collections.abc import Sequence
from pathlib import Path

from segue.study import worker
from segue.study.data import corpus_of, tables_of
from segue.study.load import Study, open_study
from segue.study.plan import Plan, plan_study
from segue.study.pool import cores
from segue.train.run_folder import Stop
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
                worker._do({**job.order, "threads": cores()}, Stop())
                count += 1
    finally:
        os.chdir(before)
    return count
