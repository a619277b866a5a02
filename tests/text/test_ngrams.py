"""TF-IDF vectors of n-grams: by hand, and beside scikit-learn's."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]

from segue.errors import DataError
from segue.text.ngrams import WORD, Counted, Ngrams, Vectors, count_ngrams, learn_ngrams

TEXTS = [
    "The room was clean,  the staff were KIND.",
    "A dull film; the story was dull, dull, dull.",
    "房间很干净，服务员的态度也非常好。",
    "房间很差，态度也差 \t\n 2019年",
    "Größe, naïve, İstanbul 😀😀 a",
    "",
]


def dense(vectors: Vectors) -> Any:
    rows_NV = np.zeros((len(vectors), vectors.width))
    for row, (start, end) in enumerate(pairwise(vectors.starts)):
        rows_NV[row, vectors.columns[start:end]] = vectors.values[start:end]
    return rows_NV


def theirs(counted: Counted) -> Any:
    if counted == "characters":
        return TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True)
    return TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True)


@pytest.mark.parametrize("counted", ["words", "characters"])
def test_vectors_are_those_of_scikit_learn(counted: Counted) -> None:
    other = theirs(counted).fit(TEXTS)
    ngrams = learn_ngrams(TEXTS, counted, most=10_000)
    assert list(ngrams.terms) == other.get_feature_names_out().tolist()
    np.testing.assert_allclose(ngrams.frequency_V, other.idf_, rtol=1e-14)
    asked = [*TEXTS, "a clean 房间 that nobody knows", "zzz"]
    want = other.transform(asked).toarray()
    np.testing.assert_allclose(dense(ngrams.vectors([(text,) for text in asked])), want, rtol=0, atol=1e-14)


def test_by_hand() -> None:
    assert count_ngrams("A b, a B", "words") == {"a": 2, "b": 2, ",": 1, "a b": 2, "b ,": 1, ", a": 1}
    assert count_ngrams("a  b", "characters") == {"a": 1, " ": 1, "b": 1, "a ": 1, " b": 1, "a b": 1}
    ngrams = learn_ngrams(["x x x", "y"], "words", most=9)
    columns, values = ngrams.vector(("x x y",))
    assert [ngrams.terms[n] for n in columns] == ["x", "x x", "y"]
    damped = np.array([1 + np.log(2), 1, 1]) * (np.log(3 / 2) + 1)
    np.testing.assert_allclose(values, damped / np.linalg.norm(damped), rtol=1e-15)


def test_the_most_frequent_are_kept_and_the_rest_has_no_vector() -> None:
    ngrams = learn_ngrams(["b b b c", "b a c"], "words", most=2)
    assert ngrams.terms == ("b", "b b")  # of c and "b b", both twice, the first in order
    columns, values = ngrams.vector(("nothing of it",))
    assert len(columns) == len(values) == 0


def test_two_texts_have_both_vectors_their_distance_and_their_product() -> None:
    ngrams = learn_ngrams(TEXTS, "words", most=100)
    first, second = (dense(ngrams.vectors([(text,)]))[0] for text in TEXTS[:2])
    both = dense(ngrams.vectors([(TEXTS[0], TEXTS[1])]))[0]
    np.testing.assert_array_equal(both, np.concatenate([first, second, abs(first - second), first * second]))
    assert ngrams.width(2) == len(both)


def test_a_vocabulary_must_fit_its_numbers() -> None:
    with pytest.raises(DataError, match="n-grams must be different"):
        Ngrams("words", ("a", "a"), np.ones(2))
    with pytest.raises(DataError, match="one frequency each"):
        Ngrams("words", ("a", "b"), np.ones(3))
