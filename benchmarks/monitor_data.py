"""Data sets of the monitor's benchmark, as rows."""

import csv
import lzma
from pathlib import Path
from typing import Any

from segue.apps.cells import UTC, parse_time
from segue.apps.monitor.labelled import Labelled

Rows = list[tuple[str, str]]


def _lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def phrasebank(data: Path) -> Rows:
    """Return sentences with the labels negative, neutral or positive."""
    found = [line.rpartition("@") for line in _lines(data / "financial_phrasebank" / "Sentences_50Agree.txt.xz")]
    return [(text.strip(), label) for text, _, label in found if text]


def financial_news(data: Path) -> tuple[list[Labelled], list[Labelled]]:
    """Return headlines for training, and news with title and body for the test; negative and positive."""

    def rows(name: str, label: str) -> list[Labelled]:
        found = []
        for row in csv.DictReader(_lines_of(data / "fin_news_zh" / name)):
            title, body = row["标题"].strip(), (row.get("正文") or "").strip()
            text = body if body.startswith(title) else f"{title}\n{body}".strip()
            time = parse_time(row["日期"], UTC)
            found.append(Labelled(text=text, sentiment=2 if row[label].strip() == "1" else 0, time=time))
        return found

    return rows("headlines.train.csv.xz", "正/负面"), rows("test_data.csv.xz", "正负面")


def _lines_of(path: Path) -> Any:
    return lzma.open(path, "rt", encoding="utf-8", newline="")


def tweets(data: Path) -> list[dict[str, Any]]:
    """Return rows of stocknet with time and text, without repetitions."""
    lines = _lines(data / "stocknet" / "tweets.tsv.xz")
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines[1:]:
        time, _, text = line.split("\t", 2)
        seen.setdefault((time, text), {"time": time, "text": text})
    return list(seen.values())


def companies(data: Path) -> list[dict[str, str]]:
    """Return codes and names of stocknet."""
    from segue.apps.monitor.demo import short_name

    rows = [line.split("\t") for line in _lines(data / "stocknet" / "symbols.tsv.xz")[1:]]
    return [{"code": code.strip("$ "), "names": f"{name}|{short_name(name)}"} for _, code, name in rows]
