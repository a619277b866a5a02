"""Incremental reading of growing files and folders.

In: a source and the position where reading stopped. Out: rows in small batches, each with the position after it. A line
without an end waits for it, unless the source is not followed. Files that cannot grow (compressed ones, parquet, json)
are read with segue's table readers. A position belongs to a file by its path and its first bytes: another file in the
same place is read from its beginning.
"""

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from segue.apps.monitor.sources import Source
from segue.data.tables import TableSettings, open_table
from segue.errors import DataError

GROWING = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".txt": "txt"}
LONGEST_LINE = 1 << 20
HEAD = 1024
"""Number of first bytes that identify a file."""
MOST_LINES = 200
"""Maximum number of lines in a quoted cell."""


@dataclass
class Some:
    """A batch of rows, and the position after it."""

    rows: list[Any] = field(default_factory=list)
    refused: list[tuple[str, Any]] = field(default_factory=list)
    place: dict[str, Any] = field(default_factory=dict)


def read_more(source: Source, place: dict[str, Any], *, most: int) -> Iterator[Some]:
    """Yield batches of at most `most` rows after a position."""
    files: dict[str, Any] = {name: dict(known) for name, known in place.get("files", {}).items()}
    for path in _paths(source):
        name = str(path.resolve()) if source.kind == "file" else path.relative_to(source.path).as_posix()
        kind = GROWING.get(path.suffix.lower())
        known = files.get(name, {})
        if "head" in known and _head(path, known["head"]["bytes"]) != known["head"]:
            known = {}
        head = _head(path, HEAD)
        parts = _growing(path, known, source, kind) if kind is not None else _table(path, known, source)
        while rows := list(islice(parts, most)):
            files[name] = {**rows[-1][1], "head": head}
            some = Some(place={"files": {one: dict(where) for one, where in files.items()}})
            for row, _ in rows:
                if isinstance(row, _Bad):
                    some.refused.append((row.why, row.line))
                elif row is not _END:
                    some.rows.append(row)
            yield some


def _head(path: Path, count: int) -> dict[str, Any]:
    with path.open("rb") as file:
        found = file.read(count)
    return {"bytes": len(found), "sha256": hashlib.sha256(found).hexdigest()}


@dataclass(frozen=True)
class _Bad:
    why: str
    line: str


_END = object()
"""Marks the end of a table."""
_Rows = Iterator[tuple[Any, dict[str, Any]]]
"""Rows, each with the position after it."""


def _paths(source: Source) -> list[Path]:
    path = Path(source.path)
    if source.kind == "file":
        if not path.is_file():
            raise DataError(f"source {source.name!r} must have an existing file; got {path}. Check its path.")
        return [path]
    if not path.is_dir():
        raise DataError(f"source {source.name!r} must have an existing folder; got {path}. Check its path.")
    return [one for one in sorted(path.rglob(source.pattern)) if one.is_file() and not one.is_symlink()]


def _table(path: Path, known: dict[str, Any], source: Source) -> _Rows:
    done, size = int(known.get("rows", 0)), path.stat().st_size
    if known.get("size") == size:
        return
    number = 0
    for number, (_, row) in enumerate(open_table(path, TableSettings(encoding=source.encoding)), start=1):
        if number > done:
            yield row, {"rows": number}
    yield _END, {"rows": number, "size": size}


def _growing(path: Path, known: dict[str, Any], source: Source, kind: str) -> _Rows:
    offset, columns = int(known.get("offset", 0)), known.get("columns")
    comma = known.get("comma", "\t" if kind == "tsv" else ",")
    if path.stat().st_size < offset:  # another file now
        offset, columns = 0, None
    with path.open("rb") as file:
        file.seek(offset)
        while (line := _line(file, quoted=kind == "csv", final=not source.follow)) is not None:
            place: dict[str, Any] = {"offset": file.tell(), "columns": columns, "comma": comma}
            try:
                text, readable = line.decode(source.encoding), True
            except UnicodeDecodeError:
                text, readable = line.decode(source.encoding, "replace"), False
            text = text.lstrip("\ufeff").rstrip("\r\n")
            if len(line) > LONGEST_LINE:
                yield _Bad(f"a line must have at most {LONGEST_LINE:,} bytes; it has more", text[:200]), place
            elif not readable:
                if kind in ("csv", "tsv") and columns is None:
                    raise DataError(
                        f"{path} must be in {source.encoding}; it is not. Name its encoding, for Chinese from Excel "
                        "gb18030, or save it as UTF-8."
                    )
                yield (
                    _Bad(f"a line must be in {source.encoding}; it is not. Name the encoding of the file", text),
                    place,
                )
            elif not text.strip():
                continue
            elif kind in ("csv", "tsv"):
                if columns is None and kind == "csv":
                    comma = next((one for one in (",", "\t", ";") if one in text), comma)
                cells, why = _cells(text, comma, quoted=kind == "csv")
                if columns is None:
                    columns = [cell.strip() for cell in cells]
                elif not why and len(cells) == len(columns):
                    yield dict(zip(columns, cells, strict=True)), place
                elif b"\n" in line[:-1]:  # a quote without its end: only the line that has it is lost
                    first = line.index(b"\n") + 1
                    file.seek(file.tell() - len(line) + first)
                    text = line[:first].decode(source.encoding, "replace").rstrip("\r\n")
                    yield _Bad("a quote must have an end; it has none", text), {**place, "offset": file.tell()}
                else:
                    yield _Bad(why or f"a row must have {len(columns)} cells; it has {len(cells)}", text), place
            elif kind == "txt":
                yield {"text": text}, place
            else:
                yield from_json(text), place


def _cells(text: str, comma: str, *, quoted: bool) -> tuple[list[str], str]:
    """Return the cells of a line, and why csv does not allow them, if it does not. Quotes over several lines must be
    as csv has them: one that was never closed would take the lines up to the next one."""
    if not quoted:
        return text.split(comma), ""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    try:
        return next(csv.reader([text], delimiter=comma, strict="\n" in text)), ""
    except csv.Error as error:
        return [text], f"a row must be one of csv; it is not: {error}"


def _line(file: BinaryIO, *, quoted: bool, final: bool) -> bytes | None:
    """Return the next line, with `quoted` all lines of a quoted cell; None if there is no complete one."""
    start = file.tell()
    found = b""
    for _ in range(MOST_LINES):
        part = file.readline(LONGEST_LINE + 1)
        found += part
        if not part.endswith(b"\n"):
            if len(part) > LONGEST_LINE:  # the rest of the line is left out
                while part and not part.endswith(b"\n"):
                    part = file.readline(LONGEST_LINE)
                return found
            if found and final:
                return found
            file.seek(start)
            return None
        if not quoted or found.count(b'"') % 2 == 0:
            return found
    return found


def next_line(file: BinaryIO) -> bytes | None:
    """Return the next line of a stream, of at most one byte more than LONGEST_LINE; None at its end. The rest of a
    longer line is skipped."""
    found = file.readline(LONGEST_LINE + 1)
    part = found
    while len(found) > LONGEST_LINE and part and not part.endswith(b"\n"):
        part = file.readline(LONGEST_LINE)
    return found or None


def row_of(line: bytes, encoding: str) -> Any:
    """Return the row of a line of JSON or of text, or what is wrong with it."""
    text = line.decode(encoding, "replace").strip()
    if len(line) > LONGEST_LINE:
        return _Bad(f"a line must have at most {LONGEST_LINE:,} bytes; it has more", text[:200])
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return _Bad(f"a line must be in {encoding}; it is not. Name the encoding of the source", text)
    return from_json(text) if text.startswith("{") else {"text": text}


def from_json(text: str) -> Any:
    """Return the object of a line of JSON, or a `_Bad` with the reason why it is none."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return _Bad("a line must be an object of JSON; it is not", text)
    return row if isinstance(row, dict) else _Bad("a line must be an object of JSON; it is another value", text)


def bad_reason(row: Any) -> tuple[str, str] | None:
    """Return reason and line if a row is a `_Bad`; None otherwise."""
    return (row.why, row.line) if isinstance(row, _Bad) else None
