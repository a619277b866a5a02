"""Whether a network joins the linear model, and what each of them counts.

In: rows that neither has learned from, with what the linear model says of them. Out: a `Tried`: the network with its
weights if the rows are told better with it, and what was measured either way.

The rule: the rows are cut into five pieces. Each is told by the linear model alone and by both combined, calibrated in
the same way on the other four. The network is used if their mean loss is lower by a fiftieth and by two standard errors
of the difference, and no fewer rows are told rightly: it makes every text slower.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.apps.monitor.calibrate import Mixture, fit_calibration, fit_mixture
from segue.apps.monitor.labelled import SENTIMENTS
from segue.apps.monitor.network import Network, Trainer

PIECES = 5
LEAST = 100
"""Held-back rows from which a difference can be told."""
WORTH = 0.02
"""Share of the loss by which it must be lower,"""
SURE = 2.0
"""and standard errors of the difference."""
SMALLEST = 1e-12

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A network, and what it and the linear model count."""

    network: Network
    mixture: Mixture


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The same rows told by one model or by both, each piece calibrated on the others."""

    linear_NC: Floats
    both_NC: Floats
    labels: tuple[int, ...]

    def loss(self, probabilities_NC: Floats) -> Floats:
        """Negative log-likelihood of each row."""
        right_N = probabilities_NC[np.arange(len(self.labels)), list(self.labels)]
        found_N: Floats = -np.log(np.maximum(right_N, SMALLEST))
        return found_N

    def right(self, probabilities_NC: Floats) -> float:
        """Share of rows whose sentiment is predicted correctly."""
        return float((probabilities_NC.argmax(axis=1) == np.array(self.labels)).mean())

    @property
    def helps(self) -> bool:
        """Whether the network is used."""
        before_N = self.loss(self.linear_NC)
        gain_N = before_N - self.loss(self.both_NC)
        error = float(gain_N.std(ddof=1)) / len(gain_N) ** 0.5
        least = max(WORTH * float(before_N.mean()), SURE * error)
        return float(gain_N.mean()) >= least and self.right(self.both_NC) >= self.right(self.linear_NC)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What came of trying a network."""

    name: str
    learned: int
    """Rows that it was fine-tuned on."""
    asked: int
    """Rows that were held back, and that it can read."""
    missing: str = ""
    """Why it was not tried; empty where it was."""
    measured: Measured | None = None
    trained: Joined | None = None
    """The network with its weights, whether it helps or not."""
    read_N: NDArray[np.bool_] | None = None
    """Which of the held-out rows it reads."""

    @property
    def joined(self) -> Joined | None:
        """What is used; None where it does not help."""
        return self.trained if self.measured is not None and self.measured.helps else None

    def numbers(self) -> dict[str, Any]:
        """What is kept with the model."""
        found = {"model": self.name, "used": self.joined is not None, "learned": self.learned, "asked": self.asked}
        if self.measured is None:
            return {**found, "why": self.missing}
        one = self.measured
        return {
            **found,
            "loss_before": round(float(one.loss(one.linear_NC).mean()), 4),
            "loss_now": round(float(one.loss(one.both_NC).mean()), 4),
            "right_before": round(one.right(one.linear_NC), 4),
            "right_now": round(one.right(one.both_NC), 4),
        }


def try_network(
    trainer: Trainer,
    rest: Sequence[tuple[str, int]],
    held: Sequence[tuple[str, int]],
    linear_NC: Floats,
) -> Tried:
    """Fine-tunes a network on rows (texts and sentiments), and asks it and the linear model others; `linear_NC` is what
    the latter says of them."""
    known = [(text, label) for text, label in rest if trainer.reads(text)]
    asked = sum(trainer.reads(text) for text, _ in held)
    kinds = len({label for _, label in known})
    missing = ""
    if asked < LEAST:
        missing = (
            f"it needs {LEAST} held-out rows that it can read, to tell whether it helps; there are {asked:,}. Give "
            "more rows"
        )
    elif kinds < 2:
        missing = f"it needs two sentiments to learn from; there are {kinds}. Give rows with more of them"
    if missing:
        return Tried(name=trainer.name, learned=0, asked=asked, missing=missing)
    network = trainer.train([text for text, _ in known], [label for _, label in known])
    read_N = np.array([network.reads(text) for text, _ in held], dtype=bool)
    texts = [text for (text, _), read in zip(held, read_N, strict=True) if read]
    labels = [label for (_, label), read in zip(held, read_N, strict=True) if read]
    trainer.told(f"asking {trainer.name} {len(texts):,} held-out rows")
    network_NC = network.scores(texts)
    measured = measure(linear_NC[read_N], network_NC, labels)
    mixture = fit_mixture(linear_NC[read_N], network_NC, labels)
    return Tried(
        name=trainer.name,
        learned=len(known),
        asked=len(texts),
        measured=measured,
        trained=Joined(network=network, mixture=mixture),
        read_N=read_N,
    )


def measure(linear_NC: Floats, network_NC: Floats, labels: Sequence[int]) -> Measured:
    """Each piece of the rows told with what was fitted to the others."""
    alone_NC, both_NC = np.zeros((len(labels), len(SENTIMENTS))), np.zeros((len(labels), len(SENTIMENTS)))
    for piece in np.array_split(np.arange(len(labels)), PIECES):
        others = np.setdiff1d(np.arange(len(labels)), piece)
        golds = [labels[n] for n in others.tolist()]
        alone_NC[piece] = fit_calibration(linear_NC[others], golds).probabilities(linear_NC[piece])
        mixture = fit_mixture(linear_NC[others], network_NC[others], golds)
        both_NC[piece] = mixture.probabilities(linear_NC[piece], network_NC[piece])
    return Measured(linear_NC=alone_NC, both_NC=both_NC, labels=tuple(labels))
