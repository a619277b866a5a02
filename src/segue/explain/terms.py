"""Statistics of the terms of the score: share of the variance, mean by distance, and probability on memory.

In: the attention of a text, segment by segment. Out: TermStatistics, sums over all queries, by layer and head.

Only differences between the keys of one query matter to a softmax. So a term is taken as its deviation from its mean
over the keys that the query sees, and its share is its covariance with the score over the variance of the score: the
shares of all terms add up to 1, and one that counteracts the others is negative.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.explain.scores import AttentionScores, Stream
from segue.explain.text import SegmentAttention
from segue.model.positions import relative_unshift

Floats = NDArray[np.float64]


def distance_edges(farthest: int) -> NDArray[np.int64]:
    """Return the lower bounds of ranges of distances from 0 up to `farthest`: every distance to 8, then eight for each
    power of two."""
    edges = list(range(9))
    while edges[-1] <= farthest:
        edges.append(max(edges[-1] + 1, round(edges[-1] * 2 ** (1 / 8))))
    return np.array([edge for edge in edges if edge <= farthest] + [farthest + 1], dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class TermStatistics:
    """Sums over the queries of a text, for one stream. Axes: L layers, H heads, C terms, N ranges."""

    terms: tuple[str, ...]
    edges: NDArray[np.int64]
    """Bounds of the ranges of distances: from `edges[n]` up to `edges[n + 1]`, keys to the left; N + 1 numbers."""
    share_LHC: Floats
    """Share of each term in the variance of the score; adds up to 1."""
    profile_LHCN: Floats
    """Mean of each term by distance; NaN where no key has it."""
    probability_LHN: Floats
    """Share of the probability on each range of distances, keys to the left; with `right_LH`, adds up to 1."""
    right_LH: Floats
    """Share of the probability on keys to the right."""
    memory_LH: Floats
    """Share of the probability on memory."""
    age_LHN: Floats
    """The same by the age of the memory: tokens before the segment, in the same ranges."""


class _Sums:
    """Sums over the queries of all segments, by distance."""

    def __init__(self, *, layers: int, heads: int, terms: tuple[str, ...], farthest: int) -> None:
        self.terms, self.edges = terms, distance_edges(farthest)
        self.queries = 0
        self.covariance = np.zeros((layers, heads, len(terms)))
        self.variance = np.zeros((layers, heads))
        self.total = np.zeros((layers, heads, len(terms), farthest + 1))
        self.pairs = np.zeros(farthest + 1)
        self.probability = np.zeros((layers, heads, farthest + 1))
        self.all = np.zeros((layers, heads))
        self.memory = np.zeros((layers, heads))
        self.age = np.zeros((layers, heads, farthest + 1))

    def add(self, layer: int, head: int, scores: AttentionScores, *, memory: int, ahead: int) -> None:
        """Add the queries of a band, the last of which is `ahead` positions before the last key."""
        seen_QK = scores.mask_BQK[0]
        hidden_QK = ~seen_QK
        score_QK = scores.score[0, 0].masked_fill(hidden_QK, 0.0)
        mean_Q1 = score_QK.sum(dim=1, keepdim=True) / seen_QK.sum(dim=1, keepdim=True).clamp(min=1)
        around_QK = (score_QK - mean_Q1).masked_fill(hidden_QK, 0.0)
        self.variance[layer, head] += _sum(around_QK.square())
        for number, name in enumerate(self.terms):
            term_QK = scores.terms[name][0, 0].masked_fill(hidden_QK, 0.0)
            # The deviations of the score add up to zero, so that the mean of the term makes no difference.
            self.covariance[layer, head, number] += _sum(term_QK * around_QK)
            _add(self.total[layer, head, number], _by_distance(term_QK, ahead))
        if layer == head == 0:
            _add(self.pairs, _by_distance(seen_QK.to(score_QK.dtype), ahead))
            self.queries += len(seen_QK)
        probability_QK = scores.probability[0, 0]
        _add(self.probability[layer, head], _by_distance(probability_QK, ahead))
        given_K = probability_QK.sum(dim=0, dtype=torch.float64).cpu().numpy()
        self.all[layer, head] += given_K.sum()
        self.memory[layer, head] += given_K[:memory].sum()
        _add(self.age[layer, head], np.concatenate([[0.0], given_K[:memory][::-1]]))

    def statistics(self) -> TermStatistics:
        count = max(1, self.queries)
        starts = self.edges[:-1]

        def ranges(values: Floats) -> Floats:
            return np.add.reduceat(values, starts, axis=-1)

        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(self.variance[..., None] > 0, self.covariance / self.variance[..., None], 0.0)
            profile = np.where(ranges(self.pairs) > 0, ranges(self.total) / ranges(self.pairs), np.nan)
        return TermStatistics(
            terms=self.terms,
            edges=self.edges,
            share_LHC=share,
            profile_LHCN=profile,
            probability_LHN=ranges(self.probability) / count,
            right_LH=np.maximum(0.0, self.all - self.probability.sum(axis=-1)) / count,
            memory_LH=self.memory / count,
            age_LHN=ranges(self.age) / count,
        )


def _by_distance(x_QK: Tensor, ahead: int) -> Floats:
    """Return the sums over all pairs of each distance, from 0 on; keys to the right are left out."""
    x_QK = x_QK[:, : x_QK.shape[1] - ahead]  # now the last query is at the last key
    length, num_keys = x_QK.shape
    by_column = relative_unshift(x_QK, num_distances=num_keys + length).sum(dim=0, dtype=torch.float64)
    return by_column[1 : num_keys + 1].flip(0).cpu().numpy()


def _sum(x: Tensor) -> float:
    return float(x.sum(dtype=torch.float64))


def _add(into: Floats, values: Floats) -> None:
    """Add values up to the length of `into`; further ones are padding, and zero."""
    count = min(len(into), len(values))
    into[:count] += values[:count]


class TermCounter:
    """Accumulator of the terms of one segment after the other; queries that a window repeats are left out."""

    def __init__(self, *, stream: Stream = "content", farthest: int) -> None:
        self.stream: Stream = stream
        self.farthest = farthest
        self.sums: _Sums | None = None

    def add(self, segment: SegmentAttention) -> None:
        """Add all layers and heads of a segment."""
        reading = segment.reading
        if self.sums is None:
            terms = tuple(reading.scores(0, heads=0, queries=slice(0, 1), stream=self.stream).terms)
            self.sums = _Sums(layers=reading.num_layers, heads=reading.num_heads, terms=terms, farthest=self.farthest)
        repeated = segment.span.new - segment.span.start
        for layer in range(reading.num_layers):
            for head in range(reading.num_heads):
                for queries, scores in reading.bands(layer, head, stream=self.stream):
                    skip = max(0, repeated - queries.start)
                    if skip < queries.stop - queries.start:
                        ahead = len(segment.span) - queries.stop
                        memory = reading.memory_length
                        self.sums.add(layer, head, _without(scores, skip), memory=memory, ahead=ahead)

    def statistics(self) -> TermStatistics:
        """Return the statistics so far."""
        assert self.sums is not None, "nothing was counted"
        return self.sums.statistics()


def _without(scores: AttentionScores, skip: int) -> AttentionScores:
    """Return the scores without the first queries."""
    if skip == 0:
        return scores
    terms = {f"{name}_BHQK": term_BHQK[:, :, skip:] for name, term_BHQK in scores.terms.items()}
    return AttentionScores(mask_BQK=scores.mask_BQK[:, skip:], **terms)


def term_statistics(
    segments: Iterable[SegmentAttention], *, farthest: int, stream: Stream = "content"
) -> TermStatistics:
    """Return the statistics of all segments. `farthest` is the longest distance that can occur."""
    counter = TermCounter(stream=stream, farthest=farthest)
    for segment in segments:
        counter.add(segment)
    return counter.statistics()
