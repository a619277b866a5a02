"""Baselines of a classifier: the most frequent class, and n-grams (TF-IDF) with logistic regression.

In: texts with their classes, and texts to classify. Out: scores and probabilities of each class for each text. The
regularisation of the regression, and whether words or characters are counted, are chosen on the validation texts; large
tables are sampled, so that it takes seconds. The regression is that of scikit-learn's LogisticRegression: its mean loss
plus half the squared weights, divided by C and the number of examples, with an unregularised bias.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from segue.text.ngrams import Counted, Ngrams, Texts, Vectors, learn_ngrams

INVERSE_PENALTY = 10.0
"""C of the logistic regression, where it is not tuned."""
INVERSE_PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Candidates for C, where it is tuned."""
MOST_FEATURES = 100_000
MOST_WEIGHTS = 400_000
"""Maximum number of weights of all classes together, because many classes make a regression slow; but at least 10,000
features are used."""
MOST_STEPS = 200
"""Maximum number of optimizer steps; on the data sets tried, it converges earlier."""
SMALLEST_GRADIENT = 1e-5
"""Largest absolute gradient at which it has converged."""
MOST_ROWS = 20_000
MOST_LETTERS: dict[Counted, int] = {"words": 10_000_000, "characters": 3_000_000}
"""Maximum number of characters to train on; larger tables are sampled."""
PROBE_LETTERS = 600_000
"""Number of characters of the sample that decides between words and characters."""

Floats = NDArray[np.float64]
Score = Callable[[Floats], float]
"""Score of the probabilities of the validation examples; higher is better."""


@dataclass(frozen=True, kw_only=True)
class NgramClassifier:
    """A linear model of n-grams."""

    ngrams: Ngrams
    weight_VC: NDArray[np.float32]
    bias_C: Floats
    multiple: bool
    """Whether an example may have several classes, each of which is then decided separately."""

    def scores(self, rows: Texts) -> Floats:
        """Return [N, C]: log-probabilities; with `multiple`, the log-odds of each class. Those of an example do not
        depend on the others, not even in the last bit."""
        found_NC = np.stack([self._logits(texts) for texts in rows]) if rows else np.zeros((0, len(self.bias_C)))
        return found_NC if self.multiple else log_softmax(found_NC)

    def probabilities(self, rows: Texts) -> Floats:
        """Return the class probabilities, [N, C]."""
        return probabilities(self.scores(rows), multiple=self.multiple)

    def _logits(self, texts: tuple[str, ...]) -> Floats:
        columns, values = self.ngrams.vector(texts)
        logits_C: Floats = values @ self.weight_VC[columns].astype(np.float64) + self.bias_C
        return logits_C


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A classifier with tuned settings."""

    classifier: NgramClassifier
    inverse_penalty: float
    trained_on: int
    """Number of training texts."""


def log_softmax(scores_NC: Floats) -> Floats:
    """Return the log-probabilities of mutually exclusive classes."""
    shifted_NC = scores_NC - scores_NC.max(axis=-1, keepdims=True)
    found_NC: Floats = shifted_NC - np.log(np.exp(shifted_NC).sum(axis=-1, keepdims=True))
    return found_NC


def probabilities(scores_NC: Floats, *, multiple: bool) -> Floats:
    """Return class probabilities: a softmax of the scores, or with several labels the sigmoid of each."""
    found_NC: Floats = np.exp(-np.logaddexp(0, -scores_NC)) if multiple else np.exp(log_softmax(scores_NC))
    return found_NC


def class_shares(gold_NC: NDArray[np.bool_]) -> Floats:
    """Return the share of the training examples that have each class: the prediction without looking at a text."""
    shares_C: Floats = gold_NC.mean(axis=0)
    return shares_C


def most_frequent(labels: Sequence[str], count: int) -> list[str]:
    """Return the most frequent training label, `count` times."""
    return [Counter(labels).most_common(1)[0][0]] * count


def sample(texts: Texts, *, letters: int, rows: int = MOST_ROWS, seed: int = 0) -> NDArray[np.int64]:
    """Return the indices of a random sample of texts, ascending, within the limits of rows and characters."""
    order = np.random.default_rng(seed).permutation(len(texts))[:rows]
    ends = np.cumsum([sum(map(len, texts[place])) for place in order])
    return np.sort(order[: max(1, int((ends <= letters).sum()))])


def tuned_ngrams(train: Texts, gold_NC: NDArray[np.bool_], valid: Texts, *, score: Score, multiple: bool) -> Tuned:
    """Return the classifier that is best on the validation texts."""
    probe = sample(train, letters=PROBE_LETTERS)
    found: dict[Counted, float] = {}
    for counted in MOST_LETTERS:
        regression = _Regression([train[n] for n in probe], gold_NC[probe], counted=counted, multiple=multiple)
        regression.fit(INVERSE_PENALTY)
        found[counted] = score(regression.answers(regression.ngrams.vectors(valid)))
    counted = max(found, key=lambda name: found[name])
    chosen = sample(train, letters=MOST_LETTERS[counted])
    regression = _Regression([train[n] for n in chosen], gold_NC[chosen], counted=counted, multiple=multiple)
    asked = regression.ngrams.vectors(valid)
    tried: dict[float, tuple[float, NgramClassifier]] = {}
    for inverse_penalty in INVERSE_PENALTIES:  # each starts from the previous solution, which is near
        regression.fit(inverse_penalty)
        tried[inverse_penalty] = score(regression.answers(asked)), regression.classifier()
    best = max(tried, key=lambda inverse_penalty: tried[inverse_penalty][0])
    return Tuned(classifier=tried[best][1], inverse_penalty=best, trained_on=len(chosen))


def ngram_labels(texts: Sequence[str], labels: Sequence[str], others: Sequence[str], *, counted: Counted) -> list[str]:
    """Return the labels of other texts, without tuning."""
    names = sorted(set(labels))
    gold_NC = np.array(labels)[:, None] == np.array(names)
    regression = _Regression([(text,) for text in texts], gold_NC, counted=counted, multiple=False)
    regression.fit(INVERSE_PENALTY)
    return [names[int(n)] for n in regression.classifier().scores([(text,) for text in others]).argmax(axis=1)]


# ------------------------------------------------------------------------------------------------- the regression


class _Regression:
    """Training texts as vectors, for regressions with any regularisation."""

    def __init__(self, texts: Texts, gold_NC: NDArray[np.bool_], *, counted: Counted, multiple: bool) -> None:
        self.multiple, self.classes = multiple, gold_NC.shape[1]
        most = min(MOST_FEATURES, max(10_000, MOST_WEIGHTS // self.classes))
        self.ngrams = learn_ngrams((text for row in texts for text in row), counted, most=most)
        vectors = self.ngrams.vectors(texts)
        self.rows = len(texts)
        self.known = np.flatnonzero(gold_NC.any(axis=0) & (~gold_NC.all(axis=0) if multiple else True))
        """Classes that can be learnt: those that occur and, with `multiple`, are not in every example."""
        self.outside_C = np.where(gold_NC.all(axis=0), 1.0, -1.0) * np.log(2 * self.rows)
        """Biases of the other classes."""
        self._binary = not multiple and len(self.known) == 2
        gold_NK = gold_NC[:, self.known]
        self._gold_NO = torch.from_numpy((gold_NK[:, 1:] if self._binary else gold_NK).astype(np.float64))
        self._products = Products(vectors)
        self._parameters_VO = torch.zeros(vectors.width + 1, self._gold_NO.shape[1], dtype=torch.float64)
        """Weights; the last row is the bias."""

    def fit(self, inverse_penalty: float) -> None:
        """Fit from the current weights. Two mutually exclusive classes share one column of weights."""
        parameters_VO = self._parameters_VO.requires_grad_(False)
        if not parameters_VO.shape[1]:
            return
        optimizer = torch.optim.LBFGS(
            [parameters_VO],
            max_iter=MOST_STEPS,
            max_eval=2 * MOST_STEPS,
            tolerance_grad=SMALLEST_GRADIENT,
            tolerance_change=0.0,
            line_search_fn="strong_wolfe",
        )
        penalty = 1 / (inverse_penalty * self.rows)

        def closure() -> Tensor:
            weight_VO = parameters_VO[:-1]
            scores_NO = self._products.forward(weight_VO) + parameters_VO[-1]
            if self.multiple or self._binary:
                loss = F.binary_cross_entropy_with_logits(scores_NO, self._gold_NO, reduction="sum")
                error_NO = scores_NO.sigmoid() - self._gold_NO
            else:
                loss = -(scores_NO.log_softmax(dim=1) * self._gold_NO).sum()
                error_NO = scores_NO.softmax(dim=1) - self._gold_NO
            error_NO /= self.rows
            gradient_VO = self._products.backward(error_NO) + penalty * weight_VO
            parameters_VO.grad = torch.cat([gradient_VO, error_NO.sum(dim=0, keepdim=True)])
            return loss / self.rows + penalty / 2 * weight_VO.square().sum()

        with torch.no_grad():
            optimizer.step(closure)  # type: ignore[no-untyped-call]

    def classifier(self) -> NgramClassifier:
        """Return the classifier of the last fit."""
        weight_VC, bias_C = self._of_all_classes()
        return NgramClassifier(
            ngrams=self.ngrams, weight_VC=weight_VC.astype(np.float32), bias_C=bias_C, multiple=self.multiple
        )

    def answers(self, asked: Vectors) -> Floats:
        """Return the probabilities, [N, C]."""
        weight_VC, bias_C = self._of_all_classes()
        scores_NC = Products(asked).forward(torch.from_numpy(weight_VC)).numpy() + bias_C
        return probabilities(scores_NC, multiple=self.multiple)

    def _of_all_classes(self) -> tuple[Floats, Floats]:
        found_VK = self._parameters_VO.numpy()
        if self._binary:
            found_VK = np.concatenate([-found_VK / 2, found_VK / 2], axis=1)
        all_VC = np.zeros((len(found_VK), self.classes))
        all_VC[-1] = self.outside_C
        all_VC[:, self.known] = found_VK
        return np.ascontiguousarray(all_VC[:-1]), all_VC[-1].copy()


class Products:
    """Products of a sparse matrix [N, V] with dense ones."""

    def __init__(self, vectors: Vectors) -> None:
        rows, width = len(vectors), vectors.width
        row_of = np.repeat(np.arange(rows), np.diff(vectors.starts))
        order = np.argsort(vectors.columns, kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(vectors.columns, minlength=width))])
        self._matrix_NV = _sparse(vectors.starts, vectors.columns, vectors.values, (rows, width))
        self._matrix_VN = _sparse(ends, row_of[order], vectors.values[order], (width, rows))

    def forward(self, right_VO: Tensor) -> Tensor:
        return self._matrix_NV @ right_VO

    def backward(self, right_NO: Tensor) -> Tensor:
        return self._matrix_VN @ right_NO


def _sparse(starts: NDArray[np.int64], columns: NDArray[np.int64], values: Floats, size: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(starts),
            torch.from_numpy(columns),
            torch.from_numpy(values),
            size=size,
            check_invariants=True,
        )
