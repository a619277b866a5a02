"""From the row of a source to a text: its words, its own time and zone, its author, its language.

In: a row (a dict with any names of columns). Out: a `Text`, or the reason why it is none.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from email.utils import parsedate_to_datetime
from typing import Any
from zoneinfo import ZoneInfo

from segue.errors import ConfigError
from segue.text.unicode import is_unspaced, without_surrogates

COLUMNS = {
    "text": ("text", "content", "body", "sentence", "tweet", "summary", "description", "正文", "内容", "文本"),
    "title": ("title", "headline", "标题"),
    "time": ("time", "date", "published", "created_at", "updated", "pubdate", "timestamp", "时间", "日期"),
    "author": ("author", "user", "user_id", "person", "作者"),
    "id": ("id", "guid", "text_id", "编号"),
    "sentiment": ("sentiment", "label", "polarity", "情感", "正/负面", "正负面"),
    "topic": ("topic", "category", "主题", "类别"),
    "entity": ("entity", "symbol", "code", "company", "代码", "公司"),
}
"""Names that columns are known by, the first of them that a table has."""
LONGEST = 200_000
"""Characters of a text; what is longer is refused."""
LONGEST_NAME = 200
_CHINESE = re.compile(r"(\d{4})年(\d{1,2})月(\d{1,2})日(?:\s*(\d{1,2})[:：时点](\d{1,2})?)?")
_SLASHED = re.compile(r"(\d{4})[/.](\d{1,2})[/.](\d{1,2})(.*)", re.S)
_NUMBER = re.compile(r"\d{9,13}(?:\.\d+)?")
MILLISECONDS = 1e11
"""A larger number of seconds is one of milliseconds."""
EARLIEST = -(2.0**31)
AHEAD = 86_400.0
"""Seconds that the time of a text may lie after its arrival: clocks differ, but a text of next month is a mistake."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """What came in."""

    id: str
    """Unique in the monitor: the same text of the same source again has the same id."""
    source: str
    time: float
    """Seconds since 1970, of the text itself."""
    text: str
    title: str = ""
    author: str | None = None
    language: str = ""

    @property
    def whole(self) -> str:
        """Title and text, where the text does not begin with the title."""
        if not self.title or self.text.startswith(self.title):
            return self.text
        return f"{self.title}\n{self.text}" if self.text else self.title


@dataclass(frozen=True, kw_only=True)
class Rows:
    """How the rows of a source are understood."""

    source: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by their roles, where their names do not say them."""
    zone: tzinfo = UTC
    """Time zone for times without one. Default: UTC."""

    def cell(self, row: Mapping[str, Any], role: str) -> Any:
        """The value of a role; None where there is none."""
        if role in self.columns:
            return row.get(self.columns[role])
        for name in COLUMNS[role]:
            if row.get(name) is not None:
                return row[name]
        lowered = {str(name).strip().casefold(): value for name, value in row.items()}
        return next((lowered[name] for name in COLUMNS[role] if lowered.get(name) is not None), None)


def zone_of(name: str) -> tzinfo:
    """A zone by its name."""
    try:
        return UTC if name.upper() in ("UTC", "Z") else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ConfigError(f"zone must be the name of a time zone; got {name!r}. Write Asia/Shanghai, say.") from None


def to_text(row: Mapping[str, Any], rows: Rows, *, arrived: float) -> Text | str:
    """The text of a row, or why it is none. Where the row has no time, it is that of its arrival."""
    text, title = clean(rows.cell(row, "text")), clean(rows.cell(row, "title"))
    if not text and not title:
        return "a row must have a text; it has none"
    if len(text) > LONGEST:
        return f"a text must have at most {LONGEST:,} characters; it has {len(text):,}"
    given = rows.cell(row, "time")
    time = arrived if given in (None, "") else parse_time(given, rows.zone)
    if time is None:
        return f"a time must be one that can be read; it is {str(given)[:40]!r}"
    if time > arrived + AHEAD:
        return "a text must not be later than its arrival by more than a day; it is"
    author = clean(rows.cell(row, "author"))[:LONGEST_NAME] or None
    own = clean(rows.cell(row, "id"))
    key = f"{rows.source}\0{own}" if own else f"{rows.source}\0{given}\0{author}\0{title}\0{text}"
    id = hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=16).hexdigest()
    return Text(
        id=id,
        source=rows.source,
        time=time,
        text=text,
        title=title[:1000],
        author=author,
        language=language_of(f"{title} {text[:2000]}"),
    )


def clean(value: Any) -> str:
    """A cell as text."""
    if value is None or isinstance(value, list | dict | bytes):
        return ""
    return without_surrogates(str(value)).replace("\0", "").strip()


def parse_time(value: Any, zone: tzinfo) -> float | None:
    """Seconds since 1970: ISO 8601, RFC 822, 2019年2月14日, 2019/2/14, or a number of seconds or milliseconds.

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


def _datetime(value: Any) -> datetime | float | None:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if value == value else None
    text = str(value).strip()
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
    except (ValueError, TypeError, IndexError):
        return None


def language_of(text: str) -> str:
    """zh for a script without spaces, en for others of Latin letters, and other."""
    letters = [one for one in text[:400] if one.isalpha()]
    unspaced = sum(is_unspaced(one) for one in letters)
    if 3 * unspaced > len(letters):
        return "zh"
    return "en" if sum(one.isascii() for one in letters) > 0.7 * len(letters) else "other"
