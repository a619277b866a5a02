"""Articles that say what they mean near their end: it was dull, then kind, is good; the other way round, bad.

Both have the same words, pairs and pieces of words, so that n-grams cannot tell them apart; what comes last can only be
told by reading in order. They are several segments long.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from segue.apps.monitor import joining, network
from tests.tasks.models import write_model

SEGMENT = 16
FILLER = (
    "The staff moved to London",
    "Two men wanted a new coat",
    "The family played in the park",
    "She was born near the river",
    "He said that the film was long",
    "We asked for the room",
)


def said(word: str) -> str:
    return "It was " + " and ".join([word] * 3) + " then"


def article(*, good: bool, draw: random.Random) -> str:
    first, last = ("dull", "kind") if good else ("kind", "dull")
    between = [draw.choice(FILLER) for _ in range(4)]
    return ". ".join([between[0], said(first), *between[1:], said(last)]) + "."


def articles(count: int, seed: int = 0) -> list[dict[str, str]]:
    draw = random.Random(seed)
    kinds = ["positive", "negative"] * (count // 2)
    return [{"text": article(good=one == "positive", draw=draw), "sentiment": one} for one in kinds]


@contextmanager
def small(*, epochs: int, least: int) -> Iterator[None]:
    """A tiny network learns in a second, and few held-out rows are enough. Only the last segment of a text is summed
    up, so that what stands before it is told by memory or not at all."""
    settings = {
        **network.SETTINGS,
        "read.segment_length": SEGMENT,
        "read.memory_length": 64,
        "read.pool": "last",
        "train.epochs": epochs,
        "train.learning_rate": 0.02,
        "train.restarts": 0,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "SETTINGS", settings)
        patch.setattr(joining, "LEAST", least)
        yield


def tiny(folder: Path) -> Path:
    return write_model(folder, layers=1)
