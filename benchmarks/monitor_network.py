"""Gain and cost of a fine-tuned network in a monitor: the same rows classified with and without it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.provenance import Result
from segue.apps.monitor.build import build
from segue.apps.monitor.calibrate import calibration_error, macro_f1
from segue.apps.monitor.entities import entities_of
from segue.apps.monitor.labelled import Labelled, gathered
from segue.apps.monitor.model import MonitorModel

TIMED = 1000
"""Number of texts whose reading is timed, 200 at a time, as in a stream."""
AT_ONCE = 200


def measured(found: list[int], gold: list[int]) -> dict[str, float]:
    """Return the accuracy and the macro F1."""
    right = float(np.mean(np.array(found) == np.array(gold)))
    return {"accuracy": round(right, 4), "macro F1": round(macro_f1(found, gold), 4)}


def with_network(
    train: Sequence[Labelled], test: Sequence[Labelled], model: str, tell: Callable[[str], object]
) -> Result:
    """Train with a network on some rows, and classify others: with the linear model alone, with the network alone, with
    both, and with the choice of the monitor's rule. Times are processor time."""
    last = [time.monotonic()]

    def told(said: str) -> None:
        if time.monotonic() - last[0] > 20:
            last[0] = time.monotonic()
            tell(said)

    began = time.process_time()
    built = build(gathered(train), entities_of(()), seed=0, told=told, model=model)
    learning = time.process_time() - began
    tried = built.learned.tried
    assert tried is not None
    assert tried.trained is not None, tried.missing
    linear = replace(built.model, joined=None)
    both = replace(built.model, joined=tried.trained)
    texts, gold = [row.text for row in test], [int(row.sentiment or 0) for row in test]
    alone_NC = tried.trained.network.scores(texts)
    return {
        "learned from": len(gathered(train).rows),
        "told": len(test),
        "held back": tried.numbers(),
        "weights": {"linear": tried.trained.mixture.linear, "network": tried.trained.mixture.network},
        "linear alone": _told(linear, texts, gold),
        "network alone": measured(alone_NC.argmax(axis=1).tolist(), gold),
        "both": _told(both, texts, gold),
        "seconds of learning": round(learning, 1),
        "texts a second of one core's time, reading alone": {
            "linear": _speed(linear, texts),
            "both": _speed(both, texts),
        },
        "characters of a text, mean": round(float(np.mean([len(text) for text in texts])), 1),
    }


def _told(model: MonitorModel, texts: list[str], gold: list[int]) -> dict[str, Any]:
    found = [one.sentiment for one in model.read_all(texts)]
    probabilities_NC = np.array([[one.negative, one.neutral, one.positive] for one in found])
    loss = -np.log(np.maximum(probabilities_NC[np.arange(len(gold)), gold], 1e-12)).mean()
    return {
        **measured(probabilities_NC.argmax(axis=1).tolist(), gold),
        "loss": round(float(loss), 4),
        "calibration error": round(calibration_error(probabilities_NC, gold), 4),
    }


def _speed(model: MonitorModel, texts: list[str]) -> int:
    some = texts[:TIMED]
    began = time.process_time()
    for start in range(0, len(some), AT_ONCE):
        model.read_all(some[start : start + AT_ONCE])
    return round(len(some) / (time.process_time() - began))
