"""A shop whose customers go round: within their colour, from each thing to the next one."""

import random
from typing import Any

from segue.apps.recommend.settings import RecommenderSettings

COLOURS = ("red", "blue", "green")
ROUND = 8
START = 1_600_000_000.0
QUICK = {"width": 16, "epochs": 6, "segment": 8, "memory": 8, "rows": 8, "dropout": 0.0, "learning_rate": 0.01}


def quick(**settings: Any) -> RecommenderSettings:
    return RecommenderSettings(**{**QUICK, **settings})


def items() -> list[dict[str, Any]]:
    return [
        {"id": f"{colour}-{n}", "title": f"A {colour} thing, number {n}", "tags": f"{colour}|thing", "price": 10 + n}
        for n in range(ROUND)
        for colour in COLOURS
    ]


def events(*, users: int = 36, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a table, in no order."""
    draw = random.Random(seed)
    found = []
    for user in range(users):
        colour, place = COLOURS[user % 3], draw.randrange(ROUND)
        time = START + draw.uniform(0, 1e6)
        for _ in range(draw.randrange(6, 24)):
            place = (place + 1) % ROUND
            time += draw.uniform(0, 3e5)
            kind = draw.choice(["view", "view", "buy"])
            found.append({"user": f"user-{user}", "item": f"{colour}-{place}", "time": time, "kind": kind})
    draw.shuffle(found)
    return found
