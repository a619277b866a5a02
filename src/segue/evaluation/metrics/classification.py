"""Accuracy, F1 and calibration of classifiers.

In: gold labels and predicted probabilities. Out: metrics equal to scikit-learn's, and a confusion matrix.
The predicted label is the most probable one, the first of equals. The rules where others differ:

- Macro F1 is the mean over the labels that occur in gold or in the predictions (scikit-learn's default); a label that
  occurs in neither is left out. With several labels a row, all columns count, and one that occurs in neither has F1 0
  (scikit-learn's zero_division of 0).
- Micro F1 of a single label for each example equals accuracy.
- MCC is 0 where gold or predictions have one label only.
- The expected calibration error has 15 equal-width bins of the confidence, each open below and closed above (Guo et al.
  2017, eq. 3). It is never negative, so resamples of a well calibrated model lie above its value: `low` may too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import FEWEST, RESAMPLES, SEED, Floats, Metric, divide, measure, wilson
from segue.evaluation.metrics.inputs import as_floats, as_labels, as_probabilities, check_lengths

CALIBRATION_BINS = 15
SUM_TOLERANCE = 0.01
"""Maximum deviation from 1 of the sum of an example's probabilities, to allow for half precision."""


def classification(
    gold: Sequence[int] | NDArray[np.integer],
    probabilities: ArrayLike,
    *,
    num_labels: int,
    resamples: int | None = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Metric]:
    """Return accuracy, macro_f1, micro_f1, mcc, calibration_error; one label for each example, probabilities [N, C]."""
    _check_num_labels(num_labels)
    probabilities_NC = as_probabilities(probabilities, num_labels=num_labels)
    gold_N = as_labels(gold, name="gold labels", num_labels=num_labels)
    check_lengths(gold_N, probabilities_NC, names=("gold", "probabilities"))
    sums_N = probabilities_NC.sum(axis=1)
    worst = int(np.abs(sums_N - 1).argmax())
    if abs(sums_N[worst] - 1) > SUM_TOLERANCE:
        raise DataError(
            f"the probabilities of an example must sum to 1; got {sums_N[worst]:g} in row {worst}. Use a softmax, or "
            "multilabel() for labels that do not exclude each other."
        )
    predicted_N = probabilities_NC.argmax(axis=1)
    metrics = _from_confusion(gold_N, predicted_N, num_labels=num_labels, resamples=resamples, seed=seed)
    correct_N = predicted_N == gold_N
    return metrics | _calibration(probabilities_NC.max(axis=1), correct_N, resamples=resamples, seed=seed)


def multilabel(
    gold: ArrayLike,
    probabilities: ArrayLike,
    *,
    threshold: float = 0.5,
    resamples: int | None = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Metric]:
    """Return micro_f1, macro_f1, exact_match (all labels of an example right), hamming_loss (share of single decisions
    that are wrong); gold [N, C] of 0 and 1. A label is predicted if its probability is at least the threshold."""
    gold_NC = as_floats(gold, name="gold labels", dimensions=2)
    if not np.isin(gold_NC, (0, 1)).all():
        raise DataError("gold labels must be 0 or 1, one column for each label; got other values.")
    _check_num_labels(gold_NC.shape[1] if len(gold_NC) else 1)
    if not 0 < threshold <= 1:
        raise DataError(f"threshold must be above 0 and at most 1; got {threshold}. The usual one is 0.5.")
    probabilities_NC = as_probabilities(probabilities, num_labels=gold_NC.shape[1])
    check_lengths(gold_NC, probabilities_NC, names=("gold", "probabilities"))
    predicted_NC = probabilities_NC >= threshold
    wrong_N = (predicted_NC != gold_NC).sum(axis=1)
    counts_NS = np.concatenate(
        [predicted_NC * gold_NC, gold_NC, predicted_NC, (wrong_N == 0)[:, None], wrong_N[:, None]], axis=1
    )
    count, labels = gold_NC.shape

    def formula(weights_RN: Floats) -> dict[str, Floats]:
        total_RS = weights_RN @ counts_NS
        both_RC, gold_RC, predicted_RC = np.split(total_RS[:, : 3 * labels], 3, axis=1)
        return {
            "micro_f1": divide(2 * both_RC.sum(axis=1), (gold_RC + predicted_RC).sum(axis=1)),
            "macro_f1": divide(2 * both_RC, gold_RC + predicted_RC).mean(axis=1),
            "exact_match": total_RS[:, -2] / count,
            "hamming_loss": total_RS[:, -1] / (count * labels),
        }

    return measure(formula, np.ones(count, dtype=np.int64), resamples=resamples, seed=seed)


@dataclass(frozen=True, kw_only=True)
class ClassMeasures:
    """Metrics of one class; 0 where the denominator is 0."""

    precision: float
    recall: float
    f1: float
    support: int
    """Number of examples of the class."""
    predicted: int
    """Number of examples predicted as the class."""


def per_class(gold_NC: NDArray[np.bool_], predicted_NC: NDArray[np.bool_]) -> list[ClassMeasures]:
    """Return the metrics of each class, from boolean matrices of examples and classes."""
    check_lengths(gold_NC, predicted_NC)
    both_C = (gold_NC & predicted_NC).sum(axis=0).astype(np.float64)
    gold_C, predicted_C = gold_NC.sum(axis=0), predicted_NC.sum(axis=0)
    precision_C, recall_C = divide(both_C, predicted_C.astype(np.float64)), divide(both_C, gold_C.astype(np.float64))
    f1_C = divide(2 * both_C, (gold_C + predicted_C).astype(np.float64))
    return [
        ClassMeasures(precision=float(p), recall=float(r), f1=float(f), support=int(g), predicted=int(n))
        for p, r, f, g, n in zip(precision_C, recall_C, f1_C, gold_C, predicted_C, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Examples of about the same confidence: a point of a reliability diagram."""

    count: int
    confidence: float
    """Mean confidence."""
    accuracy: float
    """Share of correct examples."""


def reliability(confidence_N: Floats, correct_N: NDArray[np.bool_]) -> list[Bin]:
    """Return the non-empty bins of the expected calibration error, by ascending confidence."""
    check_lengths(confidence_N, correct_N)
    bin_N = _bins(confidence_N)
    return [
        Bin(count=int(own.sum()), confidence=float(confidence_N[own].mean()), accuracy=float(correct_N[own].mean()))
        for place in range(CALIBRATION_BINS)
        if (own := bin_N == place).any()
    ]


def confusion(
    gold: Sequence[int] | NDArray[np.integer], predicted: Sequence[int] | NDArray[np.integer], *, num_labels: int
) -> NDArray[np.int64]:
    """Return [C, C]: number of examples with the gold label of the row and the predicted label of the column."""
    _check_num_labels(num_labels)
    gold_N = as_labels(gold, name="gold labels", num_labels=num_labels)
    predicted_N = as_labels(predicted, name="predicted labels", num_labels=num_labels)
    check_lengths(gold_N, predicted_N)
    return np.bincount(gold_N * num_labels + predicted_N, minlength=num_labels**2).reshape(num_labels, num_labels)


def _from_confusion(
    gold_N: NDArray[np.int64], predicted_N: NDArray[np.int64], *, num_labels: int, resamples: int | None, seed: int
) -> dict[str, Metric]:
    # Examples of one cell of the confusion matrix are identical, and most cells are empty.
    cell_K, copies_K = np.unique(gold_N * num_labels + predicted_N, return_counts=True)
    labels = np.eye(num_labels)
    gold_KC, predicted_KC = labels[cell_K // num_labels], labels[cell_K % num_labels]
    count = len(gold_N)

    def formula(weights_RK: Floats) -> dict[str, Floats]:
        gold_RC, predicted_RC = weights_RK @ gold_KC, weights_RK @ predicted_KC
        correct_RC = weights_RK @ (gold_KC * predicted_KC)
        accuracy_R = correct_RC.sum(axis=1) / count
        occurs_RC = gold_RC + predicted_RC
        f1_RC = divide(2 * correct_RC, occurs_RC)
        # Gorodkin 2004, the covariance form.
        covariance_R = count**2 * accuracy_R - (gold_RC * predicted_RC).sum(axis=1)
        variances_R = (count**2 - (gold_RC**2).sum(axis=1)) * (count**2 - (predicted_RC**2).sum(axis=1))
        return {
            "accuracy": accuracy_R,
            "macro_f1": f1_RC.sum(axis=1) / (occurs_RC > 0).sum(axis=1),
            "micro_f1": accuracy_R,
            "mcc": divide(covariance_R, np.sqrt(variances_R)),
        }

    metrics = measure(formula, copies_K.astype(np.int64), resamples=resamples, seed=seed)
    accuracy = metrics["accuracy"]
    if resamples is not None and count >= FEWEST and accuracy.low is None:  # all are right, or none
        low, high = wilson(accuracy.value * count, count)
        for name in ("accuracy", "micro_f1"):
            metrics[name] = replace(metrics[name], low=low, high=high)
    return metrics


def _calibration(
    confidence_N: Floats, correct_N: NDArray[np.bool_], *, resamples: int | None, seed: int
) -> dict[str, Metric]:
    count = len(confidence_N)
    excess_NB = np.zeros((count, CALIBRATION_BINS))
    excess_NB[np.arange(count), _bins(confidence_N)] = confidence_N - correct_N

    def formula(weights_RN: Floats) -> dict[str, Floats]:
        # A bin's share of the examples times the distance of its two means is the distance of their sums.
        return {"calibration_error": np.abs(weights_RN @ excess_NB).sum(axis=1) / count}

    return measure(formula, np.ones(count, dtype=np.int64), resamples=resamples, seed=seed)


def _bins(confidence_N: Floats) -> NDArray[np.int64]:
    upper = np.linspace(0, 1, CALIBRATION_BINS + 1)[1:]
    return np.minimum(np.searchsorted(upper, confidence_N, side="left"), CALIBRATION_BINS - 1)


def _check_num_labels(num_labels: int) -> None:
    if num_labels < 1:
        raise DataError(f"there must be at least one label; got num_labels {num_labels}.")
