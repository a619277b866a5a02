"""Answers of fine-tuned models."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shutil import copytree
from typing import Any

from segue.api.errors import python_errors
from segue.api.progress import Progress, Tell, told
from segue.api.tables import TableLike, memory_table, rows_of
from segue.checkpoint.find import find, model_folder
from segue.data.tables import Record, Table, TableSettings, Unread, open_table
from segue.errors import DataError
from segue.files import check_folder
from segue.tasks.examples import column_names
from segue.tasks.folder import TaskModel, load_task_model
from segue.tasks.predict import answer_rows
from segue.tasks.task import TaskKind

PROBLEM = "problem"


@dataclass(frozen=True, kw_only=True)
class FinetunedModel:
    """A fine-tuned model in a folder; its weights are loaded when they are first used, and then stay."""

    folder: Path
    task: str

    @cached_property
    def task_model(self) -> TaskModel:
        """The module, the tokeniser and the task."""
        return load_task_model(self.folder)

    def predict(
        self,
        rows: TableLike,
        *,
        columns: Mapping[str, str] | None = None,
        batch_size: int = 32,
        progress: bool = True,
        on_event: Callable[[Progress], object] | None = None,
    ) -> list[dict[str, Any]]:
        """Answer every row, as `segue.predict` does."""
        return predict(self, rows, columns=columns, batch_size=batch_size, progress=progress, on_event=on_event)

    def save(self, out: str | Path) -> Path:
        """Copy the model folder to a new place."""
        check_folder(Path(out), kind="model", replace=False)
        return Path(copytree(self.folder, out))


@python_errors
def load_finetuned(model: str | Path) -> FinetunedModel:
    """Load a fine-tuned model, to use it often.

    Args:
        model: The run folder of `finetune`, the model folder in it, or a converted classifier of another library.

    Returns:
        The model; its `predict` answers rows.

    Raises:
        CheckpointError: If there is no fine-tuned model.

    Examples:
        >>> model = segue.load_finetuned("sentiment")
        >>> model.predict("The room was clean.", progress=False)[0]["prediction"]
        'good'
    """
    made = load_task_model(model)
    found = FinetunedModel(folder=model_folder(find(model)), task=made.kind.name)
    found.__dict__["task_model"] = made  # where `cached_property` keeps it
    return found


@python_errors
def predict(
    model: str | Path | FinetunedModel | TaskModel,
    rows: TableLike,
    *,
    columns: Mapping[str, str] | None = None,
    batch_size: int = 32,
    tables: TableSettings | None = None,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> list[dict[str, Any]]:
    """Answer rows with a fine-tuned model.

    Args:
        model: What `finetune` or `load_finetuned` returned, or a folder.
        rows: A text, a list of texts, a list of dicts, a dict of columns, a pandas or polars DataFrame, an Arrow table,
            or a file (`Path`).
        columns: Columns by their roles, where their names do not say them: {"text": "review"}.
        batch_size: Rows that are read together. It changes the speed only.
        tables: How a file is written: `segue.TableSettings(encoding="gb18030", delimiter=";")`, say. Default: as its
            name says.
        progress: Whether progress is shown on standard error.
        on_event: Called with a `Progress` as the work goes on.

    Returns:
        A dict for each row, in order: {"prediction": ..., "probability": ..., ...}, as the task has it. A row that
        cannot be answered has {"problem": why}.

    Raises:
        CheckpointError: If there is no fine-tuned model.
        DataError: If the rows lack a column that the task needs.

    Examples:
        >>> answers = segue.predict("sentiment", ["The room was clean.", "A dull film."], progress=False)
        >>> [answer["prediction"] for answer in answers]
        ['good', 'bad']
    """
    made = task_model_of(model)
    table = prediction_table(made.kind, rows, tables or TableSettings())
    with told("predict", unit="rows", progress=progress, on_event=on_event) as tell:
        found = answers(made, table, columns or {}, batch_size=batch_size, tell=tell)
        return [answer if problem is None else {PROBLEM: problem} for _, answer, problem in found]


def task_model_of(model: str | Path | FinetunedModel | TaskModel) -> TaskModel:
    """The model itself, from anything that it may be given as."""
    if isinstance(model, FinetunedModel):
        return model.task_model
    return model if isinstance(model, TaskModel) else load_task_model(model)


def prediction_table(kind: TaskKind, rows: TableLike, settings: TableSettings) -> Table:
    """The rows as a table. Texts alone go into the one column that the task reads."""
    if isinstance(rows, Table):
        return rows
    if isinstance(rows, Path):
        return open_table(rows, replace(settings, every_row=True))
    several = [rows] if isinstance(rows, str) else rows
    if isinstance(several, Iterable) and not isinstance(several, Mapping) and not hasattr(several, "columns"):
        several = list(several.to_pylist() if hasattr(several, "to_pylist") else several)
        if several and all(isinstance(one, str) for one in several):
            several = [{only_column(kind): text} for text in several]
    return memory_table(rows_of(several, name="rows"), name="rows")


def only_column(kind: TaskKind) -> str:
    needed = [column for column in kind.columns if not column.answer and not column.optional]
    if len(needed) != 1:
        names = ", ".join(column.role for column in kind.columns if not column.answer)
        raise DataError(
            f"rows for the task {kind.name} must have columns ({names}); got texts alone. Use a list of dicts."
        )
    return needed[0].role


def answers(
    made: TaskModel, table: Table, columns: Mapping[str, str], *, batch_size: int, tell: Tell
) -> Iterator[tuple[dict[str, Any], dict[str, Any], str | None]]:
    """Each row as the table has it, its answer, and why there is none, in order, in constant memory."""
    names = column_names(made.kind, table, columns, labelled=False)
    kept: list[dict[str, Any]] = []

    def rows() -> Iterator[tuple[int, Record]]:
        for number, record in table.records():
            kept.append(record.cells if isinstance(record, Unread) else record)
            if isinstance(record, Unread):
                yield number, record
            else:
                yield number, {role: record.get(name) for role, name in names.items()}

    for done, answered in enumerate(answer_rows(made, rows(), batch_size=batch_size), start=1):
        found = {} if answered.prediction is None else dict(answered.prediction.columns)
        problem = None if answered.problem is None else f"{table.unit} {answered.number}: {answered.problem}"
        tell(done, None)
        yield kept.pop(0), found, problem
