"""The items whose vectors are nearest, among very many: exact, or by an approximate index of faiss.

In: a recommender, and states of users. Out: places of items and their scores, as the network alone would rank them. The
bias of an item is one more number of its vector, whose partner in the state is 1, so that the best items are those
with the largest inner product. The exact way is one product of matrices, and the default everywhere; the index is for
catalogues so large that this product is what a request waits for.
"""

import importlib
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from segue.apps.recommend.model import Recommender
from segue.errors import ConfigError

LINKS = 32
"""Neighbours of an item in the graph of the index."""
EFFORT = 128
"""Items that a search of the graph keeps in sight; more is slower and finds more of the best."""


def item_vectors(model: Recommender) -> NDArray[np.float32]:
    """The vectors to retrieve by, a row for each item, the bias last: [V - 1, D + 1]. Its row 0 is the first item."""
    found: NDArray[np.float32] = torch.cat([model.table_VD[1:], model.bias_V[1:, None]], dim=1).numpy()
    return found


def state_vectors(hidden_ND: torch.Tensor) -> NDArray[np.float32]:
    """States of users in the same space: [N, D + 1]."""
    found: NDArray[np.float32] = torch.cat([hidden_ND, hidden_ND.new_ones(len(hidden_ND), 1)], dim=1).numpy()
    return found


class Retrieval:
    """The vectors of the items of a recommender as they are now."""

    def __init__(self, model: Recommender, *, kind: Literal["exact", "faiss"] = "exact") -> None:
        """`kind` is exact, or faiss for a graph (HNSW), which needs the package faiss-cpu."""
        self.vectors = np.ascontiguousarray(item_vectors(model))
        self._index: Any = None
        if kind == "faiss":
            try:
                faiss = importlib.import_module("faiss")
            except ImportError:
                raise ConfigError(
                    "a faiss index needs the package faiss-cpu; it is not installed. Install it (pip install "
                    "faiss-cpu), or use kind exact."
                ) from None
            self._index = faiss.IndexHNSWFlat(self.vectors.shape[1], LINKS, faiss.METRIC_INNER_PRODUCT)
            self._index.hnsw.efConstruction = EFFORT
            self._index.hnsw.efSearch = EFFORT
            self._index.add(self.vectors)

    def nearest(self, hidden_ND: torch.Tensor, *, count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The places of the best items for each state, the best first, and their scores: [N, count]."""
        states = np.ascontiguousarray(state_vectors(hidden_ND))
        count = min(count, len(self.vectors))
        if self._index is not None:
            scores, rows = self._index.search(states, count)
            return rows.astype(np.int64) + 1, scores
        scores = states @ self.vectors.T
        rows = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(scores, rows, axis=1), axis=1, kind="stable")
        rows = np.take_along_axis(rows, order, axis=1)
        return rows.astype(np.int64) + 1, np.take_along_axis(scores, rows, axis=1)
