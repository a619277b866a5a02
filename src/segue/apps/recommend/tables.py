"""The operator's tables: events (user, item, time, kind) and items (id, title, description, tags, price).

In: rows with any usual names of columns. Out: `Event`s and `Item`s, or the reason why a row is none.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
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
"""Names that columns are known by, the first of them that a table has."""
LONGEST_NAME = 200
LONGEST_TEXT = 20_000
MOST_TAGS = 50
LATEST = 1e15
"""A number that is larger is no time, not even one of milliseconds."""
DEFAULT_KIND = "view"
KINDS = {"view": 1.0, "click": 1.0, "comment": 2.0, "share": 2.0, "buy": 3.0}
"""What an event of each kind weighs when it is to be predicted; kinds of other names weigh 1."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """What somebody did."""

    user: str
    item: str
    time: float
    """Seconds since 1970; where the table has no times, the place of the row in it."""
    kind: str = DEFAULT_KIND


@dataclass(frozen=True, kw_only=True)
class Item:
    """What can be recommended."""

    id: str
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    price: float | None = None

    @property
    def text(self) -> str:
        """All that it says of itself."""
        return ". ".join(part for part in (self.title, self.description, ", ".join(self.tags)) if part)


def cell(row: Mapping[str, Any], role: str) -> Any:
    """The value of a role; None where there is none."""
    lowered = {str(name).strip().casefold(): value for name, value in row.items()}
    return next((lowered[name] for name in COLUMNS[role] if lowered.get(name) is not None), None)


def to_event(row: Mapping[str, Any], *, otherwise: float) -> Event | str:
    """The event of a row, or why it is none; `otherwise` is its time where it has none."""
    user, item = clean(cell(row, "user")), clean(cell(row, "item"))
    if not user or not item:
        return "an event must have a user and an item; one of them is missing"
    if max(len(user), len(item)) > LONGEST_NAME:
        return f"ids of users and items must have at most {LONGEST_NAME} characters; one has more"
    given = cell(row, "time")
    time = otherwise if given in (None, "") else _time(given)
    if time is None:
        return "the time of an event must be a date or a number of seconds; it is not"
    return Event(user=user, item=item, time=time, kind=clean(cell(row, "kind"))[:LONGEST_NAME] or DEFAULT_KIND)


def _time(given: Any) -> float | None:
    """A small number is a place in an order, not a date."""
    try:
        number = float(given if isinstance(given, int | float) else str(given).strip())
    except ValueError:
        return parse_time(given, UTC)
    if not abs(number) < LATEST:
        return None
    return number / 1000 if abs(number) > MILLISECONDS else number


def to_item(row: Mapping[str, Any]) -> Item | str:
    """The item of a row, or why it is none."""
    id = clean(cell(row, "id"))
    if not id or len(id) > LONGEST_NAME:
        return f"an item must have an id of at most {LONGEST_NAME} characters; it has not"
    given = cell(row, "tags")
    names = given if isinstance(given, list) else clean(given).replace(";", "|").split("|")
    tags = tuple(dict.fromkeys(clean(one)[:LONGEST_NAME] for one in names if clean(one)))[:MOST_TAGS]
    try:
        price: float | None = float(cell(row, "price"))
    except (TypeError, ValueError):
        price = None
    return Item(
        id=id,
        title=clean(cell(row, "title"))[:LONGEST_TEXT],
        description=clean(cell(row, "description"))[:LONGEST_TEXT],
        tags=tags,
        price=price if price is not None and math.isfinite(price) else None,
    )


def read_events(source: str | Path | Table, problems: Counter[str]) -> Iterator[Event]:
    """The events of a table."""
    table = open_given(source)
    for number, (_, row) in enumerate(rows_given(table)):
        found = to_event(row, otherwise=float(number))
        if isinstance(found, str):
            problems[found] += 1
        else:
            yield found
    _count(table, problems)


def read_items(source: str | Path | Table, problems: Counter[str]) -> Iterator[Item]:
    """The items of a table."""
    table = open_given(source)
    for _, row in rows_given(table):
        found = to_item(row)
        if isinstance(found, str):
            problems[found] += 1
        else:
            yield found
    _count(table, problems)


def _count(table: Table, problems: Counter[str]) -> None:
    for kind, count in table.problems.counts.items():
        problems[kind.replace("_", " ")] += count


def parse_kinds(given: Mapping[str, float]) -> dict[str, float]:
    """The weights of kinds, those given instead of the usual ones."""
    for name, weight in given.items():
        if not (math.isfinite(weight) and 0 <= weight <= 1000):
            raise DataError(f"the weight of a kind must be from 0 to 1000; got {weight} for {name[:40]!r}.")
    return KINDS | dict(given)
