"""Entity recognition by a list of codes and names, with longest match.

In: a table with the columns code and names (separated by |). Out: the mentions in a text. All names form one trie of
characters, which is walked from each position where a word may begin. In scripts with spaces a name must be a whole
word, and names of four or more letters match regardless of case; a shorter name or code must be written as in the
list, or after a dollar sign ($T, $ aapl). A code of digits must not touch other digits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from segue.apps.cells import open_given, rows_given
from segue.data.tables import Table
from segue.errors import DataError
from segue.text.unicode import is_unspaced

SHORT = 4
"""Minimum number of letters of names that match regardless of case."""
LONGEST = 100
MOST = 100_000
COLUMNS = {"code": ("code", "symbol", "entity", "代码"), "names": ("names", "name", "company", "公司", "名称")}


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A company, or whatever else texts are about."""

    code: str
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Mention:
    """A mention of an entity, with its position in the text."""

    entity: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Entities:
    """The list of entities."""

    all: tuple[Entity, ...]

    @cached_property
    def codes(self) -> frozenset[str]:
        """All codes."""
        return frozenset(one.code for one in self.all)

    @cached_property
    def _tree(self) -> dict[str, Any]:
        """Trie of lower-case characters; the key "" holds the names that end there, as pairs of spelling and code."""
        tree: dict[str, Any] = {}
        for one in self.all:
            for name in (one.code, *one.names):
                node = tree
                for character in name.lower():
                    node = node.setdefault(character, {})
                node.setdefault("", []).append((name, one.code))
        return tree

    def mentions(self, text: str) -> list[Mention]:
        """Return all mentions in a text, in order; they do not overlap."""
        lowered = text.lower() if len(text.lower()) == len(text) else text
        found = []
        place = 0
        before = " "
        tree = self._tree
        while place < len(lowered):
            character = lowered[place]
            if character in tree and (_is_end(before) or _is_end(character)):
                match = self._longest(text, lowered, place)
                if match is not None:
                    found.append(match)
                    place, before = match.end, lowered[match.end - 1]
                    continue
            before = character
            place += 1
        return found

    def _longest(self, text: str, lowered: str, start: int) -> Mention | None:
        node, place, found = self._tree, start, None
        while place < len(lowered) and lowered[place] in node:
            node = node[lowered[place]]
            place += 1
            if "" in node and (place == len(lowered) or _is_end(lowered[place]) or _is_end(lowered[place - 1])):
                code = _fitting(node[""], text, start, place)
                if code is not None:
                    found = Mention(entity=code, start=start, end=place)
        return found


@lru_cache(maxsize=100_000)
def _is_end(character: str) -> bool:
    """Return True if a name may begin or end next to this character."""
    return not character.isalnum() or is_unspaced(character)


def _fitting(names: Iterable[tuple[str, str]], text: str, start: int, end: int) -> str | None:
    written = text[start:end]
    for name, code in names:
        latin = any(one.isalpha() and not is_unspaced(one) for one in name)
        if not latin or len(name) >= SHORT or written == name:
            if name != code or not latin or written == name or _behind_dollar(text, start):
                return code
        elif _behind_dollar(text, start):
            return code
    return None


def _behind_dollar(text: str, start: int) -> bool:
    return text[max(0, start - 2) : start].rstrip().endswith("$")


def read_entities(source: str | Path | Table) -> Entities:
    """Read the list from a file or a table in memory."""
    table = open_given(source)
    by_name = {column.strip().casefold(): column for column in reversed(table.columns)}
    columns = {role: next((by_name[n] for n in names if n in by_name), None) for role, names in COLUMNS.items()}
    if columns["code"] is None:
        raise DataError(
            f"{table.source} must have a column code, and optionally names; got {', '.join(table.columns)[:200]}. "
            "Rename one of them."
        )
    found: dict[str, list[str]] = {}
    for number, row in rows_given(table):
        code = str(row.get(columns["code"]) or "").strip().removeprefix("$")
        names = row.get(columns["names"]) if columns["names"] is not None else None
        listed = names if isinstance(names, list) else str(names or "").split("|")
        kept = [name for one in listed if 1 < len(name := str(one).strip()) <= LONGEST]
        if not code or len(code) > LONGEST or "\n" in code:
            raise DataError(
                f"{table.source}, row {number}, must have a code of 1 to {LONGEST} characters; got {code[:40]!r}."
            )
        found.setdefault(code, []).extend(kept)
    if len(found) > MOST:
        raise DataError(f"{table.source} must have at most {MOST:,} entities; got {len(found):,}. Remove some.")
    return entities_of(found.items())


def entities_of(listed: Iterable[tuple[str, Sequence[str]]]) -> Entities:
    """Return the list of codes and their names."""
    return Entities(all=tuple(Entity(code=code, names=tuple(dict.fromkeys(names))) for code, names in listed))
