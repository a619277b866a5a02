"""Training in stages: runs that start from an existing model, are resumed without it, and are made longer."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from segue.api.configs import run_config
from segue.checkpoint.folder import load
from segue.config import Config, ModelConfig, TrainConfig, parse
from segue.data.prepare import prepare
from segue.errors import CheckpointError, ConfigError, DataError, SegueError, SegueWarning
from segue.files import sha256
from segue.model import LanguageModel
from segue.train.loop import StepReport
from segue.train.metrics import read_metrics
from segue.train.optim import learning_rate
from segue.train.pretrain import Ended, Event, Started, pretrain
from segue.train.stages import Origin, find_origin, start_with
from tests.cli.test_pretrain import both, segue
from tests.forked import forked, ranks, together
from tests.train.runs import config_of, write_inputs

SECOND = """
[data]
lanes = 2
segment_length = 32
[model]
dropout = 0.2
[model.memory]
length = 48
[train]
steps = 12
learning_rate = 0.005
warmup_steps = 2
log_every = 1
validate_every = 4
save_every = 5
average_decay = 0.8
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a first stage of 12 steps, and a second one that was never stopped."""
    folder = write_inputs(tmp_path_factory.mktemp("stages"))
    list(pretrain(config_of(folder, "train.steps=12", "train.validate_every=4"), folder / "first"))
    (folder / "second.toml").write_text(SECOND, encoding="utf-8")
    run(folder, "straight", "first/last")
    return folder


def stage(work: Path, out: str, start: str | None, *overrides: str) -> tuple[Config, Origin | None]:
    origin = find_origin(None if start is None else str(work / start), work / out)
    stores = [f"data.store={work / 'store'}", f"data.validation={work / 'store-valid'}"]
    base = None if origin is None else origin.config
    return run_config(str(work / "second.toml"), [*stores, *overrides], base=base), origin


def run(work: Path, out: str, start: str | None, *overrides: str, stop: int | None = None) -> list[Event]:
    """To its end, or to a step after which a signal asks to stop."""
    config, origin = stage(work, out, start, *overrides)
    events = []
    for event in pretrain(config, work / out, origin=origin):
        events.append(event)
        if isinstance(event, StepReport) and event.step == stop:
            os.kill(os.getpid(), signal.SIGTERM)
    return events


def files(run: Path) -> dict[str, bytes]:
    """All tensors of a run, and its state."""
    found = {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*.safetensors"))}
    return found | {"state": (run / "last/training/state.json").read_bytes()}


def losses(run: Path) -> list[tuple[int, float]]:
    return [
        (line["step"], line.get("loss", line.get("validation_loss"))) for line in read_metrics(run / "metrics.jsonl")
    ]


def filled(origin: Origin | None, config: ModelConfig) -> dict[str, torch.Tensor]:
    assert origin is not None
    model = LanguageModel(config)
    model.load_state_dict(origin.weights())
    return dict(model.state_dict())


# ------------------------------------------------------------------------------------------------------- the start


@pytest.mark.parametrize("start", ["first", "first/best"])
def test_the_best_model_of_a_run_is_taken(work: Path, start: str) -> None:
    config, origin = stage(work, "new", start)
    assert origin is not None
    assert (origin.name, origin.averaged) == ("first/best", False)
    assert origin.sha256 == sha256(work / "first/best/model.safetensors")
    expected = load_file(work / "first/best/model.safetensors")
    assert all(torch.equal(value, expected[name]) for name, value in filled(origin, config.model).items())


def test_of_a_state_the_averaged_weights_are_taken(work: Path) -> None:
    config, origin = stage(work, "new", "first/last")
    assert origin is not None
    assert (origin.name, origin.averaged, origin.step) == ("first/last", True, 12)
    average = work / "first/last/training/average.safetensors"
    assert origin.sha256 == sha256(average)
    got, expected = filled(origin, config.model), load_file(average)
    assert all(torch.equal(got[name], value) for name, value in expected.items())
    assert not torch.equal(
        got["trunk.reader.layers.0.attention.query.weight"],
        load_file(work / "first/last/model.safetensors")["trunk.reader.layers.0.attention.query.weight"],
    )


def test_the_model_is_that_of_the_first_stage_but_for_what_may_differ(work: Path) -> None:
    first = load(work / "first/last").config
    second = load(work / "straight/last").config
    assert first.memory is not None
    memory = first.memory.model_copy(update={"length": 48})
    assert second == first.model_copy(update={"dropout": 0.2, "memory": memory})


def test_the_second_stage_is_the_definition_of_it(work: Path) -> None:
    """Its first loss is that of the first model on the first batch, with a new memory; the optimizer is new."""
    numbers = json.loads((work / "straight/last/training/state.json").read_text())
    assert numbers["step"] == 12
    steps = {value.item() for name, value in load_file(work / "straight/last/training/optimizer.safetensors").items()
             if name.endswith("/step")}  # fmt: skip
    assert steps == {12.0}
    rates = [line["learning_rate"] for line in read_metrics(work / "straight/metrics.jsonl") if "learning_rate" in line]
    settings = stage(work, "straight", None)[0].train
    assert settings is not None
    assert rates == [learning_rate(step, settings) for step in range(12)]


def test_what_is_drawn_for_batches_is_new(work: Path) -> None:
    _, origin = stage(work, "new", "first/last")
    assert origin is not None
    assert len({0, origin.data_seed(0), origin.data_seed(1)}) == 3
    assert origin.data_seed(0) == stage(work, "new", "first/last")[1].data_seed(0)  # type: ignore[union-attr]


def test_card_and_state_say_what_the_run_started_from(work: Path) -> None:
    digest = sha256(work / "first/last/training/average.safetensors")
    for name in ("best", "last"):
        card = (work / "straight" / name / "README.md").read_text()
        assert f"Training started from first/last (averaged weights of step 12, sha256 `{digest}`)." in card
        assert str(work) not in card
    record = json.loads((work / "straight/last/training/state.json").read_text())["origin"]
    assert (record["sha256"], record["given"]) == (digest, str(work / "first/last"))


def test_inspect_says_step_losses_and_origin(work: Path) -> None:
    said = " ".join(segue("inspect", work / "straight").split())
    for part in ("step 12 of 12", "training loss of one step: ", "validation loss: ", " at step 12"):
        assert part in said
    assert "started from first/last (averaged weights of step 12, sha256" in said
    assert "step 12 of 12" in segue("inspect", work / "straight/last")
    assert "started from" not in segue("inspect", work / "first")


# ---------------------------------------------------------------------------------------------------------- resume


def test_resumed_without_the_model_equals_never_stopped(work: Path) -> None:
    shutil.copytree(work / "first", work / "gone")
    config, origin = stage(work, "stopped", "gone/last")
    before_a_state = pretrain(config, work / "stopped", origin=origin)
    for event in before_a_state:
        if isinstance(event, StepReport) and event.step == 3:  # as if killed: nothing was saved since the start
            break
    before_a_state.close()  # type: ignore[attr-defined]
    shutil.rmtree(work / "gone")
    started = run(work, "stopped", "gone/last", stop=2)[0]
    assert isinstance(started, Started)
    assert started.step == 0
    assert started.origin is not None
    run(work, "stopped", None, stop=7)  # --from may be left out too
    ended = run(work, "stopped", "gone/last")[-1]
    assert isinstance(ended, Ended)
    assert ended.finished
    got, expected = files(work / "stopped"), files(work / "straight")
    state, other = (json.loads(one.pop("state")) for one in (got, expected))
    assert got == expected
    for numbers in (state, other):
        del numbers["origin"]["given"], numbers["origin"]["name"]
    assert state == other
    assert losses(work / "stopped") == losses(work / "straight")


def test_another_model_on_resume_is_refused(work: Path) -> None:
    run(work, "one", "first/last", "model.dropout=0", "train.schedule=constant")
    with pytest.raises(
        ConfigError, match=r"must be resumed with the model it started from, first/last .*; got one/best"
    ):
        stage(work, "straight", "one")
    with pytest.raises(
        ConfigError, match=r"started from new weights, so it cannot be resumed with --from\. Leave --from out"
    ):
        stage(work, "first", "straight")
    _, origin = stage(work, "straight", "first/../first/last")  # the same, by another name
    assert origin is not None
    assert origin.folder is None


def test_two_processes(work: Path) -> None:
    """The losses of one process; stopped after 4 steps, and resumed."""
    work = work.resolve()
    settings = ["model.dropout=0", "train.schedule=constant"]
    run(work, "one", "first/last", *settings)  # or it is there already
    stores = [f"data.store={work / 'store'}", f"data.validation={work / 'store-valid'}"]
    for steps in (4, 12):
        words = ["pretrain", str(work / "second.toml"), *stores, *settings, f"train.steps={steps}"]
        words += ["--from", str(work / "first/last"), "--out", str(work / "two")]
        _, errors = together([forked(*words, environment=rank) for rank in ranks(2)])
        assert "started from first/last (averaged weights" in " ".join(errors.split())
    one, two = (dict(pair for pair in losses(work / name)) for name in ("one", "two"))
    assert list(two) == list(one)
    assert list(two.values()) == pytest.approx(list(one.values()), abs=1e-4)


# --------------------------------------------------------------------------------------------------------- refusals


def test_all_that_contradicts_the_model_is_said_at_once(work: Path) -> None:
    wrong = [
        "model.width=32",
        "model.vocabulary.size=99",
        "model.positions.kind=alibi",
        "model.wdith=1",
        "train.steps=0",
    ]
    with pytest.raises(ConfigError) as error:
        stage(work, "new", "first", *wrong, "model.auxiliary.targets=2", "model.memory.initial=zeros")
    text = str(error.value)
    assert text.startswith("The config has 7 problems:")
    for part in (
        "model.width must be that of the model that the run starts from, which has 16; got 32. Leave it out.",
        "model.vocabulary.size must be that of the model that the run starts from, which has 2",
        "model.positions.kind must be that of the model that the run starts from, which has 'xl'; got 'alibi'.",
        "model.auxiliary must be that of the model that the run starts from, which leaves it out",
        "model.memory.initial must be that of the model that the run starts from, which has 'empty'; got 'zeros'.",
        "model.wdith is not a setting. Did you mean model.width?",
        "train.steps must be at least 1; got 0.",
    ):
        assert part in text


def test_another_objective_keeps_the_layers_and_adds_what_it_needs(work: Path) -> None:
    xlnet = ["model.objective=permutation", "model.segments=relative", "model.memory.reuse_length=16"]
    config, origin = stage(work, "permuted", "first/best", *xlnet)
    assert (config.model.objective, config.model.segments) == ("permutation", "relative")
    assert origin is not None
    before = origin.weights()
    torch.manual_seed(3)
    model = LanguageModel(config.model)
    new = {name: value.clone() for name, value in model.state_dict().items()}
    start_with(model, before)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before.get(name, new[name])), name
    added = {name.rpartition(".")[2] for name in new if name not in before}
    assert added == {"mask_embedding_D", "segment_HE", "segment_2HE"}
    straight = run(work, "permuted", "first/best", *xlnet)
    ended = straight[-1]
    assert isinstance(ended, Ended)
    assert ended.finished
    run(work, "permuted-stopped", "first/best", *xlnet, stop=5)
    run(work, "permuted-stopped", None, *xlnet)
    assert files(work / "permuted") == files(work / "permuted-stopped")


def test_segments_of_another_kind_are_refused(work: Path) -> None:
    run(work, "with-segments", "first/best", "model.segments=relative")
    with pytest.raises(ConfigError, match=r"model\.segments must be that of the model .* which has 'relative'"):
        stage(work, "x", "with-segments", "model.segments=absolute")


def test_muon_stopped_and_resumed_equals_never_stopped(work: Path) -> None:
    run(work, "muon", "first/best", "train.optimizer=muon")
    run(work, "muon-stopped", "first/best", "train.optimizer=muon", stop=5)
    with pytest.raises(
        ConfigError, match=r'must keep its train\.optimizer, "muon", whose state was saved; got "adamw"'
    ):
        run(work, "muon-stopped", None)
    run(work, "muon-stopped", None, "train.optimizer=muon")
    assert files(work / "muon") == files(work / "muon-stopped")


def test_muon_needs_whole_matrices(work: Path) -> None:
    with pytest.raises(ConfigError, match=r'train\.optimizer "muon" needs whole matrices'):
        stage(work, "x", "first", "train.optimizer=muon", "train.sharded=true")


def test_a_config_that_agrees_is_taken(work: Path) -> None:
    """The config of the first stage, and no [model] at all."""
    origin = find_origin(str(work / "first"), work / "new")
    assert origin is not None
    whole = run_config(str(work / "first/config.toml"), [], base=origin.config)
    assert whole.model == origin.config
    data = {"store": "store"}
    assert parse({"data": data, "train": {}}, base=origin.config).model == origin.config


def test_another_tokeniser_is_refused_and_leaves_no_folder(work: Path) -> None:
    if not (work / "other").exists():
        prepare([work / "text.txt"], out=work / "other", kind="characters", workers=1)
    with pytest.raises(DataError, match=r"other must have the tokeniser of first/best.*tokenizer=.*best/tokenizer"):
        run(work, "refused", "first", f"data.store={work / 'other'}")
    assert not (work / "refused").exists()


@pytest.mark.parametrize(
    ("start", "message"),
    [("nowhere", "a model must be a folder"), ("store", "must be|must hold"), ("text.txt", "must be|must hold")],
)
def test_what_is_no_model_is_refused(work: Path, start: str, message: str) -> None:
    with pytest.raises(SegueError, match=message):
        run(work, "refused", start)
    assert not (work / "refused").exists()


def test_weights_that_are_not_finite_are_refused(work: Path) -> None:
    from segue.checkpoint.folder import save

    model = load(work / "first/best")
    with torch.no_grad():
        model.trunk.reader.layers[0].attention.query.weight[0, 0] = float("nan")  # type: ignore[union-attr, operator, index]
    save(model, work / "spoiled", tokenizer=work / "store/tokenizer")
    with (
        pytest.warns(SegueWarning, match="NaN or infinity"),
        pytest.raises(CheckpointError, match="must hold finite weights to start from"),
    ):
        run(work, "refused", "spoiled")
    assert not (work / "refused").exists()


def test_through_the_command(work: Path) -> None:
    stores = [f"data.store={work / 'store'}", f"data.validation={work / 'store-valid'}"]
    words = [
        "pretrain",
        work / "second.toml",
        *stores,
        "train.steps=3",
        "--from",
        work / "first",
        "--out",
        work / "cli",
    ]
    output, progress = both(*words)
    assert output.startswith("Done at step 3")
    assert "started from first/best (weights, sha256" in progress
    message = segue("pretrain", "small-transformer-xl", *stores, "--from", work / "first", "--out", work / "x", code=2)
    assert "model.width must be that of the model that the run starts from, which has 16; got 192" in message
    assert not (work / "x").exists()


# ------------------------------------------------------------------------------------------------ longer schedules


WSD = TrainConfig(steps=20, learning_rate=1.0, schedule="warmup_stable_decay", warmup_steps=4, decay_steps=5)


def test_warmup_stable_decay_equals_its_definition() -> None:
    rates = [learning_rate(step, WSD) for step in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:16] == [1.0] * 12
    assert rates[16:] == pytest.approx([0.8, 0.6, 0.4, 0.2], abs=1e-15)
    left = WSD.model_copy(update={"final_share": 0.5})
    assert [learning_rate(step, left) for step in range(15, 20)] == pytest.approx([1, 0.9, 0.8, 0.7, 0.6], abs=1e-15)
    default = WSD.model_copy(update={"decay_steps": None, "steps": 50})
    assert [learning_rate(step, default) for step in (39, 40, 41, 49)] == pytest.approx([1, 1, 0.9, 0.1], abs=1e-15)


def test_what_the_schedule_cannot_be_is_refused() -> None:
    def config(**train: object) -> Config:
        return parse({"model": {"vocabulary": {"size": 9}}, "train": {"steps": 10, **train}})

    with pytest.raises(
        ConfigError, match=r'train\.decay_steps is for schedule "warmup_stable_decay"; got 3 with "cosine"'
    ):
        config(decay_steps=3)
    with pytest.raises(ConfigError, match=r"must be at most train\.steps together; got 6, 5 and 10"):
        config(schedule="warmup_stable_decay", warmup_steps=6, decay_steps=5)
    assert config(schedule="warmup_stable_decay", warmup_steps=5, decay_steps=5).train is not None


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (["train.schedule=warmup_stable_decay", "train.decay_steps=3"], []),
        (["train.schedule=constant"], ["train.schedule=warmup_stable_decay", "train.decay_steps=3"]),
        (["train.schedule=inverse_sqrt"], []),
    ],
    ids=["warmup_stable_decay", "constant, then a decay", "inverse_sqrt"],
)
def test_a_longer_run_equals_one_that_was_always_that_long(
    work: Path, tmp_path: Path, first: list[str], then: list[str]
) -> None:
    common = ["train.validate_every=1000", "train.save_every=1000"]

    def go(name: str, *overrides: str, stop: int | None = None) -> None:
        for event in pretrain(config_of(work, *common, *overrides), tmp_path / name):
            if isinstance(event, StepReport) and event.step == stop:
                os.kill(os.getpid(), signal.SIGTERM)

    go("longer", *first, "train.steps=12", stop=8)
    go("longer", *first, *then, "train.steps=15")
    go("straight", *first, *then, "train.steps=15")
    assert files(tmp_path / "longer") == files(tmp_path / "straight")
    assert losses(tmp_path / "longer") == losses(tmp_path / "straight")


@pytest.mark.parametrize("schedule", ["cosine", "linear", "warmup_stable_decay"])
def test_a_length_that_would_change_the_past_is_refused(work: Path, tmp_path: Path, schedule: str) -> None:
    """The length of a trapezoid may not change once its decay has begun."""
    settings = [f"train.schedule={schedule}", "train.validate_every=1000"]
    list(pretrain(config_of(work, *settings, "train.steps=10"), tmp_path / "run"))
    before = files(tmp_path / "run")
    for steps in (20, 11):
        with pytest.raises(
            ConfigError, match=rf"learning rates of the 10 steps .*; got train.steps = {steps}, which would"
        ):
            list(pretrain(config_of(work, *settings, f"train.steps={steps}"), tmp_path / "run"))
    assert files(tmp_path / "run") == before


def test_a_finished_constant_run_goes_on(work: Path, tmp_path: Path) -> None:
    settings = ["train.schedule=constant", "train.validate_every=1000"]
    list(pretrain(config_of(work, *settings, "train.steps=10"), tmp_path / "run"))
    ended = list(pretrain(config_of(work, *settings, "train.steps=14"), tmp_path / "run"))[-1]
    assert isinstance(ended, Ended)
    assert (ended.step, ended.finished) == (14, True)
