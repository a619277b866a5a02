"""Rows from memory: pandas, polars and Arrow tables, data sets, lists of dicts, dicts of columns. None of these
libraries is imported.

In: any table-like object. Out: plain dicts, or a Table as read from a file. Missing values become None.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from segue.arguments import check_path
from segue.data.problems import Problems
from segue.data.tables import Table
from segue.data.tables.reader import Record, TableRows
from segue.errors import DataError, kind_of

TableLike: TypeAlias = Any
"""A file (`str` or `Path`, also "datasets:NAME"), a list of dicts, a dict of columns, a pandas or polars DataFrame, an
Arrow table, or a data set of the `datasets` library."""


def several(data: TableLike | Sequence[TableLike]) -> Sequence[TableLike]:
    """Return a list of tables; a list of rows counts as one table."""
    is_rows = bool(isinstance(data, list | tuple) and data and isinstance(data[0], dict))
    return data if isinstance(data, list | tuple) and not is_rows else [data]


def table_sources(sources: Sequence[TableLike]) -> list[str | Table]:
    """Return `table_source` of each of the `sources` of a function."""
    if len(sources) == 1:
        return [table_source(sources[0], name="sources")]
    return [table_source(one, name=f"table {number} of sources") for number, one in enumerate(sources, start=1)]


def table_source(data: TableLike, *, name: str) -> str | Table:
    """Return a file name unchanged, or an in-memory table, which messages refer to as `name`."""
    if isinstance(data, str | Path):
        check_path(name, data)
        return str(data)
    if isinstance(data, Table):
        return data
    return memory_table(rows_of(data, name=name), name=name)


def memory_table(rows: Sequence[Mapping[str, Any]], *, name: str) -> Table:
    """Return a table of rows in memory. Its columns are the keys of all rows."""
    if not rows:
        raise DataError(f"{name} must have at least one row; got none. Add the rows.")
    columns = tuple(dict.fromkeys(key for row in rows for key in row))

    def begin(problems: Problems) -> TableRows:
        numbered: Iterator[tuple[int, Record]] = (
            (number, {column: row.get(column) for column in columns}) for number, row in enumerate(rows, start=1)
        )
        return TableRows(columns, "row", numbered)

    return Table(name, begin, once=False)


def rows_of(data: TableLike, *, name: str) -> list[dict[str, Any]]:
    """Return the rows of any table-like object.

    >>> rows_of({"text": ["a", "b"], "label": [1, 0]}, name="train")
    [{'text': 'a', 'label': 1}, {'text': 'b', 'label': 0}]
    """
    if hasattr(data, "to_pylist"):  # Arrow
        rows = data.to_pylist()
    elif hasattr(data, "to_dicts"):  # polars
        rows = data.to_dicts()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        rows = data.to_dict(orient="records")
    elif isinstance(data, Mapping):
        rows = _from_columns(data, name=name)
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        rows = list(data)
    else:
        raise _no_table(data, name=name)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            raise DataError(
                f"every row of {name} must be a dict; row {number} is {kind_of(row)}. Use "
                '[{"text": ..., "label": ...}, ...], for example.'
            )
    return [{str(key): plain(value) for key, value in row.items()} for row in rows]


def plain(value: Any) -> Any:
    """Return a cell as a plain value: numpy scalars as numbers, arrays as lists, missing values as None."""
    if hasattr(value, "tolist"):  # numpy, and Series in cells
        value = value.tolist()
    if isinstance(value, float) and math.isnan(value):
        return None
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas
        return None
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    return value


def _from_columns(data: Mapping[str, Any], *, name: str) -> list[dict[str, Any]]:
    columns = {key: _cells(value) for key, value in data.items()}
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) != 1:
        shown = ", ".join(f"{key}: {len(cells)}" for key, cells in columns.items()) or "no columns"
        raise DataError(
            f"{name} must have columns of equal length; got {shown}. Give the same number of values for each."
        )
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _cells(value: Any) -> list[Any]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise DataError(f"a column must be a list of values; got {str(value)[:40]!r}. Put it into a list.")
    return list(value.to_pylist() if hasattr(value, "to_pylist") else value)


def _no_table(data: Any, *, name: str) -> DataError:
    return DataError(
        f"{name} must be a file or a table; got {kind_of(data)}. Use a path, a list of dicts, a dict of lists, "
        "a pandas DataFrame or an Arrow table."
    )
