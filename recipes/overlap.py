"""Decontamination: the n-grams of test sets, found in a paragraph by their hashes.

A paragraph overlaps if it contains an n-gram of the test sets: 13 consecutive words for English, 20 characters for
Chinese, ignoring punctuation and case. A short paragraph (one sentence) overlaps if all of it is an item of a test set.
Traditional Chinese is compared as simplified, with the package `opencc`.
"""

import hashlib
import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segue.errors import SegueError

LENGTH = {"en": 13, "zh": 20}
SHORTEST_ITEM = {"en": 4, "zh": 8}
UNITS = {"en": re.compile(r"[^\W_]+(?:'[a-z]+)?"), "zh": re.compile(r"[^\W_a-zA-Z0-9]|[a-zA-Z0-9]+")}
ITEM_BORDERS = re.compile(r"[\n\t\"@.!?;。！？；]")
ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
COLUMNS = ("conll2003", "msra_ner", "weibo_ner")
"""Data sets with one token per line, followed by its tags."""
NOT_TESTS = ("enwik8.train", "wikitext2/train", "ml1m/", "movielens_small/", "prices.csv")
"""Not test sets: Wikipedia again, and tables of numbers."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)


class Overlap:
    """The n-grams of the test sets of one language."""

    def __init__(self, language: str) -> None:
        self.length = LENGTH[language]
        self._shortest = SHORTEST_ITEM[language]
        self._pattern = UNITS[language]
        self._simplified = _simplifier() if language == "zh" else None
        self._known: dict[str, int] = {}
        self._parts: list[NDArray[np.uint64]] = []
        self.items: set[int] = set()
        self.grams: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.files = 0

    def test_files(self, folder: Path, *, without: Path) -> Iterator[Path]:
        """Yield the files of all data sets, except the sources themselves and other training text."""
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if not path.is_file() or path.is_relative_to(without) or path.suffix == ".md" or "/" not in name:
                continue
            if not any(part in name for part in NOT_TESTS):
                yield path

    def add_file(self, path: Path) -> None:
        """Add all n-grams of a file, whatever its format: the syntax of JSON and tables between texts does no harm."""
        open_file = lzma.open if path.suffix == ".xz" else open
        with open_file(path, "rt", encoding="utf-8", errors="replace") as file:
            text = ESCAPED.sub(lambda match: chr(int(match.group(1), 16)), file.read())
        if any(name in path.parts for name in COLUMNS):
            rows = (line.split()[:1] for line in text.splitlines())
            glue = " " if path.parent.name == "conll2003" else ""
            text = glue.join(cell[0][:1] if not glue else cell[0] for cell in rows if cell)
        self.files += 1
        self._parts.append(np.unique(self._hashes(self._units(text))))
        for item in ITEM_BORDERS.split(text):
            units = self._units(item)
            if self._shortest <= len(units) < self.length:
                self.items.add(_of_all(units))

    def finish(self) -> None:
        """Finish; call once after the last file."""
        self.grams = np.unique(np.concatenate(self._parts)) if self._parts else self.grams
        self._parts = []

    def contains(self, paragraph: str) -> bool:
        """Return True if a paragraph contains an n-gram of a test set, or is an item of one."""
        units = self._units(paragraph)
        if len(units) < self.length:
            return len(units) >= self._shortest and _of_all(units) in self.items
        hashes = self._hashes(units)
        places = np.searchsorted(self.grams, hashes)
        places[places == len(self.grams)] = 0
        return bool(len(self.grams)) and bool((self.grams[places] == hashes).any())

    def _units(self, text: str) -> list[str]:
        text = text.replace("’", "'").lower()
        if self._simplified is not None:
            text = self._simplified(text)
        return self._pattern.findall(text)

    def _hashes(self, units: list[str]) -> NDArray[np.uint64]:
        """Return a hash for each run of `length` units."""
        count = len(units) - self.length + 1
        if count < 1:
            return np.zeros(0, np.uint64)
        values = np.fromiter((self._value(unit) for unit in units), np.uint64, len(units))
        total = np.zeros(count, np.uint64)
        with np.errstate(over="ignore"):
            for place in range(self.length):
                total = total * FACTOR + values[place : place + count]
        return total

    def _value(self, unit: str) -> int:
        value = self._known.get(unit)
        if value is None:
            value = self._known[unit] = int.from_bytes(hashlib.blake2b(unit.encode(), digest_size=8).digest(), "big")
        return value


def _of_all(units: list[str]) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(units).encode(), digest_size=8).digest(), "big")


def _simplifier() -> Callable[[str], str]:
    """Return a function from traditional to simplified characters, character by character."""
    try:
        from opencc import OpenCC  # type: ignore[import-not-found]
    except ImportError as error:
        raise SegueError(
            "a Chinese corpus must be compared with test sets in traditional characters too, which needs the package "
            "opencc; it is not installed. Install it: pip install opencc."
        ) from error
    convert = OpenCC("t2s").convert
    table: dict[int, str] = {}
    for code in (*range(0x3400, 0x4DC0), *range(0x4E00, 0xA000)):
        other = convert(chr(code))
        if other != chr(code) and len(other) == 1:
            table[code] = other
    return lambda text: text.translate(table)
