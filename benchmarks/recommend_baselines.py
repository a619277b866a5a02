"""Baselines of benchmarks.recommend, each as a function from a history to the scores of all items."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segue.apps.recommend.histories import Histories, Ints
from segue.apps.recommend.measure import Wanted, quality, ranks_by
from segue.apps.recommend.tables import Item

Score = Callable[[NDArray[np.int64]], NDArray[np.float32]]
LAST = 100
"""Number of last events of a history whose texts count."""


def tfidf(items: Sequence[Item]) -> Score:
    """Score items by the cosine with the mean TF-IDF vector (scikit-learn) of the history."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(sublinear_tf=True).fit_transform([item.text or "-" for item in items])

    def score(history: NDArray[np.int64]) -> NDArray[np.float32]:
        profile = np.asarray(vectors[history[-LAST:] - 1].mean(axis=0)).ravel()
        return np.concatenate([[0.0], vectors @ profile]).astype(np.float32)

    return score


SHAPES = ((64, 0.05, 1.0), (128, 0.05, 1.0), (64, 0.05, 10.0), (32, 1.0, 1.0))
"""Factors, regularisation and alpha of ALS that are tried."""


def best_als(
    histories: Histories, until_U: Ints, choosing: Wanted, *, items: int, repeats: bool, told: Callable[[str], object]
) -> tuple[int, float, float]:
    """Return the shape with the best NDCG on the events that select settings."""
    found = {}
    for shape in SHAPES:
        score = als(histories, until_U, items=items, seed=0, shape=shape)
        found[shape] = quality(ranks_by(histories, choosing, score, repeats=repeats)).ndcg
        told(f"ALS with {shape}: NDCG@10 {found[shape]:.4f} on the events that choose")
    return max(found, key=lambda shape: found[shape])


def als(histories: Histories, until_U: Ints, *, items: int, seed: int, shape: tuple[int, float, float]) -> Score:
    """Score items by alternating least squares of `implicit`, with this number of factors, regularisation and alpha; a
    history is folded in as an unseen user."""
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    rows = np.repeat(np.arange(len(histories.users)), until_U)
    columns = np.concatenate(
        [
            histories.items_N[int(start) : int(start) + int(until)]
            for start, until in zip(histories.starts_U[:-1], until_U, strict=True)
        ]
    )
    size = (len(histories.users), items + 1)
    seen = csr_matrix((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=size)
    model = AlternatingLeastSquares(
        factors=shape[0], regularization=shape[1], alpha=shape[2], iterations=15, random_state=seed
    )
    model.fit(seen, show_progress=False)

    def score(history: NDArray[np.int64]) -> NDArray[np.float32]:
        own = csr_matrix(
            (np.ones(len(history), dtype=np.float32), (np.zeros(len(history), dtype=int), history)),
            shape=(1, items + 1),
        )
        factors = model.recalculate_user(0, own)
        return np.asarray(model.item_factors @ np.ravel(factors), dtype=np.float32)

    return score


def cornac(
    name: Literal["SASRec", "GRU4Rec"], histories: Histories, until_U: Ints, *, items: int, epochs: int, seed: int
) -> Score:
    """Score items by SASRec or GRU4Rec of `cornac`, with its sampled losses and its defaults: SASRec reads the last 50
    events. Items that occur in no history have the lowest score."""
    from cornac.data import SequentialDataset
    from cornac.models import GRU4Rec, SASRec

    rows = [
        (str(user), str(user), int(item), place)
        for user, (start, until) in enumerate(zip(histories.starts_U[:-1], until_U, strict=True))
        for place, item in enumerate(histories.items_N[int(start) : int(start) + int(until)])
        if until >= 2
    ]
    known = SequentialDataset.build(rows, fmt="USIT", seed=seed)
    if name == "SASRec":
        model: Any = SASRec(n_epochs=epochs, seed=seed)
    else:  # it reads this many histories side by side, and there must be as many
        model = GRU4Rec(n_epochs=epochs, batch_size=min(512, known.num_sessions), seed=seed)
    model.fit(known)
    places = {int(item): place for item, place in known.iid_map.items()}
    own = np.array(list(places), dtype=np.int64)
    theirs = np.array(list(places.values()), dtype=np.int64)

    def score(history: NDArray[np.int64]) -> NDArray[np.float32]:
        scores = np.ravel(model.score(0, [places[int(item)] for item in history if int(item) in places]))
        found = np.full(items + 1, float(scores.min()) - 1, dtype=np.float32)
        found[own] = scores[theirs]
        return found

    return score
