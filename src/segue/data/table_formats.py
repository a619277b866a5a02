"""From the text of one table to its rows: what all formats share, CoNLL columns, Parquet.

In: pieces of decoded text (`segue.data.decode`) or a Parquet file. Out: the names of the columns and a stream of
numbered rows. A row that breaks the rules of its format is malformed: an Unread stands in its place, and more than a
share of them is an error. Cells are left to `segue.data.table_cells`, JSON to `segue.data.table_json`; which format a
table has, and where its text comes from, to `segue.data.tables`.
"""

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Literal, NamedTuple

from segue.data.decode import Position, arrow, lines, opened
from segue.data.inputs import InputFile
from segue.data.problems import Problems
from segue.errors import DataError

LONGEST_ROW = 2**24  # characters; a row must be in memory to be understood, so longer ones are malformed
REST = "..."  # as the last column: further cells are left out
CONLL_U = ("id", "tokens", "lemma", "tags", "xpos", "feats", "head", "deprel", "deps", "misc")

Row = dict[str, Any]
Unit = Literal["line", "row", "record", "question"]

_UNFIT = re.compile("[\0\ud800-\udfff]")
_COMMENT = re.compile(r"#\s*[\w:.]+\s*=")


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Stands in the place of a row that cannot be read."""

    why: str
    cells: Row = field(default_factory=dict)
    """What is known of its columns."""


Record = Row | Unread
BLANK = Unread(why="a blank line")
"""It is not malformed, and where rows are learned from it is no row."""


class Rows(NamedTuple):
    """A table that is being read."""

    columns: tuple[str, ...]
    unit: Unit
    """What the numbers count."""
    rows: Iterator[tuple[int, Record]]


class Reading:
    """One pass over one table: its text, and what was wrong with its rows."""

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
        """Numbered lines; one that is too long to be a row is malformed."""
        number, skipping = 1, False
        for text, ends in lines(iter(self.pieces), longest=LONGEST_ROW):
            if not ends and not skipping:
                yield number, self.bad(number, f"longer than {LONGEST_ROW} characters")
            if ends and not skipping:
                yield number, text
            skipping = not ends
            number += ends

    def good(self) -> None:
        """Counts a row."""
        self._total += 1

    def bad(self, number: int, why: str, cells: Row | None = None) -> Unread:
        """Counts a malformed row; what is to stand in its place."""
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
        """What is to stand in the place of a row whose texts, out of a document of any size, are too long; None if
        they are not."""
        if sum(len(value) for value in row.values() if isinstance(value, str | bytes)) <= LONGEST_ROW:
            return None
        return self.bad(number, f"longer than {LONGEST_ROW} characters")

    def check(self) -> None:
        """Too many malformed rows are an error."""
        if self._bad > self._share * self._total:
            shown = [*self._first, "..."] if self._bad > len(self._first) else self._first
            raise DataError(
                f"{self.where} must have at most {self._share:.0%} malformed rows; got {self._bad} of {self._total}:"
                + "".join(f"\n  {place}" for place in shown)
                + "\nMend them, say how the file is written (--format, --columns, --delimiter, --quoting), or allow "
                f"more: --malformed-share {min(1.0, self._bad / self._total + 0.01):.2f}."
            )

    def cleaned(self, value: Any, number: int) -> Any:
        """What escapes and Parquet can bring in. Lengths stay, since offsets may point into a text."""
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
    """Blank lines are kept only between rows: those at the end of a file are nobody's rows."""
    held = range(0)
    for number, record in records:
        if record is BLANK:
            held = range(held.start if held else number, number + 1)
        else:
            yield from ((blank, BLANK) for blank in held)
            held = range(0)
            yield number, record


def peek(pieces: Iterable[str], count: int) -> tuple[list[str], Iterator[str]]:
    """The first lines that are not blank (fewer if the text or the longest row ends before); all the pieces again."""
    rest = iter(pieces)
    held = ""
    for piece in rest:
        held += piece
        found = [line for line in held.split("\n")[:-1] if line.strip()]
        if len(found) >= count or len(held) > LONGEST_ROW:
            return found[:count], chain([held], rest)
    return [line for line in held.split("\n") if line.strip()][:count], iter([held])


def check_names(where: str, names: Sequence[str]) -> None:
    """Each column has a name of its own."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(
                f"{where} must have a different name for each column; got {name[:40]!r} twice. Mend it; or, if its "
                "first line is data, name the columns with --columns."
            )
        seen.add(name)


def count(number: int, what: str) -> str:
    """A number and its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


# ------------------------------------------------------------------------------------------------------------- CoNLL


def read_conll(reading: Reading, *, columns: tuple[str, ...] | None) -> Rows:
    """A token a line, a blank line (or -DOCSTART-) between sentences; a row is a sentence, a list for each column."""
    source = reading.lines()
    head: list[tuple[int, str | Unread]] = []
    sample = ""  # the first line of a token; a # may be one, but only if nothing else is
    for number, line in islice(source, 1000):
        head.append((number, line))
        if isinstance(line, str) and line.strip() and not line.startswith("-DOCSTART-"):
            sample = line if not sample or not line.startswith("#") else sample
            if not line.startswith("#"):
                break
    cells = _columns_of(sample)
    if columns is None:
        between = tuple(f"column{place}" for place in range(2, len(cells)))
        columns = ("tokens", *between, "tags") if len(cells) > 1 else ("tokens",)
        if len(cells) == len(CONLL_U) and re.fullmatch(r"1(-\d+)?", cells[0]):
            columns = CONLL_U
    tabs = "\t" in sample
    return Rows(columns, "line", _sentences(reading, chain(head, source), columns, tabs=tabs))


def _columns_of(line: str) -> list[str]:
    """A line that begins with the separator has a blank as its token, as Chinese files by characters do."""
    line = line.rstrip(" \t")
    cells = line.split("\t" if "\t" in line else " ")
    if "" in cells:
        cells = [cells[0] or " ", *(cell for cell in cells[1:] if cell or "\t" in line)]
    return cells


def _is_comment(line: str, *, tabs: bool, width: int) -> bool:
    """Lines before a sentence as CoNLL-U has them; but `#` and hashtags can be tokens."""
    if not line.startswith("#"):
        return False
    return "\t" not in line if tabs else len(_columns_of(line)) != width or bool(_COMMENT.match(line))


def _sentences(
    reading: Reading, source: Iterator[tuple[int, str | Unread]], columns: tuple[str, ...], *, tabs: bool
) -> Iterator[tuple[int, Record]]:
    """A sentence with a line that cannot be read cannot be read."""
    tokens: list[list[str]] = []
    begin = size = 0
    wrong: tuple[int, Unread] | None = None
    for number, line in chain(source, [(0, "")]):
        if isinstance(line, Unread):
            wrong = wrong or (number, line)
            continue
        if not line.strip() or line.startswith("-DOCSTART-"):
            if wrong is not None:
                yield wrong
            elif tokens:
                reading.good()
                yield begin, {name: list(cells) for name, *cells in zip(columns, *tokens, strict=True)}
            tokens, size, wrong = [], 0, None
            continue
        if wrong is not None or (not tokens and _is_comment(line, tabs=tabs, width=len(columns))):
            continue
        cells = _columns_of(line)
        if columns == CONLL_U and re.fullmatch(r"\d+[-.]\d+", cells[0]):  # words that its other lines take apart
            continue
        begin = begin if tokens else number
        size += len(line)
        tokens.append(cells)
        if len(cells) != len(columns):
            why = f"{count(len(cells), 'cell')} for {count(len(columns), 'column')}: {line[:40]!r}"
            wrong = number, reading.bad(number, why)
        elif size > LONGEST_ROW:
            wrong = begin, reading.bad(begin, f"no blank line in the next {LONGEST_ROW} characters")
    reading.check()


# ----------------------------------------------------------------------------------------------------------- Parquet


def read_parquet(reading: Reading, file: InputFile) -> Rows:
    """All columns, some rows at a time; numbers of classes become their names where the file tells them."""
    reading.unit = "row"
    rows = _parquet(reading, file)
    _, first = next(rows)
    assert isinstance(first, dict)
    return Rows(tuple(first), "row", rows)


def _parquet(reading: Reading, file: InputFile) -> Iterator[tuple[int, Record]]:
    """First the columns, as keys; then the rows."""
    pyarrow = arrow(file)
    limit = reading.largest_expansion
    with opened(file, Position(), largest_expansion=limit) as content, tempfile.TemporaryFile() as unpacked:
        source: Any = file.path
        if file.compression:  # Parquet is read from its end
            unpacked.writelines(content.blocks())
            unpacked.flush()
            source = unpacked
        try:
            table = pyarrow.parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**16)
            names = table.schema_arrow.names
            check_names(str(file.path), names)
            yield 0, dict.fromkeys(names)
            classes = class_names(_features(table.schema_arrow.metadata))
            number = 0
            for batch in table.iter_batches(batch_size=64):
                for place in range(len(batch)):
                    number += 1
                    try:
                        row = {name: column[place].as_py() for name, column in zip(names, batch.columns, strict=True)}
                    except (ValueError, OverflowError, TypeError, KeyError) as error:
                        yield number, reading.bad(number, str(error))
                        continue
                    if (unread := reading.too_long(number, row)) is not None:
                        yield number, unread
                        continue
                    reading.good()
                    yield number, reading.cleaned(with_names(row, classes), number)
        except pyarrow.ArrowException as error:
            raise DataError(f"{file.path} must be a whole Parquet file; got {error}. Copy it again.") from None
    reading.check()


def _features(metadata: Mapping[bytes, bytes] | None) -> Any:
    """What the datasets library writes about the columns."""
    try:
        return json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}


def class_names(features: Any) -> dict[str, list[str]]:
    """Of the columns that hold numbers of classes, or lists of them; `features` as the datasets library tells them."""
    found = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        inner = feature[0] if isinstance(feature, list) and len(feature) == 1 else feature
        inner = inner.get("feature", inner) if isinstance(inner, dict) else None
        names = inner.get("names") if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" else None
        if isinstance(names, list) and all(isinstance(label, str) for label in names):
            found[name] = names
    return found


def with_names(row: Row, classes: Mapping[str, list[str]]) -> Row:
    """Names for numbers of classes; a number that stands for no class (-1 of unlabelled rows) becomes None."""

    def named(value: Any, names: list[str]) -> Any:
        if isinstance(value, list):
            return [named(item, names) for item in value]
        if isinstance(value, int):
            return names[value] if 0 <= value < len(names) else None
        return value

    return {name: named(value, classes[name]) if name in classes else value for name, value in row.items()}
