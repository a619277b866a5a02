"""Baselines of the monitor: scikit-learn's TF-IDF with a tuned logistic regression, NB-SVM."""

from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

CS = (1.0, 3.0, 10.0, 30.0, 100.0)


Choice = tuple[dict[str, Any], float]
"""Settings of n-grams, and C."""


def choose(texts: list[str], labels: list[str], *, chinese: bool) -> Choice:
    """Choose words and pairs, or runs of one to three characters, and C, by the accuracy on a fifth of the rows."""
    kinds: list[dict[str, Any]] = [{"analyzer": "char", "ngram_range": (1, 3)}]
    if not chinese:
        kinds.append({"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b|[^\w\s]"})
    order = np.random.default_rng(0).permutation(len(texts))
    cut = len(texts) // 5
    held, rest = order[:cut], order[cut:]
    tried = []
    for kind in kinds:
        vectorizer = TfidfVectorizer(sublinear_tf=True, **kind)
        given = vectorizer.fit_transform([texts[n] for n in rest])
        asked = vectorizer.transform([texts[n] for n in held])
        for c in CS:
            model = LogisticRegression(C=c, max_iter=1000).fit(given, [labels[n] for n in rest])
            right = float(np.mean(model.predict(asked) == np.array([labels[n] for n in held])))
            tried.append((right, len(tried), (kind, c)))
    return max(tried)[2]


def tfidf(texts: list[str], labels: list[str], others: list[str], choice: Choice) -> list[str]:
    """Return predictions by TF-IDF with logistic regression."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, **choice[0])
    model = LogisticRegression(C=choice[1], max_iter=1000).fit(vectorizer.fit_transform(texts), labels)
    return list(model.predict(vectorizer.transform(others)))


def nb_svm(texts: list[str], labels: list[str], others: list[str], *, chinese: bool) -> list[str]:
    """Return predictions by NB-SVM: binary n-grams, scaled by the log-count ratio of each class, one linear SVM for
    each (Wang and Manning 2012)."""
    kind: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 3)} if chinese else {"ngram_range": (1, 2)}
    vectorizer = CountVectorizer(binary=True, **kind)
    given = vectorizer.fit_transform(texts).astype(np.float64)
    asked = vectorizer.transform(others).astype(np.float64)
    gold = np.array(labels)
    names = sorted(set(labels))
    scores = np.zeros((len(others), len(names)))
    for place, name in enumerate(names):
        own = gold == name
        inside, outside = 1 + np.asarray(given[own].sum(0))[0], 1 + np.asarray(given[~own].sum(0))[0]
        ratio = np.log((inside / inside.sum()) / (outside / outside.sum()))
        model = LinearSVC(C=1.0).fit(given.multiply(ratio).tocsr(), own)
        scores[:, place] = model.decision_function(asked.multiply(ratio).tocsr())
    return [names[int(place)] for place in scores.argmax(1)]
