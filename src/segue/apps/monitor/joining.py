"""The decision whether a network is combined with the linear model, and the weights of the combination.

In: held-out rows, with the scores of the linear model. Out: a `Tried`: the network with its weights if it improves the
predictions, and the measurements in either case.

The rule: the rows are divided into five parts. Each part is predicted by the linear model alone and by the combination,
both calibrated in the same way on the other four parts. The network is used if the mean loss is lower by 2 % and by two
standard errors of the difference, and accuracy is no lower: it makes every text slower to read.
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
"""Minimum number of held-out rows for the comparison."""
WORTH = 0.02
"""Minimum relative reduction of the loss."""
SURE = 2.0
"""Minimum reduction of the loss in standard errors of the difference."""
SMALLEST = 1e-12

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A network, and the weights of it and of the linear model."""

    network: Network
    mixture: Mixture


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Cross-fitted probabilities of the same rows by the linear model and by the combination."""

    linear_NC: Floats
    both_NC: Floats
    labels: tuple[int, ...]

    def loss(self, probabilities_NC: Floats) -> Floats:
        """Return the negative log-likelihood of each row."""
        right_N = probabilities_NC[np.arange(len(self.labels)), list(self.labels)]
        found_N: Floats = -np.log(np.maximum(right_N, SMALLEST))
        return found_N

    def right(self, probabilities_NC: Floats) -> float:
        """Return the accuracy."""
        return float((probabilities_NC.argmax(axis=1) == np.array(self.labels)).mean())

    @property
    def helps(self) -> bool:
        """True if the network improves the predictions by the rule above."""
        before_N = self.loss(self.linear_NC)
        gain_N = before_N - self.loss(self.both_NC)
        error = float(gain_N.std(ddof=1)) / len(gain_N) ** 0.5
        least = max(WORTH * float(before_N.mean()), SURE * error)
        return float(gain_N.mean()) >= least and self.right(self.both_NC) >= self.right(self.linear_NC)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """Result of evaluating a network."""

    name: str
    learned: int
    """Number of rows that it was fine-tuned on."""
    asked: int
    """Number of held-out rows that it can read."""
    missing: str = ""
    """Reason why it was not evaluated; empty if it was."""
    measured: Measured | None = None
    trained: Joined | None = None
    """The network with its weights, whether it is used or not."""
    read_N: NDArray[np.bool_] | None = None
    """Mask of the held-out rows that it can read."""

    @property
    def joined(self) -> Joined | None:
        """The combination that is used; None if the network does not improve the predictions."""
        return self.trained if self.measured is not None and self.measured.helps else None

    def numbers(self) -> dict[str, Any]:
        """Return the numbers that are stored with the model."""
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
    """Fine-tune a network on the pairs of text and sentiment in `rest`, and evaluate it on those in `held`, for which
    `linear_NC` has the scores of the linear model."""
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
    """Predict each part of the rows with the calibration that was fitted to the other parts."""
    alone_NC, both_NC = np.zeros((len(labels), len(SENTIMENTS))), np.zeros((len(labels), len(SENTIMENTS)))
    for piece in np.array_split(np.arange(len(labels)), PIECES):
        others = np.setdiff1d(np.arange(len(labels)), piece)
        golds = [labels[n] for n in others.tolist()]
        alone_NC[piece] = fit_calibration(linear_NC[others], golds).probabilities(linear_NC[piece])
        mixture = fit_mixture(linear_NC[others], network_NC[others], golds)
        both_NC[piece] = mixture.probabilities(linear_NC[piece], network_NC[piece])
    return Measured(linear_NC=alone_NC, both_NC=both_NC, labels=tuple(labels))
