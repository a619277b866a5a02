"""`segue tune`: a hyperparameter search, with a line for each validation and each trial."""

from pathlib import Path
from signal import Signals
from typing import Annotated, Any

import typer
from rich.console import Console

from segue.api.tune import search_for, tuned
from segue.cli.console import duration, progress_console, say
from segue.cli.options import LabelledTableOptions, ModelArgument, OverridesArgument
from segue.data.tables import TableSettings
from segue.errors import ConfigError
from segue.report.charts import number
from segue.train.events import Prepared, Restarted, Validated
from segue.train.tune import Began, Inside, SearchEnded, TrialEnded, TuneEvent


def run_search(
    model: str,
    folder: Path,
    *,
    task: str,
    train: str,
    valid: str | None,
    columns: dict[str, str],
    tables: TableSettings,
    fixed: list[str],
    searched: list[str],
    trials: int,
    hours: float | None,
    new_weights: bool,
) -> Signals | None:
    """Show the search; return the signal that stopped it, or None if it finished."""
    search = search_for(
        model,
        train,
        task=task,
        valid=valid,
        columns=columns,
        settings=fixed,
        space=searched or None,
        trials=trials,
        hours=hours,
        new_weights=new_weights,
        tables=tables,
    )
    console = progress_console()
    for one in search.space:
        say(console, f"Searching {one}")
    view = _View(console, folder, trials)
    return tuned(search, folder, progress=False, on_event=view.show).stopped_by


class _View:
    def __init__(self, console: Console, folder: Path, trials: int) -> None:
        self.console, self.folder, self.trials = console, folder, trials
        self.metric = ""
        self.prepared = False

    def show(self, event: TuneEvent) -> None:
        match event:
            case Began():
                settings = "  ".join(f"{key} {_shown(value)}" for key, value in event.settings.items())
                self.console.print(
                    f"Trial {event.number} ({event.done + 1} of {self.trials}): {settings}", soft_wrap=True
                )
            case Inside():
                self._inside(event)
            case TrialEnded():
                trial = event.trial
                value = "" if trial.value is None else f" {trial.value:.4f}"
                why = "" if trial.error is None else f" ({trial.error})"
                best = ", the best so far" if event.best else ""
                say(self.console, f"{trial.state}{why}:{value} in {duration(trial.seconds)}{best}", indent=2)
            case SearchEnded():
                self._ended(event)

    def _inside(self, event: Inside) -> None:
        match event.event:
            case Prepared() as prepared:
                self.metric = prepared.metric
                if not self.prepared:  # the same for all trials
                    counts = ", ".join(f"{name} {count:,}" for name, count in prepared.counts.items() if count)
                    say(self.console, f"Examples: {counts}. {prepared.parameters / 1e6:.2f} M parameters.", indent=2)
                    for note in prepared.notes:
                        say(self.console, note, indent=4)
                self.prepared = True
            case Validated() as validated:
                value = validated.metrics[self.metric].value
                say(self.console, f"step {validated.step}: {self.metric} {value:.4f}", indent=2)
            case Restarted() as restarted:
                say(self.console, f"step {restarted.step}: collapsed: {restarted.reason}. Restarting.", indent=2)

    def _ended(self, event: SearchEnded) -> None:
        console = Console(highlight=False, emoji=False)
        say(console, f"Ended: {event.reason}.")
        if event.stopped_by is not None:
            say(
                console,
                f"Nothing is lost: {self.folder} keeps the finished trials ({len(event.trials)} so far); an "
                "interrupted trial is repeated. The same command continues.",
            )
        if event.best is None or event.command is None:
            say(console, "No trial has finished yet.")
            return
        best = self.folder / "trials" / f"{event.best.number:04d}" / "best"
        value = f"{self.metric or 'a validation of'} {event.best.value:.4f}"
        say(
            console,
            f"The best is trial {event.best.number}, with {value}. Its model is {best}; the weights of the other "
            "trials are deleted.",
        )
        say(console, f"Report: {self.folder / 'report.html'}, and report.md beside it. To repeat the run:")
        console.print(event.command, soft_wrap=True, markup=False)


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)


def tune(
    model: ModelArgument,
    tables: LabelledTableOptions,
    overrides: OverridesArgument = None,
    task: Annotated[
        str, typer.Option(help="Task to fine-tune on; `segue finetune MODEL` lists the tasks.")
    ] = "classify",
    train: Annotated[str | None, typer.Option(metavar="FILE", help="Training examples, as for segue finetune.")] = None,
    valid: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Validation examples to select the best trial. Default: hold out 10 % of the training examples.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="STUDY", help="Study folder; an existing study is continued.")
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, help="Total number of trials in the study, including earlier ones.")
    ] = 20,
    hours: Annotated[
        float | None, typer.Option(help="Hours after which no new trial begins. Default: no limit.")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=LOW..HIGH[:log]|KEY=A,B,C",
            help="Setting to search, e.g. train.learning_rate=1e-5..1e-3:log; repeatable. Default: a standard "
            "search space.",
        ),
    ] = None,
    new_weights: Annotated[
        bool, typer.Option("--new-weights", help="Use only the shape and tokeniser of MODEL, with new weights.")
    ] = False,
) -> None:
    """Search for the best settings over many fine-tuning runs.

    Ctrl-C loses no finished trial; the same command continues the search.

    \b
    Example:
      segue tune run --train train.csv --out study --trials 30
    """
    if train is None or out is None:
        raise ConfigError(
            "a search needs training examples and a study folder; one is missing. Give --train FILE and --out STUDY."
        )
    stopped_by = run_search(
        model,
        out,
        task=task,
        train=train,
        valid=valid,
        columns=tables.roles(),
        tables=tables.settings(),
        fixed=overrides or [],
        searched=search or [],
        trials=trials,
        hours=hours,
        new_weights=new_weights,
    )
    if stopped_by is not None:
        raise typer.Exit(128 + stopped_by)
