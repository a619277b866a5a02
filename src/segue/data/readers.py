"""Streaming of documents from files: text, JSON lines, CSV, TSV, Parquet, plain or compressed, in constant memory.

In: files (`segue.data.inputs`). Out: parts of documents, in order; a long document comes in several parts. The lines of
a part, joined, are the text: each keeps its line end, except the last of a document. Blank lines (and blank pieces of
split lines) before a document's first text are dropped.
"""

import csv
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from segue.data.decode import Position, arrow, check_encoding, check_expansion, chunks, cut, lines, opened
from segue.data.inputs import InputFile
from segue.data.problems import Problems
from segue.errors import DataError

LONGEST_LINE = 2**16  # characters; longer lines are split
LONGEST_RECORD = 2**24  # characters; a record must fit in memory to be parsed, so longer ones are malformed
PART = 2**16  # approximate characters of a part

DocumentRule = Literal["block", "line", "file", "record"]
Piece = tuple[str, bool, bool]  # text without line end; whether its line ends here; whether its record does


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """Settings for reading documents from files."""

    document: DocumentRule | None = None
    """Document boundaries: block: up to a blank line; line; file; record: a field of a record. Default: blocks of text
    files, records of the others."""
    field: str = "text"
    """Field of a JSON record, or column of a table, that holds the text."""
    encoding: str = "utf-8"
    """Encoding of files without a byte order mark."""
    malformed_share: float = 0.05
    """Maximum share of malformed records in a file; more is an error."""
    largest_expansion: int | None = None
    """Maximum ratio of decompressed to compressed size. Default: 100, but files up to 64 MiB decompressed are always
    accepted. Memory stays constant in any case."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if not 0 <= self.malformed_share <= 1:
            raise DataError(f"malformed_share must be from 0 to 1; got {self.malformed_share}. Try 0.05.")
        check_expansion(self.largest_expansion)


class DocumentPart(NamedTuple):
    """Some lines of one document."""

    lines: list[str]
    begins: bool
    ends: bool


def check_rule(files: Iterable[InputFile], settings: ReadSettings) -> None:
    """Raise DataError for plain text with documents from records, because it has none."""
    if settings.document == "record":
        for file in files:
            if file.format == "text":
                raise DataError(
                    f"--documents record needs a file of records; got plain text in {file.path}. Use --documents "
                    "block, line or file."
                )


def read_documents(
    file: InputFile, settings: ReadSettings, problems: Problems, position: Position | None = None
) -> Iterator[DocumentPart]:
    """Yield the documents of one file; `position` follows the reading."""
    position = Position() if position is None else position
    check_rule([file], settings)
    rule = settings.document or ("block" if file.format == "text" else "record")
    read = {"text": _text, "jsonl": _json, "csv": _table, "tsv": _table, "parquet": _parquet}[file.format]
    anything = False
    for part in _assemble(read(file, settings, problems, position), rule, str(file.path), problems):
        anything = True
        yield part
    file.check_unchanged()
    if not anything:
        problems.count("empty_files", str(file.path))


def _assemble(pieces: Iterator[Piece], rule: DocumentRule, where: str, problems: Problems) -> Iterator[DocumentPart]:
    """Assemble lines into documents."""
    held: list[str] = []  # lines of the current document that were not yielded yet
    size = 0
    begun = False  # part of the document was yielded
    owed = False  # the last held line gets its line end if another one follows
    fresh = True  # at the beginning of a line
    for text, ends_line, ends_record in pieces:
        blank = fresh and ends_line and not text.strip()
        ends = ends_record if rule == "record" else rule == "line" and ends_line
        if blank and rule == "block":
            ends = True
        elif held or (text and not text.isspace()):
            if owed:
                held[-1] += "\n"
            if size > PART:
                yield DocumentPart(held, not begun, False)
                held, size, begun = [], 0, True
            held.append(text)
            size += len(text) + 1
            owed = ends_line
        fresh = ends_line
        if ends:
            if held:
                yield DocumentPart(held, not begun, True)
            elif rule != "block":
                problems.count("empty_documents", where)
            held, size, begun, owed = [], 0, False, False
        elif rule == "block" and ends_record and held:
            yield DocumentPart(held, not begun, True)
            held, size, begun, owed = [], 0, False, False
    if held:
        yield DocumentPart(held, not begun, True)


def _text(file: InputFile, settings: ReadSettings, problems: Problems, position: Position) -> Iterator[Piece]:
    where = str(file.path)
    pieces = chunks(file, position, problems, encoding=settings.encoding, largest_expansion=settings.largest_expansion)
    for text, ends in lines(pieces, longest=LONGEST_LINE):
        if not ends:
            problems.count("cut_lines", where)
        yield text, ends, False


class _Records:
    """Counter of good and bad records of a file; too many bad ones raise DataError."""

    def __init__(self, file: InputFile, settings: ReadSettings, problems: Problems) -> None:
        self._where, self._share, self._problems = str(file.path), settings.malformed_share, problems
        self._total = self._bad = 0
        self._first = ""

    def good(self) -> None:
        self._total += 1

    def bad(self, line: int, why: str) -> None:
        self._total += 1
        self._bad += 1
        self._first = self._first or f"line {line}: {why}"
        self._problems.count("malformed_records", f"{self._where}, line {line}: {why}")
        if self._bad >= 1000:
            self.check()

    def check(self) -> None:
        if self._bad > self._share * self._total:
            raise DataError(
                f"{self._where} must have at most {self._share:.0%} malformed records; got {self._bad} of "
                f"{self._total}, the first in {self._first}. Correct the file, name another --field, or allow more "
                "with --malformed-share."
            )

    def pieces(self, value: str, *, clean: bool) -> Iterator[Piece]:
        """Yield the lines of a good record."""
        self.good()
        if not clean:
            value = self._cleaned(value)
        *first, last = value.split("\n")
        for number, line in enumerate([*first, last]):
            *cuts, rest = cut(line, LONGEST_LINE)
            self._problems.count("cut_lines", self._where, len(cuts))
            for text in cuts:
                yield text, False, False
            yield rest, True, number == len(first)

    def _cleaned(self, value: str) -> str:
        """Clean characters from JSON escapes and Parquet, which the decoder of text files has not seen."""
        if "\r" in value:
            value = value.replace("\r\n", "\n").replace("\r", "\n")
        if "\0" in value:
            self._problems.count("nul_characters", self._where, value.count("\0"))
            value = value.replace("\0", "")
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                mended = "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in value)
                number = sum(map(str.__ne__, value, mended))
                self._problems.count("lone_surrogates", self._where, number)
                return mended
        return value


def _record_lines(
    file: InputFile, settings: ReadSettings, problems: Problems, position: Position, records: _Records
) -> Iterator[tuple[int, str]]:
    """Yield numbered lines; one that is too long for a record is malformed."""
    pieces = chunks(file, position, problems, encoding=settings.encoding, largest_expansion=settings.largest_expansion)
    number, skipping = 1, False
    for text, ends in lines(pieces, longest=LONGEST_RECORD):
        if not ends and not skipping:
            records.bad(number, f"longer than {LONGEST_RECORD} characters")
        if ends and not skipping:
            yield number, text
        skipping = not ends
        number += ends


def _json(file: InputFile, settings: ReadSettings, problems: Problems, position: Position) -> Iterator[Piece]:
    records = _Records(file, settings, problems)
    for number, line in _record_lines(file, settings, problems, position, records):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            records.bad(number, f"no JSON: {error}")
            continue
        if not isinstance(record, dict):
            records.bad(number, f"one JSON object a line is needed; got {type(record).__name__}")
        elif settings.field not in record:
            names = ", ".join(map(str, list(record)[:8])) or "none"
            records.bad(number, f"no field {settings.field!r}; fields: {names}"[:200])
        elif record[settings.field] is None:
            yield from records.pieces("", clean=True)
        elif not isinstance(record[settings.field], str):
            records.bad(number, f"field {settings.field!r} is no text but {type(record[settings.field]).__name__}")
        else:
            yield from records.pieces(record[settings.field], clean=False)
    records.check()


def _table(file: InputFile, settings: ReadSettings, problems: Problems, position: Position) -> Iterator[Piece]:
    records = _Records(file, settings, problems)
    source = _record_lines(file, settings, problems, position, records)
    csv.field_size_limit(LONGEST_RECORD)
    rows = csv.reader((line + "\n" for _, line in source), delimiter="," if file.format == "csv" else "\t")
    column: int | None = None
    while True:
        begin = rows.line_num + 1
        try:
            row = next(rows, None)
        except csv.Error as error:
            records.bad(begin, str(error))
            continue
        if row is None:
            break
        if not row:
            continue
        if column is None:
            if settings.field not in row:
                raise _no_column(file, settings, row)
            column = row.index(settings.field)
        elif column >= len(row):
            records.bad(begin, f"{len(row)} columns; {settings.field!r} is column {column + 1}")
        else:
            yield from records.pieces(row[column], clean=True)
    records.check()


def _parquet(file: InputFile, settings: ReadSettings, problems: Problems, position: Position) -> Iterator[Piece]:
    pyarrow = arrow(file)
    records = _Records(file, settings, problems)
    limit = settings.largest_expansion
    with opened(file, position, largest_expansion=limit) as content, tempfile.TemporaryFile() as unpacked:
        source: Any = file.path
        if file.compression:  # Parquet is read from its end
            unpacked.writelines(content.blocks())
            unpacked.flush()
            source = unpacked
        try:
            table = pyarrow.parquet.ParquetFile(source, pre_buffer=False, buffer_size=2**16)
            if settings.field not in table.schema_arrow.names:
                raise _no_column(file, settings, table.schema_arrow.names)
            kind = table.schema_arrow.field(settings.field).type
            kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
            if not any(is_text(kind) for is_text in (pyarrow.types.is_string, pyarrow.types.is_large_string)):
                raise DataError(f"{file.path} must have text in column {settings.field!r}; got {kind}. Name another.")
            done = 0
            for batch in table.iter_batches(batch_size=64, columns=[settings.field]):
                done += len(batch)
                if not file.compression:
                    position.bytes = file.size * done // max(table.metadata.num_rows, 1)
                column = batch.column(0).cast(pyarrow.large_string()).cast(pyarrow.large_binary())
                for value in column.to_pylist():
                    yield from _parquet_record(value or b"", records, problems, str(file.path))
        except pyarrow.ArrowException as error:
            raise DataError(f"{file.path} must be a complete Parquet file; got {error}. Copy it again.") from None
    records.check()


def _parquet_record(data: bytes, records: _Records, problems: Problems, where: str) -> Iterator[Piece]:
    text = data.decode("utf-8", "replace")
    problems.count("malformed_characters", where, text.count("\ufffd") - data.count(b"\xef\xbf\xbd"))
    yield from records.pieces(text, clean=False)


def _no_column(file: InputFile, settings: ReadSettings, names: Iterable[str]) -> DataError:
    known = ", ".join(list(names)[:20])[:300]
    return DataError(f"{file.path} must have the column {settings.field!r}; got {known}. Name one with --field.")
