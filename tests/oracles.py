"""The definitions, written with plain loops and nothing from segue.model: what the fast code must equal.

Sums go over Python lists of scalars, so that gradients come out by the chain rule alone.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def dot(a: Tensor, b: Tensor) -> Tensor:
    return sum((a[e] * b[e] for e in range(len(a))), start=a.new_zeros(()))


def sinusoid(position: int, width: int) -> list[float]:
    """sin of every frequency, then cos of every frequency (Dai et al. 2019, after Vaswani et al. 2017)."""
    angles = [position / 10000 ** (2 * n / width) for n in range(width // 2)]
    return [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]


def softmax_over(scores: dict[int, Tensor]) -> dict[int, Tensor]:
    exponentials = {key: score.exp() for key, score in scores.items()}
    total = sum(exponentials.values(), start=torch.zeros((), dtype=torch.float64))
    return {key: value / total for key, value in exponentials.items()}


def attention(
    query_QE: Tensor,
    key_KE: Tensor,
    value_KE: Tensor,
    *,
    sees: Callable[[int, int], bool],
    extra_score: Callable[[int, int], Tensor],
    extra_value: Callable[[int, int], Tensor],
    late_score: Callable[[int, int], Tensor],
) -> Tensor:
    """One head of one row: sum over visible keys of softmax((q k + extra) / sqrt(E) + late) (v + extra value)."""
    rows = []
    for i in range(len(query_QE)):
        scores = {
            j: (dot(query_QE[i], key_KE[j]) + extra_score(i, j)) / math.sqrt(query_QE.shape[1]) + late_score(i, j)
            for j in range(len(key_KE))
            if sees(i, j)
        }
        total = torch.zeros_like(value_KE[0])
        for j, probability in softmax_over(scores).items():
            total = total + probability * (value_KE[j] + extra_value(i, j))
        rows.append(total)
    return torch.stack(rows)


def xl_extra_score(
    query_QE: Tensor,
    key_KE: Tensor,
    *,
    projection_ED: Tensor,
    u_E: Tensor,
    v_E: Tensor,
    at: Sequence[int],
    memory: int,
    clamp: int | None = None,
    sign: int = 1,
) -> Callable[[int, int], Tensor]:
    """Terms b, c, d of Dai et al. 2019, section 3.3: q W R(i - j) + u k + v W R(i - j). Query n is at position
    at[n] of the segment, behind `memory` earlier keys."""
    width = projection_ED.shape[1]

    def score(i: int, j: int) -> Tensor:
        distance = memory + at[i] - j
        if clamp is not None:
            distance = max(-clamp, min(clamp, distance))
        encoding_D = torch.tensor(sinusoid(sign * distance, width), dtype=torch.float64)
        position_key_E = torch.stack([dot(row, encoding_D) for row in projection_ED])
        return dot(query_QE[i] + v_E, position_key_E) + dot(u_E, key_KE[j])

    return score


def clipped(distance: int, clip: int) -> int:
    """The row of Shaw et al.'s tables for a distance: -clip ... clip."""
    return max(-clip, min(clip, distance)) + clip


def bucket(distance: int) -> int:
    """The bucket of a distance: one for each up to 8, then two for each doubling, up to 128; those of keys to the right
    (negative distances) after those to the left."""
    bounds = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128]
    count = sum(abs(distance) >= bound for bound in bounds)
    return count + 16 if distance < 0 else count


def permutation_sees(order: Sequence[int], context: set[int], targets: set[int]) -> Callable[[int, int], bool]:
    """Yang et al. 2019, section 2.3, with the roles of their code: may position i see the content of j?

    All see the context; the context sees nothing else. The others see what comes before them in the order, and
    themselves unless they are targets (in the query stream a target must not).
    """

    def sees(i: int, j: int) -> bool:
        if j in context:
            return True
        if i in context:
            return False
        if i == j:
            return i not in targets
        return order.index(j) < order.index(i)

    return sees


def adaptive_log_probability(
    hidden_D: Tensor,
    token: int,
    *,
    bounds: Sequence[int],
    tables: Sequence[Tensor],
    biases: Sequence[Tensor],
    projections: Sequence[Tensor | None],
    cluster_weight: Tensor,
    cluster_bias: Tensor,
    reversed_clusters: bool,
) -> Tensor:
    """log p(token): bin 0 and one cluster for each further bin share a softmax; a bin has one of its own."""

    def logits(i: int) -> list[Tensor]:
        projected = hidden_D if projections[i] is None else torch.stack([dot(c, hidden_D) for c in projections[i].T])
        return [dot(row, projected) + bias for row, bias in zip(tables[i], biases[i], strict=True)] + (
            [dot(row, projected) + bias for row, bias in zip(cluster_weight, cluster_bias, strict=True)]
            if i == 0
            else []
        )

    def log_softmax(scores: list[Tensor], index: int) -> Tensor:
        total = sum((score.exp() for score in scores), start=torch.zeros((), dtype=torch.float64))
        return scores[index] - total.log()

    number = next(i for i in range(len(bounds) - 1) if bounds[i] <= token < bounds[i + 1])
    if number == 0:
        return log_softmax(logits(0), token)
    clusters = len(bounds) - 2
    column = bounds[1] + (clusters - number if reversed_clusters else number - 1)
    return log_softmax(logits(0), column) + log_softmax(logits(number), token - bounds[number])


def influences(
    segments: Sequence[int],
    *,
    layers: int,
    memory_length: int | None,
    sees: Callable[[int, int, int], bool],
    reuse_length: int | None = None,
    predicted: Sequence[Sequence[int]] | None = None,
    query_sees: Callable[[int, int, int], bool] | None = None,
) -> tuple[list[list[set[tuple[int, int]]]], list[list[set[tuple[int, int]]]]]:
    """Which (segment, position) tokens may reach each state, through layers and through memory.

    `sees(s, q, k)`: in segment s, may q see position k of the same segment; memory is seen by all. Returns the
    sets for the content stream and, where positions are predicted, for the query stream.
    """
    memory: list[list[set[tuple[int, int]]]] = [[] for _ in range(layers)]
    content, queries = [], []
    for s, length in enumerate(segments):
        hidden = [{(s, q)} for q in range(length)]
        query: list[set[tuple[int, int]]] = [set() for _ in (predicted[s] if predicted else ())]
        new_memory = []
        for layer in range(layers):
            past = set().union(*memory[layer])
            if predicted and query_sees:
                query = [
                    g | past | set().union(*(hidden[k] for k in range(length) if query_sees(s, q, k)))
                    for g, q in zip(query, predicted[s], strict=True)
                ]
            new_memory.append((memory[layer] + hidden[:reuse_length])[-memory_length:] if memory_length else [])
            hidden = [
                hidden[q] | past | set().union(*(hidden[k] for k in range(length) if sees(s, q, k)))
                for q in range(length)
            ]
        memory = new_memory
        content.append(hidden)
        queries.append(query)
    return content, queries
