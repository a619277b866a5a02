"""Metrics of a fine-tuned model on labelled examples."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segue.api.errors import python_errors
from segue.api.predict import FinetunedLike, prediction_table, task_model_of
from segue.api.progress import Progress, progress_callback
from segue.api.tables import TableLike
from segue.arguments import Positive, check_path
from segue.data.tables import Table, TableSettings, open_table
from segue.evaluation.metrics.bootstrap import Metric
from segue.tasks.examples import NumberedRow, column_names, gathered, rows_with_roles, understand
from segue.tasks.predict import answers_in_order
from segue.tasks.task import TaskKind


@dataclass(frozen=True, kw_only=True)
class TaskEvaluation:
    """Metrics of a fine-tuned model on labelled examples."""

    task: str
    examples: int
    """Number of examples that the model was evaluated on."""
    metrics: Mapping[str, Metric]
    """Metrics with confidence intervals: `metrics["accuracy"].value`, `.low`, `.high`."""
    notes: Sequence[str] = ()
    """Rows that were left out, and what was corrected in the table."""


@python_errors
def evaluate_task(
    model: FinetunedLike,
    data: TableLike,
    *,
    columns: Mapping[str, str] | None = None,
    tables: TableSettings | None = None,
    batch_size: Positive = 32,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> TaskEvaluation:
    """Evaluate a fine-tuned model on labelled examples, by the metrics of its task.

    Args:
        model: The result of `finetune` or `load_finetuned`, a folder, or a name.
        data: Labelled examples, as for `finetune`: a file, a list of dicts, a dict of columns, a pandas or polars
            DataFrame, or an Arrow table.
        columns: Columns by role, where column names do not match: {"text": "review", "label": "stars"}.
        tables: Format of a file. Default: inferred from its name.
        batch_size: Number of rows per batch. Affects only speed.
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        The `metrics` by name, each with its confidence interval, and the number of `examples`.

    Raises:
        CheckpointError: If the folder holds no fine-tuned model.
        DataError: If the examples cannot be read or used.

    Examples:
        >>> rows = [{"text": "The room was clean.", "label": "good"}, {"text": "A dull film.", "label": "bad"}]
        >>> found = segue.evaluate_task("sentiment", rows, progress=False)
        >>> found.task, found.examples, found.metrics["accuracy"].value
        ('classify', 2, 1.0)
    """
    made = task_model_of(model)
    table, rows = labelled_rows(made.kind, data, columns or {}, tables or TableSettings())
    found = understand(made.task, table, rows, labelled=True)
    with progress_callback("evaluate", unit="rows", progress=progress, on_event=on_event) as tell:
        predictions = []
        for begin in range(0, len(found.examples), batch_size * _BATCHES):
            some = found.examples[begin : begin + batch_size * _BATCHES]
            predictions += answers_in_order(made, some, batch_size=batch_size)
            tell(len(predictions), len(found.examples))
    return TaskEvaluation(
        task=made.kind.name,
        examples=len(found.examples),
        metrics=made.task.measure(found.examples, predictions),
        notes=found.problems(),
    )


_BATCHES = 8
"""Number of batches between two reports of progress."""


def labelled_rows(
    kind: TaskKind, data: TableLike, columns: Mapping[str, str], tables: TableSettings
) -> tuple[Table, list[NumberedRow]]:
    """Return labelled examples as a table, and its rows by the roles of the task. A `str` is the name of a file."""
    if isinstance(data, str | Path):
        check_path("data", data)
        table = open_table(str(data), tables)
    else:
        table = prediction_table(kind, data, tables)
    return table, gathered(kind, rows_with_roles(table, column_names(kind, table, columns, labelled=True)))
