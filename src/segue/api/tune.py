"""Search for fine-tuning settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Annotated, Any

from segue.api.configs import Settings, check_has_weights, overrides
from segue.api.errors import python_errors
from segue.api.progress import StatusLine
from segue.api.tables import TableLike, table_source
from segue.arguments import ModelPath, Number, Positive
from segue.data.tables import TableSettings
from segue.errors import ConfigError
from segue.tasks.table import task_kind
from segue.train.command import written
from segue.train.events import Request
from segue.train.finetune import finetune_settings
from segue.train.search_space import Dimension, search_space
from segue.train.tune import Search, SearchEnded, TrialEnded, TuneEvent, usual_space
from segue.train.tune import tune as events_of
from segue.train.tune_report import Trial


@dataclass(frozen=True, kw_only=True)
class Study:
    """A search and its results."""

    folder: Path
    trials: Sequence[Trial]
    best: Trial | None
    """Best trial; None if no trial has finished."""
    command: str | None
    """Command that repeats the best run."""
    stopped_by: Signals | None = None
    """Signal that stopped it, if any; the same call continues."""

    @property
    def model(self) -> Path | None:
        """Folder of the best model; the weights of other trials are deleted."""
        return None if self.best is None else self.folder / "trials" / f"{self.best.number:04d}" / "best"


@python_errors
def tune(
    model: ModelPath,
    train: TableLike,
    out: str | Path,
    *,
    task: str = "classify",
    valid: TableLike | None = None,
    columns: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    space: Mapping[str, str | Sequence[Any]] | Sequence[str] | None = None,
    trials: Positive = 20,
    hours: Annotated[float, Number(above=0)] | None = None,
    new_weights: bool = False,
    tables: TableSettings | None = None,
    progress: bool = True,
    on_event: Callable[[TuneEvent], object] | None = None,
) -> Study:
    """Search for the best settings over many fine-tuning runs. The same call continues an interrupted search.

    Args:
        model: A model folder, a run folder, a checkpoint of another library, or a name.
        train: Labelled examples, as for `finetune`.
        out: Study folder; an existing study is continued.
        task: The task, as for `finetune`.
        valid: Validation examples to select the best trial. Default: hold out a tenth of the
            training examples, of a small table up to a fifth.
        columns: Columns by role, where column names do not match.
        settings: Settings for all trials: {"train.epochs": 2}.
        space: Search space of ranges and lists: {"train.learning_rate": "1e-5..1e-3:log", "train.batch_size": [8, 16]}.
            Default: the learning rate and a few other important settings.
        trials: Total number of trials in the study, including earlier ones.
        hours: Hours after which no new trial begins. Default: no limit.
        new_weights: Whether to use only the shape and tokeniser of the model, with new weights.
        tables: Format of files. Default: inferred from their names.
        progress: Whether to show progress on standard error.
        on_event: Called with each event of `segue.train.tune`: `Began`, `Inside`, `TrialEnded`, `SearchEnded`.

    Returns:
        All trials, the best one, and the folder of its model.

    Raises:
        ConfigError: If Optuna is missing, or a setting is unknown.
        DataError: If the examples cannot be read or used.

    Examples:
        >>> rows = [{"text": f"room {n}", "label": ["bad", "good"][n % 2]} for n in range(40)]
        >>> study = segue.tune("model", rows, "study", trials=1, space={"train.learning_rate": [1e-3, 2e-3]},
        ...                    settings={"train.epochs": 1}, progress=False)
        >>> len(study.trials), study.model.name
        (1, 'best')
    """
    search = search_for(
        model,
        train,
        task=task,
        valid=valid,
        columns=columns,
        settings=settings,
        space=space,
        trials=trials,
        hours=hours,
        new_weights=new_weights,
        tables=tables,
    )
    return tuned(search, out, progress=progress, on_event=on_event)


def search_for(
    model: str | Path,
    train: TableLike,
    *,
    task: str,
    valid: TableLike | None,
    columns: Mapping[str, str] | None,
    settings: Settings | None,
    space: Mapping[str, str | Sequence[Any]] | Sequence[str] | None,
    trials: int,
    hours: float | None,
    new_weights: bool,
    tables: TableSettings | None,
) -> Search:
    """Return the search that `tune` runs."""
    if hours is not None and not 0 < hours < float("inf"):
        raise ConfigError(f"--hours must be above 0; got {hours:g}. Use 0.5, for example, or leave it out.")
    kind = task_kind(task)
    check_has_weights(str(model))
    fixed = overrides(settings)
    request = Request(
        model=str(model),
        kind=kind,
        train=table_source(train, name="train"),
        valid=None if valid is None else table_source(valid, name="valid"),
        columns=columns or {},
        tables=tables or TableSettings(),
        settings=finetune_settings(kind, {}, fixed),
        new_weights=new_weights,
    )
    if space is not None and not isinstance(space, Mapping):
        expressions = list(space)
    else:
        expressions = [f"{key}={_range(values)}" for key, values in (space or {}).items()]
    return Search(request=request, space=dimensions(request, expressions, fixed), trials=trials, hours=hours)


def dimensions(request: Request, expressions: Sequence[str], fixed: Sequence[str]) -> tuple[Dimension, ...]:
    """Return the search space of expressions in the form of the command line; a standard one by default."""
    if expressions:
        return tuple(search_space(list(expressions), kind=request.kind, fixed=list(fixed)))
    return tuple(usual_space(request, {one.partition("=")[0].strip(): one for one in fixed}))


def tuned(
    search: Search,
    out: str | Path,
    *,
    progress: bool = True,
    on_event: Callable[[TuneEvent], object] | None = None,
) -> Study:
    """Run a search that is already defined."""
    line = StatusLine(show=progress)
    ended: SearchEnded | None = None
    for event in events_of(search, Path(out)):
        if isinstance(event, TrialEnded):
            value = "" if event.trial.value is None else f" {event.trial.value:.4f}"
            best = ", the best so far" if event.best else ""
            line.say(f"tune: trial {event.trial.number}: {event.trial.state}{value}{best}")
        if on_event is not None:
            on_event(event)
        ended = event if isinstance(event, SearchEnded) else ended
    assert ended is not None
    return Study(
        folder=Path(out),
        trials=ended.trials,
        best=ended.best,
        command=ended.command,
        stopped_by=ended.stopped_by,
    )


def _range(values: str | Sequence[Any]) -> str:
    return values if isinstance(values, str) else ",".join(written(value) for value in values)
