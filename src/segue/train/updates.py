"""The updates and validations of a fine-tuning run: as many attempts as needed, each from the same initial weights.

In: a model, training items and validation examples. Out: events; the caller keeps weights and decides when to stop.
"""

import math
import time
from collections.abc import Generator, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from segue.config import FinetuneConfig
from segue.errors import ConfigError
from segue.tasks.automatic import GRADIENT_TOKENS
from segue.tasks.batches import batches
from segue.tasks.folder import TaskModel
from segue.tasks.likelihood import mean_loss
from segue.tasks.predict import answers_in_order
from segue.tasks.task import Example, Item, Prediction, Task
from segue.train.collapse import CollapseDetector
from segue.train.distributed import add_gradients, collected, own_share, rank, sum_over_processes, world
from segue.train.events import Event, Judged, Restarted, Updated, Validated
from segue.train.loop import DivergedError
from segue.train.optim import layered_optimizer, warm_up_then_line

WARM_FOR = 50
"""Number of updates after the warm-up before a run may be judged to have learned nothing."""
FIRST_VALIDATION = 50
"""Number of updates before an early validation, if the first regular one is at least twice as far: users see soon
whether the model learns, and have weights to keep if they stop."""
FEWEST_ANSWERS = 20
"""Minimum number of predictions for the check that all are the same."""
PATIENCE = 5
"""Number of consecutive updates that are not finite before the last attempt ends."""


@dataclass(frozen=True, kw_only=True)
class _Update:
    """Results of one update, over all processes."""

    loss: float
    norm: float
    tokens: int
    positions: int
    """Number of positions: tokens and padding."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class Training:
    """The updates of one run, over as many attempts as needed."""

    def __init__(
        self,
        *,
        made: TaskModel,
        items: list[Item],
        settings: FinetuneConfig,
        task: Task,
        train: list[Example],
        valid: list[Example],
    ) -> None:
        """`settings` must have no gaps: `automatic.choose_training` fills them."""
        assert settings.epochs is not None
        assert settings.learning_rate is not None
        assert settings.layer_decay is not None
        self.made, self.items, self.settings = made, items, settings
        self.task, self.train, self.valid = task, train, valid
        self.per_epoch = math.ceil(len(items) / settings.batch_size)
        self.epochs, self.layer_decay = settings.epochs, settings.layer_decay
        self.steps = self.epochs * self.per_epoch
        self.rate = settings.learning_rate
        self.stop = False
        self._predictions: list[Prediction] = []
        self._device = next(made.model.parameters()).device
        self.step = 0
        if world() > 1:  # the same weights everywhere, different dropout in each process
            torch.manual_seed(settings.seed * 1_000_003 + rank())
        self._class_weights: Tensor | None = None
        if settings.class_weights:
            weights = task.class_weights(train)
            if weights is None:
                raise ConfigError(
                    f"train.class_weights applies only to tasks with classes; got {made.kind.name}. Leave it out."
                )
            self._class_weights = weights.to(self._device)

    def judged(self, event: Validated) -> Judged:
        """Return the validation that was just made, with its predictions."""
        return Judged(name="valid", examples=self.valid, predictions=self._predictions, metrics=event.metrics)

    def run(self) -> Iterator[Event]:
        initial = deepcopy(self.made.model.state_dict()) if self.settings.restarts else None
        for attempt in range(self.settings.restarts + 1):
            reason = yield from self._attempt(last=attempt == self.settings.restarts)
            if reason is None:
                return
            assert initial is not None
            self.made.model.load_state_dict(initial)
            self.rate /= 2
            yield Restarted(step=self.step, reason=reason, learning_rate=self.rate)

    def _attempt(self, *, last: bool) -> Generator[Event, None, str | None]:
        """Run all epochs; return why the attempt collapsed, or None if it did not. The last attempt continues in any
        case, but raises an error if updates stay without a finite loss."""
        settings, model = self.settings, self.made.model
        optimizer = layered_optimizer(
            model,
            num_layers=self.made.config.num_layers,
            layer_decay=self.layer_decay,
            weight_decay=settings.weight_decay,
        )
        detector = CollapseDetector(chance=None if last else self.task.chance(self.train))
        self.step = 0
        every = max(1, self.per_epoch // settings.validations)
        warmup = round(settings.warmup_share * self.steps)
        tokens = positions = bad = 0
        for epoch in range(self.epochs):
            for group in batches(self.items, size=settings.batch_size, seed=settings.seed, epoch=epoch):
                began = time.perf_counter()
                share = warm_up_then_line(self.step, steps=self.steps, warmup=warmup)
                for parameters in optimizer.param_groups:
                    parameters["lr"] = self.rate * parameters["share"] * share
                update = self._update(optimizer, group)
                tokens, positions = tokens + update.tokens, positions + update.positions
                self.step += 1
                yield Updated(
                    step=self.step,
                    loss=update.loss,
                    gradient_norm=update.norm,
                    learning_rate=self.rate * share,
                    tokens=update.tokens,
                    seconds=time.perf_counter() - began,
                    padding_share=1 - tokens / positions,
                )
                collapsed = detector.after_step(loss=update.loss, gradient_norm=update.norm)
                if collapsed and not last:
                    return collapsed
                bad = 0 if update.finite else bad + 1
                if bad >= PATIENCE:
                    raise DivergedError(
                        f"fine-tuning must have a finite loss; it was not for {bad} updates in a row, the last one "
                        f"step {self.step} at learning rate {self.rate:.2g}, after {settings.restarts} restarts. Use a "
                        "lower train.learning_rate, or check the weights of the model. The best model before it, if "
                        "there was a validation, is in best/."
                    )
                done = self.step % self.per_epoch
                early = self.step == FIRST_VALIDATION and every >= 2 * FIRST_VALIDATION
                if early or done == 0 or (done % every == 0 and self.per_epoch - done >= every):
                    answers = yield from self._validate(early=early)
                    warm = self.step >= warmup + WARM_FOR and len(self.valid) >= FEWEST_ANSWERS
                    if done == 0 and warm and (collapsed := detector.after_epoch(answers=answers)):
                        return collapsed
                if self.stop:
                    return None
        return None

    def _update(self, optimizer: torch.optim.Optimizer, group: Sequence[Item]) -> "_Update":
        """Make an update. Each process reads its part of the batch; the loss is the mean over the whole batch."""
        model, reader, own = self.made.model, self.made.reader(), own_share(group)
        model.train()
        optimizer.zero_grad(set_to_none=True)
        whole = sum(item.weight for item in group)
        total = 0.0
        for part in parts(own, segment_length=self.made.segment_length):
            share = sum(item.weight for item in part) / whole
            loss = share * self.task.loss(model, part, reader, class_weights=self._class_weights)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
        add_gradients(model.parameters())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self.settings.clip_norm)
        if bool(torch.isfinite(norm)):
            optimizer.step()
        own_values = torch.tensor([total, reader.tokens, reader.positions], dtype=torch.float64)
        total, tokens, positions = sum_over_processes(own_values).tolist()
        return _Update(loss=total, norm=float(norm), tokens=int(tokens), positions=int(positions))

    def _validate(self, *, early: bool) -> Generator[Event, None, int]:
        """Yield the metrics; return the number of distinct predictions."""
        self._predictions = collected(answers_in_order(self.made, own_share(self.valid)))
        metrics = self.task.measure(self.valid, self._predictions)
        loss = mean_loss(self.task, self.valid, self._predictions)
        yield Validated(step=self.step, metrics=metrics, best=False, loss=loss, early=early)
        # Texts with entities have no such column: finding none at first is no sign that inputs look the same.
        return len({str(one.columns["prediction"]) for one in self._predictions if "prediction" in one.columns})


def parts(items: Sequence[Item], *, segment_length: int) -> Iterator[list[Item]]:
    """Yield groups of items whose gradients are computed together: all of them, unless documents have several segments
    and more than `GRADIENT_TOKENS` tokens in total. The memory of a group is freed before the next one."""
    lengths = [sum(map(len, item.documents)) for item in items]
    limit = GRADIENT_TOKENS if any(item.length > segment_length for item in items) else sum(lengths)
    part: list[Item] = []
    tokens = 0
    for item, length in zip(items, lengths, strict=True):
        if part and tokens + length > limit:
            yield part
            part, tokens = [], 0
        part.append(item)
        tokens += length
    if part:
        yield part
