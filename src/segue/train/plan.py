"""Requirements of a run before it starts: parameters, memory and time, measured on a few updates with random ids.

The measured updates have the shapes of the run (rows, segment, memory, predicted positions), so time and memory are
those of the run itself, not of a formula. If the model would not fit, nothing is measured and only the formula is
reported.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from segue.config import (
    AlibiPositions,
    Config,
    DataConfig,
    LearnedRelativePositions,
    ModelConfig,
    ShawPositions,
    TrainConfig,
    XLPositions,
    parameter_count,
)
from segue.errors import ConfigError
from segue.model import Batch, LanguageModel
from segue.model.cross_entropy import CHUNK_BYTES
from segue.model.kernels.banded import MOST_KEPT
from segue.model.language_model import order_batch
from segue.model.room import check_room
from segue.train.distributed import world
from segue.train.loop import TrainState, train
from segue.train.machine import available_memory, peak_memory
from segue.train.optim import WeightAverage, make_optimizer

MEASURED_UPDATES = 4


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Requirements of a run."""

    parameters: int
    tokens: int
    """Number of tokens read in the whole run."""
    formula_memory: int
    """Estimate in bytes from weights, gradients, moments and activations."""
    measured_memory: int | None
    """Bytes used by a few updates; None: not measured, because it would not fit."""
    seconds_per_step: float | None

    def seconds(self, steps: int) -> float | None:
        return None if self.seconds_per_step is None else self.seconds_per_step * steps


class RandomIds:
    """Batches of random ids with the shapes of a run."""

    def __init__(self, data: DataConfig, model: ModelConfig) -> None:
        self.data, self.model = data, model
        self.generator = torch.Generator().manual_seed(0)

    @property
    def position(self) -> Mapping[str, int]:
        return {}

    def seek(self, position: Mapping[str, int]) -> None:
        """Do nothing: all batches are alike."""

    def __next__(self) -> Batch:
        rows, length = self.data.lanes // world(), self.data.segment_length
        size = self.model.vocabulary.size
        ids = torch.randint(0, size, (rows, length + 1), generator=self.generator)
        ids_BQ = ids[:, :-1]
        if self.model.objective == "causal":
            return Batch(ids_BQ=ids_BQ, targets=ids[:, 1:])
        count = predicted_positions(self.data, self.model)
        at_BP = torch.rand(rows, length, generator=self.generator).argsort(dim=1)[:, :count].sort(dim=1).values
        if self.model.objective == "masked":
            return Batch(ids_BQ=ids_BQ, targets=ids_BQ.gather(1, at_BP), predicted_BP=at_BP)
        whole = order_batch(ids_BQ, torch.rand(rows, length, generator=self.generator).argsort(dim=1))
        return Batch(ids_BQ=ids_BQ, targets=ids_BQ.gather(1, at_BP), predicted_BP=at_BP, visible_BQQ=whole.visible_BQQ)


def predicted_positions(data: DataConfig, model: ModelConfig) -> int:
    """Return the number of predicted positions per row, for objectives that predict some."""
    match model.objective:
        case "causal":
            return 0
        case "masked":
            return max(1, round(data.masking.rate * data.segment_length))
        case "permutation":
            return max(1, data.segment_length // data.permutation.one_in)


def plan(config: Config) -> Plan:
    """Measure a few updates, if they fit into the free memory."""
    if config.data is None or config.train is None:
        raise ConfigError("a plan needs [data] and [train]; got a config without. Add them.")
    data, settings = config.data, config.train
    count = parameter_count(config.model)
    formula = formula_memory(config.model, data, settings, parameters=count)
    measured, seconds = None, None
    if formula < 0.8 * available_memory():
        seconds = _seconds_per_step(config.model, data, settings)
        measured = peak_memory()
    return Plan(
        parameters=count,
        tokens=settings.steps * data.lanes * data.segment_length,
        formula_memory=formula,
        measured_memory=measured,
        seconds_per_step=seconds,
    )


def _seconds_per_step(config: ModelConfig, data: DataConfig, settings: TrainConfig) -> float:
    model = LanguageModel(config)
    if torch.cuda.is_available():
        model = model.cuda()
    few = settings.model_copy(update={"steps": MEASURED_UPDATES, "warmup_steps": 0})
    average = None if settings.average_decay is None else WeightAverage(model, settings.average_decay)
    state = TrainState(model=model, optimizer=make_optimizer(model, few), average=average)
    started, times = time.perf_counter(), []
    for _ in train(state, RandomIds(data, config), few):
        times.append(time.perf_counter() - started)
        started = time.perf_counter()
    return sorted(times[1:])[len(times[1:]) // 2]  # the first one is a warm-up, and has no memory yet


def check_memory(config: ModelConfig, data: DataConfig, settings: TrainConfig, device: torch.device) -> None:
    """Raise an error if a run cannot fit. This counts only what is needed in any case: the weights with their optimizer
    state, the input of every layer, the ids and the memory."""
    rows, length = data.lanes // world(), data.segment_length
    copies = 4 + (1 if settings.average_decay is not None else 0)
    weights = copies * parameter_count(config) // (world() if settings.sharded else 1)
    remembered = config.memory.length if config.memory is not None else 0
    states = config.num_layers * config.width * (rows * length // settings.accumulate + rows * remembered)
    check_room(
        weights + states + 2 * rows * length,  # an id takes the room of two numbers
        what="the run",
        remedy="Use a smaller model, fewer data.lanes, or a shorter data.segment_length or model.memory.length.",
        device=device,
    )


def formula_memory(config: ModelConfig, data: DataConfig, settings: TrainConfig, *, parameters: int) -> int:
    """Return the estimated memory in bytes: weights, gradients and two moments, and the activations that the backward
    pass needs of each layer."""
    rows, length = data.lanes / world() / settings.accumulate, data.segment_length
    keys = length + (config.memory.length if config.memory is not None else 0)
    inner = config.num_heads * config.resolved_head_width
    states = rows * length * (8 * config.width + 3 * inner + 3 * config.inner_width) + rows * keys * (
        config.width + 2 * inner
    )
    scores = rows * config.num_heads * length * keys
    slow = isinstance(config.positions, ShawPositions | LearnedRelativePositions | AlibiPositions) or (
        isinstance(config.positions, XLPositions) and config.positions.biases == "buckets"
    )
    scores = 5 * scores if slow else min(scores, MOST_KEPT)
    layers = 1 if settings.recompute else config.num_layers
    kept = config.num_layers * rows * length * config.width if settings.recompute else 0
    targets = length if config.objective == "causal" else predicted_positions(data, config)
    softmax = 2 * min(rows * targets * config.vocabulary.size, CHUNK_BYTES / 4)
    copies = 4 + (1 if settings.average_decay is not None else 0)
    return int(4 * (copies * parameters + layers * (states + scores) + kept + softmax)) + 400_000_000
