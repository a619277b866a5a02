"""Baselines of the desk: scikit-learn's TF-IDF with logistic regression, BM25, NB-SVM."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

Rows = list[tuple[str, str]]
_FITTED: dict[int, tuple[Rows, Any, Any]] = {}


def tfidf_scores(rows: Rows, texts: list[str]) -> tuple[Any, list[str]]:
    """Return the probabilities of each label: words and pairs of words, C = 10. The last fit is kept for the same
    rows."""
    kept = _FITTED.get(0)
    if kept is None or kept[0] is not rows:
        vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        given = vectorizer.fit_transform([text for text, _ in rows])
        model = LogisticRegression(C=10, max_iter=500).fit(given, [label for _, label in rows])
        kept = _FITTED[0] = (rows, vectorizer, model)
    return kept[2].predict_proba(kept[1].transform(texts)), list(kept[2].classes_)


def nb_svm(rows: Rows, texts: list[str]) -> list[str]:
    """Return labels by NB-SVM: binary words and pairs of words, scaled by the log-count ratio of each class, one linear
    SVM for each."""
    vectorizer = CountVectorizer(ngram_range=(1, 2), binary=True)
    given = vectorizer.fit_transform([text for text, _ in rows]).astype(np.float64)
    asked = vectorizer.transform(texts).astype(np.float64)
    labels = np.array([label for _, label in rows])
    names = sorted(set(labels))
    scores = np.zeros((len(texts), len(names)))
    for place, name in enumerate(names):
        own = labels == name
        ratio = log_count_ratio(given, own)
        model = LinearSVC(C=1.0).fit(given.multiply(ratio).tocsr(), own)
        scores[:, place] = model.decision_function(asked.multiply(ratio).tocsr())
    return [names[int(place)] for place in scores.argmax(1)]


def log_count_ratio(counts: Any, inside_N: Any) -> Any:
    """Return the log of the smoothed share of each n-gram in a class, divided by that outside of it."""
    inside, outside = (1 + np.asarray(counts[rows].sum(axis=0))[0] for rows in (inside_N, ~inside_N))
    return np.log((inside / inside.sum()) / (outside / outside.sum()))


def nearest_by_bm25(rows: Rows, texts: list[str]) -> list[str]:
    """Return the label of the nearest question."""
    return [rows[found[0]][1] for found in bm25_rankings([text for text, _ in rows], texts, characters=False)]


def bm25_rankings(pool: list[str], texts: list[str], *, characters: bool) -> list[list[int]]:
    """Return the eleven best of the pool: k1 = 1.5, b = 0.75; words, or single characters and pairs of them."""
    how: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 2)} if characters else {"token_pattern": r"\w+"}
    vectorizer = CountVectorizer(**how)
    counts = vectorizer.fit_transform(pool).tocoo()
    lengths = np.bincount(counts.row, counts.data, minlength=len(pool))
    having = np.bincount(counts.col, minlength=counts.shape[1])
    inverse = np.log(1 + (len(pool) - having + 0.5) / (having + 0.5))
    norm = 1.5 * (1 - 0.75 + 0.75 * lengths[counts.row] / lengths.mean())
    weights = csr_matrix(
        (inverse[counts.col] * counts.data * 2.5 / (counts.data + norm), (counts.row, counts.col)), counts.shape
    )
    asked = vectorizer.transform(texts)
    found = []
    for start in range(0, len(texts), 500):
        scores = (asked[start : start + 500] @ weights.T).toarray()
        found += [np.argsort(-row, kind="stable")[:11].tolist() for row in scores]
    return found
