"""Export of texts with their predictions, as csv or parquet: a row per text, or per mention of one entity."""

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from segue.apps.database import Connection, Database
from segue.apps.monitor import queries
from segue.errors import ConfigError
from segue.files import new_file

Format = Literal["csv", "parquet"]
COLUMNS = (
    "number", "time", "source", "language", "author", "entity", "topic", "sentiment", "negative", "positive", "repeats",
    "late", "title", "text",
)  # fmt: skip
AT_ONCE = 1000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of cells that a spreadsheet would evaluate."""


def page_of(
    connection: Connection, *, entity: str, topic: str, start: float, before: tuple[float, int]
) -> list[dict[str, Any]]:
    """Return the next rows before a position, the latest first."""
    return queries.texts(connection, entity=entity, topic=topic, start=start, before=before, limit=AT_ONCE)


def exported(one: dict[str, Any], entity: str) -> dict[str, Any]:
    """Return a text as a row of the export."""
    return {
        "number": one["number"],
        "time": datetime.fromtimestamp(one["time"], UTC).isoformat(),
        "source": one["source"],
        "language": one["language"],
        "author": one["author"] or "",
        "entity": entity or "|".join(one["entities"]),
        "topic": one["topic"],
        "sentiment": one["sentiment"],
        "negative": one["said"]["negative"],
        "positive": one["said"]["positive"],
        "repeats": one["original"] or 0,
        "late": one["late"],
        "title": one["title"],
        "text": one["text"],
    }


def csv_lines(rows: list[dict[str, Any]], *, header: bool) -> str:
    """Return rows as csv. A cell that a spreadsheet would take for a formula gets an apostrophe in front."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    if header:
        writer.writeheader()
    for row in rows:
        writer.writerow(
            {
                name: f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
                for name, value in row.items()
            }
        )
    return file.getvalue()


def parquet_bytes(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as the bytes of a parquet file."""
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            "parquet needs pyarrow; it is not installed. Install it (pip install pyarrow), or export csv."
        ) from None
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    file = io.BytesIO()
    parquet.write_table(arrow.table(columns), file)
    return file.getvalue()


def pages(
    database: Database, *, entity: str, topic: str, start: float, end: float, most: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows between two times in pages, at most `most` rows."""
    before = (end, 0)
    while most > 0:
        found = database.do(
            lambda connection, before=before: page_of(  # type: ignore[misc]
                connection, entity=entity, topic=topic, start=start, before=before
            )
        )
        if not found:
            return
        yield [exported(one, entity) for one in found[:most]]
        most -= len(found)
        before = (found[-1]["time"], found[-1]["number"])


def write_export(
    database: Database,
    out: Path,
    *,
    entity: str,
    topic: str,
    start: float,
    end: float,
    most: int,
    replace: bool,
    inputs: Sequence[Path],
) -> int:
    """Write csv or parquet, as the suffix of the file says, and return the number of rows."""
    count = 0
    if out.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"--out must end with .csv or .parquet; got {out.name!r}. Choose another name.")
    with new_file(out, replace=replace, inputs=inputs) as file:
        kept: list[dict[str, Any]] = []
        for rows in pages(database, entity=entity, topic=topic, start=start, end=end, most=most):
            if out.suffix == ".csv":
                file.write(csv_lines(rows, header=not count).encode())
            else:
                kept += rows
            count += len(rows)
        if out.suffix == ".parquet":
            file.write(parquet_bytes(kept))
        elif not count:
            file.write(csv_lines([], header=True).encode())
    return count
