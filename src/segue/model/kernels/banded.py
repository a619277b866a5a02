"""Attention in plain PyTorch, fast on every device: computed for some heads and a band of queries at a time.

It supports content, position keys and segments, where the definition supports any terms, and gives the same result,
dropout included. The differences are:

- A band of N queries needs K + N - 1 distances, not all of them, and only the keys that one of its queries sees.
- Row i of the band needs its distances from column N - 1 - i on. Read with a row stride one less than the width, the
  product of queries and position keys is already aligned with the keys: the shift is a view. In the backward pass, the
  gradient is written through the same view.
- Rows of the batch share their position keys, and one product of all of them.
- Of the two segment keys only the difference matters: the softmax cancels a term that all keys of a query share.
- For the backward pass it stores the probabilities, with a negative sign where dropout removes one. If they are many it
  stores none and computes each band again, so that memory grows with the length and not with its square.

A NaN in a key reaches all queries of its row and head, also those that do not see the key.

Besides the letters of `segue.model`: G heads and N queries of a tile (K is then its keys), W distances of a band,
X any last axis.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from segue.model.kernels.dropout import draw_seed, keep_rows
from segue.model.kernels.inputs import ScoreTerms, View
from segue.model.positions import distance_columns
from segue.model.uncompiled import uncompiled

MOST_KEPT = 2**24
"""Maximum number of probabilities stored for the backward pass."""


def applies(terms: ScoreTerms) -> bool:
    """Return True if the score consists of content, position keys and segments only; any device, any dtype."""
    relative = terms.relative
    return relative is None or relative.keys_alone


@uncompiled  # works on views of buffers, which a compiler must not move
def attend(
    query_BQHE: Tensor,
    key_BKHE: Tensor,
    value_BKHE: Tensor,
    *,
    terms: ScoreTerms,
    view: View,
    dropout: float,
) -> Tensor:
    """Return the same as the definition: softmax of the scores over the visible keys, times the values: mixed_BQHE."""
    dtype = _product_dtype(query_BQHE)
    scale = 1 / math.sqrt(query_BQHE.shape[-1])
    position_key_SRHE = None if terms.relative is None else terms.relative.key_SRHE
    position_query_HBQE = position_key_HSRE = segment_HBQ = None
    if position_key_SRHE is not None:
        position_query_HBQE = _heads_first(_plus(query_BQHE, terms.position_bias_HE) * scale, dtype)
        position_key_HSRE = _heads_first(position_key_SRHE, dtype)
    if terms.segment_key_2HE is not None and view.differs_BQK is not None:
        segment_query_BQHE = _plus(query_BQHE, terms.segment_bias_HE) * scale
        segment_key_HE = terms.segment_key_2HE[1] - terms.segment_key_2HE[0]
        segment_HBQ = torch.einsum("bqhe,he->hbq", segment_query_BQHE.to(dtype), segment_key_HE.to(dtype))
    inputs = (
        _heads_first(_plus(query_BQHE, terms.content_bias_HE) * scale, dtype),
        _heads_first(key_BKHE, dtype),
        _heads_first(value_BKHE, dtype),
        position_query_HBQE,
        position_key_HSRE,
        segment_HBQ,
    )
    seed = draw_seed() if dropout > 0 else 0
    with_backward = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    return cast(Tensor, _Attend.apply(view, dropout, seed, with_backward, *inputs))  # type: ignore[no-untyped-call]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, view: View, dropout: float, seed: int, with_backward: bool, *inputs: Any) -> Tensor:
        parts = _Parts(view, dropout, seed, *inputs)
        H, B, Q, E = parts.content_query_HBQE.shape
        mixed_BQHE = parts.content_query_HBQE.new_zeros(B, Q, H, E)
        keeps = with_backward and B * H * Q * parts.key_HBKE.shape[2] <= MOST_KEPT
        kept = []
        with _without_autocast(mixed_BQHE.device):
            for band, heads in parts.tiles():
                signed_GBNK = parts.probability(band, heads)
                mixed_GBNE = parts.weight(signed_GBNK) @ parts.value_HBKE[heads, :, band.keys]
                mixed_BQHE[:, band.queries, heads] = mixed_GBNE.permute(1, 2, 0, 3)
                if keeps:
                    kept.append(signed_GBNK)
        ctx.view, ctx.dropout, ctx.seed, ctx.keeps = view, dropout, seed, keeps
        ctx.save_for_backward(*inputs, mixed_BQHE, *kept)
        return mixed_BQHE

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BQHE: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors  # read only once, for checkpointing
        (*inputs, mixed_BQHE), kept = saved[:7], iter(saved[7:])
        parts = _Parts(ctx.view, ctx.dropout, ctx.seed, *inputs)
        dtype, exact = mixed_BQHE.dtype, _exact(mixed_BQHE.dtype)
        wanted = zip(inputs, ctx.needs_input_grad[4:], strict=True)
        grads = _Grads(*(torch.zeros_like(x, dtype=exact) if needed else None for x, needed in wanted))
        # The term that the softmax subtracts from the gradient of each probability: their mean, which is grad times
        # result.
        mean_HBQ = (grad_BQHE.to(exact) * mixed_BQHE).sum(dim=-1).permute(2, 0, 1)
        grad_HBQE = _heads_first(grad_BQHE, dtype)
        with _without_autocast(mixed_BQHE.device):
            for band, heads in parts.tiles():
                signed_GBNK = next(kept) if ctx.keeps else parts.probability(band, heads)
                grad_GBNE, mean_GBN = (x[heads, :, band.queries] for x in (grad_HBQE, mean_HBQ))
                parts.add_grads(grads, signed_GBNK, grad_GBNE, mean_GBN, band, heads)
        return None, None, None, None, *(None if x is None else x.to(dtype) for x in grads)


class _Grads(NamedTuple):
    """Gradients of the tensors that `_Attend` takes, in order; None if not needed."""

    content_query_HBQE: Tensor | None
    key_HBKE: Tensor | None
    value_HBKE: Tensor | None
    position_query_HBQE: Tensor | None
    position_key_HSRE: Tensor | None
    segment_HBQ: Tensor | None


class _Band(NamedTuple):
    """Some queries, the keys from the first to the last that they see, and the masks that all heads share. Masks are
    numbers here: operations with booleans take ten times as long on a CPU."""

    queries: slice
    keys: slice
    visible_BNK: Tensor
    """Visibility as numbers, 1 or 0."""
    most_BNK: Tensor
    """Upper bound of each score: infinity, or the lowest number if the key is hidden."""
    differs_BNK: Tensor | None
    """Whether segments differ, as numbers, 1 or 0."""


class _Parts:
    """Forward and backward pass for some heads of a band. The queries are scaled; the segment score is the score of a
    key of another segment minus that of the same segment."""

    def __init__(
        self,
        view: View,
        dropout: float,
        seed: int,
        content_query_HBQE: Tensor,
        key_HBKE: Tensor,
        value_HBKE: Tensor,
        position_query_HBQE: Tensor | None,
        position_key_HSRE: Tensor | None,
        segment_HBQ: Tensor | None,
    ) -> None:
        self.view, self.dropout, self.seed = view, dropout, seed
        self.content_query_HBQE, self.key_HBKE, self.value_HBKE = content_query_HBQE, key_HBKE, value_HBKE
        self.positions = None
        if position_query_HBQE is not None and position_key_HSRE is not None:
            self.positions = _Positions(view, position_query_HBQE, position_key_HSRE)
        self.segment_HBQ = segment_HBQ

    # -------------------------------------------------------------------------------------------------- tiles

    def tiles(self) -> Iterator[tuple[_Band, slice]]:
        """Yield bands and heads that cover every query that sees a key. Tiles are small on a CPU, for its cache, and
        large elsewhere, because each costs kernel launches."""
        H, B, Q, _ = self.content_query_HBQE.shape
        most_queries, most_scores = (128, 2**20) if _on_cpu(self.key_HBKE) else (512, 2**26)
        for start in range(0, Q, most_queries):
            queries = slice(start, min(start + most_queries, Q))
            keys = self._seen(queries)
            scores_of_a_head = B * _length(queries) * _length(keys)
            if scores_of_a_head == 0:
                continue
            band = self._band(queries, keys)
            num_heads = max(1, most_scores // scores_of_a_head)
            for head in range(0, H, num_heads):
                yield band, slice(head, min(head + num_heads, H))

    def _seen(self, queries: slice) -> slice:
        """Return the range of visible keys, as far as it is known without synchronising a device: from the mask on a
        CPU; elsewhere, without keys to the right that have no distance."""
        _, Q, K = self.view.mask_BQK.shape
        if _on_cpu(self.view.mask_BQK):
            seen = self.view.mask_BQK[:, queries].flatten(0, 1).any(dim=0).nonzero()
            return slice(int(seen[0]), int(seen[-1]) + 1) if len(seen) else slice(0, 0)
        only_left = self.positions is not None and self.positions.key_HSRE.shape[2] == K + 1
        return slice(0, K - Q + queries.stop if only_left and self.view.at_BQ is None else K)

    def _band(self, queries: slice, keys: slice) -> _Band:
        dtype = self.content_query_HBQE.dtype
        mask_BNK = self.view.mask_BQK[:, queries, keys]
        visible_BNK = mask_BNK.to(dtype)
        differs_BQK = None if self.segment_HBQ is None else self.view.differs_BQK
        return _Band(
            queries=queries,
            keys=keys,
            visible_BNK=visible_BNK,
            most_BNK=torch.full_like(visible_BNK, torch.inf).masked_fill_(~mask_BNK, torch.finfo(dtype).min),
            differs_BNK=None if differs_BQK is None else differs_BQK[:, queries, keys].to(dtype),
        )

    # ------------------------------------------------------------------------------------------------ forward

    def probability(self, band: _Band, heads: slice) -> Tensor:
        """Return signed_GBNK: probabilities before dropout, negative where dropout removes them."""
        score_GBNK = self._score(band, heads)
        torch.minimum(score_GBNK, band.most_BNK, out=score_GBNK)
        signed_GBNK = score_GBNK.softmax(dim=-1, dtype=_exact(score_GBNK.dtype)).to(score_GBNK.dtype)
        signed_GBNK *= band.visible_BNK  # for queries without visible keys
        if self.dropout > 0:
            signed_GBNK *= self._keep(band, heads).to(signed_GBNK.dtype).mul_(2).sub_(1)
        return signed_GBNK

    def weight(self, signed_GBNK: Tensor) -> Tensor:
        """Return the weights of the values: the probabilities after dropout."""
        return signed_GBNK.relu().div_(1 - self.dropout) if self.dropout > 0 else signed_GBNK

    def _score(self, band: _Band, heads: slice) -> Tensor:
        score_GBNK = self.content_query_HBQE[heads, :, band.queries] @ self.key_HBKE[heads, :, band.keys].mT
        if self.positions is not None:
            score_GBNK += self.positions.score(band, heads)
        if self.segment_HBQ is not None and band.differs_BNK is not None:
            score_GBNK.addcmul_(self.segment_HBQ[heads, :, band.queries, None], band.differs_BNK)
        return score_GBNK

    # ----------------------------------------------------------------------------------------------- backward

    def add_grads(
        self, grads: _Grads, signed_GBNK: Tensor, grad_GBNE: Tensor, mean_GBN: Tensor, band: _Band, heads: slice
    ) -> None:
        """Add the gradients of the values, then those of the scores and of all their terms."""
        weight_GBNK = self.weight(signed_GBNK)
        if grads.value_HBKE is not None:
            _add_product(grads.value_HBKE[heads, :, band.keys], weight_GBNK.mT, grad_GBNE)
        weight_grad_GBNK = grad_GBNE @ self.value_HBKE[heads, :, band.keys].mT
        score_grad_GBNK = weight_grad_GBNK.to(mean_GBN.dtype).mul_(weight_GBNK)
        score_grad_GBNK.addcmul_(signed_GBNK.abs(), mean_GBN[..., None], value=-1)
        if grads.segment_HBQ is not None and band.differs_BNK is not None:
            grads.segment_HBQ[heads, :, band.queries] = (score_grad_GBNK * band.differs_BNK).sum(dim=-1)
        score_grad_GBNK = score_grad_GBNK.to(signed_GBNK.dtype)
        if grads.content_query_HBQE is not None:
            grads.content_query_HBQE[heads, :, band.queries] = score_grad_GBNK @ self.key_HBKE[heads, :, band.keys]
        if grads.key_HBKE is not None:
            content_query_GBNE = self.content_query_HBQE[heads, :, band.queries]
            _add_product(grads.key_HBKE[heads, :, band.keys], score_grad_GBNK.mT, content_query_GBNE)
        if self.positions is not None:
            self.positions.add_grads(grads, score_grad_GBNK, band, heads)

    # ------------------------------------------------------------------------------------------------ dropout

    def _keep(self, band: _Band, heads: slice) -> Tensor:
        """Return keep_GBNK: the dropout mask of this tile, part of the mask of all probabilities in the order BHQK."""
        H, B, Q, _ = self.content_query_HBQE.shape
        index = torch.arange(max(H, B, Q), device=self.content_query_HBQE.device)
        row_GBN = (index[:B, None] * H + index[heads, None, None]) * Q + index[band.queries]
        return keep_rows(self.seed, row_GBN, columns=band.keys, probability=self.dropout)


@dataclass(frozen=True)
class _Positions:
    """The position score for some heads of a band, and its backward pass. S is 1, or B."""

    view: View
    query_HBQE: Tensor
    key_HSRE: Tensor

    def score(self, band: _Band, heads: slice) -> Tensor:
        query_GBNE, key = self.query_HBQE[heads, :, band.queries], self._window(self.key_HSRE, band, heads)
        score_GBNW = query_GBNE.new_zeros(*query_GBNE.shape[:3], self._width(band))
        product = self._rows_together(score_GBNW)[..., : key.shape[1]]
        torch.bmm(self._rows_together(query_GBNE), key.mT, out=product)
        if self.view.at_BQ is None:
            return _shifted(score_GBNW, num_keys=_length(band.keys))
        return score_GBNW.gather(-1, self._column(self.view.at_BQ, band).expand(len(score_GBNW), -1, -1, -1))

    def add_grads(self, grads: _Grads, score_grad_GBNK: Tensor, band: _Band, heads: slice) -> None:
        query_GBNE, key = self.query_HBQE[heads, :, band.queries], self._window(self.key_HSRE, band, heads)
        score_grad_GBNW = score_grad_GBNK.new_zeros(*score_grad_GBNK.shape[:3], self._width(band))
        if self.view.at_BQ is None:
            _shifted(score_grad_GBNW, num_keys=_length(band.keys)).copy_(score_grad_GBNK)
        else:
            column_GBNK = self._column(self.view.at_BQ, band).expand_as(score_grad_GBNK)
            score_grad_GBNW.scatter_add_(-1, column_GBNK, score_grad_GBNK)
        score_grad = self._rows_together(score_grad_GBNW)[..., : key.shape[1]]
        if grads.position_query_HBQE is not None:
            grads.position_query_HBQE[heads, :, band.queries] = (score_grad @ key).view_as(query_GBNE)
        if grads.position_key_HSRE is not None:
            into = self._window(grads.position_key_HSRE, band, heads)
            _add_product(into, score_grad.mT, self._rows_together(query_GBNE))

    def _window(self, x_HSRE: Tensor, band: _Band, heads: slice) -> Tensor:
        """Return a view of the distances that a band needs, [G S, distances, E]. Those beyond the last, to the right,
        are missing: no query sees such a key."""
        x_GSRE = x_HSRE[heads]
        if self.view.at_BQ is None:
            first = self.query_HBQE.shape[2] - band.queries.stop + 1 + band.keys.start
            x_GSRE = x_GSRE[:, :, first : first + self._width(band)]
        return x_GSRE.flatten(0, 1)

    def _width(self, band: _Band) -> int:
        """Return the number of distances between the queries and the keys of a band, missing ones included."""
        if self.view.at_BQ is None:
            return _length(band.keys) + _length(band.queries) - 1
        return self.key_HSRE.shape[2]

    def _rows_together(self, x_GBNX: Tensor) -> Tensor:
        """Return [G S, B / S times N, X], for one product over all rows of the batch that share their position keys."""
        return x_GBNX.reshape(x_GBNX.shape[0] * self.key_HSRE.shape[1], -1, x_GBNX.shape[-1])

    def _column(self, at_BQ: Tensor, band: _Band) -> Tensor:
        """Return column_BNK for queries at any positions; the last column for keys that have no distance."""
        at_BN, length = at_BQ[:, band.queries], self.view.segment_length
        column_BNK = distance_columns(at_BN, segment_length=length, num_keys=band.keys.stop)
        return column_BNK[..., band.keys.start :].clamp(max=self.key_HSRE.shape[2] - 1)


def _shifted(x_GBNW: Tensor, *, num_keys: int) -> Tensor:
    """Return a view of the distances with one column per key: result[..., i, j] = x[..., i, N - 1 - i + j]."""
    G, B, N, W = x_GBNW.shape
    return x_GBNW.as_strided((G, B, N, num_keys), (B * N * W, N * W, W - 1, 1), N - 1)


def _add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """Add the products of all matrices in place; sums of half precision are accumulated in full precision."""
    if into.dtype == left.dtype:
        into.flatten(0, -3).baddbmm_(left.flatten(0, -3), right.flatten(0, -3))
    else:
        into += left @ right


def _plus(query_BQHE: Tensor, bias_HE: Tensor | None) -> Tensor:
    return query_BQHE if bias_HE is None else query_BQHE + bias_HE


def _heads_first(x_BQHE: Tensor, dtype: torch.dtype) -> Tensor:
    return x_BQHE.permute(2, 0, 1, 3).to(dtype).contiguous()


def _length(part: slice) -> int:
    return cast(int, part.stop - part.start)


def _on_cpu(x: Tensor) -> bool:
    return x.device.type == "cpu"


def _product_dtype(query_BQHE: Tensor) -> torch.dtype:
    """Return the dtype of the query, or the one to which autocast would cast it."""
    device = query_BQHE.device.type
    casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if casts and query_BQHE.dtype != torch.float64 else query_BQHE.dtype


def _without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else nullcontext()


def _exact(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums over keys: at least float32."""
    return torch.promote_types(dtype, torch.float32)
