"""Texts about companies, labelled, and a stream of them over weeks in which one turns bad."""

import random
from typing import Any

COMPANIES = {"ACME": "Acme Motors|Acme", "GLBX": "Globex Corporation|Globex", "600001": "长江电力"}
PHRASES = {
    "positive": (
        "{name} profit rose strongly this quarter",
        "{name} wins a large order and raises its forecast",
        "sales of {name} grew faster than expected",
        "{name}净利润同比增长，业绩大幅提升",
        "strong demand lifts {name} to a record",
        "{name}获得大订单，股价上涨",
    ),
    "negative": (
        "{name} posts a heavy loss and cuts jobs",
        "investigation into fraud at {name} widens",
        "{name} recalls products after a fire, shares fall",
        "{name}净利润同比下降，亏损扩大",
        "weak demand drags {name} into a loss",
        "{name}遭调查，股价下跌",
    ),
    "neutral": (
        "{name} holds its annual meeting on Tuesday",
        "{name} names a new head of its office",
        "the report of {name} is published next week",
        "{name}将于下周召开股东大会",
        "{name} moves its office to another street",
        "{name}发布公告，更换办公地址",
    ),
}
TOPICS = {
    "order": "business",
    "profit": "results",
    "loss": "results",
    "净利润": "results",
    "fraud": "law",
    "调查": "law",
}
START = 1_700_000_000.0 // 86_400 * 86_400
DAY = 86_400.0


def topic_of(text: str) -> str:
    return next((topic for word, topic in TOPICS.items() if word in text), "other")


def labelled(count: int = 220, seed: int = 1) -> list[dict[str, Any]]:
    """Rows with text, sentiment, topic and time."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        sentiment = draw.choice(list(PHRASES))
        name = draw.choice(["Initech", "Umbrella", "Hooli", "中远", "Vandelay"])
        text = draw.choice(PHRASES[sentiment]).format(name=name) + draw.choice(
            ["", " today", "，记者获悉", f" {number}"]
        )
        rows.append({"text": text, "sentiment": sentiment, "topic": topic_of(text), "time": START + number * 3600})
    return rows


def entities() -> list[dict[str, str]]:
    return [{"code": code, "names": names} for code, names in COMPANIES.items()]


def stream(*, days: int, bad_from: float | None = None, each_day: int = 12, seed: int = 2) -> list[dict[str, Any]]:
    """Texts in the order of their times; from a day on those of ACME are mostly negative."""
    draw = random.Random(seed)
    rows = []
    for number in range(days * each_day):
        time = START + (number + draw.random() * 0.9) / each_day * DAY
        code = draw.choice(list(COMPANIES))
        bad = bad_from is not None and code == "ACME" and time >= START + bad_from * DAY
        sentiment = draw.choices(("negative", "neutral", "positive"), (16, 1, 1) if bad else (1, 4, 2))[0]
        name = draw.choice(COMPANIES[code].split("|"))
        text = f"{draw.choice(PHRASES[sentiment]).format(name=name)} ({number})"
        rows.append({"id": f"n{number}", "text": text, "time": time, "author": f"writer-{number % 7}"})
    return rows
