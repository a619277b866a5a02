"""Conversion of rows to texts, with time and zone, author and language.

In: a row, a dict with any column names. Out: a `Text`, or the reason why it is rejected.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import Any

from segue.apps.cells import clean, parse_time
from segue.text.unicode import is_chinese

COLUMNS = {
    "text": ("text", "content", "body", "sentence", "tweet", "summary", "description", "正文", "内容", "文本"),
    "title": ("title", "headline", "标题"),
    "time": ("time", "date", "published", "created_at", "updated", "pubdate", "timestamp", "时间", "日期"),
    "author": ("author", "user", "user_id", "person", "作者"),
    "id": ("id", "guid", "text_id", "编号"),
    "sentiment": ("sentiment", "label", "polarity", "情感", "正/负面", "正负面"),
    "topic": ("topic", "category", "主题", "类别"),
    "entities": ("entities", "实体"),
    "entity": ("entity", "symbol", "code", "company", "代码", "公司"),
}
"""Column names by role; the first one with a value is used."""
LONGEST = 200_000
"""Maximum number of characters in a text; longer ones are rejected."""
LONGEST_NAME = 200
AHEAD = 86_400.0
"""Seconds that the time of a text may be ahead of its arrival: clocks differ, but next month is a mistake."""


@dataclass(frozen=True, kw_only=True)
class Text:
    """A text from a source."""

    id: str
    """Unique in the monitor; the same text from the same source has the same id."""
    source: str
    time: float
    """The text's own time, in seconds since 1970."""
    text: str
    title: str = ""
    author: str | None = None
    language: str = ""

    @property
    def whole(self) -> str:
        """Title and text; the text alone if it begins with the title."""
        if not self.title or self.text.startswith(self.title):
            return self.text
        return f"{self.title}\n{self.text}" if self.text else self.title


@dataclass(frozen=True, kw_only=True)
class Rows:
    """How the rows of a source are interpreted."""

    source: str
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns by role, where column names do not match."""
    zone: tzinfo = UTC
    """Time zone for times without one. Default: UTC."""

    def cell(self, row: Mapping[str, Any], role: str) -> Any:
        """Return the value of a role; None if there is none."""
        if role in self.columns:
            return row.get(self.columns[role])
        for name in COLUMNS[role]:
            if row.get(name) is not None:
                return row[name]
        lowered = {str(name).strip().casefold(): value for name, value in row.items()}
        return next((lowered[name] for name in COLUMNS[role] if lowered.get(name) is not None), None)


def to_text(row: Mapping[str, Any], rows: Rows, *, arrived: float) -> Text | str:
    """Return the text of a row, or the reason why it is rejected. Default time: that of its arrival."""
    for role in ("text", "title", "author", "id"):
        if isinstance(value := rows.cell(row, role), list | dict | bool):
            return f"{role} must be a string or a number; it is {type(value).__name__}"
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
        return f"a text must not be later than its arrival by more than a day; got {given!s:.60}"
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


def language_of(text: str) -> str:
    """Return zh for Chinese, en for mostly ASCII letters, and other."""
    letters = [one for one in text[:400] if one.isalpha()]
    if is_chinese(text[:400]):
        return "zh"
    return "en" if sum(one.isascii() for one in letters) > 0.7 * len(letters) else "other"
