"""Retrieval of the items with the best vectors: exact, or by an approximate index of faiss.

In: a recommender, and states of users. Out: places of items and their scores by the network alone. The bias of an item
is one more component of its vector, and that of a state is 1, so the best items are those with the largest inner
product. Exact search is one matrix product.

`candidate_scores` ranks candidates instead of all items, for a running recommender with a large catalogue (`--set
retrieval=faiss`).
"""

import importlib
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from segue.apps.recommend.baselines import LAST
from segue.apps.recommend.model import Recommender, Session
from segue.errors import ConfigError

LINKS = 32
"""Links of each item in the graph of the index."""
EFFORT = 128
"""Minimum number of items that a search of the graph keeps in view; more is slower and more accurate."""
POPULAR = 100
"""Number of most popular items, and of those with the strongest trend, that are candidates for every list."""


def item_vectors(model: Recommender) -> NDArray[np.float32]:
    """Return the item vectors, each with the bias as its last component: [V - 1, D + 1]. Row 0 is the first item."""
    found: NDArray[np.float32] = torch.cat([model.table_VD[1:], model.bias_V[1:, None]], dim=1).numpy()
    return found


def state_vectors(hidden_ND: torch.Tensor) -> NDArray[np.float32]:
    """Return the states of users as vectors in the same space: [N, D + 1]."""
    found: NDArray[np.float32] = torch.cat([hidden_ND, hidden_ND.new_ones(len(hidden_ND), 1)], dim=1).numpy()
    return found


class Retrieval:
    """Nearest-item search over the vectors of a recommender."""

    def __init__(self, model: Recommender, *, kind: Literal["exact", "faiss"] = "exact") -> None:
        """`kind`: exact, or faiss for a graph index (HNSW), which needs the package faiss-cpu."""
        self.model, self.kind = model, kind
        self._faiss: Any = None
        if kind == "faiss":
            try:
                self._faiss = importlib.import_module("faiss")
            except ImportError:
                raise ConfigError(
                    "a faiss index needs the package faiss-cpu; it is not installed. Install it (pip install "
                    "faiss-cpu), or use exact retrieval."
                ) from None
        self._build()

    def _build(self) -> None:
        self.vectors = np.ascontiguousarray(item_vectors(self.model))
        self._revision = self.model.revision
        self._index: Any = None
        if self._faiss is not None:
            self._index = self._faiss.IndexHNSWFlat(self.vectors.shape[1], LINKS, self._faiss.METRIC_INNER_PRODUCT)
            self._index.hnsw.efConstruction = EFFORT
            self._index.add(self.vectors)

    def refresh(self) -> None:
        """Take new items of the model into the index; rebuild it if vectors of known items have changed."""
        if self._revision != self.model.revision:
            self._build()
        elif len(self.model.items) > len(self.vectors):
            new = np.ascontiguousarray(item_vectors(self.model)[len(self.vectors) :])
            self.vectors = np.concatenate([self.vectors, new])
            if self._index is not None:
                self._index.add(new)

    def nearest(self, hidden_ND: torch.Tensor, *, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the places of the best items for each state, best first, and their scores: [N, count]. Place 0, with
        score -inf, stands for an item that the index did not find."""
        states = np.ascontiguousarray(state_vectors(hidden_ND))
        count = min(count, len(self.vectors))
        if self._index is not None:
            self._index.hnsw.efSearch = max(EFFORT, count)
            scores, rows = self._index.search(states, count)
            return rows.astype(np.int64) + 1, np.where(rows < 0, -np.inf, scores).astype(np.float32)
        scores = states @ self.vectors.T
        rows = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(scores, rows, axis=1), axis=1, kind="stable")
        rows = np.take_along_axis(rows, order, axis=1)
        return rows.astype(np.int64) + 1, np.take_along_axis(scores, rows, axis=1)


def candidate_scores(
    retrieval: Retrieval, session: Session, *, count: int, besides: Iterable[int] = ()
) -> NDArray[np.float32]:
    """Return log-probabilities of candidates among them, by the final ranking, and -inf for all other items: [V].

    Candidates are the best `count` items by the network, item-kNN neighbours of the recent events, popular items, and
    the places `besides`. The session must have read an event.
    """
    assert session.hidden_D is not None
    model = retrieval.model
    recent_N3 = np.array(session.recent[-model.window :])
    found = [retrieval.nearest(session.hidden_D[None], count=count)[0][0], np.fromiter(besides, dtype=np.int64)]
    if model.final is not None and model.final.method != "network":
        known = model.final.known
        near = known.neighbours.near_VK
        last = recent_N3[-LAST:, 0]
        found.append(near[last[last < len(near)]].ravel())
        few = min(POPULAR, len(known.popularity_V))
        found += [np.argpartition(-one, few - 1)[:few] for one in (known.popularity_V, known.trend_V)]
    places_C = np.unique(np.concatenate(found))
    places_C = places_C[places_C > 0]
    with torch.no_grad():
        logits_C = (model.table_VD[places_C] @ session.hidden_D + model.bias_V[places_C]).log_softmax(dim=0).numpy()
    scores_V = np.full(len(model.items) + 1, -np.inf, dtype=np.float32)
    scores_V[places_C] = logits_C if model.final is None else model.final.scores_of(places_C, logits_C, recent_N3)
    return scores_V
