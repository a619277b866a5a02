"""Whole runs through the command: stopped by Ctrl-C, SIGTERM or kill -9 and resumed, they equal one never stopped."""

import json
import resource
import shlex
import signal
from pathlib import Path

import pytest
from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, parse_args

from segue.api.configs import run_config
from segue.config import load
from segue.config.presets import preset_names
from segue.errors import ConfigError, DataError
from segue.model import LanguageModel
from segue.train.loop import StepReport
from segue.train.pretrain import Ended, Validated, pretrain
from tests.forked import forked_call, together, verb
from tests.train.runs import arguments, command, config_of, done, finish, steps_logged, wait_for_step, write_inputs


@pytest.fixture(scope="module")
def work(tmp_path_factory) -> Path:
    """A store of bytes, a validation store, and a config."""
    return write_inputs(tmp_path_factory.mktemp("pretrain"))


@pytest.fixture(scope="module")
def straight(work: Path) -> Path:
    code, output, errors = finish(command(work, "straight"))
    assert code == 0, errors
    assert "Done at step 60" in output
    return work / "straight"


@pytest.mark.parametrize(
    "how",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL],
    ids=lambda number: number.name,
)
def test_stopped_and_resumed_equals_never_stopped(work: Path, straight: Path, how: signal.Signals) -> None:
    run = f"stopped-{how.name}"
    for step in (9, 30):
        process = command(work, run)
        wait_for_step(work / run, step, process)
        process.send_signal(how)
        code, output, _ = finish(process)
        if how == signal.SIGKILL:
            assert code == -9
        else:
            assert code == 128 + how
            assert "Stopped at step" in output
    code, output, errors = finish(command(work, run)) if how == signal.SIGKILL else done(work, run)
    assert code == 0, errors
    assert "resumes at step" in errors
    for name in ("last/model.safetensors", "best/model.safetensors", "last/training/optimizer.safetensors"):
        assert (work / run / name).read_bytes() == (straight / name).read_bytes(), name
    for name in ("last/README.md", "best/README.md"):
        assert (work / run / name).read_text().replace(run, "straight") == (straight / name).read_text(), name
    assert steps_logged(work / run) == list(range(1, 61))


def test_the_cards_say_what_is_known(work: Path, straight: Path) -> None:
    command_line = shlex.join(["segue", "pretrain", *arguments(work, "straight")])
    for name in ("last", "best"):
        card = (straight / name / "README.md").read_text()
        assert f"## Command\n\n    {command_line}\n" in card
        assert "store: " in card
        assert "| validation loss | " in card
    assert "| training loss of one step | " in (straight / "last" / "README.md").read_text()


def test_a_finished_run_has_nothing_to_do(work: Path, straight: Path) -> None:
    before = (straight / "last/model.safetensors").read_bytes()
    code, output, _ = done(work, "straight")
    assert code == 0
    assert "Done at step 60" in output
    assert (straight / "last/model.safetensors").read_bytes() == before


def test_a_run_can_be_made_longer_and_says_what_changed(work: Path, straight: Path) -> None:
    assert done(work, "longer", "train.steps=6", "train.schedule=constant")[0] == 0
    code, _, errors = done(work, "longer", "train.steps=8", "train.schedule=constant")
    assert code == 0, errors
    assert "changed: train.steps: 6 -> 8" in errors
    code, _, errors = done(work, "straight", "train.steps=62")
    assert code == 2
    assert "must keep the learning rates of the 60 steps already done; got train.steps = 62" in errors


def test_other_data_or_another_model_is_refused(work: Path, straight: Path) -> None:
    code, _, errors = done(work, "straight", "model.width=32")
    assert code == 2
    assert "keep its [model] settings; got other values for width" in errors


def test_two_runs_in_one_folder_are_refused(work: Path) -> None:
    first = command(work, "shared", "train.steps=5000")
    wait_for_step(work / "shared", 2, first)
    code, _, errors = done(work, "shared", "train.steps=5000")
    assert code == 2
    assert "in use by another run" in errors
    first.send_signal(signal.SIGTERM)
    assert finish(first)[0] == 143


def test_a_full_disk_is_an_error_that_leaves_the_last_state(work: Path) -> None:
    """Files may not grow beyond a few bytes: saving fails, what was saved before stays."""
    code, _, errors = done(work, "disk", "train.steps=10", "train.schedule=constant")
    assert code == 0, errors
    before = (work / "disk/last/model.safetensors").read_bytes()
    size, longer = 4096, ["train.steps=20", "train.schedule=constant"]

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    code, _, errors = finish(command(work, "disk", *longer, "train.log_every=100", preexec_fn=limit))
    assert code == 2, errors
    assert "must be writable" in errors
    assert "untouched" in errors
    assert (work / "disk/last/model.safetensors").read_bytes() == before
    assert done(work, "disk", *longer)[0] == 0


def test_a_run_that_was_killed_before_its_first_state_starts_again(work: Path) -> None:
    """A validation had written best/, but no state was saved yet."""
    overrides = ["train.save_every=1000", "train.validate_every=2"]
    process = command(work, "early", *overrides)
    wait_for_step(work / "early", 5, process)
    process.kill()
    finish(process)
    assert (work / "early/best").exists()
    assert not (work / "early/last").exists()
    assert done(work, "early", *overrides, "train.steps=6")[0] == 0


def test_events_and_validation(work: Path) -> None:
    config = run_config(str(work / "config.toml"), arguments(work, "events", "train.steps=20")[1:-2])
    events = list(pretrain(config, work / "events"))
    validations = [event for event in events if isinstance(event, Validated)]
    assert [event.step for event in validations] == [20]
    assert validations[0].best
    assert isinstance(events[-1], Ended)
    assert events[-1].finished
    assert load(work / "events/config.toml") == config
    assert (work / "events/best/tokenizer/tokenizer.json").exists()


def test_what_cannot_be_trained_is_refused(work: Path) -> None:
    good = run_config(str(work / "config.toml"), arguments(work, "x")[1:-2])
    with pytest.raises(ConfigError, match=r"no \[data\] and \[train\]"):
        list(pretrain(good.model_copy(update={"data": None, "train": None}), work / "x"))
    other = run_config(str(work / "config.toml"), [*arguments(work, "x")[1:-2], "model.vocabulary.size=999"])
    with pytest.raises(ConfigError, match="must be that of the store"):
        list(pretrain(other, work / "y"))
    (work / "thesis").mkdir()
    (work / "thesis/chapter.txt").write_text("precious")
    with pytest.raises(DataError, match="must be empty or a run"):
        list(pretrain(good, work / "thesis"))


def test_all_presets_build(work: Path) -> None:
    import torch

    assert len(preset_names()) == 15
    for name in preset_names():
        config = run_config(name, [f"data.store={work / 'store'}"])
        assert config.train is not None
        with torch.device("meta"):
            LanguageModel(config.model)
    with pytest.raises(ConfigError, match="a file or one of small-bert"):
        run_config("nonsense", [])


def test_half_losses_train_on_half_and_validate_on_all(work: Path, tmp_path: Path) -> None:
    """At a learning rate that moves nothing, the losses of training differ and those of validation do not."""
    losses: dict[str, tuple[float, float]] = {}
    for targets in ("all", "second_half"):
        settings = ["train.steps=1", "train.learning_rate=1e-12", "model.dropout=0.0", "train.warmup_steps=0"]
        config = config_of(work, f"data.targets={targets}", *settings)
        events = list(pretrain(config, tmp_path / targets))
        (step,) = (event for event in events if isinstance(event, StepReport))
        (validated,) = (event for event in events if isinstance(event, Validated))
        losses[targets] = step.loss, validated.loss
    assert losses["all"][0] != losses["second_half"][0]
    assert losses["all"][1] == pytest.approx(losses["second_half"][1], abs=1e-6)


def torchrun(*arguments: str) -> int:
    """What torchrun does with these words, but that its two processes are forked and import nothing: the largest exit
    code. make test-long starts the program itself (test_resume)."""
    alone = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "test"]  # as --standalone has it
    config, _, _ = config_from_args(parse_args([*alone, "--nproc-per-node", "2", "segue"]))
    config.start_method = "fork"
    return max(elastic_launch(config, verb)(arguments).values())


def test_two_processes_through_the_command(work: Path) -> None:
    """torchrun gives the losses of one process, and one process may go on where two stopped."""
    settings = ["model.dropout=0.0", "train.schedule=constant", "train.save_every=100", "train.validate_every=4"]

    def losses(run: str) -> dict[int, float]:
        lines = [json.loads(line) for line in (work / run / "metrics.jsonl").read_text().splitlines()]
        return {line["step"]: line["loss"] for line in lines if "loss" in line}

    def validations(run: str) -> list[float]:
        lines = [json.loads(line) for line in (work / run / "metrics.jsonl").read_text().splitlines()]
        return [line["validation_loss"] for line in lines if "validation_loss" in line]

    assert done(work, "one", *settings, "train.steps=12")[0] == 0
    words = ["pretrain", *arguments(work, "two", *settings, "train.steps=8")]
    together([forked_call(lambda: torchrun(*words), environment={"OMP_NUM_THREADS": "1"})])
    assert done(work, "two", *settings, "train.steps=12")[0] == 0
    first, second = losses("one"), losses("two")
    assert sorted(second) == list(range(1, 13))
    assert list(second.values()) == pytest.approx(list(first.values()), abs=1e-4)
    assert validations("two") == pytest.approx(validations("one"), abs=1e-4)
