"""Fine-tuning: from a pretrained model and labelled examples to an evaluated model for a task."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from tempfile import TemporaryDirectory

from segue.api.configs import Settings, check_has_weights, overrides
from segue.api.errors import python_errors
from segue.api.predict import FinetunedModel
from segue.api.processes import is_first_process
from segue.api.progress import StatusLine, duration
from segue.api.tables import TableLike, table_source
from segue.arguments import ModelPath, Positive
from segue.data.tables import TableSettings
from segue.errors import ConfigError
from segue.evaluation.metrics.bootstrap import Metric
from segue.tasks.table import TASKS, task_kind
from segue.tasks.task import TaskKind
from segue.train.events import Compared, Ended, Event, Prepared, Request, Restarted, Updated, Validated
from segue.train.finetune import finetune as events_of
from segue.train.finetune import finetune_settings
from segue.train.report_classes import beside_rows as beside_rows
from segue.train.report_classes import no_better as no_better


@dataclass(frozen=True, kw_only=True)
class FinetuneResult(FinetunedModel):
    """A fine-tuned model, and its evaluation."""

    metrics: Mapping[str, Mapping[str, Metric]] = field(default_factory=dict)
    """Metrics by split ("valid", "test") and name: `result.metrics["valid"]["accuracy"].value`."""
    baselines: Mapping[str, Mapping[str, Mapping[str, Metric]]] = field(default_factory=dict)
    """Metrics of baselines, by name, for classification."""
    model_alone: Mapping[str, Mapping[str, Metric]] = field(default_factory=dict)
    """Metrics of the model alone, if it was combined with a TF-IDF (`wide`)."""
    run: Path
    """The run folder, with report.html and results.json."""
    reason: str
    """Reason why the run ended."""
    stopped_by: Signals | None = None
    """Signal that stopped the run; None if it finished."""
    temporary: TemporaryDirectory[str] | None = field(default=None, repr=False)
    """Temporary run folder if no `out` was given; deleted with the result."""


@python_errors
def finetune(
    model: ModelPath,
    train: TableLike,
    *,
    task: str = "classify",
    out: str | Path | None = None,
    valid: TableLike | None = None,
    test: TableLike | None = None,
    columns: Mapping[str, str] | None = None,
    settings: Settings | None = None,
    new_weights: bool = False,
    adapt: Positive | None = None,
    baselines: bool = True,
    wide: bool | None = None,
    tables: TableSettings | None = None,
    progress: bool = True,
    on_event: Callable[[Event], object] | None = None,
) -> FinetuneResult:
    """Fine-tune a model on a task, and evaluate it.

    Documents longer than a segment are read in full, with memory. Ctrl-C stops training and keeps the best model so
    far.

    Args:
        model: A model folder, a run folder, a checkpoint of another library, or a name.
        train: Labelled examples: a file (csv, tsv, json, jsonl, parquet, CoNLL, SQuAD), "datasets:NAME", a list of
            dicts, a dict of columns, a pandas or polars DataFrame, or an Arrow table.
        task: "classify", "pair", "tag", "answer", "regress", "choose", "rank",
            "similarity" or "generate".
        out: A new run folder. Default: a temporary one, deleted with the result; `save` keeps the model.
        valid: Validation examples. Default: hold out a tenth of the training examples, of a small table up to a fifth.
        test: Test examples, evaluated once at the end. Default: none.
        columns: Columns by role, where column names do not match: {"text": "review", "label": "stars"}.
        settings: Settings to change: {"train.epochs": 5, "read.max_length": 512}, or nested dicts.
        new_weights: Whether to use only the shape and tokeniser of the model, with new weights, to see the effect of
            pretraining.
        adapt: Number of epochs to pretrain on the training texts before fine-tuning. Default: none.
        baselines: Whether to measure the majority class and a tuned TF-IDF as baselines of a classifier.
        wide: Whether to combine the classifier with a TF-IDF, saved with it. Default: if the TF-IDF alone beats the
            classifier alone on 30 or more validation examples.
        tables: Format of files, e.g. `segue.TableSettings(encoding="gb18030", delimiter=";")`. Default: inferred from
            their names.
        progress: Whether to show progress on standard error.
        on_event: Called with each event of `segue.train.events`: `Prepared`, `Compared`, `Updated`, `Validated`,
            `Restarted`, `Unsaved`, `Ended`.

    Returns:
        The best model with its metrics; `result.predict(texts)` runs it.

    Raises:
        ConfigError: If the task or a setting is unknown, or the folder already holds a run.
        DataError: If the examples cannot be read or used.

    Examples:
        >>> rows = [{"text": f"room {n}", "label": ["bad", "good"][n % 2]} for n in range(40)]
        >>> result = segue.finetune("model", rows, settings={"train.epochs": 1}, progress=False)
        >>> 0 <= result.metrics["valid"]["accuracy"].value <= 1
        True
        >>> result.predict("room 7")[0]["prediction"] in ("bad", "good")
        True
    """
    check_has_weights(str(model))
    kind = task_kind(task)
    if train is None:
        raise ConfigError("fine-tuning needs training examples; got none. Give train=FILE, for example.")
    request = Request(
        model=str(model),
        kind=kind,
        train=table_source(train, name="train"),
        valid=None if valid is None else table_source(valid, name="valid"),
        test=None if test is None else table_source(test, name="test"),
        columns=columns or {},
        tables=tables or TableSettings(),
        settings=finetune_settings(kind, {}, overrides(settings)),
        new_weights=new_weights,
        adapt=adapt,
        baselines=baselines,
        wide=wide,
    )
    temporary = TemporaryDirectory(prefix="segue-finetune-") if out is None else None
    run = Path(temporary.name if temporary is not None else out or "")
    line = _Line(show=progress)
    ended: Ended | None = None
    compared: Compared | None = None
    try:
        for event in events_of(request, run):
            if is_first_process():
                line.show(event)
            if on_event is not None:
                on_event(event)
            compared = event if isinstance(event, Compared) else compared
            ended = event if isinstance(event, Ended) else ended
    finally:
        line.line.clear()
    if ended is None:  # a signal arrived during adaptation: the same call resumes it
        raise KeyboardInterrupt
    methods = [] if compared is None else compared.methods
    return FinetuneResult(
        folder=ended.place,
        task=request.kind.name,
        metrics={part.name: part.metrics for part in ended.judged},
        model_alone={part.name: part.metrics for part in ended.alone},
        baselines={method.name: method.metrics for method in methods},
        run=run,
        reason=ended.reason,
        stopped_by=ended.stopped_by,
        temporary=temporary,
    )


@python_errors
def task_kinds() -> Mapping[str, TaskKind]:
    """List the tasks of `finetune`.

    Returns:
        Tasks by name: their description (`help`), the columns they read (`columns`), and their `settings`.

    Examples:
        >>> [column.role for column in segue.task_kinds()["classify"].columns]
        ['text', 'label']
    """
    return TASKS


class _Line:
    """Shows a run as one status line, and a line for each validation."""

    def __init__(self, *, show: bool) -> None:
        self.line = StatusLine(show=show)
        self.steps = 0
        self.seconds = 0.0

    def show(self, event: Event) -> None:
        match event:
            case Prepared():
                self.steps = event.steps
                counts = ", ".join(f"{name} {count:,}" for name, count in event.counts.items() if count)
                self.line.say(f"finetune: examples {counts}; {event.parameters / 1e6:.2f} M parameters")
                for warning in event.warnings:
                    self.line.say(f"finetune: warning: {warning}")
            case Updated():
                self.seconds += event.seconds
                left = duration(self.seconds / event.step * (self.steps - event.step)) if event.step else ""
                self.line.update(f"finetune: step {event.step:,} of {self.steps:,}, loss {event.loss:.4f}, {left} left")
            case Validated():
                shown = ", ".join(f"{name} {one.value:.4f}" for name, one in event.metrics.items() if "/" not in name)
                self.line.say(f"finetune: step {event.step:,}: {shown}{', the best so far' if event.best else ''}")
            case Restarted():
                self.line.say(f"finetune: step {event.step:,}: collapsed ({event.reason}); starting again")
            case Ended():
                self.line.say(f"finetune: {event.reason}; {duration(event.seconds)}")
