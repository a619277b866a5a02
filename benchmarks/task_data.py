"""The labelled data sets of the results table, as tables that `segue finetune` reads.

In: the folder of the data sets. Out: train, valid and test of each, as JSON lines; the parts used are stated. Nothing
is copied into the project.

Leaks that are avoided: the shopping reviews that contain the test part of ChnSentiCorp are not used at all. Lines of
OCNLI without a label are dropped.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from segue.data.tables import TableSettings, open_table, side_by_side

Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """One row of the results table."""

    name: str
    task: str
    language: str
    load: Callable[[Path], dict[str, Rows]]
    part: str
    """The part of the data set that is used: the whole, unless one run would take more than 20 minutes."""


def write_tables(sets: list[DataSet], data: Path, out: Path) -> None:
    """Write `out/NAME/{train,valid,test}.jsonl`."""
    for one in sets:
        folder = out / one.name
        if (folder / "test.jsonl").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        for split, rows in one.load(data).items():
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


def _rows(path: Path, *, limit: int | None = None, **settings: Any) -> Rows:
    rows = []
    for _, row in open_table(path, TableSettings(**settings)):
        rows.append(row)
        if limit is not None and len(rows) == limit:
            break
    return rows


def _pick(rows: Rows, count: int, *, seed: int = 0) -> Rows:
    """Return a random part, in the order of the file."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[:count])
    return [rows[number] for number in chosen]


def _cut(rows: Rows, *sizes: int) -> list[Rows]:
    """Return random parts that do not overlap."""
    order = np.random.default_rng(0).permutation(len(rows))
    parts, start = [], 0
    for size in sizes:
        parts.append([rows[number] for number in np.sort(order[start : start + size])])
        start += size
    return parts


def _only(rows: Rows, **names: str) -> Rows:
    """Return the columns that a task needs, under its names."""
    return [{new: row[old] for new, old in names.items()} for row in rows]


# ------------------------------------------------------------------------------------------------------- Chinese


def chnsenticorp(data: Path) -> dict[str, Rows]:
    folder = data / "chnsenticorp"
    names = {"text": "text_a", "label": "label"}
    return {
        "train": _only(_rows(folder / "train.tsv.xz"), **names),
        "valid": _only(_rows(folder / "dev.tsv.xz"), **names),
        "test": _only(_rows(folder / "test.tsv.xz"), **names),
    }


def thucnews_long(data: Path) -> dict[str, Rows]:
    folder, columns = data / "thucnews_long", ("label", "text")
    train, valid = _cut(_rows(folder / "train.tsv.xz", columns=columns), 540, 60)
    return {"train": train, "valid": valid, "test": _rows(folder / "test.tsv.xz", columns=columns)}


def cluener(data: Path) -> dict[str, Rows]:
    folder = data / "cluener"
    train, valid = _cut(_rows(folder / "train.json.xz"), 10_248, 500)
    return {"train": train, "valid": valid, "test": _rows(folder / "dev.json.xz")}


def cmrc2018(data: Path) -> dict[str, Rows]:
    folder = data / "cmrc2018"
    train, valid = _cut(_rows(folder / "cmrc2018_train.json.xz"), 3000, 200)
    return {"train": train, "valid": valid, "test": _pick(_rows(folder / "cmrc2018_dev.json.xz"), 1000)}


def ocnli(data: Path) -> dict[str, Rows]:
    rows = [row for row in _rows(data / "ocnli" / "dev.json.xz") if row["label"] != "-"]
    rows = _only(rows, sentence1="sentence1", sentence2="sentence2", label="label")
    train, valid, test = _cut(rows, 2100, 300, 550)
    return {"train": train, "valid": valid, "test": test}


# ------------------------------------------------------------------------------------------------------- English


def imdb(data: Path) -> dict[str, Rows]:
    folder, columns = data / "imdb", ("label", "id", "text")
    names = {"text": "text", "label": "label"}
    return {
        "train": _only(_pick(_rows(folder / "train.first8000.tsv.xz", columns=columns), 4000), **names),
        "valid": _only(_pick(_rows(folder / "valid.tsv.xz", columns=columns), 500), **names),
        "test": _only(_pick(_rows(folder / "test.tsv.xz", columns=columns), 5000), **names),
    }


def sst2(data: Path) -> dict[str, Rows]:
    folder = data / "sst2"
    train, valid = _cut(_rows(folder / "train.tsv.xz"), 40_000, 1000)
    return {"train": train, "valid": valid, "test": _rows(folder / "dev.tsv")}


def conll2003(data: Path) -> dict[str, Rows]:
    folder, columns = data / "conll2003", ("tokens", "pos", "chunk", "tags")
    return {
        split: _only(_rows(folder / f"eng.{name}.xz", format="conll", columns=columns), tokens="tokens", tags="tags")
        for split, name in (("train", "train"), ("valid", "testa"), ("test", "testb"))
    }


def sts_b(data: Path) -> dict[str, Rows]:
    columns = ("genre", "file", "year", "id", "score", "sentence1", "sentence2", "...")
    names = {"sentence1": "sentence1", "sentence2": "sentence2", "label": "score"}
    return {
        split: _only(
            _rows(next((data / "glue" / "STS-B").glob(f"sts-{name}.csv*")), format="tsv", columns=columns), **names
        )
        for split, name in (("train", "train"), ("valid", "dev"), ("test", "test"))
    }


def insuranceqa(data: Path) -> dict[str, Rows]:
    folder = data / "insuranceqa"
    answers = {row["id"]: row["en"] for row in _rows(folder / "answers.jsonl.xz")}

    def ranked(name: str, count: int, negatives: int) -> Rows:
        return [
            {
                "query": row["en"],
                "positives": [answers[number] for number in row["answers"] if number in answers][:2],
                "negatives": [answers[number] for number in row["negatives"]][:negatives],
            }
            for row in _rows(folder / f"{name}.jsonl.xz", limit=count)
        ]

    return {
        "train": ranked("train.first1500", 1000, 5),
        "valid": ranked("valid.first1000", 100, 10),
        "test": ranked("test.first1000", 500, 10),
    }


def multi30k(data: Path) -> dict[str, Rows]:
    folder = data / "multi30k"

    def pairs(name: str, count: int) -> Rows:
        sides = [
            open_table(folder / f"{name}.{code}.xz", TableSettings(format="tsv", columns=(code,)))
            for code in ("en", "de")
        ]
        return [row for _, row in zip(range(count), (row for _, row in side_by_side(*sides)), strict=False)]

    return {"train": pairs("train", 20_000), "valid": pairs("val", 100), "test": pairs("test_2016_flickr", 300)}


def financial_phrasebank(data: Path) -> dict[str, Rows]:
    path = data / "financial_phrasebank" / "Sentences_50Agree.txt.xz"
    rows = _rows(path, format="csv", delimiter="@", quoting=False, columns=("sentence", "label"))
    train, valid, test = _cut(rows, 3600, 400, 846)
    return {"train": train, "valid": valid, "test": test}


SETS = [
    DataSet(name="chnsenticorp", task="classify", language="zh", load=chnsenticorp, part="whole"),
    DataSet(name="thucnews_long", task="classify", language="zh", load=thucnews_long, part="whole"),
    DataSet(name="cluener", task="tag", language="zh", load=cluener, part="whole; dev as test"),
    DataSet(
        name="cmrc2018", task="answer", language="zh", load=cmrc2018,
        part="3,200 of 10,142 questions; 1,000 of dev as test",
    ),
    DataSet(name="ocnli", task="pair", language="zh", load=ocnli, part="dev, as no other part is at hand, cut"),
    DataSet(name="imdb", task="classify", language="en", load=imdb, part="4,500 of 25,000; 5,000 of test"),
    DataSet(name="sst2", task="classify", language="en", load=sst2, part="41,000 of 67,349; dev as test"),
    DataSet(name="conll2003", task="tag", language="en", load=conll2003, part="whole"),
    DataSet(name="sts_b", task="regress", language="en", load=sts_b, part="whole"),
    DataSet(
        name="insuranceqa", task="rank", language="en", load=insuranceqa, part="1,100 of 12,889 questions; 500 of test"
    ),
    DataSet(
        name="multi30k", task="generate", language="en", load=multi30k, part="20,000 of 29,000 pairs; 300 of test"
    ),
    DataSet(name="financial_phrasebank", task="classify", language="en", load=financial_phrasebank, part="whole, cut"),
]  # fmt: skip
