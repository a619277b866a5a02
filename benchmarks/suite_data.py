"""External evaluation suites: their kinds, data files, and training texts of the n-gram baselines.

The data folder is not part of the project. A suite whose files do not exist is skipped with a message.
"""

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal["pairs", "last-word", "gap", "text"]
GAP = "#idiom#"


@dataclass(frozen=True, kw_only=True)
class Suite:
    """One column of the table."""

    name: str
    kind: Kind
    file: str
    """File in the data folder."""
    trained_on: str | None = None
    """Training text of n-grams, as a pattern in the data folder; None: no n-grams."""
    symbols: Literal["characters", "words"] = "characters"
    """Units of the n-grams."""


SUITES = [
    Suite(
        name="blimp", kind="pairs", file="suites/blimp.jsonl.xz", trained_on="pretraining/en/*.txt.xz", symbols="words"
    ),
    Suite(name="zhoblimp", kind="pairs", file="suites/zhoblimp.jsonl.xz", trained_on="pretraining/zh/*.txt.xz"),
    Suite(name="lambada", kind="last-word", file="suites/lambada_test.jsonl.xz"),
    Suite(name="chid", kind="gap", file="suites/chid_test_public.jsonl.xz"),
    Suite(name="wikitext2", kind="text", file="wikitext2/valid.txt.xz", trained_on="wikitext2/train.txt.xz"),
    Suite(name="wikitext103", kind="text", file="wikitext103/valid.txt.xz", trained_on="wikitext2/train.txt.xz"),
    Suite(name="enwik8", kind="text", file="enwik8/enwik8.valid.xz", trained_on="enwik8/enwik8.train.first20M.xz"),
    Suite(
        name="people-daily",
        kind="text",
        file="zh_people_daily_1998/plain.valid.txt.xz",
        trained_on="zh_people_daily_1998/plain.train.txt.xz",
    ),
]


def read_text(path: Path) -> str:
    """Return the text of a file; if it was cut out of a longer one, the bytes of half a character are dropped."""
    with lzma.open(path, "rt", encoding="utf-8", errors="ignore", newline="\n") as file:
        return file.read()


def read_rows(path: Path) -> list[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def training_files(suite: Suite, data: Path) -> list[Path]:
    return sorted(data.glob(suite.trained_on)) if suite.trained_on else []


def sample_texts(suite: Suite, path: Path) -> Iterator[str]:
    """Yield some of its text, to detect whether a tokeniser knows the language."""
    if suite.kind == "text":
        yield read_text(path)[:200_000]
        return
    for row in read_rows(path)[:2000]:
        yield from (value for value in row.values() if isinstance(value, str))
