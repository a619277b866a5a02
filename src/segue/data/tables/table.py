"""Opening of tables: detects the format, reads the first rows, and yields all rows on each iteration."""

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

from segue.arguments import check_types
from segue.data.decode import CHUNK, Position, check_encoding, check_expansion, decoded, opened
from segue.data.inputs import COMPRESSIONS, InputFile
from segue.data.problems import Problems
from segue.data.tables.cells import read_delimited
from segue.data.tables.conll import read_conll
from segue.data.tables.datasets import DATASETS, dataset_rows, load_dataset
from segue.data.tables.json_rows import MOST_UNREAD, read_json, read_json_lines
from segue.data.tables.parquet import read_parquet
from segue.data.tables.reader import REST, Record, Row, TableReader, TableRows, Unit, Unread, peek
from segue.errors import DataError

TableFormat = Literal["csv", "tsv", "jsonl", "json", "squad", "parquet", "conll"]

ENDINGS: dict[str, TableFormat] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".conll": "conll",
    ".conllu": "conll",
    ".bio": "conll",
    ".iob": "conll",
}
FORMATS: tuple[TableFormat, ...] = ("csv", "tsv", "jsonl", "json", "squad", "parquet", "conll")
STANDARD_INPUT = "-"
AHEAD = 100  # objects of a JSON lines file whose fields are its columns; one for standard input, which may be slow


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """Format of a table."""

    format: TableFormat | None = None
    """File format. Default: inferred from the file name; for standard input from its first line: JSON lines if it
    begins with {, tsv if it has a tab or if one column is named, else csv."""
    encoding: str = "utf-8"
    """Encoding of text without a byte order mark."""
    columns: tuple[str, ...] | None = None
    """Column names of csv and tsv without a header (a first line that repeats these names is taken as the header), of
    conll, and of JSON rows that are lists. A last name ... skips further cells of csv and tsv."""
    delimiter: str | None = None
    """Delimiter of csv and tsv, one character. Default: comma and tab; none if one column is named without quoting, so
    that a text can be read line by line."""
    quoting: bool | None = None
    """Whether quoted cells may contain delimiters and line breaks. Default: yes in csv, where a quoted cell with lines
    that look like rows is an error; no in tsv (quotes in GLUE tables are plain text)."""
    malformed_share: float = 0.05
    """Maximum share of malformed rows, which are skipped and counted; more is an error."""
    every_row: bool = False
    """Whether to accept any number of malformed rows, for readers of `Table.records`, who must not lose a row;
    `malformed_share` is then ignored."""
    largest_expansion: int | None = None
    """Maximum ratio of decompressed to compressed size. Default: that of `segue.data.readers.ReadSettings`."""

    def __post_init__(self) -> None:
        check_types(self, but={"columns", "delimiter"})
        if self.format is not None and self.format not in FORMATS:
            raise DataError(
                f"the format of a table must be one of {', '.join(FORMATS)}; got {self.format!r:.80}. Use one of them."
            )
        check_encoding(self.encoding)
        check_expansion(self.largest_expansion)
        if not 0 <= self.malformed_share <= 1:
            raise DataError(f"malformed_share must be from 0 to 1; got {self.malformed_share}. Try 0.05.")
        if self.delimiter is not None and (
            not isinstance(self.delimiter, str) or len(self.delimiter) != 1 or self.delimiter in '"\r\n\0'
        ):
            raise DataError(
                f"the delimiter must be one character, no quote or line end; got {self.delimiter!r:.80}. Use ';', for "
                "example."
            )
        if self.columns is not None:
            wrong = not isinstance(self.columns, tuple | list)
            if wrong or not all(isinstance(name, str) for name in self.columns):
                raise DataError(f"columns must be names of columns; got {self.columns!r:.80}. Use a tuple of names.")
            names = self.columns[:-1] if self.columns[-1:] == (REST,) else self.columns
            if not names or len(set(names)) < len(names) or not all(name.strip() for name in names) or REST in names:
                got = ", ".join(map(repr, self.columns)) or "none"
                raise DataError(
                    f"columns must be different names, at least one; got {got}. Give each column its own name; {REST} "
                    "may only be the last."
                )


class Table:
    """A table of named rows that can be iterated repeatedly (standard input: once). Each row has every column."""

    def __init__(
        self, source: str, begin: Callable[[Problems], TableRows], *, once: bool, every_row: bool = False
    ) -> None:
        self.source = source
        """Name of the table in messages."""
        self.problems = Problems()
        """Problems found in the latest reading, so far."""
        self.columns: tuple[str, ...]
        self.unit: Unit
        """Unit of the row numbers: lines of the file, or rows, records or questions from 1."""
        self.columns, self.unit, rows = begin(self.problems)
        head: list[tuple[int, Record]] = []
        for number, record in rows:
            head.append((number, record))
            if not isinstance(record, Unread) or len(head) >= MOST_UNREAD or (every_row and self.columns):
                break
        found = bool(head) and (not isinstance(head[-1][1], Unread) or (every_row and bool(self.columns)))
        if not found:
            raise DataError(
                f"{source} must have rows; got {self._instead()}. Check how it was made; if its first line is data, "
                "name the columns with --columns."
            )
        self.once = once
        """Whether it can be read only once."""
        self._begin = begin
        self._begun = chain(head, rows) if once else None

    def __str__(self) -> str:
        return self.source

    def _instead(self) -> str:
        bad = self.problems.counts.get("malformed_records", 0)
        if bad:
            return f"{bad} malformed ones only, the first: {self.problems.first['malformed_records']}"
        return f"only the names of columns ({', '.join(self.columns)[:200]})" if self.columns else "nothing"

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        """Yield the number of each row, for messages (see `place`), and the row; unreadable ones are left out."""
        for number, record in self.records():
            if not isinstance(record, Unread):
                yield number, record

    def records(self) -> Iterator[tuple[int, Record]]:
        """Yield the same with an Unread in place of each unreadable row, blank lines included."""
        if self.once:
            if self._begun is None:
                raise DataError(f"{self.source} can be read only once. Save it to a file, and name that.")
            rows, self._begun = self._begun, None
            yield from rows
        else:
            self.problems = Problems()
            yield from self._begin(self.problems).rows

    def place(self, number: int) -> str:
        """Return the location of a row for messages: the file and the line."""
        return f"{self.source}, {self.unit} {number}"


def open_table(
    source: str | Path | Table,
    settings: TableSettings = TableSettings(),  # noqa: B008  (it is frozen)
) -> Table:
    """Open a file, `-` for standard input, or `datasets:NAME[/CONFIG][@SPLIT]`, and read its first rows. An open table
    is returned as it is."""
    if isinstance(source, Table):
        return source
    if settings.every_row:
        settings = replace(settings, malformed_share=1.0)
    if source == STANDARD_INPUT:
        return Table("standard input", partial(_standard_input, settings), once=True, every_row=settings.every_row)
    if isinstance(source, str) and source.startswith(DATASETS):
        return Table(source, partial(dataset_rows, source, load_dataset(source)), once=False)
    file = _examine(Path(source))
    name = settings.format or _format_of(file)
    _check_columns(str(file.path), name, settings)
    begin = partial(_file, file, name, settings)
    return Table(str(file.path), begin, once=False, every_row=settings.every_row)


def _examine(path: Path) -> InputFile:
    try:
        found = path.stat()
        if stat.S_ISREG(found.st_mode):
            with path.open("rb"):
                pass
    except FileNotFoundError:
        near = ""
        with suppress(OSError):
            near = "".join(get_close_matches(path.name, os.listdir(path.parent), 1))
        remedy = f"Did you mean {path.parent / near}?" if near else "Check the path."
        raise DataError(f"{path} must exist; got no such file. {remedy}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} must be readable; got {error}. Check the path and its permissions.") from None
    if stat.S_ISDIR(found.st_mode):
        raise DataError(f"{path} must be a file; got a folder. Name one file in it.")
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{path} must be a regular file; got something else. Send it to standard input and name it -.")
    if not found.st_size:
        raise DataError(f"{path} must have rows; got an empty file. Check how it was made.")
    compression = COMPRESSIONS.get(path.suffix.lower())
    return InputFile(path=path, format="text", compression=compression, size=found.st_size)


def _format_of(file: InputFile) -> TableFormat:
    suffix = (Path(file.path.stem) if file.compression else file.path).suffix.lower()
    if suffix not in ENDINGS:
        raise DataError(
            f"{file.path} must have an extension that tells its format ({' '.join(ENDINGS)}); got "
            f"{suffix or 'none'!r}. Give the format with --format: {', '.join(FORMATS)}."
        )
    return ENDINGS[suffix]


def _check_columns(where: str, name: TableFormat, settings: TableSettings) -> None:
    if settings.columns is not None and name in ("parquet", "squad"):
        raise DataError(f"{where} must be read with its own names of columns, as it is {name}. Leave --columns out.")
    if settings.columns is not None and settings.columns[-1] == REST and name not in ("csv", "tsv"):
        raise DataError(f"{where} must have a name for each column, as it is {name}; got {REST}. Name them all.")


def _file(file: InputFile, name: TableFormat, settings: TableSettings, problems: Problems) -> TableRows:
    where = str(file.path)
    limit = settings.largest_expansion
    reading = TableReader(where, (), problems, malformed_share=settings.malformed_share, largest_expansion=limit)
    if name == "parquet":
        return read_parquet(reading, file)
    reading.pieces = _pieces(file, problems, settings)
    return _read(reading, name, settings, ahead=AHEAD)


def _pieces(file: InputFile, problems: Problems, settings: TableSettings) -> Iterator[str]:
    with opened(file, Position(), largest_expansion=settings.largest_expansion) as content:
        yield from decoded(content.blocks(), str(file.path), problems, encoding=settings.encoding, strict=True)


def _standard_input(settings: TableSettings, problems: Problems) -> TableRows:
    stream: BinaryIO = sys.stdin.buffer
    take = getattr(stream, "read1", stream.read)  # available bytes, without waiting for more
    where = "standard input"
    pieces: Iterator[str] = decoded(
        iter(partial(take, CHUNK), b""), where, problems, encoding=settings.encoding, strict=True
    )
    name = settings.format
    if name == "parquet":
        raise DataError(f"{where} must be a format that is read from its beginning; got parquet. Name a file.")
    if name is None:
        first, pieces = peek(pieces, 1)
        line = first[0].lstrip() if first else ""
        one = settings.columns is not None and len(settings.columns) == 1
        name = "jsonl" if line.startswith("{") else "tsv" if one or "\t" in line else "csv"
    _check_columns(where, name, settings)
    reading = TableReader(where, pieces, problems, malformed_share=settings.malformed_share)
    return _read(reading, name, settings, ahead=1)


def _read(reading: TableReader, name: TableFormat, settings: TableSettings, *, ahead: int) -> TableRows:
    if name in ("csv", "tsv"):
        quoting = name == "csv" if settings.quoting is None else settings.quoting
        delimiter = settings.delimiter or ("," if name == "csv" else "\t")
        if settings.delimiter is None and settings.columns is not None and len(settings.columns) == 1 and not quoting:
            delimiter = "\n"  # occurs in no line
        return read_delimited(
            reading,
            delimiter=delimiter,
            quoting=quoting,
            rows_in_quotes=settings.quoting is not None,
            columns=settings.columns,
        )
    if name == "conll":
        return read_conll(reading, columns=settings.columns)
    if name == "jsonl":
        return read_json_lines(reading, columns=settings.columns, ahead=ahead)
    return read_json(reading, columns=settings.columns, squad=name == "squad", ahead=ahead)


def side_by_side(*tables: Table, malformed_share: float = 0.0) -> Table:
    """Join tables whose rows correspond by number, such as the two files of a parallel text.

    A row whose number is not in all tables is malformed. Each table keeps its own problems.
    """
    names = [name for table in tables for name in table.columns]
    source = " and ".join(table.source for table in tables)
    if len(set(names)) < len(names):
        raise DataError(f"{source} must have different columns; got {', '.join(names)}. Rename some with --columns.")

    def begin(problems: Problems) -> TableRows:
        reading = TableReader(source, (), problems, malformed_share=malformed_share)
        return TableRows(tuple(names), tables[0].unit, _joined(reading, [iter(table) for table in tables]))

    return Table(source, begin, once=any(table.once for table in tables))


def _joined(reading: TableReader, streams: list[Iterator[tuple[int, Row]]]) -> Iterator[tuple[int, Record]]:
    heads = [next(stream, None) for stream in streams]
    while any(heads):
        least = min(head[0] for head in heads if head is not None)
        row: Row = {}
        whole = True
        for place, head in enumerate(heads):
            if head is not None and head[0] == least:
                row |= head[1]
                heads[place] = next(streams[place], None)
            else:
                whole = False
        if whole:
            reading.good()
            yield least, row
        else:
            yield least, reading.bad(least, f"only the columns {', '.join(row)}", row)
    reading.check()


def find_column(
    columns: Sequence[str], wanted: str | None, names: Sequence[str], *, source: str, option: str = "--columns"
) -> str:
    """Return the column named by the user, else the first of the usual names that exists (case-insensitive)."""
    by_fold = {name.casefold(): name for name in reversed(columns)}
    there = ", ".join(repr(name[:40]) for name in columns[:20]) + (", ..." if len(columns) > 20 else "")
    for name in names if wanted is None else [wanted]:
        if name in columns:
            return name
        if name.casefold() in by_fold:
            return by_fold[name.casefold()]
    near = get_close_matches((wanted or "").casefold(), by_fold, 1)
    rule = f"the column {wanted!r}" if wanted is not None else f"a column named {', '.join(names)}"
    remedy = f"Did you mean {by_fold[near[0]]!r}?" if near else f"Name one of them with {option}."
    if not columns:
        there, remedy = "no column beside those that have another role", "Add it."
    if any(len(name) > 40 or name.isdigit() for name in columns):
        remedy += " If its first line is data, and not names, give the names with --columns."
    raise DataError(f"{source} must have {rule}; got {there}. {remedy}")
