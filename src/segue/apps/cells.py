"""Conversion of table cells to text and times."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, tzinfo
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from segue.data.tables import DelimiterError, Row, Table, TableSettings, open_table
from segue.errors import ConfigError, DataError
from segue.text.unicode import without_surrogates

MILLISECONDS = 1e11
"""A larger number of seconds is taken as milliseconds."""
EARLIEST = -(2.0**31)
_LARGEST, _LONGEST = 1e18, 100
"""Numbers and texts beyond which a cell is no time."""
_CHINESE = re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日(?:\s*(\d{1,2})[:：时点](\d{1,2})?)?")
_SLASHED = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})(.*)", re.S)
_OPTION = re.compile("--(?:format|columns|delimiter|(?:no-)?quoting|malformed-share)")
_NUMBER = re.compile(r"\d{9,13}(?:\.\d+)?")


def open_given(source: str | Path | Table, *, encoding: str = "utf-8") -> Table:
    """Open a table of a user. Applications have no options for its format: csv whose first line has semicolons or tabs
    in place of commas is read as it is."""
    with _without_options():
        try:
            return open_table(source, TableSettings(encoding=encoding))
        except DelimiterError as error:
            return open_table(source, TableSettings(encoding=encoding, delimiter=error.found))


def rows_given(table: Table) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a table, with their numbers."""
    with _without_options():
        yield from table


@contextmanager
def _without_options() -> Iterator[None]:
    """Replace remedies in errors that name an option of other commands."""
    try:
        yield
    except DataError as error:
        said = error.on_command_line
        if (found := _OPTION.search(said)) is None:
            raise
        end = max(said.rfind(". ", 0, found.start()) + 1, said.rfind("\n", 0, found.start()), 0)
        raise DataError(
            f"{said[:end]} Mend the table, or write it as JSON lines, an object with the names of the columns a line."
        ) from None


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its name."""
    try:
        return UTC if name.upper() in ("UTC", "Z") else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(
            f"zone must be the name of a time zone; got {name!r}. Write Asia/Shanghai, for example."
        ) from None


def clean(value: Any) -> str:
    """Return a cell as text."""
    if value is None or isinstance(value, list | dict | bytes):
        return ""
    return without_surrogates(str(value)).replace("\0", "").strip()


def parse_time(value: Any, zone: tzinfo) -> float | None:
    """Return seconds since 1970 from ISO 8601, RFC 822, 2019年2月14日, 2019/2/14, or a number of (milli)seconds.

    >>> parse_time("2019-02-14T08:00:00+08:00", UTC) == parse_time("2019年2月14日", UTC)
    True
    """
    found = _datetime(value)
    if isinstance(found, float):
        seconds = found / 1000 if found > MILLISECONDS else found
    elif found is None:
        return None
    else:
        try:
            seconds = (found if found.tzinfo is not None else found.replace(tzinfo=zone)).timestamp()
        except (OverflowError, OSError, ValueError):
            return None
    return seconds if EARLIEST < seconds < MILLISECONDS else None


def time_given(given: str | None, otherwise: float) -> float:
    """Return the time that a user wrote, in UTC where it has no zone, or `otherwise` for None."""
    if given is None:
        return otherwise
    found = parse_time(given, UTC)
    if found is None:
        raise ConfigError(
            f"a time must be written as 2024-05-01 or 2024-05-01T10:00:00Z, and be of the years 1902 to 5000; got "
            f"{given[:40]!r}. Correct it."
        )
    return found


def _datetime(value: Any) -> datetime | float | None:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < _LARGEST else None
    text = str(value).strip()
    if len(text) > _LONGEST:
        return None
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        if found := _CHINESE.match(text):
            year, month, day, hour, minute = (int(part or 0) for part in found.groups())
            return datetime(year, month, day, hour, minute)
        if found := _SLASHED.match(text):
            text = f"{found[1]}-{int(found[2]):02d}-{int(found[3]):02d}{found[4]}"
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
