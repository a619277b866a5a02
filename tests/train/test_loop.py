"""The training loop: how the work is divided changes nothing; bad steps are skipped; states resume to the bit."""

import math

import pytest
import torch

from segue.config import Config, ModelConfig, TrainConfig, changed
from segue.errors import CheckpointError
from segue.model import LanguageModel
from segue.train.loop import DivergedError, StepReport, TrainState, train
from segue.train.optim import WeightAverage, learning_rate, make_optimizer
from segue.train.state import load_state, save_state
from tests.tiny import MODELS
from tests.train.source import RandomBatches

SETTINGS = TrainConfig(steps=6, learning_rate=1e-2, warmup_steps=2, clip_norm=0.25)
NAMES = [
    "transformer-xl-enwik8-base",
    "transformer-xl-wt103",
    "xlnet-base",
    "bert-memory",
    "gpt",
    "two-direction",
    "vanilla-12",
]


def start(config: ModelConfig, settings: TrainConfig = SETTINGS, *, double: bool = False) -> TrainState:
    torch.manual_seed(settings.seed)
    model = LanguageModel(config)
    if double:
        model = model.double()
    average = None if settings.average_decay is None else WeightAverage(model, settings.average_decay)
    return TrainState(model=model, optimizer=make_optimizer(model, settings), average=average)


def run(state: TrainState, batches: RandomBatches, settings: TrainConfig = SETTINGS) -> list[StepReport]:
    return list(train(state, batches, settings))


def same_weights(a: TrainState, b: TrainState, *, tolerance: float = 0.0) -> None:
    for (name, x), y in zip(a.model.named_parameters(), b.model.parameters(), strict=True):
        difference = float((x - y).abs().max().detach())
        assert difference <= tolerance, (name, difference)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", NAMES)
def test_the_loss_falls(name: str) -> None:
    """On one batch again and again."""

    class Same(RandomBatches):
        def __next__(self):
            self.step = 0
            return super().__next__()

    settings = TrainConfig(steps=40, learning_rate=2e-2, clip_norm=1.0)
    config = changed(MODELS[name], memory=None)
    reports = run(start(config, settings), Same(config), settings)
    assert reports[-1].loss < 0.6 * reports[0].loss
    assert [report.step for report in reports] == list(range(1, 41))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", NAMES)
def test_accumulating_changes_nothing(name: str) -> None:
    """Whole batches, halves, quarters and rows, with memory for each part: the same weights after six updates.

    Losses that are means over their own part (auxiliary, backward reader) divide evenly here.
    """
    config = MODELS[name]
    whole = start(config, double=True)
    losses = [report.loss for report in run(whole, RandomBatches(config))]
    for parts in (2, 4):
        settings = SETTINGS.model_copy(update={"accumulate": parts})
        state = start(config, settings, double=True)
        assert [r.loss for r in run(state, RandomBatches(config), settings)] == pytest.approx(losses, abs=1e-10)
        same_weights(whole, state, tolerance=1e-9)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NAMES)
def test_recomputing_changes_nothing(name: str) -> None:
    """To the bit, dropout included."""
    config = changed(MODELS[name], dropout=0.3)
    plain = start(config)
    run(plain, RandomBatches(config))
    settings = SETTINGS.model_copy(update={"recompute": True})
    again = start(config, settings)
    run(again, RandomBatches(config), settings)
    same_weights(plain, again)


def test_gradients_through_memory_take_several_segments_an_update() -> None:
    config = changed(MODELS["transformer-xl-enwik8-base"], memory={"backprop_segments": 2})
    batches = RandomBatches(config)
    reports = run(start(config), batches)
    assert batches.step == 3 * 6
    assert reports[0].tokens == 3 * 4 * 5
    assert [report.position["step"] for report in reports] == [0, 3, 6, 9, 12, 15]


def test_bfloat16_autocast_trains() -> None:
    settings = SETTINGS.model_copy(update={"precision": "bfloat16"})
    config = MODELS["transformer-xl-wt103"]
    reports = run(start(config, settings), RandomBatches(config), settings)
    exact = run(start(config), RandomBatches(config))
    assert [r.loss for r in reports] == pytest.approx([r.loss for r in exact], rel=0.02)


class Poisoned(RandomBatches):
    """Makes one weight infinite before some batches, so that the loss is not finite; it is put back after."""

    def __init__(self, state: TrainState, config: ModelConfig, bad: set[int]) -> None:
        super().__init__(config)
        self.state, self.bad = state, bad
        self.kept: torch.Tensor | None = None

    def __next__(self):
        weight = next(self.state.model.parameters()).data
        if self.kept is not None:
            weight.copy_(self.kept)
            self.kept = None
        if self.step in self.bad:
            self.kept = weight.clone()
            weight.fill_(float("inf"))
        return super().__next__()


def test_a_step_that_is_not_finite_is_skipped_and_named() -> None:
    config = MODELS["transformer-xl-enwik8-base"]
    state = start(config)
    reports = run(state, Poisoned(state, config, {2}))
    assert [report.skipped for report in reports] == [False, False, True, False, False, False]
    assert reports[2].position == {"step": 2}
    assert not math.isfinite(reports[2].loss)
    assert all(p.isfinite().all() for p in state.model.parameters())
    assert state.memory.hidden_LBMD.isfinite().all()


def test_too_many_bad_steps_end_the_run() -> None:
    config = MODELS["transformer-xl-enwik8-base"]
    settings = SETTINGS.model_copy(update={"patience": 3})
    state = start(config, settings)
    with pytest.raises(DivergedError, match=r"3 steps in a row.*step 4 at data position {'step': 3}"):
        run(state, Poisoned(state, config, {1, 2, 3}), settings)


def test_schedules() -> None:
    def rates(**settings: object) -> list[float]:
        config = TrainConfig(steps=10, learning_rate=1.0, **settings)
        return [round(learning_rate(step, config), 6) for step in range(10)]

    assert rates(schedule="constant", warmup_steps=4)[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    linear = rates(schedule="linear")
    assert linear[0] == 1.0
    assert linear[9] == pytest.approx(0.1)
    cosine = rates(schedule="cosine", final_share=0.1, warmup_steps=2)
    assert cosine[1] == cosine[2] == 1.0
    assert 0.1 < cosine[9] < 0.15
    root = rates(schedule="inverse_sqrt", warmup_steps=4)
    assert root[4] == pytest.approx((4 / 5) ** 0.5, abs=1e-6)


def test_decay_spares_biases_and_norms() -> None:
    model = LanguageModel(MODELS["xlnet-base"])
    decayed, others = make_optimizer(model, SETTINGS).param_groups
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    spared = {names[id(p)] for p in others["params"]}
    assert others["weight_decay"] == 0
    assert decayed["weight_decay"] == 0.01
    assert any("norm" in name for name in spared)
    assert any(name.endswith("content_HE") for name in spared)
    assert not any("query.weight" in name or "tables" in name for name in spared)


def test_the_average_of_the_weights() -> None:
    settings = SETTINGS.model_copy(update={"average_decay": 0.5})
    config = MODELS["gpt"]
    state = start(config, settings)
    name, parameter = next(iter(state.model.named_parameters()))
    expected = parameter.detach().clone()
    for _ in train(state, RandomBatches(config), settings):
        expected = 0.5 * expected + 0.5 * parameter.detach()
    torch.testing.assert_close(state.average.weights[name], expected)
    current = parameter.detach().clone()
    state.average.exchange(state.model)
    torch.testing.assert_close(parameter.detach(), expected)
    state.average.exchange(state.model)
    assert torch.equal(parameter.detach(), current)


# --------------------------------------------------------------------------------------------- stop and resume


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stop", [1, 4])
def test_resumed_equals_never_stopped(name: str, stop: int, tmp_path) -> None:
    """Model, optimizer, schedule, random state, data position, memory, average: to the bit."""
    settings = SETTINGS.model_copy(update={"average_decay": 0.9})
    config = changed(MODELS[name], dropout=0.3)
    whole = start(config, settings)
    losses = [report.loss for report in run(whole, RandomBatches(config), settings)]

    state, batches = start(config, settings), RandomBatches(config)
    for report in train(state, batches, settings):
        if report.step == stop:
            save_state(
                state,
                tmp_path / "last",
                config=Config(model=config, train=settings),
                tokenizer=None,
                position=batches.position,
            )
            break
    torch.manual_seed(12345)
    resumed, position = load_state(tmp_path / "last", settings, device=torch.device("cpu"))
    again = RandomBatches(config)
    again.seek(position)
    assert [report.loss for report in run(resumed, again, settings)] == losses[stop:]
    same_weights(whole, resumed)
    for key, value in whole.average.weights.items():
        assert torch.equal(value, resumed.average.weights[key])
    if whole.memory is not None:
        assert torch.equal(whole.memory.hidden_LBMD, resumed.memory.hidden_LBMD)
    assert resumed.tokens == whole.tokens


def test_a_changed_file_is_never_loaded(tmp_path) -> None:
    config = MODELS["gpt"]
    state = start(config)
    save_state(state, tmp_path / "last", config=Config(model=config), tokenizer=None, position={"step": 0})
    path = tmp_path / "last" / "training" / "optimizer.safetensors"
    for file in (path, tmp_path / "last" / "model.safetensors"):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(bytes(data))
        with pytest.raises(CheckpointError, match="missing or changed"):
            load_state(tmp_path / "last", SETTINGS, device=torch.device("cpu"))
        data[-1] ^= 1
        file.write_bytes(bytes(data))
    path.unlink()
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors"):
        load_state(tmp_path / "last", SETTINGS, device=torch.device("cpu"))
