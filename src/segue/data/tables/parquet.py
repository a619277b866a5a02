"""Parquet tables, and the class names that the `datasets` library writes beside class numbers."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from segue.data.decode import Position, arrow, opened
from segue.data.inputs import InputFile
from segue.data.tables.reader import Record, Row, TableReader, TableRows, check_names
from segue.errors import DataError


def read_parquet(reading: TableReader, file: InputFile) -> TableRows:
    """Read all columns, some rows at a time; class numbers become class names if the file has them."""
    reading.unit = "row"
    rows = _parquet(reading, file)
    _, first = next(rows)
    assert isinstance(first, dict)
    return TableRows(tuple(first), "row", rows)


def _parquet(reading: TableReader, file: InputFile) -> Iterator[tuple[int, Record]]:
    """Yield the columns, as keys; then the rows."""
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
            raise DataError(f"{file.path} must be a complete Parquet file; got {error}. Copy it again.") from None
    reading.check()


def _features(metadata: Mapping[bytes, bytes] | None) -> Any:
    """Return the column features that the datasets library writes."""
    try:
        return json.loads((metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}


def class_names(features: Any) -> dict[str, list[str]]:
    """Return the class names of the columns that hold class numbers, or lists of them; `features` is the description of
    the columns in the `datasets` library."""
    found = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        inner = feature[0] if isinstance(feature, list) and len(feature) == 1 else feature
        inner = inner.get("feature", inner) if isinstance(inner, dict) else None
        names = inner.get("names") if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" else None
        if isinstance(names, list) and all(isinstance(label, str) for label in names):
            found[name] = names
    return found


def with_names(row: Row, classes: Mapping[str, list[str]]) -> Row:
    """Return the row with class names for numbers; a number without a class (-1 of unlabelled rows) becomes None."""

    def named(value: Any, names: list[str]) -> Any:
        if isinstance(value, list):
            return [named(item, names) for item in value]
        if isinstance(value, int):
            return names[value] if 0 <= value < len(names) else None
        return value

    return {name: named(value, classes[name]) if name in classes else value for name, value in row.items()}
