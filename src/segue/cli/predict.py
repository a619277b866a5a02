"""`segue predict`: a table in, the same rows with their answers out, in order, in constant memory."""

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

from rich.console import Console

from segue.cli.finetune import chosen_columns
from segue.cli.paragraphs import moving_line
from segue.cli.rows import check_regular
from segue.data.tables import TableSettings, open_table
from segue.errors import DataError
from segue.tasks.examples import column_names
from segue.tasks.folder import load_task_model
from segue.tasks.predict import answer_rows

Format = Literal["csv", "tsv", "jsonl"]


def run_prediction(
    model: Path,
    source: str,
    *,
    out: Path | None,
    to: Format | None,
    columns: list[str],
    tables: TableSettings,
    batch_size: int,
) -> None:
    """Writes a row for each row of the table."""
    made = load_task_model(model)
    table = open_table(source, tables)
    names = column_names(made.kind, table, chosen_columns(columns), labelled=False)
    kept: list[dict[str, Any]] = []

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in table:
            kept.append(row)
            yield number, {role: row.get(name) for role, name in names.items()}

    written = problems = 0
    console = Console(stderr=True, highlight=False)
    with (
        _opened(out) as file,
        moving_line(console) as progress,
    ):
        bar = progress.add_task("", total=None, line="")
        writer = _Writer(file, to or _format_of(out), list(table.columns))
        for answered in answer_rows(made, rows(), batch_size=batch_size):
            row = kept.pop(0)
            found = {} if answered.prediction is None else dict(answered.prediction.columns)
            writer.write(row, found, answered.problem)
            problems += answered.problem is not None
            written += 1
            if written % 100 == 0:
                progress.update(bar, line=f"{written:,} rows")
        writer.close()
        progress.remove_task(bar)
    if problems:
        console.print(f"{problems:,} of {written:,} rows have no answer; their column `problem` says why.")
    if out is not None:
        console.print(f"{written:,} rows in {out}.")


class _Writer:
    """Rows with answers in one of the formats. The columns of a table are those of its first answered row."""

    def __init__(self, file: TextIO, to: Format, columns: list[str]) -> None:
        self.file, self.to, self.columns = file, to, columns
        self.table: Any = None
        self.names: list[str] = []
        self.waiting: list[tuple[Mapping[str, Any], str | None]] = []

    def write(self, row: Mapping[str, Any], found: Mapping[str, Any], problem: str | None) -> None:
        if self.to == "jsonl":
            values = {**row, **_apart(found, row)} | ({"problem": problem} if problem else {})
            self.file.write(json.dumps(values, ensure_ascii=False, default=str) + "\n")
            return
        if self.table is None:
            if problem is not None:  # which columns an answer has is not known yet
                self.waiting.append((row, problem))
                return
            self._begin(row, found)
        self._line(row, found, problem)

    def close(self) -> None:
        """Rows without any answer at all."""
        if self.waiting:
            self._begin({}, {})

    def _begin(self, row: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        self.names = [*self.columns, *_apart(found, row), "problem"]
        self.table = csv.writer(
            self.file,
            delimiter="\t" if self.to == "tsv" else ",",
            lineterminator="\n",
        )
        self.table.writerow(self.names)
        for earlier, problem in self.waiting:
            self._line(earlier, {}, problem)
        self.waiting = []

    def _line(self, row: Mapping[str, Any], found: Mapping[str, Any], problem: str | None) -> None:
        values = {**row, **_apart(found, row), "problem": problem or ""}
        self.table.writerow([_cell(values.get(name)) for name in self.names])


def _apart(found: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of an answer, renamed where the table has one of that name already."""
    return {f"{name} (segue)" if name in row else name: value for name, value in found.items()}


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)


def _format_of(out: Path | None) -> Format:
    match "" if out is None else out.suffix:
        case ".csv":
            return "csv"
        case ".tsv":
            return "tsv"
        case _:
            return "jsonl"


@contextmanager
def _opened(out: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears when it is whole."""
    if out is None:
        yield sys.stdout
        return
    check_regular(out)
    part = out.with_name(f".{out.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise DataError(f"{out} must be a file that can be written; got {error.strerror or error}.") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    part.replace(out)
