"""Small pretraining runs for tests: a store, a config, and the command as a process that can be stopped."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from segue.api.configs import run_config
from segue.config import Config
from segue.data.prepare import prepare
from tests.command import command as in_this_process
from tests.forked import Forked, forked

Process: TypeAlias = subprocess.Popen[Any] | Forked

CONFIG = """
[data]
lanes = 4
segment_length = 16
[model]
num_layers = 2
width = 16
num_heads = 2
inner_width = 32
dropout = 0.1
[model.vocabulary]
[model.memory]
length = 16
[train]
steps = 60
learning_rate = 0.01
warmup_steps = 5
log_every = 1
validate_every = 20
save_every = 7
average_decay = 0.9
"""


def write_inputs(folder: Path) -> Path:
    """A store of bytes, a validation store, and a config."""
    text = "\n\n".join(f"Section {n}. " + "words follow words, 词语接着词语; " * (3 + n % 5) for n in range(60))
    (folder / "text.txt").write_text(text, encoding="utf-8")
    prepare([folder / "text.txt"], out=folder / "store", kind="bytes", validation_share=0.1, workers=1)
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    return folder


def config_of(work: Path, *overrides: str) -> Config:
    return run_config(str(work / "config.toml"), arguments(work, "", *overrides)[1:-2])


def arguments(work: Path, run: str, *overrides: str) -> list[str]:
    return [
        str(work / "config.toml"),
        f"data.store={work / 'store'}",
        f"data.validation={work / 'store-valid'}",
        *overrides,
        "--out",
        str(work / run),
    ]


def command(work: Path, run: str, *overrides: str, preexec_fn: Callable[[], object] | None = None) -> Forked:
    """The command as a process that can be stopped."""
    environment = {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return forked("pretrain", *arguments(work, run, *overrides), environment=environment, preexec_fn=preexec_fn)


def done(work: Path, run: str, *overrides: str) -> tuple[int, str, str]:
    """The command in this process, to its end, as `finish(command(...))` would have it."""
    result = in_this_process("pretrain", *arguments(work, run, *overrides), width=200)
    return result.returncode, result.stdout, result.stderr


def finish(process: Process) -> tuple[int, str, str]:
    try:
        output, errors = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, output, errors


def steps_logged(run: Path) -> list[int]:
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    steps = []
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if "loss" in values:
            steps.append(values["step"])
    return steps


def wait_for_step(run: Path, step: int, process: Process) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        steps = steps_logged(run)
        if steps and steps[-1] >= step:
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} was not reached: {finish(process)}")
