"""Streaming output of rows to a file or to standard output: JSON lines, csv, tsv, Parquet. Files are written
atomically.

In: rows with the same columns each, and the types of these columns; their content is left to the commands.
"""

import csv
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Literal, Protocol, get_args

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from segue.api.progress import Progress as ReadingProgress
from segue.api.texts import TextFiles
from segue.cli.console import moving_line, say
from segue.cli.reporting import LINE_EVERY
from segue.data.problems import MEANING
from segue.errors import ConfigError, DataError
from segue.files import new_file

RowFormat = Literal["jsonl", "csv", "tsv", "parquet"]
Kind = Literal["text", "int64", "float64", "vector"]
_GROUP = 4096  # maximum number of rows in a Parquet row group
_GROUP_NUMBERS = 2**22  # maximum number of vector components in a row group


class RowWriter(Protocol):
    """Writer of rows, in order."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Write the next row."""

    def close(self) -> None:
        """Finish the output, after the last row."""


def row_format(out: Path | None, to: RowFormat | None) -> RowFormat:
    """Return the output format: as given, or by the file name; JSON lines for standard output."""
    found = to or ("jsonl" if out is None else out.suffix.removeprefix(".").lower())
    if found not in get_args(RowFormat):
        raise ConfigError(
            f"{out} must end in .jsonl, .csv, .tsv or .parquet; got {out.suffix if out else ''!r}. Rename it, or give "
            "the format: --to jsonl."
        )
    if found == "parquet" and out is None:
        raise ConfigError("parquet must go to a file; got standard output. Give --out FILE.parquet.")
    return found  # type: ignore[return-value]  # it is one of them


def row_writer(file: BinaryIO, to: RowFormat, columns: Mapping[str, Kind], *, width: int | None = None) -> RowWriter:
    """Return a writer to an open file. `width` is the length of vectors."""
    if to == "parquet":
        return _Parquet(file, columns, width=width)
    return _Lines(file) if to == "jsonl" else _Delimited(file, columns, "," if to == "csv" else "\t")


class _Lines:
    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def write(self, row: Mapping[str, Any]) -> None:
        self.file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())

    def close(self) -> None:
        self.file.flush()


class _Delimited:
    def __init__(self, file: BinaryIO, columns: Mapping[str, Kind], delimiter: str) -> None:
        self.file, self.columns = file, columns
        self.table = csv.writer(self, delimiter=delimiter, lineterminator="\n")
        self.table.writerow(columns)

    def write(self, row: Mapping[str, Any] | str) -> None:
        """Write a row; or, for the csv writer, the text of one."""
        if isinstance(row, str):
            self.file.write(row.encode())
        else:
            self.table.writerow(["" if row[name] is None else row[name] for name in self.columns])

    def close(self) -> None:
        self.file.flush()


class _Sink:
    """A file for pyarrow, whose writer ends its table when it is garbage-collected: if an error closed the file before,
    that output is discarded."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def write(self, data: bytes) -> int:
        return len(data) if self.file.closed else self.file.write(data)

    def flush(self) -> None:
        if not self.file.closed:
            self.file.flush()


class _Parquet:
    """Writer of Parquet row groups."""

    def __init__(self, file: BinaryIO, columns: Mapping[str, Kind], *, width: int | None) -> None:
        self.arrow = pyarrow()
        types = {"text": self.arrow.string(), "int64": self.arrow.int64(), "float64": self.arrow.float64()}
        if width is not None:
            types["vector"] = self.arrow.list_(self.arrow.float32(), width)
        self.schema = self.arrow.schema([(name, types[kind]) for name, kind in columns.items()])
        self.writer = import_module("pyarrow.parquet").ParquetWriter(_Sink(file), self.schema)
        self.size = _GROUP if width is None else max(1, min(_GROUP, _GROUP_NUMBERS // width))
        self.rows: list[Mapping[str, Any]] = []

    def write(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
        if len(self.rows) >= self.size:
            self._flush()

    def close(self) -> None:
        if self.rows:
            self._flush()
        self.writer.close()

    def _flush(self) -> None:
        self.writer.write_table(self.arrow.Table.from_pylist(self.rows, schema=self.schema))
        self.rows = []


def pyarrow() -> Any:
    """Return the pyarrow module; raise an error that says how to install it."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise DataError(
            "writing parquet needs pyarrow; it is not installed. Install it: pip install pyarrow."
        ) from None


def check_regular(out: Path) -> None:
    """Raise DataError for a device or a pipe, which renaming a finished file would remove."""
    if os.path.exists(out) and not os.path.isfile(out):
        raise DataError(f"{out} must be a file to write; got a folder, a device or a pipe. Choose another name.")


def check_standard_output() -> None:
    """Raise ConfigError for a closed standard output (`>&-`), where rows would be lost. A substitute stands in for it,
    so that messages do no harm (`segue.cli`)."""
    if getattr(sys.stdout, "name", None) == os.devnull:
        raise ConfigError("rows must go to a file or to standard output; standard output is closed. Give --out FILE.")


@contextmanager
def written(out: Path | None, *, replace: bool, inputs: Iterable[str | Path]) -> Iterator[BinaryIO]:
    """Yield standard output, or a file that is written atomically."""
    if out is None:
        check_standard_output()
        yield sys.stdout.buffer
        return
    with new_file(out, replace=replace, inputs=inputs) as file:
        yield file


class Meter:
    """Progress and speed of reading: a status line in a terminal, elsewhere a line every few seconds."""

    def __init__(self, progress: Progress, files: TextFiles) -> None:
        self.progress, self.files = progress, files
        self.bar = progress.add_task("", total=files.bytes_total, line="")
        self.started = self.said = time.perf_counter()
        self.tokens = 0

    def show(self, event: ReadingProgress) -> None:
        """Show an event of `score_each` or `embed_each`."""
        self.tokens = event.done
        now = time.perf_counter()
        line = f"{self.tokens:,} tokens, {self.tokens / max(1e-9, now - self.started):,.0f} tokens/s"
        self.progress.update(self.bar, completed=self.files.bytes_read, line=line)
        if not self.progress.console.is_terminal and now - self.said >= LINE_EVERY:
            self.said = now
            total = self.files.bytes_total
            share = f"{min(1.0, self.files.bytes_read / total):.0%}, " if total else ""
            self.progress.console.print(f"{share}{line}", soft_wrap=True)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started


@contextmanager
def metered(console: Console, files: TextFiles) -> Iterator[Meter]:
    """Show a Meter during the work."""
    with moving_line(console) as progress:
        yield Meter(progress, files)


def summarise(console: Console, files: TextFiles, values: Mapping[str, str]) -> None:
    """Print names and values below each other, then problems of the text."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in values.items():
        table.add_row(name, value)
    console.print(table)
    warn(console, files)


def warn(console: Console, files: TextFiles) -> None:
    """Print problems found in the text, and how they were corrected."""
    for kind, number in files.problems.counts.items():
        if kind != "cut_lines":  # long lines are joined again
            say(console, f"{number:,} {MEANING[kind]}; first: {files.problems.first[kind]}", hang=2, style="yellow")
