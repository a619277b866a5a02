"""Who may see whom: masks by position, by rank and by order. Boolean, True = may attend, here as everywhere.

In: lengths, ranks, orders. Out: masks of shape [Q, K] or [B, Q, Q]. What is valid in a memory or
a cache is added to them by who reads it; how they are applied is for `kernels`.
"""

import torch
from torch import Tensor


def causal_mask(
    *, num_queries: int, num_keys: int, span: int | None = None, device: torch.device | None = None
) -> Tensor:
    """Queries are the last positions of the keys; each sees itself and what is to its left: mask_QK.

    With a span, it sees exactly the `span` latest of these, itself included (fewer where fewer exist).
    """
    query_Q1 = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
    key_1K = torch.arange(num_keys, device=device)[None, :]
    distance_QK = query_Q1 - key_1K
    mask_QK = distance_QK >= 0
    return mask_QK if span is None else mask_QK & (distance_QK < span)


def permutation_mask(rank_BQ: Tensor, target_BQ: Tensor) -> Tensor:
    """Visibility under a factorisation order: visible_BQQ[b, i, j] = may the token at i see the content at j.

    `rank_BQ` is each token's place in the order; context tokens have rank -1: all see them, and they see only
    each other. A token sees those of lower rank. Targets do not see themselves; other tokens do.
    """
    context_B1Q = (rank_BQ < 0)[:, None, :]
    own_rank_BQ1 = (rank_BQ + (~target_BQ).long())[:, :, None]
    return context_B1Q | (own_rank_BQ1 > rank_BQ[:, None, :])


def order_to_rank(order_BQ: Tensor) -> Tensor:
    """`order_BQ[b, n]` is the position predicted n-th; the result is the n of each position."""
    return order_BQ.argsort(dim=1)
