"""The Transformer layer: attention, feed-forward, residuals and LayerNorm around each, over one stream or two."""

from collections.abc import Callable
from functools import partial
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.model.attention import Attention, PositionInputs, ScoreBiases
from segue.model.kernels import Dropout, View

Activation = Literal["relu", "gelu", "gelu_tanh"]


def activate(x: Tensor, activation: Activation) -> Tensor:
    """Apply an activation: `gelu` is exact, `gelu_tanh` its approximation in the original XLNet and GPT code."""
    match activation:
        case "relu":
            return F.relu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")


class FeedForward(nn.Module):
    """The position-wise feed-forward network: widen, activate, narrow, with dropout after both."""

    def __init__(self, *, width: int, inner_width: int, activation: Activation, dropout: float) -> None:
        super().__init__()
        self.activation = activation
        self.widen = nn.Linear(width, inner_width)
        self.narrow = nn.Linear(inner_width, width)
        self.dropout = Dropout(dropout)

    def forward(self, hidden_BQD: Tensor) -> Tensor:
        inner_BQF = self.dropout(activate(self.widen(hidden_BQD), self.activation))
        return cast(Tensor, self.dropout(self.narrow(inner_BQF)))


class Layer(nn.Module):
    """A Transformer layer over a segment and its memory. With `norm_first`, LayerNorm comes before each sub-layer (and
    is applied to the memory, too); otherwise it follows the residual sum."""

    def __init__(
        self,
        *,
        attention: Attention,
        feed_forward: FeedForward,
        width: int,
        norm_first: bool,
        norm_epsilon: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = attention
        self.attention_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.feed_forward = feed_forward
        self.feed_forward_norm = nn.LayerNorm(width, eps=norm_epsilon)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        content_BQD: Tensor,
        query_BPD: Tensor | None,
        *,
        memory_BMD: Tensor | None,
        content_view: View,
        query_view: View | None,
        positions: PositionInputs,
        biases: ScoreBiases | None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return both streams after the layer. Both attend to the same context: the memory and the content stream."""
        source_BKD = content_BQD if memory_BMD is None else torch.cat([memory_BMD, content_BQD], dim=1)
        if self.norm_first:
            source_BKD = self.attention_norm(source_BKD)
        context = self.attention.context(source_BKD, positions=positions, biases=biases)
        if query_BPD is not None and query_view is not None:
            query_BPD = self.around(
                query_BPD, partial(self.attention, context=context, view=query_view, positions=positions)
            )
        read = partial(self.attention, context=context, view=content_view, positions=positions)
        return self.around(content_BQD, read), query_BPD

    def around(self, hidden_BQD: Tensor, read: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply residual sums, norms, dropout and feed-forward around the attention that `read` computes."""
        if self.norm_first:
            hidden_BQD = hidden_BQD + self.dropout(read(self.attention_norm(hidden_BQD)))
            hidden_BQD = hidden_BQD + self.feed_forward(self.feed_forward_norm(hidden_BQD))
        else:
            hidden_BQD = self.attention_norm(hidden_BQD + self.dropout(read(hidden_BQD)))
            hidden_BQD = self.feed_forward_norm(hidden_BQD + self.feed_forward(hidden_BQD))
        return hidden_BQD
