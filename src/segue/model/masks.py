"""Attention masks: every mask of training, streaming, export and evaluation is made here. True = may attend.

In: lengths, ranks, orders, and the validity of a memory or cache. Out: masks of shape [Q, K], [B, Q, K] or [B, Q, Q].
Their application is left to `kernels`.
"""

import torch
from torch import Tensor

from segue.model.positions import take_positions


def causal_mask(
    *, num_queries: int, num_keys: int, span: int | None = None, device: torch.device | None = None
) -> Tensor:
    """Return the causal mask: queries are the last positions of the keys; each sees itself and the keys to its left:
    mask_QK.

    With a span, it sees exactly the `span` latest of these, itself included (fewer if fewer exist).
    """
    query_Q1 = torch.arange(num_keys - num_queries, num_keys, device=device)[:, None]
    key_1K = torch.arange(num_keys, device=device)[None, :]
    distance_QK = query_Q1 - key_1K
    mask_QK = distance_QK >= 0
    return mask_QK if span is None else mask_QK & (distance_QK < span)


def segment_masks(
    valid_BM: Tensor | None,
    real_BQ: Tensor,
    *,
    bidirectional: bool,
    span: int | None,
    visible_BQQ: Tensor | None = None,
    predicted_BP: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the masks of a segment after its memory: of the content stream, and of the query stream at `predicted_BP`.

    Every token sees valid memory, and the real tokens of the segment that direction, span and `visible_BQQ` allow. In
    the content stream a position sees itself as well, padding included, so that no row of the mask is empty; in the
    query stream it never does.
    """
    rows, length = real_BQ.shape
    past_BM = real_BQ.new_ones(rows, 0) if valid_BM is None else valid_BM
    num_keys = past_BM.shape[1] + length
    mask_BQK = torch.cat([past_BM, real_BQ], dim=1)[:, None].expand(-1, length, -1)
    if not bidirectional:
        mask_BQK = mask_BQK & causal_mask(num_queries=length, num_keys=num_keys, span=span, device=real_BQ.device)
    if visible_BQQ is not None:
        mask_BQK = mask_BQK & torch.cat([past_BM[:, None].expand(-1, length, -1), visible_BQQ], dim=2)
    key_K = torch.arange(num_keys, device=real_BQ.device)
    itself_QK = key_K[num_keys - length :, None] == key_K
    if predicted_BP is None:
        return mask_BQK | itself_QK, None
    return mask_BQK | itself_QK, take_positions(mask_BQK & ~itself_QK, predicted_BP)


def stream_mask(valid_BK: Tensor, *, num_queries: int, span: int, real_BQ: Tensor | None = None) -> Tensor:
    """Return the mask of the latest `num_queries` positions of a stream, from the valid ones: mask_BQK.

    If `real_BQ` marks a query as padding, it sees one key, so that no row of the mask is empty.
    """
    num_keys, device = valid_BK.shape[1], valid_BK.device
    mask_BQK = valid_BK[:, None]
    if num_queries > 1 or num_keys > span:
        mask_BQK = mask_BQK & causal_mask(num_queries=num_queries, num_keys=num_keys, span=span, device=device)
    if real_BQ is not None:
        mask_BQK = mask_BQK | (~real_BQ[:, :, None] & (torch.arange(num_keys, device=device) == 0))
    return mask_BQK


def mask_without(at_B: Tensor, *, length: int) -> Tensor:
    """Return visible_BQQ, in which every token sees all others except the one at `at_B[b]`, which none sees."""
    position_Q = torch.arange(length, device=at_B.device)
    return (position_Q != at_B[:, None])[:, None].expand(-1, length, -1)


def permutation_mask(rank_BQ: Tensor, target_BQ: Tensor) -> Tensor:
    """Return the visibility under a factorisation order: visible_BQQ[b, i, j] = may the token at i see the content at
    j.

    `rank_BQ` is each token's place in the order; context tokens have rank -1: all see them, and they see only
    each other. A token sees those of lower rank. Targets do not see themselves; other tokens do.
    """
    context_B1Q = (rank_BQ < 0)[:, None, :]
    own_rank_BQ1 = (rank_BQ + (~target_BQ).long())[:, :, None]
    return context_B1Q | (own_rank_BQ1 > rank_BQ[:, None, :])


def order_to_rank(order_BQ: Tensor) -> Tensor:
    """Return the n of each position, given `order_BQ[b, n]`, the position predicted n-th."""
    return order_BQ.argsort(dim=1)
