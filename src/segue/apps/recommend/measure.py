"""Evaluation: the rank of the next item among all items, without sampled negatives.

In: scores of all items for each held-out event. Out: its rank; HR@10, NDCG@10 and MRR over ranks. If users do not
return to items, items that the user has seen are not ranked, for all methods alike.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.apps.recommend.baselines import Neighbours
from segue.apps.recommend.batches import Segment, segments
from segue.apps.recommend.histories import Histories
from segue.apps.recommend.network import EventNetwork, order_batch
from segue.model import Batch, Memory

Wanted = Sequence[tuple[int, int]]
CUT = 10
"""Number of top items that count for HR and NDCG."""
ROWS = 32
"""Batch size in histories."""
RARE = 0.01
"""Minimum share of events that repeat an item of the user for users to count as returning to items."""


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Ranking quality over the held-out events."""

    events: int
    hit_rate: float
    """HR@10: share of the events whose item is among the first ten."""
    ndcg: float
    """NDCG@10: mean of 1 / log2(1 + rank) if the item is among the first ten, else of 0."""
    mrr: float
    """MRR: mean of 1 / rank."""


def quality(ranks: NDArray[np.float64]) -> Quality:
    """Return the metrics of ranks, which start at 1."""
    if not len(ranks):
        return Quality(events=0, hit_rate=0.0, ndcg=0.0, mrr=0.0)
    top = ranks <= CUT
    return Quality(
        events=len(ranks),
        hit_rate=float(top.mean()),
        ndcg=float((top / np.log2(1 + ranks)).mean()),
        mrr=float((1 / ranks).mean()),
    )


def come_back(histories: Histories) -> bool:
    """Return True if users return to items that they have seen."""
    different = sum(len(np.unique(histories.items_N[histories.of(user)])) for user in range(len(histories.users)))
    return 1 - different / max(1, len(histories.items_N)) >= RARE


def rank(scores_V: NDArray[np.float32], target: int, seen: NDArray[np.int64] | None) -> float:
    """Return the rank of the target: 1, plus the items with higher scores, plus half of those with the same score."""
    scores_V = scores_V.copy()
    own = scores_V[target]
    scores_V[0] = -np.inf
    if seen is not None:
        scores_V[seen] = -np.inf
    scores_V[target] = -np.inf
    return 1 + int((scores_V > own).sum()) + int((scores_V == own).sum()) / 2


def ranks_by(
    histories: Histories, wanted: Wanted, score: Callable[[NDArray[np.int64]], NDArray[np.float32]], *, repeats: bool
) -> NDArray[np.float64]:
    """Return the ranks by a method that scores all items, given the items of a history."""
    found = []
    for user, place in wanted:
        items = histories.items_N[histories.of(user)]
        found.append(rank(score(items[:place]), int(items[place]), None if repeats else items[:place]))
    return np.array(found, dtype=np.float64)


def ranks_of_neighbours(
    histories: Histories, wanted: Wanted, neighbours: Neighbours, counts_V: NDArray[np.int64], *, repeats: bool
) -> NDArray[np.float64]:
    """Return the ranks by item-kNN, with ties broken by popularity."""
    little_V = (counts_V / max(1, counts_V.max()) * 1e-6).astype(np.float32)
    return ranks_by(histories, wanted, lambda items: neighbours.scores(items) + little_V, repeats=repeats)


@torch.no_grad()
def ranks_of_network(
    network: EventNetwork, histories: Histories, wanted: Wanted, *, length: int, repeats: bool
) -> NDArray[np.float64]:
    """Return the ranks by a network, which reads each history once, segment by segment."""
    network.eval()
    table_VD, bias_V = network.table(), network.bias

    def score(hidden_ND: Tensor, _: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        scores_NV: NDArray[np.float32] = (hidden_ND @ table_VD.T + bias_V).numpy()
        return scores_NV

    return ranks_of_states(network, table_VD, score, histories, wanted, length=length, repeats=repeats)


def ranks_of_states(
    network: EventNetwork,
    table_VD: Tensor,
    score: Callable[[Tensor, Sequence[NDArray[np.int64]]], NDArray[np.float32]],
    histories: Histories,
    wanted: Wanted,
    *,
    length: int,
    repeats: bool,
) -> NDArray[np.float64]:
    """Return the ranks by a function of the states of a network and the last events before each event: item, kind and
    gap bucket."""
    found: dict[tuple[int, int], float] = {}
    for keys, hidden_ND in states(network, table_VD, histories, wanted, length=length):
        whole = [histories.events[histories.of(user)] for user, _ in keys]
        recent = [events[max(0, place - length) : place] for events, (_, place) in zip(whole, keys, strict=True)]
        for key, events, scores_V in zip(keys, whole, score(hidden_ND, recent), strict=True):
            items = events[:, 0]
            found[key] = rank(scores_V, int(items[key[1]]), None if repeats else items[: key[1]])
    return np.array([found[one] for one in wanted], dtype=np.float64)


@torch.no_grad()
def states(
    network: EventNetwork, table_VD: Tensor, histories: Histories, wanted: Wanted, *, length: int
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """Yield the states that predict the wanted events, in batches, with the given item vectors."""
    if network.config.objective == "masked":
        yield from _masked_states(network, table_VD, histories, wanted, length=length)
        return
    causal = network.config.objective == "causal"
    places: dict[int, set[int]] = {}
    for user, place in wanted:
        places.setdefault(user, set()).add(place)
    until_U = np.array([1 + max(places.get(user, {-1})) for user in range(len(histories.users))], dtype=np.int64)
    memory: Memory | None = None
    for segment in segments(histories, until_U, rows=ROWS, length=length, predict_last=not causal):
        batch = _in_time(segment, causal=causal)
        embedded_BQD = network.embed(table_VD, segment.items_BQ, segment.kinds_BQ, segment.gaps_BQ)
        output = network.read(embedded_BQD, batch, segment.past(memory))
        memory = output.memory
        hidden = output.hidden_BQD if causal else output.predicted_BPD
        assert hidden is not None
        keys, rows, columns = [], [], []
        for row, (user, first) in enumerate(zip(segment.users_B.tolist(), segment.first_B.tolist(), strict=True)):
            for place in sorted(places.get(user, ())):
                column = place - first - (1 if causal else 0)
                if 0 <= column < int(segment.real_BQ[row].sum()):
                    keys.append((user, place))
                    rows.append(row)
                    columns.append(column)
        if keys:
            yield keys, hidden[rows, columns]


def _in_time(segment: Segment, *, causal: bool) -> Batch:
    if causal:
        return Batch(ids_BQ=segment.items_BQ, real_BQ=segment.real_BQ)
    length = segment.items_BQ.shape[1]
    return order_batch(segment, torch.arange(length).expand(len(segment.items_BQ), -1))


def _masked_states(
    network: EventNetwork, table_VD: Tensor, histories: Histories, wanted: Wanted, *, length: int
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """Yield the states of a masked network, which reads the last events again for each, followed by a mask."""
    gaps_N = histories.gaps()
    for start in range(0, len(wanted), ROWS):
        keys = list(wanted[start : start + ROWS])
        values = np.zeros((3, len(keys), length), dtype=np.int64)
        counts = []
        for row, (user, place) in enumerate(keys):
            count = min(place, length - 1)
            counts.append(count)
            here = slice(int(histories.starts_U[user]) + place - count, int(histories.starts_U[user]) + place)
            for number, array in enumerate((histories.items_N, histories.kinds_N, gaps_N)):
                values[number, row, :count] = array[here]
        items_BQ, kinds_BQ, gaps_BQ = (torch.from_numpy(one) for one in values)
        last_B = torch.tensor(counts)
        real_BQ = torch.arange(length) <= last_B[:, None]
        batch = Batch(ids_BQ=items_BQ, real_BQ=real_BQ, predicted_BP=last_B[:, None])
        output = network.read(network.embed(table_VD, items_BQ, kinds_BQ, gaps_BQ), batch, None, remember=False)
        assert output.predicted_BPD is not None
        yield keys, output.predicted_BPD[:, 0]
