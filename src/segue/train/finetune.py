"""A complete fine-tuning run: from a pretrained model and labelled tables to an evaluated task model.

`finetune` is a generator of events (the data, an update, a validation, a restart, the end). A run folder contains:

    settings.toml   all settings, including those chosen automatically, the task and the files
    adapt/          if requested, the model pretrained on the training texts first (`adapt`)
    metrics.jsonl   a line for each update and each validation
    best/           the model with the best validation, ready for `segue predict`
    last/           the model of a run that was stopped before its first validation, in place of best/
    results.json    metrics of the best model and of the baselines on the validation and test examples
    report.md       a report with curves and mistakes; report.html is the same with charts
"""

import math
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from signal import Signals
from typing import Any

import torch
from pydantic import create_model

from segue.checkpoint.card import Facts
from segue.checkpoint.find import find, model_folder, tokenizer_folder
from segue.checkpoint.folder import TOKENIZER
from segue.config import FinetuneConfig, ReadConfig, Section, settings
from segue.data.tables import Table, open_table
from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import FEWEST
from segue.files import write_file
from segue.tasks.automatic import Situation, choose_reading, choose_training
from segue.tasks.build import Source, build_task_model, open_source, segment_length_of
from segue.tasks.examples import Examples, column_names, gathered, rows_with_roles, split_off, understand
from segue.tasks.folder import TaskModel, load_task_model, summary_of
from segue.tasks.overlap import text_key, warnings_of
from segue.tasks.predict import answers_in_order
from segue.tasks.task import Example, Item, Task, TaskKind
from segue.text.coverage import LanguageWatch
from segue.train.adapt import adapt, training_texts
from segue.train.comparison import compare
from segue.train.distributed import (
    collected,
    first_of_machine_first,
    own_share,
    processes,
    rank,
    weights_of_first,
)
from segue.train.events import (
    STOPPED,
    Adapted,
    Adapting,
    AdaptStep,
    Compared,
    Ended,
    Event,
    Judged,
    Prepared,
    Request,
    Restarted,
    Unsaved,
    Updated,
    Validated,
)
from segue.train.finetune_folder import SETTINGS, check_run, check_unfinished, settings_text
from segue.train.joining import Beside, check_wide, with_ngrams
from segue.train.keeper import Keeper, bytes_of, check_room
from segue.train.report import Record, write_report, write_results
from segue.train.run_folder import Metrics, Stop, one_at_a_time, stop_signal
from segue.train.updates import Training

__all__ = [
    "AdaptStep",
    "Adapted",
    "Adapting",
    "Compared",
    "Ended",
    "Event",
    "Judged",
    "Prepared",
    "Request",
    "Restarted",
    "Unsaved",
    "Updated",
    "Validated",
    "finetune",
    "finetune_settings",
]

VALIDATION_SHARE, LARGEST_VALIDATION_SHARE = 0.1, 0.2
"""Share of the examples held out if no validation file is given; above a tenth for a small table, so that the metrics
have an interval."""


def finetune_settings(kind: TaskKind, values: Mapping[str, Any], overrides: Sequence[str] = ()) -> Any:
    """Return the validated settings `read`, `train` and `task` from plain values and `section.key=value` overrides."""
    return settings(_root(kind.settings), values, overrides)


@cache
def _root(task: type[Section]) -> type[Section]:
    return create_model(
        "FinetuneSettings",
        __base__=Section,
        read=(ReadConfig, ReadConfig()),
        train=(FinetuneConfig, FinetuneConfig()),
        task=(task, task()),
    )


def finetune(request: Request, run: Path, *, stop: Stop | None = None) -> Generator[Event, None, None]:
    """Train until all epochs are done, early stopping applies, or a signal requests a stop; the best weights are kept.
    `stop` is for callers that handle signals themselves. A report is written however the run ends."""
    chosen = request.settings or finetune_settings(request.kind, {})
    record = Record(request=replace(request, settings=chosen))
    with processes() as device:
        try:
            with closing(_events(request, chosen, run, stop, device)) as events:
                for event in events:
                    record.add(event)
                    if isinstance(event, Ended) and rank() == 0:
                        _write_report(record, run, event)
                    yield event
        finally:
            if record.prepared is not None and record.ended is None and rank() == 0:
                with suppress(OSError, DataError):  # the error that ended the run is the one to report
                    write_report(record, run)


def _write_report(record: Record, run: Path, end: Ended) -> None:
    try:
        write_report(record, run)
    except (OSError, DataError) as error:
        raise DataError(
            f"the report must be written; got: {error} The fine-tuned model is in {end.place}; free some space and "
            "use segue predict with it."
        ) from None


def _events(
    request: Request, chosen: Any, run: Path, listening: Stop | None, device: torch.device
) -> Generator[Event, None, None]:
    with ExitStack() as stack:
        stop = stack.enter_context(stop_signal()) if listening is None else listening
        if rank() == 0:
            check_run(request, run)
        started = time.perf_counter()
        torch.manual_seed(chosen.train.seed)
        with first_of_machine_first():  # the model may have to be converted
            folder = model_folder(find(request.model))
            tokenizer_folder(request.model, folder)
            source = open_source(folder)
        data = _read_data(request, chosen)
        check_wide(request, data.task)
        layout = source.layout(chosen.read)
        items = [item for example in data.train for item in data.task.items(example, layout)]
        LanguageWatch(source.tokenizer).read(*(document.ids for item in items for document in item.documents))
        chosen, notes = _without_gaps(request, chosen, source, data, items)
        written = settings_text(request, chosen)
        if rank() == 0:
            check_unfinished(run, written)
        stack.enter_context(one_at_a_time(run, "finetune"))  # what is refused earlier leaves no folder behind
        facts = Facts()
        if request.adapt is not None:
            texts = training_texts(data.train, [*data.valid, *data.test], seed=chosen.train.seed)
            adapted = yield from adapt(
                request.model,
                folder,
                run,
                texts=texts,
                epochs=request.adapt,
                seed=chosen.train.seed,
                stop=stop,
                device=device,
            )
            yield adapted
            if adapted.place is None:
                return
            source, facts = open_source(adapted.place), Facts(start=adapted.start)
            notes = [adapted.said, *notes]
            torch.manual_seed(chosen.train.seed)
        made = build_task_model(
            source,
            kind=request.kind,
            task=data.task,
            read=chosen.read,
            dropout=chosen.train.dropout,
            new_weights=request.new_weights,
            device=device,
        )
        if rank() == 0:
            check_room(run, bytes_of(made.model))
            write_file(run / SETTINGS, written)
        training = Training(
            made=made, items=items, settings=chosen.train, task=data.task, train=data.train, valid=data.valid
        )
        yield Prepared(
            counts={"train": len(data.train), "valid": len(data.valid), "test": len(data.test)},
            notes=data.notes
            + _lengths(items, made, layout.truncated)
            + [f"{count:,} {what}" for what, count in layout.remarks.items() if count]
            + [f"chosen: {note}" for note in notes],
            preview=[layout.preview(doc) for item in items[:3] for doc in item.documents[:1]],
            steps=training.steps,
            metric=data.task.metric,
            parameters=sum(parameter.numel() for parameter in made.model.parameters()),
            warnings=data.warnings,
        )
        compared, joiner = None, None
        if request.baselines and rank() == 0:
            compared, joiner = compare(data.task, data.train, {"valid": data.valid, "test": data.test})
            if compared is not None:
                yield compared
        beside = Beside(compared=compared, joiner=joiner, wanted=request.wide, facts=facts)
        keeper = Keeper(made, run, tokenizer=source.folder / TOKENIZER)
        try:
            end = yield from _trained(training, keeper, run, stop, beside)
            if end.best is None:
                ended = _end_unvalidated(training, keeper, run, started=started, truncated=layout.truncated)
            else:
                place = keeper.settle()
                ended = _end(made, end, data, beside, place=place, started=started, truncated=layout.truncated)
                if rank() == 0:
                    write_results(run, ended, compared)
            yield replace(ended, stopped_by=end.stopped_by)
        except OSError as error:
            raise DataError(
                f"{run} must be a writable folder; got {error}. {keeper.rescue()} Free some space, or choose another "
                "--out."
            ) from None
        except DataError as error:
            raise DataError(f"{error} {keeper.rescue()}") from None


@dataclass(frozen=True, kw_only=True)
class _Best:
    """The best validation so far."""

    value: float
    loss: float
    """Validation loss; infinite if there is none."""
    step: int
    judged: Judged

    def is_behind(self, value: float, loss: float) -> bool:
        """Return True if another validation is better: by its metric, or with the same metric by its loss."""
        return value > self.value or (value == self.value and loss < self.loss)


@dataclass(frozen=True, kw_only=True)
class _Trained:
    """The end of training."""

    best: _Best | None
    reason: str
    stopped_by: Signals | None = None


def _trained(
    training: Training, keeper: Keeper, run: Path, stop: Stop, beside: Beside
) -> Generator[Event, None, _Trained]:
    """Run all updates and validations, and keep the best weights."""
    metrics = Metrics(run / "metrics.jsonl", step=0)
    best: _Best | None = None
    since_best, patience = 0, training.settings.early_stopping
    reason = "all epochs are done"
    for event in training.run():
        unsaved: Unsaved | None = None
        match event:
            case Updated():
                metrics.write({"step": event.step, "loss": event.loss, "learning_rate": event.learning_rate})
            case Validated():
                values = {name: metric.value for name, metric in event.metrics.items()}
                loss = {} if event.loss is None else {"validation_loss": event.loss}
                metrics.write({"step": event.step, "validation": values, **loss})
                since_best += not event.early
                value = values[training.task.metric]
                nats = math.inf if event.loss is None else event.loss
                if best is None or best.is_behind(value, nats):
                    best = _Best(value=value, loss=nats, step=event.step, judged=training.judged(event))
                    since_best = 0
                    event = replace(event, best=True)
                    problem = beside.keep(keeper, event, best.judged, metric=training.task.metric)
                else:
                    problem = keeper.retry()
                unsaved = None if problem is None else Unsaved(step=event.step, problem=problem)
                if since_best >= patience:
                    reason = f"no better in {patience} validations"
                    training.stop = True
            case Restarted():
                since_best = 0
                metrics.write({"step": event.step, "restarted": event.reason})
        yield event
        if unsaved is not None:
            yield unsaved
        stopped_by = stop.agreed()
        if stopped_by is not None:
            return _Trained(best=best, reason=STOPPED, stopped_by=stopped_by)
    return _Trained(best=best, reason=reason)


def _without_gaps(
    request: Request, chosen: Any, source: Source, data: "_Data", items: Sequence[Item]
) -> tuple[Any, list[str]]:
    """Return the settings with automatic values for all gaps, and a note on each of them."""
    config = source.trunk.config
    head = data.task.head(chosen.read, summary_of(chosen.read, config))
    situation = Situation(
        lengths=tuple(len(document) for item in items for document in item.documents),
        segment_length=segment_length_of(config, chosen.read),
        config=config,
        new_weights=request.new_weights,
    )
    summarised = head is not None and head.kind in ("sequence_classifier", "sequence_scorer")
    read, notes = choose_reading(chosen.read, situation, summarised=summarised)
    train, more = choose_training(chosen.train, items=len(items), config=config, new_weights=request.new_weights)
    return chosen.model_copy(update={"read": read, "train": train}), notes + more


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
        share = max(VALIDATION_SHARE, min(LARGEST_VALIDATION_SHARE, FEWEST / len(train.examples)))
        keys = [text_key(task, example) for example in train.examples]
        own = split_off(train.examples, keys, share=share, seed=chosen.train.seed)
        notes.append(f"no validation file: {len(own[1]):,} training examples are kept apart for it")
    tested = test.examples if test is not None else []
    warnings = warnings_of(task, own[0], {"valid": own[1], "test": tested})
    return _Data(task=task, train=own[0], valid=own[1], test=tested, notes=notes, warnings=warnings)


def _other(request: Request, source: str | Table | None, task: Task) -> Examples | None:
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


# ------------------------------------------------------------------------------------------------------ the end


def _end_unvalidated(training: Training, keeper: Keeper, run: Path, *, started: float, truncated: int) -> Ended:
    """End a run that was stopped before the first validation: its weights are kept as they are."""
    return Ended(
        reason=STOPPED,
        best_step=training.step,
        judged=[],
        seconds=time.perf_counter() - started,
        truncated=truncated,
        task=training.task,
        place=keeper.keep_unvalidated(),
        validated=False,
    )


def _end(
    made: TaskModel, end: _Trained, data: _Data, beside: Beside, *, place: Path, started: float, truncated: int
) -> Ended:
    """Evaluate the saved model on the test examples, and return the end of the run."""
    best = end.best
    assert best is not None
    judged = [best.judged]
    saved = load_task_model(place) if rank() == 0 and (data.test or beside.joiner is not None) else None
    if data.test:
        if saved is not None:
            made.model.load_state_dict(saved.model.state_dict())
        weights_of_first(made.model)
        predictions = collected(answers_in_order(made, own_share(data.test)))
        judged.append(
            Judged(
                name="test",
                examples=data.test,
                predictions=predictions,
                metrics=data.task.measure(data.test, predictions),
            )
        )
    ended = Ended(
        reason=end.reason,
        best_step=best.step,
        judged=judged,
        seconds=0.0,
        truncated=truncated,
        task=data.task,
        place=place,
    )
    if saved is not None and saved.wide is not None and beside.compared is not None:
        ended = with_ngrams(ended, saved.wide, beside.compared, wanted=beside.wanted)
    return replace(ended, seconds=time.perf_counter() - started)
