"""The report of a fine-tuning run: request, data, training curves, metrics and mistakes.

In: the events of a run, collected in a Record. Out: `report.md` and `report.html` in the run folder, with the same
content; the second has charts. A stopped run has a report too, with the data that it has. Sections that only tasks with
classes have are in `report_classes`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segue.evaluation.metrics.bootstrap import FEWEST, Metric
from segue.files import write_file
from segue.report.charts import Point, Series, averaged, chart, number
from segue.report.pages import Block, Bullets, Code, Heading, Paragraph, Picture, Table, clean, to_html, to_markdown
from segue.train.command import finetune_command
from segue.train.events import Compared, Ended, Event, Prepared, Request, Restarted, Updated, Validated
from segue.train.report_classes import (
    beside_rows,
    calibration_blocks,
    cells,
    class_blocks,
    comparison_blocks,
    confusion_blocks,
    examples_of,
)

MOST_MISTAKES = 20
MOST_ROWS = 12
MOST_TEXTS = 6
LONGEST_TEXT, TEXT_START, TEXT_END = 240, 160, 76


@dataclass
class _Attempt:
    """An attempt, from the pretrained weights to the end or to a restart."""

    losses: list[tuple[int, float]] = field(default_factory=list)
    validations: list[Validated] = field(default_factory=list)


@dataclass
class Record:
    """The data of a report, collected during a run."""

    request: Request
    """The request, with its settings."""
    prepared: Prepared | None = None
    compared: Compared | None = None
    ended: Ended | None = None
    attempts: list[_Attempt] = field(default_factory=lambda: [_Attempt()])
    restarts: list[Restarted] = field(default_factory=list)
    tokens: int = 0
    seconds: float = 0.0
    """Duration of the updates in seconds."""
    padding_share: float = 0.0
    rate: float = 0.0
    """Highest learning rate of the last attempt."""

    def add(self, event: Event) -> None:
        match event:
            case Prepared():
                self.prepared = event
            case Compared():
                self.compared = event
            case Updated():
                self.attempts[-1].losses.append((event.step, event.loss))
                self.tokens += event.tokens
                self.seconds += event.seconds
                self.padding_share = event.padding_share
                self.rate = max(self.rate, event.learning_rate)
            case Validated():
                self.attempts[-1].validations.append(event)
            case Restarted():
                self.restarts.append(event)
                self.attempts.append(_Attempt())
                self.rate = 0.0
            case Ended():
                self.ended = event


def write_report(record: Record, run: Path) -> None:
    """Write both files."""
    title = f"Fine-tuning report: {record.request.kind.name}, {run.name}"
    blocks = report(record, run)
    write_file(run / "report.md", to_markdown(title, blocks))
    write_file(run / "report.html", to_html(title, blocks))


def write_results(run: Path, end: Ended, compared: Compared | None) -> None:
    """Write `results.json`: the metrics for programs."""
    values: dict[str, Any] = {"best_step": end.best_step, "ended": end.reason}
    values |= {part.name: _plain(part.metrics) for part in end.judged}
    if end.alone:
        values["model_alone"] = {part.name: _plain(part.metrics) for part in end.alone}
    if compared is not None:
        values["baselines"] = {
            method.name: {part: _plain(metrics) for part, metrics in method.metrics.items()}
            for method in compared.methods
        }
    write_file(run / "results.json", json.dumps(values, ensure_ascii=False, indent=1) + "\n")


def _plain(metrics: Mapping[str, Metric]) -> dict[str, Any]:
    return {name: {"value": m.value, "low": m.low, "high": m.high} for name, m in metrics.items()}


def report(record: Record, run: Path) -> list[Block]:
    """Return all sections, in the order in which readers need them."""
    assert record.prepared is not None
    blocks: list[Block] = [Paragraph(text=_in_short(record))]
    if record.prepared.warnings:
        blocks += [Heading(text="Before you trust these numbers"), Bullets(texts=record.prepared.warnings)]
    judged = record.ended.judged if record.ended is not None else []
    alone = record.ended.alone if record.ended is not None else []
    blocks += comparison_blocks(record.compared, judged, record.prepared.metric, alone=alone)
    blocks += _results(record)
    blocks += _curves(record)
    for part in judged:
        assert record.ended is not None
        for made in (class_blocks, confusion_blocks, calibration_blocks):
            blocks += made(record.ended.task, part)
    blocks += _mistakes(record)
    return [*blocks, *_data(record), *_settings(record, run), *_time(record)]


# ------------------------------------------------------------------------------------------------------ results


def _in_short(record: Record) -> str:
    assert record.prepared is not None
    if record.ended is None or not record.ended.validated:
        done = len(record.attempts[-1].losses)
        kept = "" if record.ended is None else f" The weights, not validated, are in {record.ended.place}."
        return (
            f"The run did not finish: {done:,} of {record.prepared.steps:,} updates were made.{kept} Below is what was "
            "recorded."
        )
    end = record.ended
    metric = record.prepared.metric
    values = []
    for part in end.judged:
        methods = record.compared.methods if record.compared is not None else []
        beside = ", ".join(
            f"{title} {metrics[part.name][metric].value:.4f}" for title, metrics in beside_rows(methods, end.alone)
        )
        values.append(f"{part.metrics[metric].value:.4f} on {examples_of(part)}" + (f" ({beside})" if beside else ""))
    return (
        f"{record.prepared.metric}: {', '.join(values)}. The best model is from step {end.best_step:,}, by "
        f"{record.prepared.metric} on the validation examples. Ended: {end.reason}."
        + (f" {end.joined[0].upper()}{end.joined[1:]}" if end.joined is not None else "")
    )


def _results(record: Record) -> list[Block]:
    if record.ended is None or not record.ended.judged:
        return []
    judged = record.ended.judged
    names = list(dict.fromkeys(name for part in judged for name in part.metrics))
    header = ["metric", *(cell for part in judged for cell in (part.name, "95 % interval"))]
    rows = [[name, *(cell for part in judged for cell in cells(part.metrics.get(name)))] for name in names]
    words = (
        "Intervals are percentiles over resampled examples: they show how much the numbers depend on these examples, "
        f"not on the seed. No interval is given below {FEWEST} examples, or where all resamples agree. The validation "
        "numbers are those of the step that was best on the same examples, so they are slightly optimistic."
    )
    return [
        Heading(text="Metrics"),
        Table(header=header, rows=rows, numbers=frozenset(range(1, len(header)))),
        Paragraph(text=words),
    ]


# ------------------------------------------------------------------------------------------------------- curves


def _curves(record: Record) -> list[Block]:
    assert record.prepared is not None
    if not any(attempt.losses for attempt in record.attempts):
        return []
    blocks: list[Block] = [Heading(text="Training")]
    texts = [
        f"Restart at step {restart.step:,}: {restart.reason}. The learning rate became {number(restart.learning_rate)}."
        for restart in record.restarts
    ]
    best = _best(record)
    if best is not None and best not in record.attempts[-1].validations:
        texts.append("The best model is from before the last restart.")
    blocks += [Bullets(texts=texts)] if texts else []
    blocks += _loss_chart(record)
    blocks += _metric_chart(record)
    return [*blocks, _curve_table(record)]


def _loss_chart(record: Record) -> list[Block]:
    series, each = [], 1
    for count, attempt in enumerate(record.attempts, start=1):
        last = count == len(record.attempts)
        points, each = averaged([(float(step), loss) for step, loss in attempt.losses])
        series.append(Series(name="training" if last else "before a restart", points=points, faint=not last))
        told = [Point(x=event.step, y=event.loss) for event in attempt.validations if event.loss is not None]
        if told and last:
            series.append(Series(name="validation", points=told, colour="second", dots=True))
    label = "loss" + (f", in training the mean of {each} updates" if each > 1 else "")
    svg = chart(series, title="Loss against steps", x_label="step", y_label=label, whole_x=True)
    return [Picture(svg=svg)] if svg else []


def _metric_chart(record: Record) -> list[Block]:
    assert record.prepared is not None
    name = record.prepared.metric
    series = []
    for count, attempt in enumerate(record.attempts, start=1):
        last = count == len(record.attempts)
        points = []
        for event in attempt.validations:
            metric = event.metrics[name]
            best = record.ended is not None and event is _best(record)
            points.append(Point(x=event.step, y=metric.value, low=metric.low, high=metric.high, full=best))
        label = f"validation {name}" if last else "before a restart"
        series.append(Series(name=label, points=points, colour="second", dots=True, faint=not last))
    svg = chart(
        series,
        title=f"Validation {name} against steps",
        x_label="step",
        y_label=f"validation {name} (full dot: the best; bars: 95 % intervals)",
        whole_x=True,
    )
    return [Picture(svg=svg)] if svg else []


def _best(record: Record) -> Validated | None:
    """Return the best validation over all attempts, as the run chose it."""
    return next((v for attempt in reversed(record.attempts) for v in reversed(attempt.validations) if v.best), None)


def _curve_table(record: Record) -> Table:
    """Return a table of the last attempt's validations, thinned to a few, including the best and the last."""
    assert record.prepared is not None
    attempt, name = record.attempts[-1], record.prepared.metric
    chosen = _thinned(attempt.validations, best=_best(record))
    rows, since = [], 0
    for event in chosen:
        losses = [loss for step, loss in attempt.losses if since < step <= event.step and math.isfinite(loss)]
        mean = f"{sum(losses) / len(losses):.4f}" if losses else ""
        marked = "best" if event is _best(record) else ""
        own = "" if event.loss is None else f"{event.loss:.4f}"
        rows.append([f"{event.step:,}", mean, own, f"{event.metrics[name].value:.4f}", marked])
        since = event.step
    header = ["step", "mean training loss since the row above", "validation loss", f"validation {name}", ""]
    if not any(event.loss is not None for event in chosen):
        header, rows = [*header[:2], *header[3:]], [[*row[:2], *row[3:]] for row in rows]
    return Table(header=header, rows=rows, numbers=frozenset(range(len(header) - 1)))


def _thinned(validations: Sequence[Validated], *, best: Validated | None) -> list[Validated]:
    if len(validations) <= MOST_ROWS:
        return list(validations)
    places = {round(n * (len(validations) - 1) / (MOST_ROWS - 2)) for n in range(MOST_ROWS - 1)}
    return [event for place, event in enumerate(validations) if place in places or event is best]


# ----------------------------------------------------------------------------------------------------- mistakes


def _mistakes(record: Record) -> list[Block]:
    """Return the worst mistakes among the validation examples."""
    part = next((part for part in record.ended.judged if part.name == "valid"), None) if record.ended else None
    if record.ended is None or part is None:
        return []
    task = record.ended.task
    compared = [task.compare(e, p) for e, p in zip(part.examples, part.predictions, strict=True)]
    wrong = [n for n, one in enumerate(compared) if one.badness > 0]
    wrong.sort(key=lambda n: -compared[n].badness)
    blocks: list[Block] = [Heading(text="Worst mistakes")]
    if not wrong:
        return [*blocks, Paragraph(text=f"None among the {examples_of(part)}.")]
    sure = any(part.predictions[n].confidence is not None for n in wrong)
    rows = []
    for n in wrong[:MOST_MISTAKES]:
        confidence = part.predictions[n].confidence
        every = part.examples[n].texts
        more = [f"(and {len(every) - MOST_TEXTS} more texts)"] if len(every) > MOST_TEXTS else []
        texts = "\n".join([*(_short(text) for text in every[:MOST_TEXTS]), *more])
        row = [str(part.examples[n].number), texts, _short(compared[n].gold), _short(compared[n].predicted)]
        rows.append([*row, *([f"{confidence:.4f}" if confidence is not None else ""] if sure else [])])
    listed = "these are" if len(wrong) <= MOST_MISTAKES else f"the worst {MOST_MISTAKES} are"
    words = (
        f"{len(wrong):,} of the {examples_of(part)} have an answer other than gold; {listed} below, the most confident "
        f"or the most distant first. Texts of more than {LONGEST_TEXT} characters show their first {TEXT_START} and "
        f"last {TEXT_END}. Mistakes on test examples are not shown: learning from them would require another test set."
    )
    header = ["record", "text", "gold", "predicted", *(["probability"] if sure else [])]
    return [*blocks, Paragraph(text=words), Table(header=header, rows=rows, numbers=frozenset({0, 4}))]


def _short(text: str) -> str:
    """Return a text on one line, without the middle if it is long."""
    line = " ".join(clean(text).split())
    return line if len(line) <= LONGEST_TEXT else f"{line[:TEXT_START]} … {line[-TEXT_END:]}"


# -------------------------------------------------------------------------------------------- data, settings, time


def _data(record: Record) -> list[Block]:
    prepared = record.prepared
    assert prepared is not None
    counts = ", ".join(f"{name} {count:,}" for name, count in prepared.counts.items() if count)
    texts = [f"examples: {counts}", *prepared.notes]
    if record.tokens:
        texts.append(f"padding: {record.padding_share:.1%} of what the last attempt computed")
    return [Heading(text="Data"), Bullets(texts=texts)]


def _settings(record: Record, run: Path) -> list[Block]:
    request, prepared = record.request, record.prepared
    assert prepared is not None
    rows = [["model", request.model], ["task", request.kind.name]]
    rows += [[name, str(value)] for name in ("train", "valid", "test") if (value := getattr(request, name)) is not None]
    rows += [[f"column of {role}", name] for role, name in request.columns.items()]
    rows += [["weights", "new; only the shape and the tokeniser are those of the model"]] if request.new_weights else []
    rows += [["parameters", f"{prepared.parameters:,}"], ["maximum number of updates", f"{prepared.steps:,}"]]
    for section, values in request.settings.model_dump(mode="json", exclude_none=True).items():
        rows += [[f"{section}.{key}", str(value)] for key, value in values.items()]
    if request.settings.train.learning_rate is None and record.rate:
        rows.append(["peak learning rate of the last attempt", number(record.rate)])
    return [
        Heading(text="Settings"),
        Code(text=finetune_command(request, run)),
        Table(header=["setting", "value"], rows=rows),
    ]


def _time(record: Record) -> list[Block]:
    texts = []
    if record.ended is not None:
        texts.append(f"{record.ended.seconds:,.1f} s in total, including reading, validations and the final evaluation")
    if record.seconds:
        updates = sum(len(attempt.losses) for attempt in record.attempts)
        texts.append(
            f"{record.seconds:,.1f} s in {updates:,} updates, {record.tokens / record.seconds:,.0f} tokens per second"
        )
    return [Heading(text="Time"), Bullets(texts=texts)] if texts else []
