"""`segue finetune`: a live view of a fine-tuning run."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from signal import Signals
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import TaskID
from rich.table import Table
from rich.text import Text

from segue.api.finetune import beside_rows, no_better, task_kinds
from segue.api.finetune import finetune as finetuned
from segue.api.processes import is_first_process
from segue.cli.console import duration, finish, moving_line, progress_console, say
from segue.cli.options import LabelledTableOptions, ModelArgument, OverridesArgument
from segue.cli.pretrain import LiveView
from segue.config import FinetuneConfig, ReadConfig, Section
from segue.data.tables import TableSettings
from segue.errors import ConfigError
from segue.evaluation.metrics.bootstrap import Metric
from segue.train.finetune import (
    Adapted,
    Adapting,
    AdaptStep,
    Compared,
    Ended,
    Event,
    Judged,
    Prepared,
    Restarted,
    Unsaved,
    Updated,
    Validated,
)
from segue.train.pretrain import Ended as PretrainingEnded
from segue.train.report_classes import WITH_NGRAMS


def run_finetuning(
    model: str,
    run: Path,
    *,
    task: str,
    train: str,
    valid: str | None,
    test: str | None,
    columns: dict[str, str],
    tables: TableSettings,
    overrides: list[str],
    new_weights: bool,
    baselines: bool,
    adapt: int | None,
    wide: bool | None,
) -> Signals | None:
    """Show the run; return the signal that stopped it, or None if it finished."""
    stopped_by: Signals | None = None
    with _LiveView(progress_console(), run, tags=task == "tag") as view:

        def show(event: Event) -> None:
            nonlocal stopped_by
            if is_first_process():
                view.show(event)
            if isinstance(event, Ended | Adapted):
                stopped_by = event.stopped_by

        try:
            finetuned(
                model,
                train,
                task=task,
                out=run,
                valid=valid,
                test=test,
                columns=columns,
                settings=overrides,
                new_weights=new_weights,
                adapt=adapt,
                baselines=baselines,
                wide=wide,
                tables=tables,
                progress=False,
                on_event=show,
            )
        except KeyboardInterrupt:
            if stopped_by is None:
                raise
    return stopped_by


def print_tasks() -> None:
    """Print the tasks, their columns and their settings."""
    console = Console(highlight=False, emoji=False)
    for kind in task_kinds().values():
        console.print(f"[bold]{kind.name}[/]  {kind.help}")
        for column in kind.columns:
            needed = "optional" if column.optional else "for training" if column.answer else "needed"
            say(console, f"column {column.role} ({needed}): {', '.join(column.names[:6])}", indent=2)
        _print_settings(console, "task", kind.settings)
    console.print("[bold]all tasks[/]")
    _print_settings(console, "read", ReadConfig)
    _print_settings(console, "train", FinetuneConfig)


def _print_settings(console: Console, section: str, settings: type[Section]) -> None:
    for name, field in settings.model_fields.items():
        default = "" if field.default is None else field.default
        say(console, f"{section}.{name}={default}  {field.description}", indent=2, hang=2)


class _LiveView:
    """A status line in a terminal; plain lines elsewhere."""

    def __init__(self, console: Console, run: Path, *, tags: bool) -> None:
        self.console, self.run, self.tags = console, run, tags
        self.recent: deque[Updated] = deque(maxlen=50)
        self.metric = ""
        self.compared: Compared | None = None
        self.steps = 0
        self.progress = moving_line(console)
        self.task: TaskID | None = None
        self.adapting: LiveView | None = None

    def __enter__(self) -> "_LiveView":
        return self

    def __exit__(self, *_: object) -> None:
        finish(self.progress)
        if self.adapting is not None:
            finish(self.adapting.progress)

    def show(self, event: Event) -> None:
        match event:
            case Adapting():
                say(self.console, "Pretraining on the training texts first:")
                for note in event.notes:
                    say(self.console, note, indent=2)
                self.adapting = LiveView(self.console, event.config, event.run, boards=[])
            case AdaptStep():
                if self.adapting is not None and not isinstance(event.event, PretrainingEnded):
                    self.adapting.show(event.event)
            case Adapted():
                self._adapted(event)
            case Prepared():
                self._prepared(event)
            case Compared():
                self.compared = event
                self._compared(event)
            case Updated():
                self._updated(event)
            case Validated():
                # Metrics of single classes, such as f1/PER, are in the table at the end.
                whole = [metric for name, metric in event.metrics.items() if "/" not in name]
                shown = "  ".join(f"{metric.name} {metric.value:.4f}" for metric in whole)
                nothing = self.tags and event.metrics[self.metric].value == 0
                mark = ", no entity found yet" if nothing else ", the best so far" if event.best else ""
                say(self.console, f"step {event.step}: {shown}{mark}")
            case Unsaved():
                say(
                    self.console,
                    f"step {event.step}: the best model could not be saved: {event.problem}. It is kept in memory, and "
                    "saved after the next validation or at the end. Free some disk space.",
                    style="yellow",
                )
            case Restarted():
                say(
                    self.console,
                    f"step {event.step}: collapsed: {event.reason}. Restarting from the pretrained weights at half the "
                    f"learning rate, {event.learning_rate:.2g}.",
                    style="yellow",
                )
            case Ended():
                self._ended(event)

    def _adapted(self, event: Adapted) -> None:
        if self.adapting is not None:
            finish(self.adapting.progress)
        if event.place is None:
            say(
                Console(highlight=False, emoji=False),
                "Stopped before fine-tuning. The same command continues from there.",
            )
        else:
            say(self.console, f"The adapted model is in {event.place}.")

    def _prepared(self, event: Prepared) -> None:
        counts = ", ".join(f"{name} {count:,}" for name, count in event.counts.items() if count)
        say(self.console, f"Examples: {counts}. {event.parameters / 1e6:.2f} M parameters, {event.steps:,} updates.")
        for note in event.notes:
            say(self.console, note, indent=2)
        for warning in event.warnings:
            say(self.console, f"Warning: {warning}", hang=2, style="yellow")
        self.metric = event.metric
        say(self.console, "The first examples as the model reads them:")
        for text in event.preview:
            say(self.console, text if len(text) <= 400 else f"{text[:300]} ... {text[-90:]}", indent=2)
        self.steps = event.steps
        self.task = self.progress.add_task("finetune", total=event.steps, line="")
        if self.console.is_terminal:
            self.progress.start()

    def _compared(self, event: Compared) -> None:
        shown = [
            f"{method.name}: "
            + ", ".join(f"{found[self.metric].value:.4f} on {p}" for p, found in method.metrics.items())
            for method in event.methods
        ]
        say(self.console, f"Baselines, by {self.metric}: {'; '.join(shown)}.")
        if event.remark is not None:
            say(self.console, event.remark)

    def _updated(self, event: Updated) -> None:
        self.recent.append(event)
        seconds = sum(update.seconds for update in self.recent)
        loss = sum(update.loss for update in self.recent) / len(self.recent)
        speed = sum(update.tokens for update in self.recent) / seconds
        left = (self.steps - event.step) * seconds / len(self.recent)
        line = f"{duration(left)} left  loss {loss:.4f}  {speed:,.0f} tokens/s  padding {event.padding_share:.1%}"
        if self.console.is_terminal and self.task is not None:
            self.progress.update(self.task, completed=event.step, line=line)
        elif event.step % max(1, self.steps // 20) == 0:
            self.console.print(f"step {event.step}/{self.steps}  {line}", soft_wrap=True)

    def _ended(self, event: Ended) -> None:
        finish(self.progress)
        console = Console(highlight=False, emoji=False)
        if event.validated:
            say(console, f"Ended: {event.reason}. The best model is from step {event.best_step}.")
        else:
            say(
                console,
                f"Ended: {event.reason} before the first validation. The weights of step {event.best_step} are kept, "
                f"but were not evaluated. Continue from them: segue finetune {event.place}",
                style="yellow",
            )
        if event.truncated:
            say(console, f"{event.truncated:,} training documents were truncated to read.max_length.")
        for part in event.judged:
            console.print(metric_table(f"{part.name}, {len(part.examples):,} examples", part.metrics))
        if self.compared is not None:
            console.print(comparison_table(self.compared, event.judged, self.metric, alone=event.alone))
        if event.joined is not None:
            say(console, event.joined)
        worse = no_better(self.compared, event.judged, self.metric, joined=event.joined is not None)
        if worse is not None:
            say(console, worse, style="yellow")
        say(console, f"Report: {self.run / 'report.html'}, and report.md beside it.")
        say(console, f"Took {duration(event.seconds)}. Use it: segue predict {event.place} FILE")


def metric_table(title: str, metrics: dict[str, Metric]) -> Table:
    """Return a table of metrics with their intervals."""
    table = Table(title, "value", "95 % interval", box=None, pad_edge=False)
    for name, metric in metrics.items():
        interval = "" if metric.low is None or metric.high is None else f"{metric.low:.4f} to {metric.high:.4f}"
        table.add_row(Text(name), f"{metric.value:.4f}", interval)
    return table


def comparison_table(compared: Compared, judged: Sequence[Judged], metric: str, *, alone: Sequence[Judged]) -> Table:
    """Return a table of the model, the baselines and, if n-grams are joined to the model, the model without them."""
    parts = [part.name for part in judged]
    table = Table(f"{metric} beside baselines", *parts, box=None, pad_edge=False)
    own = {part.name: part.metrics for part in judged}
    for name, found in [(WITH_NGRAMS if alone else "this model", own), *beside_rows(compared.methods, alone)]:
        table.add_row(name, *(f"{found[part][metric].value:.4f}" if part in found else "" for part in parts))
    return table


def finetune(
    model: ModelArgument,
    tables: LabelledTableOptions,
    overrides: OverridesArgument = None,
    task: Annotated[
        str | None, typer.Option(help="Task to fine-tune on. Default: list the tasks and their settings.")
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Training examples: csv, tsv, json, jsonl, parquet, CoNLL, SQuAD, or datasets:NAME."
        ),
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Validation examples. Default: hold out 10 % of the training examples."),
    ] = None,
    test: Annotated[str | None, typer.Option(metavar="FILE", help="Test examples, evaluated once at the end.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="RUN", help="New run folder.")] = None,
    new_weights: Annotated[
        bool,
        typer.Option(
            "--new-weights",
            help="Use only the shape and tokeniser of MODEL, with new weights, to see the effect of pretraining.",
        ),
    ] = False,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines/--no-baselines",
            help="Whether to measure the majority class and a tuned TF-IDF as baselines of a classifier. Default: yes.",
        ),
    ] = True,
    adapt: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="EPOCHS",
            help="Number of epochs to pretrain on the training texts first, e.g. 10. Default: none.",
        ),
    ] = None,
    wide: Annotated[
        bool | None,
        typer.Option(
            "--wide/--no-wide",
            help="Whether to combine the classifier with a TF-IDF, saved with it. Default: if the TF-IDF alone "
            "beats the classifier alone on the validation examples.",
        ),
    ] = None,
) -> None:
    """Fine-tune a model on a task, and evaluate it.

    Settings are read.KEY, train.KEY and task.KEY; `segue finetune MODEL` lists them. Documents longer than a segment
    are read in full, with memory. Ctrl-C stops training and keeps the best model so far.

    \b
    Example:
      segue finetune run --task classify --train train.csv --out topics
    """
    if task is None and (train is not None or out is not None):
        raise ConfigError(
            "fine-tuning needs a task; got no --task. Give one of classify, pair, regress, tag, answer, choose, rank "
            "or generate; `segue finetune MODEL` describes them."
        )
    if task is None:
        print_tasks()
        return
    if train is None or out is None:
        raise ConfigError(
            "fine-tuning needs training examples and a run folder; one is missing. Give --train FILE and --out RUN."
        )
    stopped_by = run_finetuning(
        model,
        out,
        task=task,
        train=train,
        valid=valid,
        test=test,
        columns=tables.roles(),
        tables=tables.settings(),
        overrides=overrides or [],
        new_weights=new_weights,
        baselines=baselines,
        adapt=adapt,
        wide=wide,
    )
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)
