"""Shared parts of the readers of all table formats: rows, unreadable rows, and their counts.

In: pieces of decoded text (`segue.data.decode`). Out: numbered lines, and `TableRows`. A row that breaks the rules of
its format is malformed: an Unread takes its place, and more than a given share of them is an error.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, NamedTuple

from segue.data.decode import lines
from segue.data.problems import Problems
from segue.errors import DataError

LONGEST_ROW = 2**24  # characters; a row must fit in memory to be parsed, so longer ones are malformed
REST = "..."  # as the last column: further cells are skipped

Row = dict[str, Any]
Unit = Literal["line", "row", "record", "question"]

_UNFIT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Placeholder of a row that cannot be read."""

    why: str
    cells: Row = field(default_factory=dict)
    """The known cells of the row."""


Record = Row | Unread
BLANK = Unread(why="a blank line")
"""Placeholder of a blank line: not malformed, and not a row in training data."""


class TableRows(NamedTuple):
    """A table that is being read."""

    columns: tuple[str, ...]
    unit: Unit
    """Unit of the row numbers."""
    rows: Iterator[tuple[int, Record]]


class TableReader:
    """One pass over one table: its text, and the counts of malformed rows."""

    def __init__(
        self,
        where: str,
        pieces: Iterable[str],
        problems: Problems,
        *,
        malformed_share: float,
        largest_expansion: int | None = None,
    ) -> None:
        self.where, self.pieces, self.problems = where, pieces, problems
        self.largest_expansion = largest_expansion
        self.unit: Unit = "line"
        self._share = malformed_share
        self._total = self._bad = 0
        self._first: list[str] = []

    def lines(self) -> Iterator[tuple[int, str | Unread]]:
        """Yield numbered lines; one that is too long for a row is malformed."""
        number, skipping = 1, False
        for text, ends in lines(iter(self.pieces), longest=LONGEST_ROW):
            if not ends and not skipping:
                yield number, self.bad(number, f"longer than {LONGEST_ROW} characters")
            if ends and not skipping:
                yield number, text
            skipping = not ends
            number += ends

    def good(self) -> None:
        """Count a row."""
        self._total += 1

    def bad(self, number: int, why: str, cells: Row | None = None) -> Unread:
        """Count a malformed row; return its placeholder."""
        self._total += 1
        self._bad += 1
        place = f"{self.unit} {number}: {why}"[:200]
        if len(self._first) < 5:
            self._first.append(place)
        self.problems.count("malformed_records", f"{self.where}, {place}")
        if self._bad >= 1000:
            self.check()
        return Unread(why=f"it cannot be read: {why}"[:300], cells=cells or {})

    def too_long(self, number: int, row: Row) -> Unread | None:
        """Return the placeholder of a row whose texts, from a document of any size, are too long; else None."""
        if sum(len(value) for value in row.values() if isinstance(value, str | bytes)) <= LONGEST_ROW:
            return None
        return self.bad(number, f"longer than {LONGEST_ROW} characters")

    def check(self) -> None:
        """Raise DataError if there are too many malformed rows."""
        if self._bad > self._share * self._total:
            shown = [*self._first, "..."] if self._bad > len(self._first) else self._first
            raise DataError(
                f"{self.where} must have at most {self._share:.0%} malformed rows; got {self._bad} of {self._total}:"
                + "".join(f"\n  {place}" for place in shown)
                + "\nCorrect them, describe the format of the file (--format, --columns, --delimiter, --quoting), "
                f"or allow more: --malformed-share {min(1.0, self._bad / self._total + 0.01):.2f}."
            )

    def cleaned(self, value: Any, number: int) -> Any:
        """Replace unfit characters from escapes and Parquet. Lengths stay, since offsets may point into a text."""
        if isinstance(value, str):
            text, count = _UNFIT.subn("\ufffd", value)
            nuls = value.count("\0") if count else 0
            self.problems.count("nul_characters", f"{self.where}, {self.unit} {number}", nuls)
            self.problems.count("lone_surrogates", f"{self.where}, {self.unit} {number}", count - nuls)
            return text
        if isinstance(value, bytes):
            try:
                return self.cleaned(value.decode(), number)
            except UnicodeDecodeError:
                return value
        if isinstance(value, list):
            return [self.cleaned(item, number) for item in value]
        if isinstance(value, dict):
            return {self.cleaned(key, number): self.cleaned(item, number) for key, item in value.items()}
        return value


def without_blank_end(records: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Yield the records without blank lines at the end, which are not rows; blank lines between rows are kept."""
    held = range(0)
    for number, record in records:
        if record is BLANK:
            held = range(held.start if held else number, number + 1)
        else:
            yield from ((blank, BLANK) for blank in held)
            held = range(0)
            yield number, record


def peek(pieces: Iterable[str], count: int) -> tuple[list[str], Iterator[str]]:
    """Return the first lines that are not blank, as far as they are within the longest row, and all pieces again."""
    rest = iter(pieces)
    held = ""
    for piece in rest:
        held += piece
        found = [line for line in held.split("\n")[:-1] if line.strip()]
        if len(found) >= count or len(held) > LONGEST_ROW:
            return found[:count], chain([held], rest)
    return [line for line in held.split("\n") if line.strip()][:count], iter([held])


def check_names(where: str, names: Sequence[str]) -> None:
    """Raise DataError unless the column names are distinct."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(
                f"{where} must have a different name for each column; got {name[:40]!r} twice. Rename one; or, if the "
                "first line is data, name the columns with --columns."
            )
        seen.add(name)


def count(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
