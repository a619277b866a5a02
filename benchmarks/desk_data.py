"""Data sets of the desk's benchmark: questions with intents, and questions with their answers."""

import csv
import io
import json
import lzma
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Intents:
    """Questions with their intents."""

    train: list[tuple[str, str]]
    test: list[tuple[str, str]]
    outside: list[str] = field(default_factory=list)
    """Out-of-scope questions for training."""
    outside_test: list[str] = field(default_factory=list)
    """Out-of-scope questions for the test."""


@dataclass(frozen=True, kw_only=True)
class Retrieval:
    """Questions with the texts of a pool that answer them."""

    pool: list[str]
    train: list[tuple[str, list[str]]]
    test: list[tuple[str, list[str]]]
    chinese: bool


def banking77(data: Path) -> Intents:
    found = {}
    for part in ("train", "test"):
        rows = csv.DictReader(io.StringIO(_read(data / "banking77" / f"{part}.csv.xz")))
        found[part] = [(row["text"], row["category"]) for row in rows]
    return Intents(train=found["train"], test=found["test"])


def clinc150(data: Path) -> Intents:
    def rows(name: str) -> list[tuple[str, str]]:
        lines = _read(data / "clinc150" / f"{name}.tsv.xz").splitlines()
        return [(text, intent) for intent, _, text in (line.partition("\t") for line in lines) if text]

    return Intents(
        train=rows("train"),
        test=rows("test"),
        outside=[text for text, _ in rows("oos_train")],
        outside_test=[text for text, _ in rows("oos_test")],
    )


def insuranceqa(data: Path, *, chinese: bool) -> Retrieval:
    """Return answers of the whole pool; a question may have several."""
    language = "zh" if chinese else "en"
    answers = {str(row["id"]): str(row[language]) for row in _lines(data / "insuranceqa" / "answers.jsonl.xz")}

    def rows(name: str) -> list[tuple[str, list[str]]]:
        found = []
        for row in _lines(data / "insuranceqa" / f"{name}.jsonl.xz"):
            right = [answers[str(one)] for one in row["answers"] if str(one) in answers]
            if right:
                found.append((str(row[language]), right))
        return found

    return Retrieval(
        pool=list(dict.fromkeys(answers.values())),
        train=rows("train.first1500"),
        test=rows("test.first1000"),
        chinese=chinese,
    )


def pairs(data: Path, name: str) -> Retrieval:
    """Return pairs of questions with the same meaning: the first is asked, the second is to be found among all second
    ones. LCQMC is trained on its dev part and tested on its test part; BQ has one part, which is split in two."""
    if name == "lcqmc":
        learned, asked = (_lcqmc(data / "lcqmc" / f"{part}.csv.xz") for part in ("dev", "test"))
    else:
        rows = [(row["text1"], row["text2"], str(row["label"])) for row in _lines(data / "bq" / "dev.json.xz")]
        first = list(dict.fromkeys(one for one, _, _ in rows))
        early = set(first[: len(first) // 2])
        learned = [row for row in rows if row[0] in early]
        asked = [row for row in rows if row[0] not in early]
    pool = list(dict.fromkeys(second for _, second, _ in learned + asked))
    return Retrieval(pool=pool, train=_gathered(learned), test=_gathered(asked), chinese=True)


def few(rows: list[tuple[str, str]], size: int | None, *, seed: int) -> list[tuple[str, str]]:
    """Return a random sample of rows for each intent; all rows for None."""
    if size is None:
        return rows
    counts: Counter[str] = Counter()
    found = []
    for place in np.random.default_rng(seed).permutation(len(rows)).tolist():
        if counts[rows[place][1]] < size:
            counts[rows[place][1]] += 1
            found.append(rows[place])
    return found


def _gathered(rows: list[tuple[str, str, str]]) -> list[tuple[str, list[str]]]:
    """Return questions with all that mean the same; a text is not searched for itself."""
    found: dict[str, list[str]] = {}
    for first, second, label in rows:
        if label == "1" and first != second:
            found.setdefault(first, []).append(second)
    return list(found.items())


def _lcqmc(path: Path) -> list[tuple[str, str, str]]:
    rows = csv.reader(io.StringIO(_read(path)))
    next(rows)
    return [(row[0], row[1], row[2]) for row in rows]


def _read(path: Path) -> str:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _read(path).splitlines()]
