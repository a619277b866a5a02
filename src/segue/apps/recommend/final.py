"""The final ranking: the score of the network combined with simpler features.

The score of an item is a weighted sum of its log-probability by the network, its similarity to recent items (item-kNN),
its popularity, its trend, the distance of its price from those of recent items, the tags it shares with them, the kind
and the age of the user's last event with it, if there is one, and whether it has no training events. The softmax of the
scores over all items is a probability. The weights are fitted to validation events; on those of other users, the
combination is compared with the network, item-kNN and popularity alone, and the best of the four is used.

Besides the letters of `segue.model`: V items, F features, N predicted events, C candidates.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.apps.recommend.baselines import LAST, Neighbours
from segue.apps.recommend.features import popularity
from segue.apps.recommend.histories import GAPS, Ints, gap_steps

Floats = NDArray[np.float32]
NAMES = ("network", "neighbours", "popularity", "trend", "price", "tags", "kind", "gap", "new")
"""Names of the features."""
ALONE: Mapping[str, tuple[float, ...]] = {
    "network": (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "item-kNN": (0.0, 1.0, 1e-4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    "popularity": (0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0),
}
"""Weights of the methods alone; item-kNN breaks ties by popularity."""
MIXED = "mixed"
FLOOR = 1e-4
"""Similarity share of items that are no neighbours of a recent item."""
BEST, AROUND = 1000, 5
"""Number of known items, the best by the network, that values for new items are taken from, and the minimum number of
them that are averaged."""
PULL = 1e-3
"""Strength of the L2 penalty that pulls the weights towards the network alone."""
FROM_EACH = 300
"""Number of best items by each method that are candidates when the weights are fitted, and of others in the sample."""
STEPS = (0.5, 0.2, 0.1, 0.05, 0.02, -0.02, -0.05, -0.1, -0.2)
"""Changes of a weight that are tried, as shares of the sum of all weights."""
PASSES = 3
"""Number of times that each weight is tried."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """Item features of the final ranking."""

    neighbours: Neighbours
    popularity_V: Floats
    trend_V: Floats
    """Popularity in the latest training events minus popularity in all."""
    price_V: Floats
    """Standardized log price; 0, the mean, if there is none."""
    tags_VT: Floats
    """Tags of each item, scaled to length 1; zeros if it has none."""

    kinds_K: Floats
    """Weight of each kind of event."""
    fresh_V: NDArray[np.bool_] | None = None
    """Items without training events, of which item-kNN knows nothing; None if there are none."""

    def features(self, log_C: Floats, history_N3: Ints, places_C: Ints | None = None) -> Floats:
        """Return the features of some items, or of all, given their log-probabilities by the network: [F, C]. The last
        of the events (item, kind, gap bucket) of the history count."""
        recent_N3 = history_N3[-LAST:]
        items_N = recent_N3[:, 0]
        of_C = slice(None) if places_C is None else places_C
        found = np.zeros((len(NAMES), len(log_C)), dtype=np.float32)
        found[0] = log_C
        shares_V = np.zeros(len(self.popularity_V), dtype=np.float32)
        near_V = self._neighbour_shares(items_N)
        shares_V[: len(near_V)] = near_V
        found[1] = np.log(shares_V[of_C] + FLOOR)
        if self.fresh_V is not None:
            fresh_C = self.fresh_V[of_C]
            found[1, fresh_C] = _expected(log_C, found[1], fresh_C)
            found[NAMES.index("new")] = fresh_C
        found[2], found[3] = self.popularity_V[of_C], self.trend_V[of_C]
        if len(items_N):
            found[4] = -np.abs(self.price_V[of_C] - self.price_V[items_N].mean())
            if self.tags_VT.shape[1]:
                found[5] = self.tags_VT[of_C] @ self.tags_VT[items_N].mean(axis=0)
            last_2V = self._last_events(recent_N3)
            found[6:8] = last_2V[:, of_C]
        return found

    def _last_events(self, recent_N3: Ints) -> Floats:
        """Return the weight of the kind of the last event with each item, and how recent it is, from 1, just now, down
        to 0, years ago; zeros for items without an event."""
        items_N, kinds_N, gaps_N = recent_N3.T
        minutes_N = 1.5 * 2.0 ** (np.maximum(gaps_N, 1) - 1) - 1  # the middle of each bucket
        since_N = np.append(np.cumsum(minutes_N[:0:-1])[::-1], 0.0)
        found = np.zeros((2, len(self.popularity_V)), dtype=np.float32)
        found[0, items_N] = self.kinds_K[kinds_N]  # of several events with an item, the last counts
        found[1, items_N] = 1 - gap_steps(60 * since_N) / GAPS
        return found

    def _neighbour_shares(self, recent: Ints) -> Floats:
        near_V = self.neighbours.scores(recent)
        total = float(near_V.sum())
        return near_V / total if total > 0 else near_V

    @property
    def middle(self) -> float:
        """The median popularity."""
        return float(np.median(self.popularity_V[1:])) if len(self.popularity_V) > 1 else 0.0

    def neutral(self, fresh_V: NDArray[np.bool_]) -> "Known":
        """Return this with neutral values for items without training events: at least the median popularity, no trend,
        and the similarity that known items with a similar score of the network have."""
        return replace(
            self,
            popularity_V=np.where(fresh_V, np.maximum(self.popularity_V, self.middle), self.popularity_V),
            trend_V=np.where(fresh_V, 0, self.trend_V),
            fresh_V=fresh_V,
        )

    def more(self, prices_N: Floats, tags_NT: Floats) -> "Known":
        """Return this with new items, which have neutral values."""
        count = len(prices_N)
        fresh_V = np.zeros(len(self.popularity_V), dtype=bool) if self.fresh_V is None else self.fresh_V
        return replace(
            self,
            popularity_V=np.append(self.popularity_V, np.full(count, self.middle, dtype=np.float32)),
            trend_V=np.append(self.trend_V, np.zeros(count, dtype=np.float32)),
            price_V=np.append(self.price_V, prices_N),
            tags_VT=np.concatenate([self.tags_VT, tags_NT]),
            fresh_V=np.append(fresh_V, np.ones(count, dtype=bool)),
        )

    def change(self, places_N: Ints, prices_N: Floats, tags_NT: Floats) -> None:
        """Set price and tags of known items."""
        self.price_V[places_N] = prices_N
        self.tags_VT[places_N] = tags_NT


def _expected(log_C: Floats, near_C: Floats, fresh_C: NDArray[np.bool_]) -> Floats:
    """Return values of item-kNN for the fresh items: the mean of those of the known items, among the best by the
    network, whose log-probability is nearest."""
    known = np.flatnonzero(~fresh_C & (log_C > -1e8))
    if not len(known):
        return near_C[fresh_C]
    if len(known) > BEST:
        known = known[np.argpartition(-log_C[known], BEST)[:BEST]]
    known = known[np.argsort(log_C[known])]
    span = min(len(known), max(AROUND, len(known) // AROUND))
    found = np.interp(log_C[fresh_C], _means(log_C[known], span), _means(near_C[known], span))
    return np.asarray(found, dtype=np.float32)


def _means(values_C: Floats, span: int) -> NDArray[np.float64]:
    """Return the means of all `span` consecutive values."""
    sums = np.append(0, np.cumsum(values_C, dtype=np.float64))
    found: NDArray[np.float64] = (sums[span:] - sums[:-span]) / span
    return found


def known_items(
    neighbours: Neighbours,
    counts_V: Ints,
    late_V: Ints,
    features_VF: Floats,
    *,
    price: bool,
    tags: int,
    kind_weights: Sequence[float],
) -> Known:
    """Return the features from item counts in all training events and in the latest ones (`late_V`), and the columns
    of `features_VF`: popularity, price (if `price`), `tags` columns of tags, and the text embedding."""
    popularity_V, late = popularity(counts_V), popularity(late_V)
    return Known(
        neighbours=neighbours,
        popularity_V=popularity_V,
        trend_V=late - popularity_V,
        price_V=features_VF[:, 1].copy() if price else np.zeros(len(features_VF), dtype=np.float32),
        tags_VT=np.ascontiguousarray(features_VF[:, 1 + price : 1 + price + tags]),
        kinds_K=np.array(kind_weights, dtype=np.float32),
    )


@dataclass(frozen=True, kw_only=True)
class FinalRanking:
    """Item features with their weights."""

    known: Known
    weights: tuple[float, ...]
    """Weights in the order of NAMES."""
    method: str
    """Method that was best: network, item-kNN, popularity or mixed."""

    def scores(self, log_V: Floats, history_N3: Ints) -> Floats:
        """Return the log-probability of each item after a history, given that of the network: [V]."""
        if self.method == "network":
            return log_V
        scores_V = np.array(self.weights, dtype=np.float32) @ self.known.features(log_V, history_N3)
        scores_V[0] = -1e9
        return _normalised(scores_V)

    def scores_of(self, places_C: Ints, log_C: Floats, history_N3: Ints) -> Floats:
        """Return the log-probability of each of some items among them: [C]."""
        if self.method == "network":
            return _normalised(log_C)
        return _normalised(np.array(self.weights, dtype=np.float32) @ self.known.features(log_C, history_N3, places_C))


def _normalised(scores_V: Floats) -> Floats:
    top = float(scores_V.max())
    found: Floats = (scores_V - top - np.log(np.exp(scores_V - top).sum())).astype(np.float32)
    return found


def final_tensors(final: FinalRanking, items: int) -> dict[str, Tensor]:
    """Return the tensors to store for the first `items` items."""
    known = final.known
    arrays = {
        "near": known.neighbours.near_VK,
        "alike": known.neighbours.alike_VK,
        "popularity": known.popularity_V[: items + 1],
        "trend": known.trend_V[: items + 1],
        "price": known.price_V[: items + 1],
        "tags": known.tags_VT[: items + 1],
        "fade": np.array(known.neighbours.fade),
    }
    return {f"final.{name}": torch.from_numpy(np.ascontiguousarray(one)) for name, one in arrays.items()}


def final_of(
    values: Any, tensors: Mapping[str, Tensor], *, tags: int, kind_weights: Sequence[float]
) -> FinalRanking | None:
    """Return the stored final ranking, or None; raise ValueError or KeyError if it is damaged."""
    if values is None:
        return None
    found = {
        name: tensors[f"final.{name}"].numpy() for name in ("near", "alike", "popularity", "trend", "price", "tags")
    }
    size = len(found["near"])
    near_VK, alike_VK, tags_VT = found["near"], found["alike"], found["tags"]
    weights = tuple(float(one) for one in values["weights"])
    if len(weights) == len(NAMES) - 1:  # of models before new items had a weight of their own
        weights = (*weights, 0.0)
    level = all(len(one) == size for one in found.values()) and near_VK.shape == alike_VK.shape
    if (
        not level
        or tags_VT.shape[1] != tags
        or len(weights) != len(NAMES)
        or not 0 <= near_VK.min() <= near_VK.max() < size
    ):
        raise ValueError("another final ranking")
    neighbours = Neighbours(near_VK=near_VK, alike_VK=alike_VK, fade=float(tensors["final.fade"]))
    known = Known(
        neighbours=neighbours,
        popularity_V=found["popularity"],
        trend_V=found["trend"],
        price_V=found["price"],
        tags_VT=tags_VT,
        kinds_K=np.array(kind_weights, dtype=np.float32),
    )
    return FinalRanking(known=known, weights=weights, method=str(values["method"]))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An event to predict, with what is known before it."""

    user: int
    log_V: Floats
    """Log-probabilities by the network."""
    recent_N3: Ints
    """Last events before it: item, kind, gap bucket."""
    seen: Ints
    """All items before the event."""
    target: int


def learn_final(known: Known, asked: Iterable[Asked], *, repeats: bool) -> FinalRanking:
    """Choose the method on all events, where weights are fitted to the events of half of the users and judged on those
    of the other half, in turn; then fit the weights to all events."""
    draw = np.random.default_rng(0)
    cases = [_case(known, one, draw, repeats=repeats) for one in asked]
    if len(cases) < 2:
        return FinalRanking(known=known, weights=ALONE["network"], method="network")
    features_NFC, counts_NC = _stacked(cases)
    order = {user: place for place, user in enumerate(dict.fromkeys(one.user for one in cases))}
    half_N = np.array([order[one.user] % 2 == 0 for one in cases])
    found = {name: _gains(_scores(features_NFC, one), counts_NC).mean() for name, one in ALONE.items()}
    if half_N.any() and not half_N.all():
        gains_N = np.zeros(len(cases))
        for one_N in (half_N, ~half_N):
            weights = mixed_weights(features_NFC[one_N], counts_NC[one_N])
            gains_N[~one_N] = _gains(_scores(features_NFC[~one_N], weights), counts_NC[~one_N])
        found[MIXED] = gains_N.mean()
    method = max(found, key=lambda name: (found[name], name == "network"))
    weights = mixed_weights(features_NFC, counts_NC) if method == MIXED else ALONE[method]
    return FinalRanking(known=known, weights=weights, method=method)


@dataclass(frozen=True, kw_only=True)
class _Case:
    """Features of the candidates of an event; the first candidate is the target."""

    user: int
    features_FC: Floats
    counts_C: Floats
    """Number of items that each candidate stands for."""


def _case(known: Known, asked: Asked, draw: np.random.Generator, *, repeats: bool) -> _Case:
    """Return the features of the best items by each method, and of a sample that stands for all others: the features of
    all items would take too much memory."""
    features_FV = known.features(asked.log_V, asked.recent_N3)
    may_V = np.ones(features_FV.shape[1], dtype=bool)
    may_V[0] = False
    if not repeats:
        may_V[asked.seen] = False
    may_V[asked.target] = False
    places = np.flatnonzero(may_V)
    counts_C = np.ones(len(places), dtype=np.float32)
    if len(places) > (len(ALONE) + 1) * FROM_EACH:
        features_FP = features_FV[:, places]
        by_each = [-np.array(weights, dtype=np.float32) @ features_FP for weights in ALONE.values()]
        new_P = features_FP[NAMES.index("new")] > 0
        if new_P.any():  # their weight decides how many of them come before the others
            by_each.append(np.where(new_P, by_each[0], np.inf))
        again = np.flatnonzero(features_FP[NAMES.index("gap")])
        best = np.unique(np.concatenate([again, *(np.argpartition(one, FROM_EACH)[:FROM_EACH] for one in by_each)]))
        others = np.setdiff1d(np.arange(len(places)), best, assume_unique=True)
        sample = draw.choice(others, min(FROM_EACH, len(others)), replace=False)
        counts_C = np.append(np.ones(len(best)), np.full(len(sample), len(others) / max(1, len(sample))))
        places = places[np.append(best, sample)]
    return _Case(
        user=asked.user,
        features_FC=features_FV[:, [asked.target, *places.tolist()]],
        counts_C=np.append(1, counts_C).astype(np.float32),
    )


def _stacked(cases: Sequence[_Case]) -> tuple[Floats, Floats]:
    """Return the features of all cases, [N, F, C], and the numbers of items, [N, C]: 0 where there is no candidate."""
    most = max(len(one.counts_C) for one in cases)
    features_NFC = np.zeros((len(cases), len(NAMES), most), dtype=np.float32)
    counts_NC = np.zeros((len(cases), most), dtype=np.float32)
    for row, one in enumerate(cases):
        features_NFC[row, :, : len(one.counts_C)] = one.features_FC
        counts_NC[row, : len(one.counts_C)] = one.counts_C
    return features_NFC, counts_NC


def mixed_weights(features_NFC: Floats, counts_NC: Floats) -> tuple[float, ...]:
    """Return weights with a high NDCG@10, by a coordinate search from the best of those that have the maximum
    likelihood and those of each method alone. Their scale, which no ranking depends on, has the maximum likelihood."""

    def worth(scores_NC: Floats) -> float:
        return float(_gains(scores_NC, counts_NC).mean())

    starts = [_likeliest(features_NFC, counts_NC), *ALONE.values()]
    weights_F = np.array(max(starts, key=lambda one: worth(_scores(features_NFC, one))))
    scores_NC = _scores(features_NFC, weights_F)
    best = worth(scores_NC)
    for feature in [one for one in range(len(NAMES)) if features_NFC[:, one].any()] * PASSES:
        steps = np.array(STEPS) * np.abs(weights_F).sum()
        tried = [worth(scores_NC + np.float32(step) * features_NFC[:, feature]) for step in steps]
        if max(tried) > best:
            best = max(tried)
            weights_F[feature] += steps[int(np.argmax(tried))]
            scores_NC = _scores(features_NFC, weights_F)
    scale = _likeliest(scores_NC[:, None], counts_NC)[0]
    return tuple((weights_F * scale if scale > 0 else weights_F).tolist())


def _likeliest(features_NFC: Floats, counts_NC: Floats) -> tuple[float, ...]:
    """Return the weights of maximum likelihood, penalized by their distance from those of the first feature alone."""
    x_NFC = torch.from_numpy(np.ascontiguousarray(features_NFC))
    log_counts_NC = torch.from_numpy(counts_NC).log().clamp(min=-1e9)
    start = torch.zeros(x_NFC.shape[1])
    start[0] = 1.0
    weights = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([weights], max_iter=40, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        scores_NC = torch.einsum("f,nfc->nc", weights, x_NFC) + log_counts_NC
        loss = -scores_NC.log_softmax(dim=1)[:, 0].mean() + PULL * (weights - start).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    found = weights.detach()
    return tuple((found if bool(torch.isfinite(found).all()) else start).tolist())


def _scores(features_NFC: Floats, weights: Sequence[float] | NDArray[np.float64]) -> Floats:
    found: Floats = np.einsum("f,nfc->nc", np.array(weights, dtype=np.float32), features_NFC)
    return found


def _gains(scores_NC: Floats, counts_NC: Floats) -> NDArray[np.float64]:
    """Return the NDCG@10 of each case."""
    before_N = ((scores_NC > scores_NC[:, :1]) * counts_NC).sum(axis=1)
    level_N = ((scores_NC == scores_NC[:, :1]) * counts_NC).sum(axis=1) - 1
    rank_N = 1 + before_N + level_N / 2
    return np.where(rank_N <= 10, 1 / np.log2(1 + rank_N), 0.0)
