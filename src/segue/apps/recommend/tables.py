"""The operator's tables: events (user, item, time, kind) and items (id, title, description, tags, price).

In: rows, with any of the usual column names. Out: `Event`s and `Item`s, and a count of the rows that were skipped, by
reason.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from segue.apps.cells import MILLISECONDS, clean, open_given, parse_time, rows_given
from segue.data.tables import Table
from segue.errors import DataError

COLUMNS = {
    "user": ("user", "user_id", "userid", "person", "visitor", "用户"),
    "item": ("item", "item_id", "itemid", "movieid", "product", "product_id", "sku", "物品", "商品"),
    "time": ("time", "timestamp", "date", "created_at", "时间"),
    "kind": ("kind", "event", "type", "action", "行为"),
    "id": ("id", "item", "item_id", "movieid", "product_id", "sku", "编号"),
    "title": ("title", "name", "标题", "名称"),
    "description": ("description", "text", "body", "描述", "简介"),
    "tags": ("tags", "genres", "category", "categories", "标签", "类别"),
    "price": ("price", "价格"),
}
"""Accepted names of each column; the first one present in a table is used."""
LONGEST_NAME = 200
"""Maximum length of an id, tag or kind in characters."""
LONGEST_TEXT = 20_000
"""Maximum length of a title or description in characters; longer ones are cut."""
MOST_TAGS = 50
"""Maximum number of tags of an item."""
MOST_KINDS = 100
"""Maximum number of kinds of events that a model tells apart: the most frequent ones, and those with a weight."""
UNDATED = "an event must have a time if others of the table have one; it has none"
UNTIMED = "the time of an event must be a date or a number of seconds; it is not"
_COMPACT = re.compile("(?:19|20)[0-9]{6}")
CONTROL = "ids of users and items must have no control characters, such as line breaks; one has some"
_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]")
LATEST = 1e15
"""Upper limit of numbers that are times, in milliseconds."""
DEFAULT_KIND = "view"
KINDS = {"view": 1.0, "click": 1.0, "comment": 2.0, "share": 2.0, "buy": 3.0}
"""Default loss weights by kind; other kinds have weight 1."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """An interaction of a user with an item."""

    user: str
    item: str
    time: float
    """Seconds since 1970; the number of the row if the table has no times."""
    kind: str = DEFAULT_KIND


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item that can be recommended."""

    id: str
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    price: float | None = None
    withdrawn: bool = False
    """Whether it is never listed any more."""

    @property
    def text(self) -> str:
        """Title, description and tags as one text."""
        return ". ".join(part for part in (self.title, self.description, ", ".join(self.tags)) if part)


def by_role(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a row by the roles of their columns, without missing ones (None, or NaN as pandas has)."""
    lowered = {str(name).strip().casefold(): value for name, value in row.items()}
    found = {}
    for role, names in COLUMNS.items():
        for name in names:
            value = lowered.get(name)
            if value is not None and value == value:
                found[role] = value
                break
    return found


def _id(value: Any) -> str:
    """Return an id as text. Ids that became floating-point numbers beside missing values (7.0) are whole again (7)."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else clean(value)


def has_control(text: str) -> bool:
    """Return True if a text has control characters, which ids must not have: they cannot be part of an address."""
    return _CONTROL.search(text) is not None


def to_event(row: Mapping[str, Any], *, otherwise: float | None) -> Event | str:
    """Return the event of a row, or the reason to skip it. `otherwise` is the time of a row without one; None skips
    such rows."""
    values = by_role(row)
    user, item = _id(values.get("user")), _id(values.get("item"))
    if not user or not item:
        return "an event must have a user and an item; one of them is missing"
    if max(len(user), len(item)) > LONGEST_NAME:
        return f"ids of users and items must have at most {LONGEST_NAME} characters; one has more"
    if has_control(user) or has_control(item):
        return CONTROL
    given = values.get("time")
    time = otherwise if _missing(given) else _time(given)
    if time is None and _missing(given):
        return UNDATED
    if time is None:
        return UNTIMED
    return Event(user=user, item=item, time=time, kind=clean(values.get("kind"))[:LONGEST_NAME] or DEFAULT_KIND)


def _compact(given: Any) -> str | None:
    """Return the digits of a time that may be a date written as 20240501, from the years 1900 to 2099; None for any
    other."""
    text = str(int(given)) if isinstance(given, float) and given.is_integer() else str(given).strip()
    return text if _COMPACT.fullmatch(text) else None


def _date(digits: str) -> float | None:
    """Return the seconds of a date written as 20240501, or None."""
    try:
        return datetime.strptime(digits, "%Y%m%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _missing(time: Any) -> bool:
    """Return True if a cell for a time is empty."""
    return time is None or str(time).strip() == ""


def _time(given: Any) -> float | None:
    """Return a time in seconds, or None. Small numbers are accepted: they are positions in an order, not dates."""
    try:
        number = float(given if isinstance(given, int | float) else str(given).strip())
    except ValueError:
        return parse_time(given, UTC)
    except OverflowError:
        return None
    if not abs(number) < LATEST:
        return None
    return number / 1000 if abs(number) > MILLISECONDS else number


def to_item(row: Mapping[str, Any]) -> Item | str:
    """Return the item of a row, or the reason to skip it."""
    values = by_role(row)
    id = _id(values.get("id"))
    if not id or len(id) > LONGEST_NAME:
        return f"an item must have an id of at most {LONGEST_NAME} characters; it has none, or a longer one"
    if has_control(id):
        return CONTROL
    given = values.get("tags")
    names = given if isinstance(given, list) else clean(given).replace(";", "|").split("|")
    tags = tuple(dict.fromkeys(clean(one)[:LONGEST_NAME] for one in names if clean(one)))[:MOST_TAGS]
    try:
        price: float | None = float(values["price"])
    except (KeyError, TypeError, ValueError, OverflowError):
        price = None
    return Item(
        id=id,
        title=clean(values.get("title"))[:LONGEST_TEXT],
        description=clean(values.get("description"))[:LONGEST_TEXT],
        tags=tags,
        price=price if price is not None and math.isfinite(price) and price >= 0 else None,
    )


def read_events(source: str | Path | Table, problems: Counter[str], *, encoding: str = "utf-8") -> Iterator[Event]:
    """Yield the events of a table, and count skipped rows in `problems`. In a table without times, the order of the
    rows is the order of the events. Times such as 20240501 are dates if most of those of this form are; otherwise they
    are numbers."""
    table = open_given(source, encoding=encoding)
    _check_columns(table, "events", ("user", "item"))
    undated: list[tuple[int, dict[str, Any]]] = []
    compact: list[tuple[Event, float | None]] = []
    dated = False
    for number, (_, row) in enumerate(rows_given(table)):
        found = to_event(row, otherwise=None)
        if found == UNDATED and not dated:
            undated.append((number, row))
        elif isinstance(found, str):
            problems[found] += 1
        else:
            dated = True
            digits = _compact(by_role(row).get("time"))
            if digits is None:
                yield found
            else:
                compact.append((found, _date(digits)))
    are_dates = 2 * sum(1 for _, date in compact if date is not None) > len(compact)
    for event, date in compact:
        if not are_dates:
            yield event
        elif date is None:
            problems[UNTIMED] += 1
        else:
            yield replace(event, time=date)
    for number, row in undated:
        found = UNDATED if dated else to_event(row, otherwise=float(number))
        if isinstance(found, str):
            problems[found] += 1
        else:
            yield found
    _count(table, problems)


def read_items(source: str | Path | Table, problems: Counter[str], *, encoding: str = "utf-8") -> Iterator[Item]:
    """Yield the items of a table, and count skipped rows in `problems`."""
    table = open_given(source, encoding=encoding)
    _check_columns(table, "items", ("id",))
    for _, row in rows_given(table):
        found = to_item(row)
        if isinstance(found, str):
            problems[found] += 1
        else:
            yield found
    _count(table, problems)


def _check_columns(table: Table, what: str, roles: Sequence[str]) -> None:
    """Raise DataError if a table lacks a required column."""
    names = {name.strip().casefold() for name in table.columns}
    missing = [role for role in roles if not names & set(COLUMNS[role])]
    if missing:
        raise DataError(
            f"{table.source} must have the columns of {what}, with {' and '.join(missing)}; got "
            f"{', '.join(table.columns)[:200]}. Rename a column (accepted names of {missing[0]}: "
            f"{', '.join(COLUMNS[missing[0]])})."
        )


def _count(table: Table, problems: Counter[str]) -> None:
    for kind, count in table.problems.counts.items():
        problems[kind.replace("_", " ")] += count


def parse_kinds(given: Mapping[str, float]) -> dict[str, float]:
    """Return the loss weights by kind: the defaults, overridden by those given."""
    for name, weight in given.items():
        if not (math.isfinite(weight) and 0 <= weight <= 1000):
            raise DataError(
                f"the weight of a kind must be from 0 to 1000; got {weight} for {name[:40]!r}. Give another weight."
            )
    return KINDS | dict(given)
