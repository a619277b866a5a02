"""Calibration of probabilities: a temperature and a bias for each class, fitted to held-out rows.

In: scores of held-out rows, and their labels. Out: a `Calibration`, or for two models a `Mixture`, which also has the
weight of each. Calibration is measured by the expected calibration error: the mean distance between confidence and
accuracy over bins of the confidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.evaluation.baselines import log_softmax

Floats = NDArray[np.float64]
BINS = 15
STEPS = 100


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Probabilities are the softmax of `scale` times the scores plus `bias_C`."""

    scale: float
    bias_C: Floats

    def probabilities(self, scores_NC: NDArray[np.floating]) -> Floats:
        """[N, C]."""
        found_NC: Floats = np.exp(log_softmax(self.scale * scores_NC.astype(np.float64) + self.bias_C))
        return found_NC


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """A logistic mixture of two models: probabilities are the softmax of the weighted sum of their scores plus
    `bias_C`."""

    linear: float
    network: float
    bias_C: Floats

    def probabilities(self, linear_NC: NDArray[np.floating], network_NC: NDArray[np.floating]) -> Floats:
        """[N, C]."""
        both_NC = self.linear * linear_NC.astype(np.float64) + self.network * network_NC.astype(np.float64)
        found_NC: Floats = np.exp(log_softmax(both_NC + self.bias_C))
        return found_NC


def fit_calibration(
    scores_NC: NDArray[np.floating], labels: Sequence[int], weights: Sequence[float] | None = None
) -> Calibration:
    """Minimise the cross-entropy, with a penalty that keeps the calibration close to the identity if rows are few.
    `weights` are those of the rows. Default: equal weights."""
    (scale,), bias_C = _fit([scores_NC], labels, weights)
    return Calibration(scale=scale, bias_C=bias_C)


def fit_mixture(linear_NC: NDArray[np.floating], network_NC: NDArray[np.floating], labels: Sequence[int]) -> Mixture:
    """Minimise the cross-entropy, with a penalty that keeps the two weights equal if there are few rows."""
    (linear, network), bias_C = _fit([linear_NC, network_NC], labels, None)
    return Mixture(linear=linear, network=network, bias_C=bias_C)


def _fit(
    models: Sequence[NDArray[np.floating]], labels: Sequence[int], weights: Sequence[float] | None
) -> tuple[list[float], Floats]:
    """Return the weight of each model, and the biases of the classes."""
    count, classes = len(models), models[0].shape[1]
    scores_KNC = torch.from_numpy(np.stack([one.astype(np.float64) for one in models]))
    gold = torch.tensor(list(labels), dtype=torch.int64)
    counts = torch.ones(len(gold), dtype=torch.float64)
    if weights is not None:
        counts = torch.tensor(list(weights), dtype=torch.float64)
    counts = counts / counts.sum()
    parameters = torch.zeros(count + classes, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([parameters], max_iter=STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        scales_K11 = parameters[:count, None, None].exp() / count
        logits_NC = (scales_K11 * scores_KNC).sum(dim=0) + parameters[count:]
        found = torch.nn.functional.cross_entropy(logits_NC, gold, reduction="none")
        loss: Tensor = found @ counts + parameters.square().sum() / len(gold)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    values = parameters.detach().numpy()
    return (np.exp(values[:count]) / count).tolist(), values[count:].copy()


def calibration_error(probabilities_NC: Floats, labels: Sequence[int]) -> float:
    """Return the expected calibration error of the predicted classes."""
    if not len(labels):
        return 0.0
    sure_N = probabilities_NC.max(axis=1)
    right_N = probabilities_NC.argmax(axis=1) == np.asarray(labels)
    bin_N = np.minimum((sure_N * BINS).astype(int), BINS - 1)
    off = sum(abs(float(sure_N[bin_N == one].sum()) - float(right_N[bin_N == one].sum())) for one in range(BINS))
    return off / len(labels)


def macro_f1(found: Sequence[int], labels: Sequence[int]) -> float:
    """Return the mean F1 of the classes that occur in the labels."""
    answers, gold = np.asarray(found), np.asarray(labels)
    scores = []
    for one in sorted(set(gold.tolist())):
        both = int(((answers == one) & (gold == one)).sum())
        scores.append(2 * both / max(1, int((answers == one).sum()) + int((gold == one).sum())))
    return float(np.mean(scores)) if scores else 0.0
