"""Multi-head attention over a segment and its memory: the parameters around `kernels.attend`.

Keys and values are made once from the context (memory, then segment) and serve both streams of a two-stream
model. The biases u, v and s come as an argument, because a trunk may share them over its layers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from segue.model.kernels import Kernel, ScoreTerms, View, attend
from segue.model.positions import RelativeTerms, rotate


class ScoreBiases(nn.Module):
    """The learned biases of the score: u on content, v on positions, s on segments, each where it is used."""

    def __init__(self, *, num_heads: int, head_width: int, content: bool, position: bool, segment: bool) -> None:
        super().__init__()
        shape = (num_heads, head_width)
        self.content_HE = nn.Parameter(torch.zeros(shape)) if content else None
        self.position_HE = nn.Parameter(torch.zeros(shape)) if position else None
        self.segment_HE = nn.Parameter(torch.zeros(shape)) if segment else None


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """What all layers share of the positions of one segment."""

    encoding: Tensor | None = None
    """Of the distances, for relative positions."""
    rotation_2KE: Tensor | None = None
    """Of the positions, for rotary ones."""
    reversed_B: Tensor | None = None
    """Rows that take the second of two signs in `encoding`."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Keys, values and score terms of one layer: all that a stream needs to attend."""

    key_BKHE: Tensor
    value_BKHE: Tensor
    terms: ScoreTerms


class Attention(nn.Module):
    """Projections, heads, and the terms of the score."""

    kernel: Kernel | None = None
    """The kernel to compute with; None: the fastest that can."""

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

    def context(self, source_BKD: Tensor, *, geometry: Geometry, biases: ScoreBiases | None) -> Context:
        """What there is to attend to in memory and segment."""
        relative = None if self.relative is None else self.relative(geometry.encoding)
        if relative is not None and geometry.reversed_B is not None:
            relative = relative.for_rows(geometry.reversed_B)
        key_BKHE, value_BKHE = self.keys_and_values(source_BKD, geometry.rotation_2KE)
        return Context(key_BKHE=key_BKHE, value_BKHE=value_BKHE, terms=self.terms(relative, biases))

    def keys_and_values(self, source_BKD: Tensor, rotation_2: Tensor | None) -> tuple[Tensor, Tensor]:
        """Of each position, without what depends on who looks at it."""
        key_BKHE = self._heads(self.key(source_BKD))
        if rotation_2 is not None:
            key_BKHE = rotate(key_BKHE, rotation_2)
        return key_BKHE, self._heads(self.value(source_BKD))

    def terms(self, relative: RelativeTerms | None, biases: ScoreBiases | None) -> ScoreTerms:
        """What the score has besides query times key."""
        return ScoreTerms(
            relative=relative,
            content_bias_HE=None if biases is None else biases.content_HE,
            position_bias_HE=None if biases is None else biases.position_HE,
            segment_bias_HE=None if biases is None else biases.segment_HE,
            segment_key_2HE=self.segment_2HE,
        )

    def forward(self, hidden_BQD: Tensor, context: Context, *, view: View, geometry: Geometry) -> Tensor:
        """What the queries of one stream read from the context."""
        rotation_2 = None
        if geometry.rotation_2KE is not None:
            segment = geometry.rotation_2KE[:, -view.segment_length :]
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
        result_BQD: Tensor = self.out(mixed_BQHE.flatten(2))
        return result_BQD

    def queries(self, hidden_BQD: Tensor, rotation_2: Tensor | None) -> Tensor:
        """What each position asks for."""
        query_BQHE = self._heads(self.query(hidden_BQD))
        return query_BQHE if rotation_2 is None else rotate(query_BQHE, rotation_2)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.num_heads, -1)
