"""N-grams joined to a classifier: a linear model of n-grams and the network predict together.

In: a fitted linear model and the network's probabilities of held-out examples. Out: the weights of the two scores in
the joint score, and joint probabilities. The two weights are fitted to examples that neither part was trained on
(stacking, Wolpert 1992), so that a network that has memorised its training examples gets no credit for it.

The joint scores are `network * log p_network + ngrams * log p_ngrams`, with log-odds in place of log-probabilities if a
text may have several labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.evaluation.baselines import Floats, NgramClassifier, Score, log_softmax, probabilities
from segue.text.ngrams import Ngrams, Texts

SMALLEST = 1e-7
"""Probabilities of a network are float32: closer to 0 or 1 than this, log-odds are meaningless."""
HALF = 0.5
"""Prior mean of both weights; it counts as much as one example."""
MOST_STEPS = 100
CLOSE = 1e-10
"""Smallest step size of Newton's method."""


@dataclass(frozen=True, kw_only=True)
class Wide:
    """A linear model of n-grams beside a network, with the weights of both."""

    classifier: NgramClassifier
    network: float
    ngrams: float

    def joined(self, network_NC: Any, rows: Texts) -> Floats:
        """Return joint probabilities [N, C] from those of the network and the texts."""
        return self.combined(network_NC, self.classifier.scores(rows))

    def combined(self, network_NC: Any, scores_NC: Floats) -> Floats:
        """Return joint probabilities from those of the network and the scores of the n-grams."""
        network_scores_NC = scores_of(network_NC, multiple=self.classifier.multiple)
        joint_NC = self.network * network_scores_NC + self.ngrams * scores_NC
        return probabilities(joint_NC, multiple=self.classifier.multiple)

    # ------------------------------------------------------------------------------------------------- on disk

    def to_values(self) -> dict[str, Any]:
        """Return the values that are not tensors."""
        return {"counted": self.classifier.ngrams.counted, "network": self.network, "ngrams": self.ngrams}

    def to_tensors(self) -> dict[str, Tensor]:
        """Return the vocabulary, as bytes, and the parameters of the linear model."""
        encoded = [term.encode("utf-8", "surrogatepass") for term in self.classifier.ngrams.terms]
        return {
            "terms": torch.from_numpy(np.frombuffer(b"".join(encoded), dtype=np.uint8).copy()),
            "term_ends": torch.from_numpy(np.cumsum([len(term) for term in encoded], dtype=np.int64)),
            "frequency": torch.from_numpy(self.classifier.ngrams.frequency_V),
            "weight": torch.from_numpy(self.classifier.weight_VC),
            "bias": torch.from_numpy(self.classifier.bias_C),
        }


def restore_wide(
    values: Mapping[str, Any], tensors: Mapping[str, Tensor], *, texts: int, classes: int, multiple: bool
) -> Wide:
    """Restore a Wide from saved values; raise ValueError if the parts do not fit each other or the task."""
    counted = values["counted"]
    shares = [float(values[name]) for name in ("network", "ngrams")]
    if counted not in ("words", "characters") or not all(np.isfinite(share) and share >= 0 for share in shares):
        raise ValueError("n-grams must be counted by words or characters, and count 0 or more")
    kinds = {name: (str(value.dtype), value.ndim) for name, value in tensors.items()}
    if kinds != _KINDS:
        raise ValueError(f"n-grams must have the tensors {', '.join(_KINDS)} in their own types")
    ends, letters = tensors["term_ends"].numpy(), tensors["terms"].numpy().tobytes()
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    if (ends <= starts).any() or (len(ends) and ends[-1] != len(letters)):
        raise ValueError("every n-gram must have its bytes, one after the other")
    terms = tuple(
        letters[start:end].decode("utf-8", "surrogatepass")
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )
    numbers = [tensors[name] for name in ("frequency", "weight", "bias")]
    if len(set(terms)) != len(terms) or len(numbers[0]) != len(terms):
        raise ValueError("n-grams must be different, with one frequency each")
    ngrams = Ngrams(counted, terms, numbers[0].numpy())
    if tuple(numbers[1].shape) != (ngrams.width(texts), classes) or tuple(numbers[2].shape) != (classes,):
        raise ValueError("n-grams must have a weight for each class")
    if not all(bool(value.isfinite().all()) for value in numbers):
        raise ValueError("n-grams must have finite weights")
    classifier = NgramClassifier(
        ngrams=ngrams, weight_VC=numbers[1].numpy(), bias_C=numbers[2].numpy(), multiple=multiple
    )
    return Wide(classifier=classifier, network=shares[0], ngrams=shares[1])


_KINDS = {
    "terms": ("torch.uint8", 1),
    "term_ends": ("torch.int64", 1),
    "frequency": ("torch.float64", 1),
    "weight": ("torch.float32", 2),
    "bias": ("torch.float64", 1),
}


# ------------------------------------------------------------------------------------------------------- stacking


def scores_of(network_NC: Any, *, multiple: bool) -> Floats:
    """Return log-probabilities or log-odds from the probabilities of a network."""
    found_NC = np.asarray(network_NC, dtype=np.float64)
    if multiple:
        found_NC = np.clip(found_NC, SMALLEST, 1 - SMALLEST)
        odds_NC: Floats = np.log(found_NC) - np.log1p(-found_NC)
        return odds_NC
    return log_softmax(np.log(np.maximum(found_NC, np.finfo(np.float32).tiny)))


def fit_wide(
    classifier: NgramClassifier, network_NC: Any, ngrams_NC: Floats, gold_NC: NDArray[np.bool_], *, score: Score
) -> Wide:
    """Fit the two weights to held-out examples: probabilities of the network, scores of the n-grams, and gold labels.
    By `score`, the result is at least as good on them as the better part: if the joint prediction is not, that part
    predicts alone."""
    multiple = classifier.multiple
    scores = (scores_of(network_NC, multiple=multiple), ngrams_NC)
    joint = stack(scores, gold_NC, multiple=multiple)
    reached = {}
    for network, ngrams in (joint, (1.0, 0.0), (0.0, 1.0)):  # in a tie, the first is taken
        found_NC = probabilities(network * scores[0] + ngrams * scores[1], multiple=multiple)
        reached[network, ngrams] = score(found_NC)
    network, ngrams = max(reached, key=lambda shares: reached[shares])
    return Wide(classifier=classifier, network=network, ngrams=ngrams)


def stack(scores: tuple[Floats, Floats], gold_NC: NDArray[np.bool_], *, multiple: bool) -> tuple[float, float]:
    """Return the weights of two parts, 0 or more, with the lowest loss of their joint scores. The loss is convex, so if
    the unconstrained minimum has a negative weight, the constrained minimum has a weight of 0."""
    both_NCS = np.stack(scores, axis=-1)
    shares = _smallest(both_NCS, gold_NC, np.array([True, True]), multiple=multiple)
    if (shares < 0).any():
        single = [
            np.maximum(_smallest(both_NCS, gold_NC, np.array(free), multiple=multiple), 0.0)
            for free in ([True, False], [False, True])
        ]
        shares = min(single, key=lambda found: _penalised(both_NCS, gold_NC, found, multiple=multiple)[0])
    return float(shares[0]), float(shares[1])


def _smallest(both_NCS: Floats, gold_NC: NDArray[np.bool_], free: NDArray[np.bool_], *, multiple: bool) -> Floats:
    """Minimise the loss by Newton's method with halved steps; weights that are not free are 0."""
    shares = np.where(free, HALF, 0.0)
    value, gradient, curvature = _penalised(both_NCS, gold_NC, shares, multiple=multiple)
    for _ in range(MOST_STEPS):
        step = np.zeros(2)
        step[free] = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
        size = 1.0
        while size > CLOSE:
            new = _penalised(both_NCS, gold_NC, shares - size * step, multiple=multiple)
            if new[0] < value:
                break
            size /= 2
        else:  # no smaller value in float64
            break
        shares, (value, gradient, curvature) = shares - size * step, new
    return shares


def _penalised(
    both_NCS: Floats, gold_NC: NDArray[np.bool_], shares: Floats, *, multiple: bool
) -> tuple[float, Floats, Floats]:
    """Return the loss, gradient and Hessian, with a penalty that keeps the weights near `HALF` if there are few
    examples."""
    value, gradient, curvature = (_multiple_loss if multiple else _single_loss)(both_NCS, gold_NC, shares)
    strength, away = 1 / len(both_NCS), shares - HALF
    return (
        value + strength / 2 * float(away @ away),
        gradient + strength * away,
        curvature + strength * np.eye(2),
    )


def _single_loss(both_NCS: Floats, gold_NC: NDArray[np.bool_], shares: Floats) -> tuple[float, Floats, Floats]:
    log_NC = log_softmax(both_NCS @ shares)
    found_NC = np.exp(log_NC)
    mean_NS = np.einsum("nc,ncs->ns", found_NC, both_NCS)
    around_NCS = both_NCS - mean_NS[:, None]
    count = len(both_NCS)
    gradient = np.einsum("nc,ncs->s", found_NC - gold_NC, both_NCS) / count
    curvature = np.einsum("nc,ncs,nct->st", found_NC, around_NCS, around_NCS) / count
    return float(-log_NC[gold_NC].sum() / count), gradient, curvature


def _multiple_loss(both_NCS: Floats, gold_NC: NDArray[np.bool_], shares: Floats) -> tuple[float, Floats, Floats]:
    odds_NC = both_NCS @ shares
    found_NC = probabilities(odds_NC, multiple=True)
    count = gold_NC.size
    gradient = np.einsum("nc,ncs->s", found_NC - gold_NC, both_NCS) / count
    curvature = np.einsum("nc,ncs,nct->st", found_NC * (1 - found_NC), both_NCS, both_NCS) / count
    value = float(np.logaddexp(0, np.where(gold_NC, -odds_NC, odds_NC)).sum() / count)
    return value, gradient, curvature
