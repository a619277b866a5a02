"""What each term of the score counts: its share of the variance, its mean by distance, and what goes to memory.

In: the attention of a text, segment by segment. Out: TermStatistics, sums over all queries, by layer and head.

Only differences between the keys of one query matter to a softmax. So a term is taken as its deviation from its mean
over the keys that the query sees, and its share is its covariance with the score over the variance of the score: the
shares of all terms add up to 1, and one that works against the others is negative.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.explain.scores import AttentionScores, Stream
from segue.explain.text import SegmentAttention

BINS = 64
"""How many ranges of distances there are at most: 0, 1, 2, 3, 4, then ever wider ones."""

Floats = NDArray[np.float64]


def distance_edges(farthest: int) -> NDArray[np.int64]:
    """The lower ends of ranges of distances from 0 up to `farthest`: every distance to 8, then eight for each power of
    two."""
    edges = list(range(9))
    while edges[-1] <= farthest:
        edges.append(max(edges[-1] + 1, round(edges[-1] * 2 ** (1 / 8))))
    return np.array([edge for edge in edges if edge <= farthest] + [farthest + 1], dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class TermStatistics:
    """Sums over the queries of a text, for one stream. Axes: L layers, H heads, C terms, N ranges."""

    terms: tuple[str, ...]
    edges: NDArray[np.int64]
    """The ranges of distances: from `edges[n]` up to `edges[n + 1]`, keys to the left; N + 1 numbers."""
    share_LHC: Floats
    """The share of each term in the variance of the score; adds up to 1."""
    profile_LHCN: Floats
    """The mean of each term by distance; NaN where no key has it."""
    probability_LHN: Floats
    """How much of the probability goes to each range of distances, keys to the left; adds up to 1, less what goes to
    keys on the right."""
    right_LH: Floats
    """How much of the probability goes to keys on the right."""
    memory_LH: Floats
    """How much of the probability goes to memory."""
    age_LHN: Floats
    """The same by the age of what is remembered: tokens before the segment, in the same ranges."""


class _Sums:
    """Sums over the queries of all segments."""

    def __init__(self, *, layers: int, heads: int, terms: tuple[str, ...], edges: NDArray[np.int64]) -> None:
        ranges = len(edges) - 1
        self.terms, self.edges = terms, torch.from_numpy(edges)
        self.queries = 0
        self.covariance = np.zeros((layers, heads, len(terms)))
        self.variance = np.zeros((layers, heads))
        self.total = np.zeros((layers, heads, len(terms), ranges))
        self.pairs = np.zeros(ranges)
        self.probability = np.zeros((layers, heads, ranges))
        self.right = np.zeros((layers, heads))
        self.memory = np.zeros((layers, heads))
        self.age = np.zeros((layers, heads, ranges))

    def add(self, layer: int, head: int, scores: AttentionScores, distance_QK: Tensor, age_K: Tensor) -> None:
        """The queries of a band. `age_K` is 0 for keys of the segment."""
        seen_QK = scores.mask_BQK[0]
        count_Q1 = seen_QK.sum(dim=1, keepdim=True).clamp(min=1)

        def around(term_QK: Tensor) -> Tensor:
            seen = term_QK.double().masked_fill(~seen_QK, 0.0)
            return (seen - seen.sum(dim=1, keepdim=True) / count_Q1).masked_fill(~seen_QK, 0.0)

        score_QK = around(scores.score[0, 0])
        probability_QK = scores.probability[0, 0].double()
        self.variance[layer, head] += float(score_QK.square().sum())
        to_left_QK = seen_QK & (distance_QK >= 0)
        range_N = torch.bucketize(distance_QK[to_left_QK], self.edges, right=True) - 1
        ranges = len(self.edges) - 1
        for number, name in enumerate(self.terms):
            term_QK = scores.terms[name][0, 0].double()
            self.covariance[layer, head, number] += float((around(term_QK) * score_QK).sum())
            self.total[layer, head, number] += _binned(range_N, term_QK[to_left_QK], ranges)
        if layer == head == 0:
            self.pairs += _binned(range_N, torch.ones_like(range_N, dtype=torch.double), ranges)
        self.probability[layer, head] += _binned(range_N, probability_QK[to_left_QK], ranges)
        self.right[layer, head] += float(probability_QK[distance_QK < 0].sum())
        probability_K = probability_QK.sum(dim=0)
        remembered_K = age_K > 0
        self.memory[layer, head] += float(probability_K[remembered_K].sum())
        old_N = torch.bucketize(age_K[remembered_K], self.edges, right=True) - 1
        self.age[layer, head] += _binned(old_N, probability_K[remembered_K], ranges)

    def statistics(self) -> TermStatistics:
        count = max(1, self.queries)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(self.variance[..., None] > 0, self.covariance / self.variance[..., None], 0.0)
            profile = np.where(self.pairs > 0, self.total / self.pairs, np.nan)
        return TermStatistics(
            terms=self.terms,
            edges=self.edges.numpy(),
            share_LHC=share,
            profile_LHCN=profile,
            probability_LHN=self.probability / count,
            right_LH=self.right / count,
            memory_LH=self.memory / count,
            age_LHN=self.age / count,
        )


def _binned(range_N: Tensor, values_N: Tensor, ranges: int) -> Floats:
    return torch.bincount(range_N, weights=values_N, minlength=ranges)[:ranges].numpy()


class TermCounter:
    """Counts the terms of one segment after the other; queries that a window repeats are left out."""

    def __init__(self, *, stream: Stream = "content", farthest: int) -> None:
        self.stream: Stream = stream
        self.edges = distance_edges(farthest)
        self.sums: _Sums | None = None

    def add(self, segment: SegmentAttention) -> None:
        """All layers and heads of a segment."""
        reading = segment.reading
        if self.sums is None:
            terms = tuple(reading.scores(0, heads=0, queries=slice(0, 1), stream=self.stream).terms)
            self.sums = _Sums(layers=reading.num_layers, heads=reading.num_heads, terms=terms, edges=self.edges)
        memory, length = reading.memory_length, len(segment.span)
        key_K = torch.arange(memory + length)
        age_K = (memory - key_K).clamp(min=0)
        repeated = segment.span.new - segment.span.start
        for layer in range(reading.num_layers):
            for head in range(reading.num_heads):
                for queries, scores in reading.bands(layer, head, stream=self.stream):
                    skip = min(max(0, repeated - queries.start), queries.stop - queries.start)
                    at_Q = torch.arange(queries.start + skip, queries.stop)
                    distance_QK = memory + at_Q[:, None] - key_K
                    self.sums.add(layer, head, _without(scores, skip), distance_QK, age_K)
                    if layer == head == 0:
                        self.sums.queries += len(at_Q)

    def statistics(self) -> TermStatistics:
        """What was counted so far."""
        assert self.sums is not None, "nothing was counted"
        return self.sums.statistics()


def _without(scores: AttentionScores, skip: int) -> AttentionScores:
    """The scores without the first queries."""
    if skip == 0:
        return scores
    terms = {f"{name}_BHQK": term_BHQK[:, :, skip:] for name, term_BHQK in scores.terms.items()}
    return AttentionScores(mask_BQK=scores.mask_BQK[:, skip:], **terms)


def term_statistics(
    segments: Iterable[SegmentAttention], *, farthest: int, stream: Stream = "content"
) -> TermStatistics:
    """The statistics of all segments. `farthest` is the longest distance that can occur."""
    counter = TermCounter(stream=stream, farthest=farthest)
    for segment in segments:
        counter.add(segment)
    return counter.statistics()
