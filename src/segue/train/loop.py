"""The training loop: a generator that makes one update and yields a report of it; the caller's `for` body logs,
validates and saves.

An update reads one batch, or one for each segment that a gradient may reach through the memory. For gradient
accumulation, each batch is split into `accumulate` parts that keep their own rows of the memory. The loss is the mean
over all targets that count, of all parts and all processes: the division of the work changes nothing but rounding.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from segue.config import ModelConfig, TrainConfig
from segue.errors import SegueError
from segue.model import Batch, LanguageModel, Memory
from segue.train.distributed import Divided, full_tensor, is_divided, shared, sum_over_processes, world
from segue.train.optim import WeightAverage, learning_rate


class BatchSource(Protocol):
    """A sequence of batches that can be read from any position."""

    @property
    def position(self) -> Mapping[str, int]:
        """Position of the next batch."""

    def seek(self, position: Mapping[str, int]) -> None:
        """Set the position of the next batch."""

    def __next__(self) -> Batch:
        """Return the batch at the position, and advance it."""


class DivergedError(SegueError):
    """Raised after too many consecutive steps with a loss or gradient that is not finite, or if weights are not
    finite."""


REMEDY = "Use a lower train.learning_rate, a smaller train.clip_norm, or longer train.warmup_steps."


@dataclass(kw_only=True)
class TrainState:
    """Everything that a bit-exact resume needs, except the random state and the position in the data."""

    model: LanguageModel
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None
    step: int = 0
    memory: Memory | None = None
    """Memory of the rows of this process."""
    tokens: int = 0
    """Number of tokens read so far, by all processes."""
    bad_steps: int = 0
    """Number of consecutive skipped steps, up to now."""
    best: float | None = None
    """Lowest validation loss so far."""


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """Report of one update."""

    step: int
    loss: float
    """Mean over the targets, including auxiliary losses."""
    gradient_norm: float
    learning_rate: float
    tokens: int
    """Number of tokens read in this step, by all processes."""
    seconds: float
    skipped: bool
    """True if the loss or the gradient was not finite: the weights are unchanged, and the memory is reset."""
    position: Mapping[str, int]
    """Position in the data at the start of this step."""


class Reading(nn.Module):
    """A model that reads several segments and sums their losses in one forward pass, as DDP and FSDP2 need it."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, segments: list[Batch], memory: Memory | None, weights: list[float], progress: float
    ) -> tuple[Tensor, Memory | None]:
        losses = []
        for segment, weight in zip(segments, weights, strict=True):
            result = self.model(segment, memory, progress=progress)
            memory = result.memory
            losses.append(result.loss * weight)
        return torch.stack(losses).sum(), memory


def train(state: TrainState, batches: BatchSource, settings: TrainConfig) -> Iterator[StepReport]:
    """Update the state until all steps are done."""
    module = shared(Reading(state.model))
    state.model.train()
    for stack in (state.model.trunk.reader, state.model.trunk.backward_reader):
        if stack is not None:
            stack.recompute = settings.recompute
    while state.step < settings.steps:
        started = time.perf_counter()
        position = dict(batches.position)
        segments = [next(batches) for _ in range(_segments_per_step(state.model.config))]
        rate = learning_rate(state.step, settings)
        for group in state.optimizer.param_groups:
            group["lr"] = rate
        state.optimizer.zero_grad(set_to_none=True)
        loss, memory = _backward(module, state, segments, settings)
        norm = _gradient_norm(state.model, settings.clip_norm)
        finite = bool(torch.isfinite(torch.stack([loss, norm])).all())
        if finite:
            state.optimizer.step()
            if state.average is not None:
                state.average.update(state.model)
        state.memory = memory if finite else None
        state.bad_steps = 0 if finite else state.bad_steps + 1
        state.step += 1
        tokens = sum(segment.ids_BQ.numel() for segment in segments) * world()
        state.tokens += tokens
        yield StepReport(
            step=state.step,
            loss=float(loss),
            gradient_norm=float(norm),
            learning_rate=rate,
            tokens=tokens,
            seconds=time.perf_counter() - started,
            skipped=not finite,
            position=position,
        )
        if state.bad_steps >= settings.patience:
            raise DivergedError(
                f"training must have a finite loss; it was not for {state.bad_steps} steps in a row, the last one step "
                f"{state.step} at data position {position}. {REMEDY}"
            )


@torch.no_grad()
def is_sound(state: TrainState, batches: BatchSource, settings: TrainConfig) -> bool:
    """Return True if training can continue from the state: the last step was not skipped, all numbers are finite, and
    so is the loss of the next batch, which alone reveals weights that an update has spoiled. Changes nothing; every
    process must call this."""
    if state.bad_steps:
        return False
    device = next(state.model.parameters()).device
    moments = (value for values in state.optimizer.state.values() for value in values.values())
    averages = () if state.average is None else state.average.weights.values()
    tensors = [_local(one) for one in (*state.model.parameters(), *moments, *averages)]
    finite = torch.stack([one.isfinite().all().to(device) for one in tensors])
    position = dict(batches.position)
    batch = next(batches)
    batches.seek(position)
    rows = max(1, batch.ids_BQ.shape[0] // settings.accumulate)
    memory = None if state.memory is None else state.memory.select(range(rows))
    state.model.eval()
    with _autocast(device, settings.precision):
        loss = state.model(batch.rows(0, rows).to(device), memory).loss
    state.model.train()
    return bool(sum_over_processes((~finite).sum() + (~loss.isfinite()).sum()) == 0)


def _local(value: Tensor) -> Tensor:
    """Return the shard of this process."""
    return value.to_local() if is_divided(value) else value


def _segments_per_step(config: ModelConfig) -> int:
    """Return the number of segments per update: gradients through the memory need all segments that they reach in one
    backward pass."""
    reach = None if config.memory is None else config.memory.backprop_segments
    return 1 if reach is None else reach + 1


def _backward(
    module: nn.Module, state: TrainState, segments: list[Batch], settings: TrainConfig
) -> tuple[Tensor, Memory | None]:
    """Accumulate the gradients of all parts; return the loss over all processes, and the next memory."""
    device = next(state.model.parameters()).device
    total = int(sum_over_processes(torch.tensor(sum(s.count_targets() for s in segments), device=device)))
    rows = segments[0].ids_BQ.shape[0]
    bounds = [rows * part // settings.accumulate for part in range(settings.accumulate + 1)]
    progress = state.step / settings.steps
    loss = torch.zeros((), device=device)
    memories: list[Memory] = []
    parts = [(start, stop) for start, stop in pairwise(bounds) if stop > start]
    for number, (start, stop) in enumerate(parts):
        memory = None if state.memory is None else state.memory.select(range(start, stop))
        own = [segment.rows(start, stop).to(device) for segment in segments]
        weights = [segment.count_targets() / max(1, total) for segment in own]
        with _no_sync(module, wait=number < len(parts) - 1):
            with _autocast(device, settings.precision):
                share, memory = module(own, memory, weights, progress)
            (share * world()).backward()  # DDP and FSDP2 average the gradients of the processes
        loss = loss + share.detach()
        if memory is not None:
            memories.append(memory.detach())
    if isinstance(module, Divided):
        module.drop_unused()
    return sum_over_processes(loss), Memory.join(memories) if memories else None


def _gradient_norm(model: nn.Module, limit: float | None) -> Tensor:
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = full_tensor(torch.nn.utils.get_total_norm(gradients))
    if limit is not None and limit < float(norm) + 1e-6 < float("inf"):  # otherwise the factor would be 1
        torch.nn.utils.clip_grads_with_norm_(list(model.parameters()), limit, norm)
    return norm.detach()


def _no_sync(module: nn.Module, *, wait: bool) -> AbstractContextManager[Any]:
    """Return a context that delays the gradient synchronisation of DDP until the last part of an update; sharded models
    synchronise with each part, because until then they hold full gradients."""
    no_sync: Callable[[], AbstractContextManager[Any]] | None = getattr(module, "no_sync", None)
    return no_sync() if wait and no_sync is not None else nullcontext()


def _autocast(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bfloat16" else nullcontext()
