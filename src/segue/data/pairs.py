"""Minimal pairs: an acceptable sentence and a minimally different unacceptable one, as in BLiMP and similar test sets.

In: a table (`segue.data.tables`: JSON lines and the rest, plain or compressed) or a folder of JSON lines files. Out:
all pairs, in order. Every row must be a pair: the score on part of a test set is not the score on the test set, so a
row that cannot be read is an error that names it.

The columns are found by their names, or named by the user. A paradigm is the smallest group of pairs, made in one way
(UID in BLiMP); a phenomenon is a group of paradigms. A table without paradigms is one paradigm, named after the file;
without phenomena, each paradigm is also a phenomenon.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.data.inputs import COMPRESSIONS
from segue.data.tables import ENDINGS, Table, TableSettings, Unread, find_column, open_table
from segue.data.tables.reader import BLANK
from segue.errors import ConfigError, DataError

COLUMNS: dict[str, tuple[str, ...]] = {
    "good": ("sentence_good", "good", "good_sentence", "grammatical", "acceptable", "correct"),
    "bad": ("sentence_bad", "bad", "bad_sentence", "ungrammatical", "unacceptable", "incorrect", "wrong"),
    "paradigm": ("UID", "paradigm"),
    "phenomenon": ("linguistics_term", "phenomenon", "category", "field"),
}
"""Usual column names of each role, in order of preference; the sentences are required."""
SHOWN = 5
"""Maximum number of rows named in an error."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two sentences; a model should assign the good one the higher probability."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str


def read_pairs(source: Path, columns: Mapping[str, str] | None = None) -> list[Pair]:
    """Return all pairs of a file, or of every JSON lines file of a folder. `columns` maps roles to column names, where
    the usual names do not apply."""
    wanted = dict(columns or {})
    for role in wanted:
        if role not in COLUMNS:
            raise ConfigError(
                f"a column of minimal pairs is one of {', '.join(COLUMNS)}; got {role!r}. Use one of them."
            )
    pairs = [pair for file in _files(source) for pair in _read(file, wanted)]
    if all(pair.good == pair.bad for pair in pairs):
        raise DataError(f"{source} must have pairs of different sentences; got {len(pairs):,} of equal ones. Check it.")
    return pairs


def _files(source: Path) -> list[Path]:
    if not source.is_dir():
        return [source]
    found = [path for path in sorted(source.iterdir()) if path.is_file() and _is_json_lines(path)]
    if not found:
        raise DataError(
            f"{source} must hold minimal pairs as .jsonl files, plain or compressed; got none. Name a file."
        )
    return found


def _is_json_lines(path: Path) -> bool:
    name = path.stem if path.suffix.lower() in COMPRESSIONS else path.name
    return ENDINGS.get(Path(name).suffix.lower()) == "jsonl" and not path.name.startswith(".")


def _read(path: Path, wanted: Mapping[str, str]) -> Iterator[Pair]:
    table = open_table(path, TableSettings(every_row=True))
    names = _columns(table, wanted)
    own_name = path.name.split(".")[0]
    wrong: list[str] = []
    rows = 0
    for number, row in table.records():
        if row is BLANK:
            continue
        rows += 1
        problem = row.why if isinstance(row, Unread) else _problem(row, names)
        if problem is not None:
            wrong.append(f"{table.unit} {number}: {problem}")
            continue
        assert not isinstance(row, Unread)
        paradigm = _name(row, names.get("paradigm")) or own_name
        phenomenon = _name(row, names.get("phenomenon")) or paradigm
        yield Pair(good=row[names["good"]], bad=row[names["bad"]], paradigm=paradigm, phenomenon=phenomenon)
    if wrong:
        shown = [*wrong[:SHOWN], "..."] if len(wrong) > SHOWN else wrong
        raise DataError(
            f"{path} must have a good and a bad sentence in every row; got {len(wrong):,} of {rows:,} without:"
            + "".join(f"\n  {one}" for one in shown)
            + "\nCorrect these rows, or remove them."
        )


def _columns(table: Table, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the column name of each role that the table has."""
    found: dict[str, str] = {}
    for role, names in COLUMNS.items():
        optional = role in ("paradigm", "phenomenon")
        if optional and role not in wanted and not _has_any(table.columns, names):
            continue
        found[role] = find_column(
            table.columns, wanted.get(role), names, source=table.source, option=f"--column {role}=NAME"
        )
    if found["good"] == found["bad"]:
        raise DataError(
            f"{table.source} must have the two sentences in different columns; got {found['good']!r} for both. Name "
            "the other with --column."
        )
    return found


def _has_any(columns: Sequence[str], names: Sequence[str]) -> bool:
    return bool({name.casefold() for name in columns} & {name.casefold() for name in names})


def _problem(row: Mapping[str, Any], names: Mapping[str, str]) -> str | None:
    for role in ("good", "bad"):
        value = row.get(names[role])
        if not isinstance(value, str):
            return f"{names[role]} must be text; got {'nothing' if value is None else type(value).__name__}"
        if not value.strip():
            return f"{names[role]} must be a sentence; got an empty one"
    return None


def _name(row: Mapping[str, Any], column: str | None) -> str:
    value = row.get(column) if column is not None else None
    return "" if value is None else str(value)
