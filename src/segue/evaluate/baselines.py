"""What a classifier must beat: the most frequent class, and words or characters counted (TF-IDF) with a logistic
regression.

In: texts with their classes, and texts to classify. Out: a probability of each class for each text. The regression
needs scikit-learn, which the extra `compare` brings. Its penalty, and whether words or characters are counted, are
chosen by the validation texts; large tables are sampled, so that it takes seconds.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.errors import ConfigError

INVERSE_PENALTY = 10.0
"""C of the logistic regression, where it is not chosen,"""
INVERSE_PENALTIES = (1.0, 10.0, 100.0)
"""and among which it is."""
MOST_FEATURES = 100_000
MOST_WEIGHTS = 400_000
"""Features of all classes together, where many classes make a regression slow; but 10,000 features at least."""
MOST_STEPS = 200
"""Maximum number of optimizer steps; on the data sets tried, it converges earlier."""
WORD = r"\w+|[^\w\s]"
"""No text is without one, so no vocabulary is empty."""
MOST_ROWS = 10_000
MOST_LETTERS = {"words": 10_000_000, "characters": 3_000_000}
"""Largest number of characters to learn from or to answer; larger tables are sampled."""
PROBE_LETTERS = 600_000
"""Number of characters of the sample that decides between words and characters."""

Floats = NDArray[np.float64]
Texts = Sequence[tuple[str, ...]]
"""One text for each example, or two."""
Score = Callable[[Floats], float]
"""How good probabilities of the validation examples are; more is better."""


@dataclass(frozen=True, kw_only=True)
class Tfidf:
    """A regression that was chosen, and what it says."""

    counted: str
    """words or characters"""
    inverse_penalty: float
    trained_on: int
    """Training texts."""
    answers: list[Floats]
    """For each list of texts, [N, C]."""


def class_shares(gold_NC: NDArray[np.bool_]) -> Floats:
    """How many of the training examples have each class: what is said without looking at a text."""
    shares_C: Floats = gold_NC.mean(axis=0)
    return shares_C


def most_frequent(labels: Sequence[str], count: int) -> list[str]:
    """The same label for all: the one that training had most of."""
    return [Counter(labels).most_common(1)[0][0]] * count


def sample(texts: Texts, *, letters: int, rows: int = MOST_ROWS, seed: int = 0) -> NDArray[np.int64]:
    """Places of some texts in their order: as many as there may be rows and letters, drawn at random."""
    order = np.random.default_rng(seed).permutation(len(texts))[:rows]
    ends = np.cumsum([sum(map(len, texts[place])) for place in order])
    return np.sort(order[: max(1, int((ends <= letters).sum()))])


def tuned_tfidf(
    train: Texts,
    gold_NC: NDArray[np.bool_],
    valid: Texts,
    others: Sequence[Texts],
    *,
    score: Score,
    multiple: bool,
) -> Tfidf:
    """The regression that is best on the validation texts, and its answers to these and to others. `multiple`: an
    example may have several classes, each of which is then decided by itself."""
    probe = sample(train, letters=PROBE_LETTERS)
    found: dict[str, float] = {}
    for counted in MOST_LETTERS:
        bag = _Bag([train[n] for n in probe], gold_NC[probe], counted=counted, multiple=multiple)
        found[counted] = score(bag.answers(bag.fitted(INVERSE_PENALTY), bag.vectors(valid)))
    counted = max(found, key=lambda name: found[name])
    chosen = sample(train, letters=MOST_LETTERS[counted])
    bag = _Bag([train[n] for n in chosen], gold_NC[chosen], counted=counted, multiple=multiple)
    asked = bag.vectors(valid)
    tried: dict[float, tuple[float, Any]] = {}
    for inverse_penalty in INVERSE_PENALTIES:
        model = bag.fitted(inverse_penalty)
        tried[inverse_penalty] = score(bag.answers(model, asked)), model
    best = max(tried, key=lambda inverse_penalty: tried[inverse_penalty][0])
    answers = [bag.answers(tried[best][1], bag.vectors(texts)) for texts in (valid, *others)]
    return Tfidf(counted=counted, inverse_penalty=best, trained_on=len(chosen), answers=answers)


class _Bag:
    """Training texts as vectors, for regressions of any penalty."""

    def __init__(self, texts: Texts, gold_NC: NDArray[np.bool_], *, counted: str, multiple: bool) -> None:
        self.gold_NC, self.multiple = gold_NC, multiple
        most = min(MOST_FEATURES, max(10_000, MOST_WEIGHTS // gold_NC.shape[1]))
        self.words = counted_words(characters=counted == "characters", most=most)
        self.words.fit([text for row in texts for text in row])
        self.train = self.vectors(texts)

    def vectors(self, texts: Texts) -> Any:
        return vectors(self.words, texts)

    def fitted(self, inverse_penalty: float) -> Any:
        if not self.multiple:
            return fitted(self.train, self.gold_NC.argmax(axis=1), inverse_penalty=inverse_penalty)
        return [
            fitted(self.train, own_N, inverse_penalty=inverse_penalty) if own_N.min() < own_N.max() else bool(own_N[0])
            for own_N in self.gold_NC.T
        ]

    def answers(self, model: Any, asked: Any) -> Floats:
        if not self.multiple:
            return probabilities(model, asked, num_classes=self.gold_NC.shape[1])
        columns = [
            np.full(asked.shape[0], float(one)) if isinstance(one, bool) else one.predict_proba(asked)[:, 1]
            for one in model
        ]
        return np.stack(columns, axis=1)


# ---------------------------------------------------------------------------------------------------- its parts


def counted_words(*, characters: bool, most: int = MOST_FEATURES) -> Any:
    """A vectoriser of scikit-learn: words and pairs of words; with `characters`, runs of one to three characters."""
    vectorizer = _sklearn("feature_extraction.text").TfidfVectorizer
    if characters:
        return vectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True, max_features=most)
    return vectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True, max_features=most)


def vectors(words: Any, texts: Texts) -> Any:
    """A row for each example: of one text its own vector; of two, both with their distance and their product."""
    first, *others = (words.transform(column) for column in zip(*texts, strict=True))
    if not others:
        return first
    (second,) = others
    return import_module("scipy.sparse").hstack(
        [first, second, abs(first - second), first.multiply(second)], format="csr"
    )


def regression(inverse_penalty: float = INVERSE_PENALTY) -> Any:
    """A logistic regression of scikit-learn."""
    return _sklearn("linear_model").LogisticRegression(C=inverse_penalty, max_iter=MOST_STEPS)


def fitted(train: Any, gold_N: Any, *, inverse_penalty: float = INVERSE_PENALTY) -> Any:
    """The same, fitted; a class is a number."""
    alone = import_module("threadpoolctl").threadpool_limits(1, user_api="blas")  # sums are short: threads only wait
    with warnings.catch_warnings(), alone:
        warnings.simplefilter("ignore", category=_sklearn("exceptions").ConvergenceWarning)
        return regression(inverse_penalty).fit(train, gold_N)


def probabilities(model: Any, asked: Any, *, num_classes: int) -> Floats:
    """[N, C]: 0 for classes that the model has not seen."""
    found_NC = np.zeros((asked.shape[0], num_classes))
    found_NC[:, model.classes_] = model.predict_proba(asked)
    return found_NC


def bag_of_words(texts: Sequence[str], labels: Sequence[str], others: Sequence[str], *, characters: bool) -> list[str]:
    """Labels of other texts, without a choice of settings."""
    words = counted_words(characters=characters).fit(texts)
    model = fitted(words.transform(texts), list(labels))
    return [str(label) for label in model.predict(words.transform(others))]


def _sklearn(part: str) -> Any:
    try:
        return import_module(f"sklearn.{part}")
    except ImportError:
        raise ConfigError(
            "the comparison with TF-IDF needs scikit-learn; it is not installed. pip install scikit-learn."
        ) from None
