"""Two processes equal one, whether each has all weights or a part of each: the same losses, weights and saved files,
and a run may go on with another number of processes, and with weights divided or not."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch.distributed.fsdp  # noqa: F401 (once, and not in each process)
from safetensors.numpy import load_file

from segue.config import load
from segue.data.prepare import prepare
from segue.train.pretrain import Validated, pretrain
from tests.forked import forked, forked_call, ranks, together
from tests.train import processes
from tests.train.processes import Job

SHARDED = {"sharded": True}
ALL = {"accumulate": 2, "average_decay": 0.9, "recompute": True}

# Adaptive bins (weights without gradient in one process), unequal numbers of targets, segment terms that no process
# uses. Each run is a list of parts: number of processes, step to stop at, settings.
RUNS = {
    "wt103": ("transformer-xl-wt103", [(2, 2, {}), (1, 4, {}), (2, 6, {})]),
    "bert": ("bert-memory", [(2, 2, {}), (1, 4, {}), (2, 6, {})]),
    "memory": ("memory-gradient", [(2, 2, ALL), (1, 4, ALL), (2, 6, ALL)]),
    "memory-sharded": ("memory-gradient", [(2, 2, SHARDED | ALL), (1, 4, ALL), (2, 6, SHARDED | ALL)]),
    "wt103-sharded": ("transformer-xl-wt103", [(2, 2, SHARDED), (1, 4, {}), (2, 6, SHARDED)]),
    "bert-sharded": ("bert-memory", [(2, 2, SHARDED), (1, 4, {}), (2, 6, SHARDED)]),
    "xlnet-sharded": ("xlnet-base", [(2, 2, SHARDED | ALL), (1, 4, ALL), (2, 6, SHARDED | ALL)]),
}
LONG = ("memory-sharded", "bert-sharded")
"""Tried by make test-long: their weights divided, and their models, are in other runs."""
ONE = {
    "transformer-xl-wt103": {},
    "bert-memory": {},
    "xlnet-base": {"average_decay": 0.9},
    "memory-gradient": {"average_decay": 0.9},
}


def launch(count: int, *arguments: str) -> str:
    """A verb in processes that work together; what the first one wrote."""
    return together([forked(*arguments, environment=rank) for rank in ranks(count)])[0]


def work(count: int, jobs: list[Job]) -> list[list[float]]:
    environments = ranks(count) if count > 1 else [{}]
    output, _ = together([forked_call(partial(processes.main, jobs), environment=rank) for rank in environments])
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT "))


@pytest.fixture(scope="module")
def done(tmp_path_factory, request: pytest.FixtureRequest) -> tuple[Path, dict[str, list[float]]]:
    """The folder of all runs that are asked for, and the losses of each; the first parts of all in one start, then the
    second ones, ..."""
    folder = tmp_path_factory.mktemp("runs")
    here = [item for item in request.session.items if item.path == request.path and "done" in item.fixturenames]
    asked = {item.callspec.params["name"] for item in here}
    losses: dict[str, list[float]] = {name: [] for name in [*ONE, *RUNS]}
    for name, result in zip(ONE, work(1, [(n, str(folder / n), 6, s) for n, s in ONE.items()]), strict=True):
        losses[name] += result
    for part in range(3):
        jobs = {name: (model, *parts[part]) for name, (model, parts) in RUNS.items() if name in asked}
        (count,) = {count for _, count, _, _ in jobs.values()}
        results = work(count, [(model, str(folder / name), stop, s) for name, (model, _, stop, s) in jobs.items()])
        for name, result in zip(jobs, results, strict=True):
            losses[name] += result
    return folder, losses


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.long] * (one in LONG)) for one in RUNS])
def test_two_processes_equal_one_and_may_change(name: str, done) -> None:
    folder, losses = done
    model = RUNS[name][0]
    assert len(losses[model]) == 6
    assert losses[name] == pytest.approx(losses[model], abs=1e-9)
    files = {path.relative_to(folder / model) for path in (folder / model).rglob("*") if path.is_file()}
    assert files == {path.relative_to(folder / name) for path in (folder / name).rglob("*") if path.is_file()}
    for file in (path for path in files if path.suffix == ".safetensors" and path.stem != "random"):
        one, two = load_file(folder / model / file), load_file(folder / name / file)
        assert one.keys() == two.keys()
        for key, value in one.items():
            assert value.shape == two[key].shape
            assert abs(value.astype(float) - two[key]).max() < 1e-8, (file, key)


CONFIG = """
[data]
lanes = 4
segment_length = 16
[model]
num_layers = 2
width = 16
num_heads = 2
inner_width = 32
dropout = 0.0
[model.vocabulary]
[model.memory]
length = 16
[train]
steps = 6
learning_rate = 0.01
log_every = 1
validate_every = 3
validation_steps = 4
average_decay = 0.5
"""


def test_a_whole_run_with_divided_weights(tmp_path) -> None:
    """Validated with the averaged weights, saved as best, with weights divided between: as in one process."""
    (tmp_path / "text.txt").write_text("\n\n".join(f"Section {n}. words follow words" for n in range(99)))
    prepare([tmp_path / "text.txt"], out=tmp_path / "store", kind="bytes", validation_share=0.2, workers=1)
    (tmp_path / "config.toml").write_text(CONFIG)
    overrides = [f"data.store={tmp_path / 'store'}", f"data.validation={tmp_path / 'store-valid'}"]
    settings = [*overrides, "train.sharded=true", "--out", str(tmp_path / "two")]
    launch(2, "pretrain", str(tmp_path / "config.toml"), *settings)
    config = load(tmp_path / "two" / "config.toml")
    assert config.train.sharded
    events = [event for event in pretrain(config, tmp_path / "one") if isinstance(event, Validated)]
    lines = [json.loads(line) for line in (tmp_path / "two" / "metrics.jsonl").read_text().splitlines()]
    assert [line["validation_loss"] for line in lines if "validation_loss" in line] == pytest.approx(
        [event.loss for event in events], abs=1e-4
    )
    for file in ("best/model.safetensors", "last/model.safetensors"):
        one, two = (load_file(tmp_path / run / file) for run in ("one", "two"))
        assert one.keys() == two.keys()
        assert max(abs(one[key] - two[key]).max() for key in one) < 1e-4
