"""Multi-head attention over a segment and its memory: the parameters around `kernels.attend`.

Keys and values are projected once from the context (memory, then segment) and shared by both streams of two-stream
attention. The biases u, v and s are passed as an argument, because a stack may share them among its layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from segue.model.kernels import Kernel, ScoreTerms, View, attend
from segue.model.positions import RelativeTerms, rotate


class ScoreBiases(nn.Module):
    """Learned biases of the score: u for content, v for positions, s for segments, each only if it is used. With
    `tied`, u also serves as v; with `zeros`, u and v are initialised to zero."""

    def __init__(
        self,
        *,
        num_heads: int,
        head_width: int,
        content: bool,
        position: bool,
        segment: bool,
        tied: bool = False,
        zeros: bool = False,
    ) -> None:
        super().__init__()
        self.tied = tied
        self.roles = {"content_HE": "bias", "position_HE": "bias"} if zeros else {}
        shape = (num_heads, head_width)
        self.content_HE = nn.Parameter(torch.zeros(shape)) if content else None
        self.position_HE = nn.Parameter(torch.zeros(shape)) if position else None
        self.segment_HE = nn.Parameter(torch.zeros(shape)) if segment else None


@dataclass(frozen=True, kw_only=True)
class PositionInputs:
    """The positional inputs of one segment, shared by all layers."""

    encoding: Tensor | None = None
    """Encoded distances, for relative positional encodings."""
    rotation_2KE: Tensor | None = None
    """Angles of the positions, for rotary encodings."""
    reversed_B: Tensor | None = None
    """Rows that use the second of two signs in `encoding`."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Keys, values and score terms of one layer, shared by the queries of both streams."""

    key_BKHE: Tensor
    value_BKHE: Tensor
    terms: ScoreTerms


class Attention(nn.Module):
    """Multi-head attention of one layer: projections and score terms."""

    kernel: Kernel | None = None
    """The kernel to use. None: the fastest that supports the inputs."""

    def __init__(
        self,
        *,
        width: int,
        num_heads: int,
        head_width: int,
        bias: bool,
        dropout: float,
        relative: nn.Module | None,
        segments: bool,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.dropout = dropout
        self.query = nn.Linear(width, num_heads * head_width, bias=bias)
        self.key = nn.Linear(width, num_heads * head_width, bias=bias)
        self.value = nn.Linear(width, num_heads * head_width, bias=bias)
        self.out = nn.Linear(num_heads * head_width, width, bias=bias)
        self.relative = relative
        self.segment_2HE = nn.Parameter(torch.zeros(2, num_heads, head_width)) if segments else None

    def context(self, source_BKD: Tensor, *, positions: PositionInputs, biases: ScoreBiases | None) -> Context:
        """Return the keys, values and score terms of memory and segment."""
        relative = self.relative_terms(positions.encoding)
        if relative is not None and positions.reversed_B is not None:
            relative = relative.for_rows(positions.reversed_B)
        key_BKHE, value_BKHE = self.keys_and_values(source_BKD, positions.rotation_2KE)
        return Context(key_BKHE=key_BKHE, value_BKHE=value_BKHE, terms=self.terms(relative, biases))

    def relative_terms(self, encoding: Tensor | None) -> RelativeTerms | None:
        """Return the terms of encoded distances; None if the model has no relative positional encoding."""
        return None if self.relative is None else cast(RelativeTerms, self.relative(encoding))

    def keys_and_values(self, source_BKD: Tensor, rotation_2: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the key and the value of each position, which do not depend on the query."""
        key_BKHE = self._heads(self.key(source_BKD))
        if rotation_2 is not None:
            key_BKHE = rotate(key_BKHE, rotation_2)
        return key_BKHE, self._heads(self.value(source_BKD))

    def terms(self, relative: RelativeTerms | None, biases: ScoreBiases | None) -> ScoreTerms:
        """Return all terms of the score besides query times key."""
        return ScoreTerms(
            relative=relative,
            content_bias_HE=None if biases is None else biases.content_HE,
            position_bias_HE=None if biases is None else biases.content_HE if biases.tied else biases.position_HE,
            segment_bias_HE=None if biases is None else biases.segment_HE,
            segment_key_2HE=self.segment_2HE,
        )

    def forward(self, hidden_BQD: Tensor, context: Context, *, view: View, positions: PositionInputs) -> Tensor:
        """Return the attention output of one stream over the context."""
        rotation_2 = None
        if positions.rotation_2KE is not None:
            segment = positions.rotation_2KE[:, positions.rotation_2KE.shape[1] - view.segment_length :]
            rotation_2 = segment if view.at_BQ is None else segment[:, view.at_BQ]
        query_BQHE = self.queries(hidden_BQD, rotation_2)
        mixed_BQHE = (self.kernel or attend)(
            query_BQHE,
            context.key_BKHE,
            context.value_BKHE,
            terms=context.terms,
            view=view,
            dropout=self.dropout if self.training else 0.0,
        )
        return cast(Tensor, self.out(mixed_BQHE.flatten(2)))

    def forward_stream(
        self,
        hidden_BJD: Tensor,
        *,
        views: Sequence[View],
        rotation_2BJE: Tensor | None,
        extend: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        terms: Callable[[int, int], ScoreTerms],
    ) -> Tensor:
        """Return the attention output of new tokens in a stream with cached keys and values: the content stream,
        followed in the same tensor by the query stream if there is a second view.

        `extend` takes the keys and values of the new tokens and returns those of all positions up to them.
        `terms(num_keys, ahead)` returns the score terms for queries at the tokens or one position ahead of them.
        """
        count = views[0].segment_length
        new_key_BQHE, new_value_BQHE = self.keys_and_values(
            hidden_BJD[:, :count], None if rotation_2BJE is None else rotation_2BJE[:, :, :count]
        )
        key_BKHE, value_BKHE = extend(new_key_BQHE, new_value_BQHE)
        query_BJHE = self.queries(hidden_BJD, rotation_2BJE)
        mixed = [
            (self.kernel or attend)(
                query_BJHE[:, ahead * count : ahead * count + view.segment_length],
                key_BKHE,
                value_BKHE,
                terms=terms(key_BKHE.shape[1], ahead),
                view=view,
                dropout=0.0,
            )
            for ahead, view in enumerate(views)
        ]
        mixed_BJHE = mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=1)
        return cast(Tensor, self.out(mixed_BJHE.flatten(2)))

    def queries(self, hidden_BQD: Tensor, rotation_2: Tensor | None) -> Tensor:
        """Return the query of each position."""
        query_BQHE = self._heads(self.query(hidden_BQD))
        return query_BQHE if rotation_2 is None else rotate(query_BQHE, rotation_2)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.num_heads, -1)
