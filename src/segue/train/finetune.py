"""A whole fine-tuning run: from a pretrained model and labelled tables to a model that does a job, measured.

`finetune` is a generator of events (what the data is like, an update, a validation, a restart, the end). A run folder
holds:

    settings.toml   every setting, the task and the files
    metrics.jsonl   a line for each update and each validation
    best/           the model with the best validation, ready for `segue predict`
    results.json    the measures of the best model, and of simple methods, on the validation and test examples
    report.md       all of it for people, with curves and mistakes; report.html is the same with pictures
"""

import math
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w
import torch
from pydantic import create_model
from torch import Tensor

from segue.checkpoint.card import Facts
from segue.checkpoint.card import Metric as CardMetric
from segue.checkpoint.folder import TOKENIZER
from segue.checkpoint.hub import find, model_folder, tokenizer_folder
from segue.config import FinetuneConfig, ReadConfig, Section, settings
from segue.data.tables import Table, open_table
from segue.errors import ConfigError, DataError
from segue.files import write_file
from segue.tasks.batches import batches
from segue.tasks.build import build_task_model
from segue.tasks.examples import Examples, column_names, gathered, rows_with_roles, split_off, understand
from segue.tasks.folder import TaskModel, load_task_model, save_task_model
from segue.tasks.likelihood import mean_loss
from segue.tasks.overlap import warnings_of
from segue.tasks.predict import answers_in_order
from segue.tasks.task import Example, Item, Prediction, Task, TaskKind
from segue.train.collapse import CollapseDetector
from segue.train.comparison import compare
from segue.train.distributed import (
    add_gradients,
    collected,
    dealt,
    first_of_machine_first,
    processes,
    rank,
    sum_over_processes,
    weights_of_first,
    world,
)
from segue.train.events import Compared, Ended, Event, Judged, Prepared, Request, Restarted, Updated, Validated
from segue.train.optim import layered_optimizer, warm_up_then_line
from segue.train.report import Record, write_report, write_results
from segue.train.run_folder import Metrics, Stop, one_at_a_time, stop_signal

__all__ = [
    "Compared",
    "Ended",
    "Event",
    "Judged",
    "Prepared",
    "Request",
    "Restarted",
    "Updated",
    "Validated",
    "finetune",
    "finetune_settings",
]

VALIDATION_SHARE = 0.1
WARM_FOR = 50
"""Updates after the warm-up before a run may be judged to have learned nothing."""
FEWEST_ANSWERS = 20
"""Fewer answers than this may well be all the same."""


def usual_rate(width: int) -> float:
    """The learning rate if nobody says: 0.001 for small models, about 3e-5 for base ones."""
    return min(1e-3, 16 / width**2)


def finetune_settings(kind: TaskKind, values: Mapping[str, Any], overrides: Sequence[str] = ()) -> Any:
    """Settings `read`, `train` and `task`, validated, from plain values and `section.key=value`."""
    root = create_model(
        "FinetuneSettings",
        __base__=Section,
        read=(ReadConfig, ReadConfig()),
        train=(FinetuneConfig, FinetuneConfig()),
        task=(kind.settings, kind.settings()),
    )
    return settings(root, values, overrides)


def finetune(request: Request, run: Path, *, stop: Stop | None = None) -> Generator[Event, None, None]:
    """Trains until all epochs are done, nothing gets better, or a signal asks to stop; the best weights are kept.
    `stop` is for callers that listen to signals themselves. A report is written however the run ends."""
    chosen = request.settings or finetune_settings(request.kind, {})
    record = Record(request=replace(request, settings=chosen))
    with processes() as device:
        try:
            with closing(_events(request, chosen, run, stop, device)) as events:
                for event in events:
                    record.add(event)
                    if isinstance(event, Ended) and rank() == 0:
                        write_report(record, run)
                    yield event
        finally:
            if record.prepared is not None and record.ended is None and rank() == 0:
                write_report(record, run)


def _events(
    request: Request, chosen: Any, run: Path, listening: Stop | None, device: torch.device
) -> Generator[Event, None, None]:
    with one_at_a_time(run, "finetune"), stop_signal() if listening is None else nullcontext(listening) as stop:
        if rank() == 0 and (run / "best").exists():
            raise ConfigError(f"{run} must be a new folder; got one with a fine-tuned model. Choose another --out.")
        started = time.perf_counter()
        torch.manual_seed(chosen.train.seed)
        with first_of_machine_first():  # it may have to be converted
            folder = model_folder(find(request.model))
            tokenizer_folder(request.model, folder)
        data = _read_data(request, chosen)
        made = build_task_model(
            folder,
            kind=request.kind,
            task=data.task,
            read=chosen.read,
            dropout=chosen.train.dropout,
            new_weights=request.new_weights,
            device=device,
        )
        if rank() == 0:
            _write_settings(run, request, chosen)
        layout = made.layout()
        items = [item for example in data.train for item in data.task.items(example, layout)]
        training = _Training(made=made, items=items, settings=chosen.train, data=data)
        yield Prepared(
            counts={"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
            notes=data.notes
            + _lengths(items, made, layout.truncated)
            + [f"{count:,} {what}" for what, count in layout.remarks.items() if count],
            preview=[layout.preview(doc) for item in items[:3] for doc in item.documents[:1]],
            steps=training.steps,
            metric=data.task.metric,
            parameters=sum(parameter.numel() for parameter in made.model.parameters()),
            warnings=data.warnings,
        )
        compared = None
        if request.baselines and rank() == 0:
            compared = compare(data.task, data.train, {"valid": data.valid, "test": data.test})
            if compared is not None:
                yield compared
        metrics = Metrics(run / "metrics.jsonl", step=0)
        best: _Best | None = None
        since_best = 0
        reason, stopped_by = "all epochs are done", None
        for event in training.run():
            match event:
                case Updated():
                    metrics.write({"step": event.step, "loss": event.loss, "learning_rate": event.learning_rate})
                case Validated():
                    values = {name: metric.value for name, metric in event.metrics.items()}
                    loss = {} if event.loss is None else {"validation_loss": event.loss}
                    metrics.write({"step": event.step, "validation": values, **loss})
                    since_best += 1
                    value = values[data.task.metric]
                    if best is None or value > best.value:
                        best, since_best = _Best(value=value, step=event.step, judged=training.judged(event)), 0
                        event = replace(event, best=True)
                        if rank() == 0:
                            save_task_model(made, run / "best", tokenizer=folder / TOKENIZER, facts=_facts(event))
                    if since_best >= chosen.train.early_stopping:
                        reason = f"no better in {chosen.train.early_stopping} validations"
                        training.stop = True
                case Restarted():
                    since_best = 0
                    metrics.write({"step": event.step, "restarted": event.reason})
            yield event
            stopped_by = stop.agreed()
            if stopped_by is not None:
                reason = "told to stop"
                break
        if best is None:
            raise DataError(f"{run} must have one validation at least; the run was stopped before. Start it again.")
        ended = _end(made, run, best, data, started=started, reason=reason, truncated=layout.truncated)
        if rank() == 0:
            write_results(run, ended, compared)
        yield replace(ended, stopped_by=stopped_by)


# --------------------------------------------------------------------------------------------------------- data


@dataclass(frozen=True, kw_only=True)
class _Data:
    task: Task
    train: list[Example]
    valid: list[Example]
    test: list[Example]
    notes: list[str]
    warnings: list[str]


def _read_data(request: Request, chosen: Any) -> _Data:
    kind = request.kind
    table = open_table(request.train, request.tables)
    names = column_names(kind, table, request.columns, labelled=True)
    rows = gathered(kind, rows_with_roles(table, names))
    task = kind.learn(rows, chosen.task)
    train = understand(task, table, rows, labelled=True)
    others = [_other(request, source, task) for source in (request.valid, request.test)]
    notes = [f"columns: {', '.join(f'{role} = {name}' for role, name in names.items())}"]
    notes += task.describe(train.examples)
    for part in (train, *others):
        notes += part.problems() if part is not None else []
    valid, test = others
    if valid is not None:
        own = (train.examples, valid.examples)
    else:
        own = split_off(train.examples, share=VALIDATION_SHARE, seed=chosen.train.seed)
        notes.append(f"no validation file: {len(own[1]):,} training examples are kept apart for it")
    tested = test.examples if test is not None else []
    warnings = warnings_of(task, own[0], {"valid": own[1], "test": tested})
    return _Data(task=task, train=own[0], valid=own[1], test=tested, notes=notes, warnings=warnings)


def _other(request: Request, source: str | None, task: Task) -> Examples | None:
    if source is None:
        return None
    table: Table = open_table(source, request.tables)
    names = column_names(request.kind, table, request.columns, labelled=True)
    return understand(task, table, gathered(request.kind, rows_with_roles(table, names)), labelled=True)


def _lengths(items: Sequence[Item], made: TaskModel, truncated: int) -> list[str]:
    lengths = sorted(len(document) for item in items for document in item.documents)
    longer = sum(length > made.segment_length for length in lengths)
    notes = [
        f"documents: {len(lengths):,}, median {lengths[len(lengths) // 2]:,} tokens, longest {lengths[-1]:,}; "
        f"{longer:,} are longer than a segment of {made.segment_length}"
    ]
    if longer:
        memory = made.config.memory
        how = f"with a memory of {memory.length}" if memory is not None else "without memory"
        notes.append(f"long documents are read to their end, segment by segment, {how}")
    if truncated:
        notes.append(f"{truncated:,} documents were cut to read.max_length, {made.read.max_length} tokens")
    return notes


# ----------------------------------------------------------------------------------------------------- training


@dataclass(frozen=True, kw_only=True)
class _Update:
    """What one was like, over all processes."""

    loss: float
    norm: float
    tokens: int
    positions: int
    """Tokens and padding."""


class _Training:
    """The updates of one run, over as many attempts as it takes."""

    def __init__(self, *, made: TaskModel, items: list[Item], settings: FinetuneConfig, data: _Data) -> None:
        self.made, self.items, self.settings, self.data = made, items, settings, data
        self.per_epoch = math.ceil(len(items) / settings.batch_size)
        self.steps = settings.epochs * self.per_epoch
        self.rate = settings.learning_rate or usual_rate(made.config.width)
        self.stop = False
        self._predictions: list[Prediction] = []
        self._device = next(made.model.parameters()).device
        self._step = 0
        if world() > 1:  # the same weights everywhere, other dropout in each process
            torch.manual_seed(settings.seed * 1_000_003 + rank())
        self._class_weights: Tensor | None = None
        if settings.class_weights:
            weights = data.task.class_weights(data.train)
            if weights is None:
                raise ConfigError(
                    f"train.class_weights is for tasks with classes; got {made.kind.name}, which has none. "
                    "Leave it out."
                )
            self._class_weights = weights.to(self._device)

    def judged(self, event: Validated) -> Judged:
        """The validation that was just made, with its answers."""
        return Judged(name="valid", examples=self.data.valid, predictions=self._predictions, metrics=event.metrics)

    def run(self) -> Iterator[Event]:
        initial = deepcopy(self.made.model.state_dict()) if self.settings.restarts else None
        for attempt in range(self.settings.restarts + 1):
            reason = yield from self._attempt(last=attempt == self.settings.restarts)
            if reason is None:
                return
            assert initial is not None
            self.made.model.load_state_dict(initial)
            self.rate /= 2
            yield Restarted(step=self._step, reason=reason, learning_rate=self.rate)

    def _attempt(self, *, last: bool) -> Generator[Event, None, str | None]:
        """All epochs; returns why it collapsed, or None if it did not, or if it is the last one that may."""
        settings, model = self.settings, self.made.model
        optimizer = layered_optimizer(
            model,
            num_layers=self.made.config.num_layers,
            layer_decay=settings.layer_decay,
            weight_decay=settings.weight_decay,
        )
        detector = CollapseDetector(chance=None if last else self.data.task.chance(self.data.train))
        self._step = 0
        every = max(1, self.per_epoch // settings.validations)
        warmup = round(settings.warmup_share * self.steps)
        tokens = positions = 0
        for epoch in range(settings.epochs):
            for group in batches(self.items, size=settings.batch_size, seed=settings.seed, epoch=epoch):
                began = time.perf_counter()
                share = warm_up_then_line(self._step, steps=self.steps, warmup=warmup)
                for parameters in optimizer.param_groups:
                    parameters["lr"] = self.rate * parameters["share"] * share
                update = self._update(optimizer, group)
                tokens, positions = tokens + update.tokens, positions + update.positions
                self._step += 1
                yield Updated(
                    step=self._step,
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
                done = self._step % self.per_epoch
                if done == 0 or (done % every == 0 and self.per_epoch - done >= every):
                    answers = yield from self._validate()
                    warm = self._step >= warmup + WARM_FOR and len(self.data.valid) >= FEWEST_ANSWERS
                    if done == 0 and warm and (collapsed := detector.after_epoch(answers=answers)):
                        return collapsed
                if self.stop:
                    return None
        return None

    def _update(self, optimizer: torch.optim.Optimizer, group: Sequence[Item]) -> "_Update":
        """Each process reads its part of the batch; the loss is the mean over the whole of it."""
        model, reader, own = self.made.model, self.made.reader(), dealt(group)
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.zeros(())
        if own:
            share = sum(item.weight for item in own) / sum(item.weight for item in group)
            loss = share * self.data.task.loss(model, own, reader, class_weights=self._class_weights)
            loss.backward()  # type: ignore[no-untyped-call]
        add_gradients(model.parameters())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), self.settings.clip_norm)
        if bool(torch.isfinite(norm)):
            optimizer.step()
        own_values = torch.tensor([float(loss.detach()), reader.tokens, reader.positions], dtype=torch.float64)
        total, tokens, positions = sum_over_processes(own_values).tolist()
        return _Update(loss=total, norm=float(norm), tokens=int(tokens), positions=int(positions))

    def _validate(self) -> Generator[Event, None, int]:
        """Yields the measures; returns how many different answers there were."""
        self._predictions = collected(answers_in_order(self.made, dealt(self.data.valid)))
        metrics = self.data.task.measure(self.data.valid, self._predictions)
        loss = mean_loss(self.data.task, self.data.valid, self._predictions)
        yield Validated(step=self._step, metrics=metrics, best=False, loss=loss)
        # Entities of texts have no such column: to find none at first is no sign that inputs look the same.
        return len({str(one.columns["prediction"]) for one in self._predictions if "prediction" in one.columns})


# ------------------------------------------------------------------------------------------------------ the end


@dataclass(frozen=True, kw_only=True)
class _Best:
    """The best validation so far."""

    value: float
    step: int
    judged: Judged


def _end(made: TaskModel, run: Path, best: _Best, data: _Data, *, started: float, reason: str, truncated: int) -> Ended:
    """The test examples are answered by the model as it was saved."""
    judged = [best.judged]
    if data.test:
        if rank() == 0:
            made.model.load_state_dict(load_task_model(run / "best").model.state_dict())
        weights_of_first(made.model)
        predictions = collected(answers_in_order(made, dealt(data.test)))
        judged.append(
            Judged(
                name="test",
                examples=data.test,
                predictions=predictions,
                metrics=data.task.measure(data.test, predictions),
            )
        )
    return Ended(
        reason=reason,
        best_step=best.step,
        judged=judged,
        seconds=time.perf_counter() - started,
        truncated=truncated,
        task=data.task,
    )


def _facts(event: Validated) -> Facts:
    return Facts(
        metrics=[CardMetric(name=name, value=metric.value, step=event.step) for name, metric in event.metrics.items()]
    )


def _write_settings(run: Path, request: Request, chosen: Any) -> None:
    values = chosen.model_dump(mode="json", exclude_none=True)
    files = {name: value for name in ("train", "valid", "test") if (value := getattr(request, name)) is not None}
    values["run"] = {
        "model": request.model,
        "task": request.kind.name,
        "new_weights": request.new_weights,
        "files": files,
        "columns": dict(request.columns),
    }
    write_file(run / "settings.toml", tomli_w.dumps(values))
