"""`segue predict`: a table in, the same rows with their answers out, in order, in constant memory.

Every row comes back. One that cannot be read, or cannot be answered, has no answer; a column of its own says why.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from segue.checkpoint.folder import model_of_run
from segue.cli.finetune import chosen_columns
from segue.cli.paragraphs import moving_line, say
from segue.cli.prediction_table import PROBLEM, PredictionFormat, PredictionWriter
from segue.data.problems import MEANING
from segue.data.tables import Record, Table, TableSettings, Unread, open_table
from segue.files import check_file, new_text_file
from segue.tasks.examples import column_names
from segue.tasks.folder import load_task_model
from segue.tasks.predict import answer_rows


def run_prediction(
    model: Path,
    source: str,
    *,
    out: Path | None,
    replace_existing: bool,
    to: PredictionFormat | None,
    columns: list[str],
    tables: TableSettings,
    batch_size: int,
    escape_formulas: bool,
) -> None:
    """Writes a row for each row of the table."""
    inputs: list[str | Path] = [model_of_run(model), source]
    if out is not None:
        check_file(out, replace=replace_existing, inputs=inputs)
    made = load_task_model(model)
    table = open_table(source, replace(tables, every_row=True))
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
