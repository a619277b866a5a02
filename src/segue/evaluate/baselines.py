"""What a classifier must beat: the most frequent class, and words counted (TF-IDF) with a logistic regression.

In: texts with their labels, and texts to label. Out: a label for each. Needs scikit-learn, which the extra `compare`
brings.
"""

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from segue.errors import ConfigError

INVERSE_PENALTY = 10.0
"""C of the logistic regression."""
MOST_FEATURES = 100_000
MOST_STEPS = 200
"""Of its optimiser; on the data sets it was tried on, it converges before."""
WORD = r"\w+|[^\w\s]"
"""No text is without one, so no vocabulary is empty."""


def most_frequent(labels: Sequence[str], count: int) -> list[str]:
    """The same label for all: the one that training had most of."""
    return [Counter(labels).most_common(1)[0][0]] * count


def bag_of_words(texts: Sequence[str], labels: Sequence[str], others: Sequence[str], *, characters: bool) -> list[str]:
    """Words and pairs of words; with `characters`, for Chinese, runs of one to three characters."""
    vectors = counted_words(characters=characters)
    model = regression()
    model.fit(vectors.fit_transform(texts), list(labels))
    return [str(label) for label in model.predict(vectors.transform(others))]


def counted_words(*, characters: bool) -> Any:
    """A vectoriser of scikit-learn."""
    vectorizer = _sklearn("feature_extraction.text").TfidfVectorizer
    if characters:
        return vectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True, max_features=MOST_FEATURES)
    return vectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True, max_features=MOST_FEATURES)


def regression() -> Any:
    """A logistic regression of scikit-learn."""
    return _sklearn("linear_model").LogisticRegression(C=INVERSE_PENALTY, max_iter=MOST_STEPS)


def _sklearn(part: str) -> Any:
    try:
        return import_module(f"sklearn.{part}")
    except ImportError:
        raise ConfigError(
            "the comparison with TF-IDF needs scikit-learn; it is not installed. pip install scikit-learn."
        ) from None
