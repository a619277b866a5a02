"""`segue predict`: a table or texts in, the same rows with their answers out, in order, in constant memory.

Every row comes back. One that cannot be read, or cannot be answered, has no answer; a column of its own says why.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from segue.checkpoint.find import path_of
from segue.cli.finetune import chosen_columns
from segue.cli.outputs import check_standard_output
from segue.cli.paragraphs import moving_line, say
from segue.cli.prediction_table import PROBLEM, PredictionFormat, PredictionWriter
from segue.data.inputs import COMPRESSIONS
from segue.data.problems import MEANING
from segue.data.tables import DATASETS, ENDINGS, STANDARD_INPUT, Record, Table, TableSettings, Unread, open_table
from segue.data.tables.reader import TableRows
from segue.errors import ConfigError
from segue.files import check_file, new_text_file
from segue.tasks.examples import column_names
from segue.tasks.folder import TaskModel, load_task_model
from segue.tasks.predict import answer_rows


def run_prediction(
    model: str,
    sources: Sequence[str],
    *,
    out: Path | None,
    replace_existing: bool,
    to: PredictionFormat | None,
    columns: list[str],
    tables: TableSettings,
    batch_size: int,
    escape_formulas: bool,
) -> None:
    """Writes a row for each row of the table, or for each text (`is_table` says which they are)."""
    from_table = is_table(sources)
    inputs: list[str | Path] = [path_of(model), *(sources if from_table else ())]
    if out is not None:
        check_file(out, replace=replace_existing, inputs=inputs)
    else:
        check_standard_output()
    made = load_task_model(model)
    table = open_table(sources[0], replace(tables, every_row=True)) if from_table else _text_table(sources, made)
    names = column_names(made.kind, table, chosen_columns(columns), labelled=False)
    kept: list[dict[str, Any]] = []

    def rows() -> Iterator[tuple[int, Record]]:
        for number, record in table.records():
            kept.append(record.cells if isinstance(record, Unread) else record)
            if isinstance(record, Unread):
                yield number, record
            else:
                yield number, {role: record.get(name) for role, name in names.items()}

    written = problems = 0
    first_problem = ""
    console = Console(stderr=True, highlight=False)
    with (
        _opened(out, replace=replace_existing, inputs=inputs) as file,
        moving_line(console) as progress,
    ):
        bar = progress.add_task("", total=None, line="")
        writer = PredictionWriter(file, to or _format_of(out), table.columns, escape_formulas=escape_formulas)
        for answered in answer_rows(made, rows(), batch_size=batch_size):
            found = {} if answered.prediction is None else dict(answered.prediction.columns)
            why = None if answered.problem is None else f"{table.unit} {answered.number}: {answered.problem}"
            problem = writer.write(kept.pop(0), found, why)
            if problem is not None:
                problems += 1
                first_problem = first_problem or problem
            written += 1
            if written % 100 == 0:
                progress.update(bar, line=f"{written:,} rows")
        writer.close()
        progress.remove_task(bar)
    if problems:
        text = f"{problems:,} of {written:,} rows have no answer; the column `{PROBLEM}` says why. The first: "
        say(console, text + first_problem, hang=2, style="yellow")
    _warn(console, table, writer)
    if out is not None:
        console.print(f"{written:,} rows in {out}.")


def is_table(sources: Sequence[str]) -> bool:
    """Whether this is a table rather than texts: one argument alone that is `-`, `datasets:NAME`, a path that exists,
    or a name that ends as those of tables do. A path among several arguments is an error, because it would be read as
    a text."""
    if len(sources) == 1:
        ending = Path(sources[0]).suffix.lower()
        return (
            sources[0] == STANDARD_INPUT
            or sources[0].startswith(DATASETS)
            or ending in (*ENDINGS, *COMPRESSIONS)
            or os.path.exists(sources[0])
        )
    for source in sources:
        if source == STANDARD_INPUT or os.path.isfile(source):
            raise ConfigError(
                f"several arguments are texts; got {source!r} among them, which is a table. Give it alone, or give the "
                "texts as rows on standard input."
            )
    return False


_TEXT_ROLES = {
    "classify": ("text",),
    "pair": ("first", "second"),
    "tag": ("text",),
    "answer": ("context", "question"),
    "generate": ("source",),
}


def _text_table(texts: Sequence[str], made: TaskModel) -> Table:
    """Texts as rows: each fills the next column that the task reads, so that two make a row where it reads two."""
    name = made.kind.name
    roles = tuple(made.task.to_values()["roles"]) if name == "regress" else _TEXT_ROLES.get(name, ())
    if not roles:
        raise ConfigError(f"a model for the task {name} must have a table; got texts alone. Give a file, or -.")
    if len(texts) % len(roles):
        raise ConfigError(
            f"texts for the task {name} must come {len(roles)} for each row, {' then '.join(roles)}; got {len(texts)}. "
            "Add the others, or give a table."
        )
    columns = tuple(next(c for c in made.kind.columns if c.role == role).names[0] for role in roles)
    rows = [
        (number, dict(zip(columns, texts[begin : begin + len(roles)], strict=True)))
        for number, begin in enumerate(range(0, len(texts), len(roles)), start=1)
    ]
    return Table("the texts", lambda _: TableRows(columns, "row", iter(rows)), once=False)


def _warn(console: Console, table: Table, writer: PredictionWriter) -> None:
    """What else is not as it was in the table."""
    problems = table.problems
    for kind, number in problems.counts.items():
        if kind != "malformed_records":  # they are among the rows without an answer
            say(console, f"{number:,} {MEANING[kind]}; first: {problems.first[kind]}", hang=2, style="yellow")
    if writer.escaped:
        text = (
            f"{writer.escaped:,} cells that begin like a formula of a spreadsheet got a ' in front; "
            "--no-escape-formulas leaves them as they are."
        )
        say(console, text, hang=2, style="yellow")
    for name, number in writer.left_out.items():
        text = (
            f"{number:,} rows have a field {name!r} that the first ones do not have; it is not written. Use --to jsonl."
        )
        say(console, text, hang=2, style="yellow")


def _format_of(out: Path | None) -> PredictionFormat:
    match "" if out is None else out.suffix:
        case ".csv":
            return "csv"
        case ".tsv":
            return "tsv"
        case _:
            return "jsonl"


@contextmanager
def _opened(out: Path | None, *, replace: bool, inputs: Iterable[str | Path]) -> Iterator[TextIO]:
    """Standard output, or a file that appears when it is whole."""
    if out is None:
        yield sys.stdout
        return
    with new_text_file(out, replace=replace, inputs=inputs) as file:
        yield file
