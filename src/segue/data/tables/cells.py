"""Rows of csv and tsv: column names, quoted cells, and unclosed quotes.

In and out as in `reader`. Blank lines are yielded as Unread; at the end of a table with several columns, they are not.
"""

import csv
from collections import deque
from collections.abc import Iterator, Sequence

from segue.data.tables.reader import (
    BLANK,
    LONGEST_ROW,
    REST,
    Record,
    TableReader,
    TableRows,
    Unread,
    check_names,
    count,
    without_blank_end,
)
from segue.errors import DataError

MERGED_SHARE = 0.8  # share of lines in a record that look like rows, from which on they count as rows

_Cells = tuple[int, list[str] | Unread]


def read_delimited(
    reading: TableReader, *, delimiter: str, quoting: bool, rows_in_quotes: bool, columns: tuple[str, ...] | None
) -> TableRows:
    """Read a delimited table. A first line that only repeats the given names is not a row. `rows_in_quotes`: a quoted
    cell may hold lines that look like rows."""
    open_end = columns is not None and columns[-1:] == (REST,)
    names = columns[:-1] if columns is not None and open_end else columns
    records = _split(reading, delimiter)
    if quoting:
        width = None if names is None else len(names)
        records = _quoted(reading, delimiter, width=width, rows_in_quotes=rows_in_quotes)
    if names is None:
        header = _header(reading.where, records)
        _check_header(reading.where, header, delimiter)
        names = tuple(name or f"column{place}" for place, name in enumerate(header, 1))
    else:
        records = _without_header(records, names)
    if len(names) > 1:
        records = without_blank_end(records)
    return TableRows(names, "line", _rows(reading, records, names, open_end=open_end))


def _header(where: str, records: Iterator[_Cells]) -> list[str]:
    for _, cells in records:
        if not isinstance(cells, Unread):
            return [name.strip() for name in cells]
        if cells is not BLANK:
            raise DataError(
                f"{where} must hold the names of its columns in its first line; got one, and {cells.why}. Correct it, "
                "use --no-quoting if its quotes are plain text, or name the columns with --columns."
            )
    return []


def _without_header(records: Iterator[_Cells], names: tuple[str, ...]) -> Iterator[_Cells]:
    first = True
    for number, cells in records:
        is_header = first and not isinstance(cells, Unread) and tuple(name.strip() for name in cells) == names
        first = first and isinstance(cells, Unread)
        if not is_header:
            yield number, cells


def _rows(
    reading: TableReader, records: Iterator[_Cells], columns: tuple[str, ...], *, open_end: bool
) -> Iterator[tuple[int, Record]]:
    for number, cells in records:
        if isinstance(cells, Unread):
            yield number, cells
        elif len(cells) == len(columns) or (open_end and len(cells) > len(columns)):
            reading.good()
            yield number, dict(zip(columns, cells, strict=False))
        else:
            rest = f", and beyond them {cells[len(columns) :]}" if len(cells) > len(columns) else ""
            why = f"{count(len(cells), 'cell')} for {count(len(columns), 'column')}, from {cells[0][:40]!r}{rest}"
            yield number, reading.bad(number, why, dict(zip(columns, cells, strict=False)))
    reading.check()


class DelimiterError(DataError):
    """Raised if the columns are separated by another character than the given one."""

    def __init__(self, message: str, *, found: str) -> None:
        super().__init__(message)
        self.found = found


def _check_header(where: str, names: Sequence[str], delimiter: str) -> None:
    for other, remedy in (("\t", "--format tsv"), (";", "--delimiter ';'")):
        if len(names) == 1 and other != delimiter and other in names[0]:
            raise DelimiterError(
                f"{where} must have its columns separated by {delimiter!r}; got a first line without it but with "
                f"{other!r}: {names[0][:80]!r}. Say {remedy}.",
                found=other,
            )
    check_names(where, [name for name in names if name])


def _split(reading: TableReader, delimiter: str) -> Iterator[_Cells]:
    for number, line in reading.lines():
        if isinstance(line, Unread):
            yield number, line
        else:
            yield number, line.split(delimiter) if line.strip() else BLANK


# ------------------------------------------------------------------------------------------------------------ quotes


class _Feed:
    """Lines for the csv module; the lines that a record has used can be pushed back."""

    def __init__(self, source: Iterator[tuple[int, str | Unread]]) -> None:
        self._source = source
        self._again: deque[tuple[int, str | Unread]] = deque()
        self.used: list[tuple[int, str]] = []
        self.unread: tuple[int, Unread] | None = None
        """A line that ended the record because it cannot be read."""
        self._size = 0

    def begin(self) -> None:
        """Begin a record."""
        self.used, self._size, self.unread = [], 0, None

    def take_back(self) -> None:
        """Push back all lines of the record except the first."""
        if self.unread is not None:
            self._again.appendleft(self.unread)
            self.unread = None
        self._again.extendleft(reversed(self.used[1:]))

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> str:
        number, line = self._again.popleft() if self._again else next(self._source)
        if isinstance(line, Unread):
            self.unread = number, line
            raise csv.Error("a line that is too long")
        self.used.append((number, line))
        self._size += len(line) + 1
        if self._size > LONGEST_ROW and len(self.used) > 1:
            raise csv.Error(f"a quote that is not closed within {LONGEST_ROW} characters")
        return line + "\n"


def _quoted(reading: TableReader, delimiter: str, *, width: int | None, rows_in_quotes: bool) -> Iterator[_Cells]:
    """Yield rows whose cells may be in quotes and then hold delimiters and line ends.

    An unclosed quote would swallow everything after it: if quoting is broken, only the first line is lost.
    """
    csv.field_size_limit(LONGEST_ROW)
    feed = _Feed(reading.lines())
    rows = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        feed.begin()
        try:
            cells = next(rows, None)
        except csv.Error as error:
            if not feed.used:
                assert feed.unread is not None
                yield feed.unread
                continue
            feed.take_back()
            number = feed.used[0][0]
            never = str(error) == "unexpected end of data"
            why = "a quote that opens here is never closed" if never else str(error)
            yield number, reading.bad(number, f"quotes are broken: {why}, in {feed.used[0][1][:40]!r}")
            continue
        if cells is None:
            return
        number = feed.used[0][0]
        if cells and (len(cells) > 1 or cells[0].strip()):
            width = width or len(cells)
            if not rows_in_quotes and _holds_rows([line for _, line in feed.used], delimiter, width=width):
                raise DataError(
                    f"{reading.where} must close each quote; got one that opens in line {number} and closes in line "
                    f"{feed.used[-1][0]}, with lines between that look like rows of {width} columns. Close it in line "
                    f"{number}. If quotes are plain text in this table, use --no-quoting; if such lines do belong to "
                    "one cell, use --quoting."
                )
            yield number, cells
        else:
            yield number, BLANK


def _holds_rows(lines: Sequence[str], delimiter: str, *, width: int) -> bool:
    """Return True if the lines of one record look like separate rows: as many cells each, none of which begins with a
    space, as text after a comma in prose does, and in a narrow table none of which is empty."""
    if len(lines) < 3 or width < 2:
        return False
    alike = 0
    for line in lines:
        first, *others = line.replace('"', "").split(delimiter)
        alike += (
            len(others) + 1 == width
            and (width > 3 or all([first, *others]))
            and not any(cell[:1].isspace() for cell in others)
        )
    return alike >= MERGED_SHARE * len(lines)
