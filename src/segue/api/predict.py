"""Predictions of fine-tuned models."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shutil import copytree
from typing import Annotated, Any, NamedTuple, TypeAlias

from segue.api.errors import python_errors
from segue.api.progress import Progress, Tell, progress_callback, streamed
from segue.api.tables import TableLike, memory_table, rows_of
from segue.api.texts import texts_of
from segue.arguments import Described, ModelPath, Positive
from segue.checkpoint.find import find, model_folder
from segue.data.inputs import COMPRESSIONS
from segue.data.tables import ENDINGS, Record, TableSettings, Unread, open_table
from segue.data.tables import Table as Table
from segue.errors import ConfigError, DataError
from segue.files import check_folder
from segue.tasks.examples import column_names
from segue.tasks.folder import TaskModel, load_task_model
from segue.tasks.predict import answer_rows
from segue.tasks.task import TaskKind

PROBLEM = "problem"


@dataclass(frozen=True, kw_only=True)
class FinetunedModel:
    """A fine-tuned model in a folder. Its weights are loaded on first use and kept."""

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
        """Predict every row, as `segue.predict` does."""
        return predict(self, rows, columns=columns, batch_size=batch_size, progress=progress, on_event=on_event)

    @python_errors
    def save(self, out: str | Path) -> Path:
        """Copy the model folder to a new path."""
        check_folder(Path(out), kind="model", replace=False)
        return Path(copytree(self.folder, out))


FinetunedLike: TypeAlias = Annotated[
    str | Path | FinetunedModel | TaskModel,
    Described(
        what="a fine-tuned model: a path, a name, or the result of finetune or load_finetuned",
        remedy='Use "sentiment-en" or segue.load_finetuned("run"), for example.',
    ),
]
"""A fine-tuned model, as functions accept it."""


@python_errors
def load_finetuned(model: ModelPath) -> FinetunedModel:
    """Load a fine-tuned model for repeated use.

    Args:
        model: The run folder of `finetune`, the model folder in it, or a converted classifier of another library.

    Returns:
        The model; call its `predict` on rows.

    Raises:
        CheckpointError: If the folder holds no fine-tuned model.

    Examples:
        >>> model = segue.load_finetuned("sentiment")
        >>> model.predict("The room was clean.", progress=False)[0]["prediction"]
        'good'
    """
    made = load_task_model(model)
    found = FinetunedModel(folder=model_folder(find(model)), task=made.kind.name)
    found.__dict__["task_model"] = made  # where `cached_property` stores it
    return found


@python_errors
def predict(
    model: FinetunedLike,
    rows: TableLike,
    *,
    columns: Mapping[str, str] | None = None,
    batch_size: Positive = 32,
    tables: TableSettings | None = None,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> list[dict[str, Any]]:
    """Run a fine-tuned model on rows.

    Args:
        model: The result of `finetune` or `load_finetuned`, or a folder.
        rows: A text, a list of texts, a list of dicts, a dict of columns, a pandas or polars DataFrame, an Arrow table,
            or a file (`Path`).
        columns: Columns by role, where column names do not match: {"text": "review"}.
        batch_size: Number of rows per batch. Affects only speed.
        tables: Format of a file, e.g. `segue.TableSettings(encoding="gb18030", delimiter=";")`. Default: inferred from
            its name.
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        One dict per row, in order: {"prediction": ..., "probability": ..., ...}, depending on the task. A row that
        cannot be answered gives {"problem": reason}.

    Raises:
        CheckpointError: If the folder holds no fine-tuned model.
        DataError: If the rows lack a column that the task requires.

    Examples:
        >>> answers = segue.predict("sentiment", ["The room was clean.", "A dull film."], progress=False)
        >>> [answer["prediction"] for answer in answers]
        ['good', 'bad']
    """
    found = predict_each(
        model, rows, columns=columns, batch_size=batch_size, tables=tables, progress=progress, on_event=on_event
    )
    return [dict(one.answer) if one.problem is None else {PROBLEM: one.problem} for one in found]


class Prediction(NamedTuple):
    """A row and its prediction."""

    row: Mapping[str, Any]
    """The row as in the table."""
    answer: Mapping[str, Any]
    """{"prediction": ..., "probability": ..., ...}, depending on the task; empty if there is none."""
    problem: str | None
    """Reason why there is no answer; None if there is one."""


@dataclass(frozen=True, kw_only=True)
class PredictionStream:
    """A single-pass iterator over rows with their predictions, in order, as they are computed."""

    rows: Iterator[Prediction]
    table: Table
    """The rows as a table: its columns, and the `problems` met in it so far."""

    def __iter__(self) -> Iterator[Prediction]:
        return self.rows


@python_errors
def predict_each(
    model: FinetunedLike,
    rows: TableLike,
    *,
    columns: Mapping[str, str] | None = None,
    batch_size: Positive = 32,
    tables: TableSettings | None = None,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> PredictionStream:
    """Run a fine-tuned model on rows, one at a time in constant memory, and return each row with its prediction.

    Args:
        model: The result of `finetune` or `load_finetuned`, or a folder.
        rows: A text, several texts, rows, a table, or a file (`Path`), as for `predict`.
        columns: Columns by role, where column names do not match: {"text": "review"}.
        batch_size: Number of rows per batch. Affects only speed.
        tables: Format of a file. Default: inferred from its name.
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        A single-pass iterator of predictions, each with `row`, `answer` and `problem`.

    Raises:
        CheckpointError: If the folder holds no fine-tuned model.
        DataError: If the rows lack a column that the task requires.

    Examples:
        >>> rows = [{"id": 7, "text": "A dull film."}]
        >>> for one in segue.predict_each("sentiment", rows, progress=False):
        ...     print(one.row["id"], one.answer["prediction"])
        7 bad
    """
    made = task_model_of(model)
    table = prediction_table(made.kind, rows, tables or TableSettings())
    held = ExitStack()
    tell = held.enter_context(progress_callback("predict", unit="rows", progress=progress, on_event=on_event))
    names = column_names(made.kind, table, columns or {}, labelled=False)
    found = _answers(made, table, names, batch_size=batch_size, tell=tell)
    return PredictionStream(rows=streamed(found, held), table=table)


def task_model_of(model: FinetunedLike) -> TaskModel:
    """Return the task model, from any accepted form of a fine-tuned model."""
    if isinstance(model, FinetunedModel):
        return model.task_model
    return model if isinstance(model, TaskModel) else load_task_model(model)


def prediction_table(kind: TaskKind, rows: TableLike, settings: TableSettings) -> Table:
    """Return the rows as a table. Plain texts fill the one column that the task reads."""
    if isinstance(rows, Table):
        return rows
    if isinstance(rows, Path):
        return table_file(str(rows), settings)
    if isinstance(rows, str):
        _check_no_file(rows)
    several = [rows] if isinstance(rows, str) else rows
    if isinstance(several, Iterable) and not isinstance(several, Mapping) and not hasattr(several, "columns"):
        several = list(several.to_pylist() if hasattr(several, "to_pylist") else several)
        if any(isinstance(one, str) for one in several):
            several = [{only_column(kind): text} for text in texts_of(several)]
    return memory_table(rows_of(several, name="rows"), name="rows")


def is_table_name(text: str) -> bool:
    """Return True for a text with the extension of a table, compressed or not."""
    return Path(text).suffix.lower() in (*ENDINGS, *COMPRESSIONS)


def _check_no_file(text: str) -> None:
    """Raise DataError for the name of a table that is given as a text: a single word with the extension of one."""
    if not is_table_name(text) or len(text.split()) != 1:
        return
    if os.path.exists(text):
        raise DataError(f"rows must be texts or a table; got a str that names the file {text}. Use Path({text!r}).")
    raise DataError(f"{text} must exist; got no such file. Check the path; to predict it as a text, use [{text!r}].")


def only_column(kind: TaskKind) -> str:
    roles = _TEXT_ROLES.get(kind.name, ())
    if len(roles) != 1:
        names = ", ".join(column.role for column in kind.columns if not column.answer)
        raise DataError(
            f"rows for the task {kind.name} must have columns ({names}); got plain texts. Use a list of dicts."
        )
    return roles[0]


_TEXT_ROLES = {
    "classify": ("text",),
    "pair": ("first", "second"),
    "tag": ("text",),
    "answer": ("context", "question"),
    "similarity": ("first", "second"),
    "generate": ("source",),
}


def text_rows(model: FinetunedLike, texts: Sequence[str]) -> Table:
    """Return texts as rows: each fills the next column that the task reads, so that two texts make a row for a task
    with two."""
    made = task_model_of(model)
    name = made.kind.name
    roles = tuple(made.task.to_values()["roles"]) if name == "regress" else _TEXT_ROLES.get(name, ())
    if not roles:
        raise ConfigError(
            f"a model for the task {name} needs a table; got plain texts. Give a file, or - for standard input."
        )
    if len(texts) % len(roles):
        raise ConfigError(
            f"texts for the task {name} must come {len(roles)} for each row, {' then '.join(roles)}; got {len(texts)}. "
            "Add the others, or give a table."
        )
    columns = tuple(next(c for c in made.kind.columns if c.role == role).names[0] for role in roles)
    rows = [
        dict(zip(columns, texts[begin : begin + len(roles)], strict=True)) for begin in range(0, len(texts), len(roles))
    ]
    return memory_table(rows, name="the texts")


def table_file(source: str, settings: TableSettings) -> Table:
    """Return a table by name: a file, - for standard input, or datasets:NAME. Unreadable rows are kept."""
    return open_table(source, replace(settings, every_row=True))


def _answers(
    made: TaskModel, table: Table, names: Mapping[str, str], *, batch_size: int, tell: Tell
) -> Iterator[Prediction]:
    """Yield the rows with their predictions. `names` are the columns by their roles."""
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
        yield Prediction(kept.pop(0), found, problem)
