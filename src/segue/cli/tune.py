"""`segue tune`: a search for settings, a line for each validation and each trial."""

from pathlib import Path
from signal import Signals
from typing import Any

from rich.console import Console

from segue.cli.finetune import chosen_columns
from segue.cli.paragraphs import duration, progress_console, say
from segue.data.tables import TableSettings
from segue.errors import ConfigError
from segue.report.charts import number
from segue.tasks.table import task_kind
from segue.train.events import Prepared, Request, Restarted, Validated
from segue.train.finetune import finetune_settings
from segue.train.search_space import search_space
from segue.train.tune import Began, Inside, Search, SearchEnded, TrialEnded, TuneEvent, tune, usual_space


def run_search(
    model: str,
    folder: Path,
    *,
    task: str,
    train: str,
    valid: str | None,
    columns: list[str],
    tables: TableSettings,
    fixed: list[str],
    searched: list[str],
    trials: int,
    hours: float | None,
    new_weights: bool,
) -> Signals | None:
    """Shows the search; returns the signal that stopped it, or None if it came to its end."""
    if hours is not None and not 0 < hours < float("inf"):
        raise ConfigError(f"--hours must be above 0; got {hours:g}. Use 0.5, say, or leave it out.")
    kind = task_kind(task)
    request = Request(
        model=model,
        kind=kind,
        train=train,
        valid=valid,
        columns=chosen_columns(columns),
        tables=tables,
        settings=finetune_settings(kind, {}, fixed),
        new_weights=new_weights,
    )
    keys = {one.partition("=")[0].strip(): one for one in fixed}
    space = search_space(searched, kind=kind, fixed=fixed) if searched else usual_space(request, keys)
    console = progress_console()
    for one in space:
        say(console, f"Searching {one}")
    view = _View(console, folder, trials)
    stopped_by = None
    for event in tune(Search(request=request, space=tuple(space), trials=trials, hours=hours), folder):
        view.show(event)
        if isinstance(event, SearchEnded):
            stopped_by = event.stopped_by
    return stopped_by


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
                say(self.console, f"step {restarted.step}: collapsed: {restarted.reason}. Starting again.", indent=2)

    def _ended(self, event: SearchEnded) -> None:
        console = Console(highlight=False)
        say(console, f"Ended: {event.reason}.")
        if event.stopped_by is not None:
            say(
                console,
                f"Nothing is lost: {self.folder} keeps what is over ({len(event.trials)} so far); a trial cut short is "
                "made again. The same command goes on.",
            )
        if event.best is None or event.command is None:
            say(console, "No trial has come to its end yet.")
            return
        best = self.folder / "trials" / f"{event.best.number:04d}" / "best"
        value = f"{self.metric or 'a validation of'} {event.best.value:.4f}"
        say(
            console,
            f"The best is trial {event.best.number}, with {value}. Its model is {best}; the weights of the other "
            "trials are deleted.",
        )
        say(console, f"Report: {self.folder / 'report.html'}, and report.md beside it. The same run again:")
        console.print(event.command, soft_wrap=True, markup=False)


def _shown(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value)
