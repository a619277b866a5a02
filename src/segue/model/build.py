"""From a config to the parts of a stack, and to the weights they start with. `trunk` puts them together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from segue.config import (
    AbsolutePositions,
    AlibiPositions,
    LearnedRelativePositions,
    ModelConfig,
    ShawPositions,
    XLPositions,
)
from segue.model.attention import Attention, ScoreBiases
from segue.model.layers import FeedForward, Layer
from segue.model.positions import (
    AbsoluteEncoding,
    AlibiTerms,
    ClippedDistances,
    LearnedTerms,
    PlainDistances,
    ShawTerms,
    SinusoidalDistances,
    XLTerms,
)


def absolute_encoding(config: ModelConfig) -> AbsoluteEncoding | None:
    positions = config.positions
    if not isinstance(positions, AbsolutePositions):
        return None
    learned = positions.encoding == "learned"
    return AbsoluteEncoding(width=config.width, max_length=positions.max_length if learned else None)


def distance_encoding(config: ModelConfig) -> nn.Module | None:
    """What all layers share of a distance, for relative positions."""
    match config.positions:
        case XLPositions(clamp_distance=clamp):
            return SinusoidalDistances(width=config.width, clamp_distance=clamp)
        case ShawPositions(clip_distance=clip):
            return ClippedDistances(lowest=-clip, highest=clip)
        case LearnedRelativePositions(max_distance=longest):
            return ClippedDistances(lowest=0, highest=longest)
        case AlibiPositions():
            return PlainDistances()
        case _:
            return None


def relative_terms(config: ModelConfig) -> nn.Module | None:
    """What a layer makes of it."""
    heads, head_width = config.num_heads, config.resolved_head_width
    match config.positions:
        case XLPositions():
            return XLTerms(width=config.width, num_heads=heads, head_width=head_width)
        case ShawPositions(clip_distance=clip):
            return ShawTerms(num_distances=2 * clip + 1, num_heads=heads, head_width=head_width)
        case LearnedRelativePositions(max_distance=longest):
            return LearnedTerms(num_distances=longest + 1, num_heads=heads, head_width=head_width)
        case AlibiPositions():
            return AlibiTerms(num_heads=heads)
        case _:
            return None


def score_biases(config: ModelConfig) -> nn.ModuleList:
    """One for each layer, or one that all share; none where the score has no biases."""
    positions = config.positions
    content, segment = isinstance(positions, XLPositions | LearnedRelativePositions), config.segments == "relative"
    if not content and not segment:
        return nn.ModuleList()
    shared = isinstance(positions, XLPositions) and positions.shared_biases
    return nn.ModuleList(
        ScoreBiases(
            num_heads=config.num_heads,
            head_width=config.resolved_head_width,
            content=content,
            position=isinstance(positions, XLPositions),
            segment=segment,
        )
        for _ in range(1 if shared else config.num_layers)
    )


def layer(config: ModelConfig) -> Layer:
    attention = Attention(
        width=config.width,
        num_heads=config.num_heads,
        head_width=config.resolved_head_width,
        bias=config.attention_bias,
        dropout=config.attention_dropout,
        relative=relative_terms(config),
        segments=config.segments == "relative",
    )
    feed_forward = FeedForward(
        width=config.width,
        inner_width=config.inner_width,
        activation=config.activation,
        dropout=config.dropout,
    )
    return Layer(
        attention=attention,
        feed_forward=feed_forward,
        width=config.width,
        norm_first=config.norm_first,
        norm_epsilon=config.norm_epsilon,
        dropout=config.dropout,
    )


def initialise(part: nn.Module, config: ModelConfig) -> None:
    """Normal weights, zero biases, unit norms: for each class to call on the parts that it made."""
    norms = {id(p) for m in part.modules() if isinstance(m, nn.LayerNorm) for p in m.parameters()}
    for name, parameter in part.named_parameters():
        if id(parameter) in norms:
            continue
        if name.endswith(("bias", "relative.bias.weight")) or "token_biases" in name:
            nn.init.zeros_(parameter)
        else:
            std = config.projection_init_std if "projections" in name else config.init_std
            nn.init.normal_(parameter, std=std)


@contextmanager
def shapes_only() -> Iterator[None]:
    """What is built here has shapes, takes no memory, and gets its numbers from a checkpoint, if ever."""
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    """PyTorch imports its compiler, which takes seconds, to draw random numbers for tensors that hold none."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return kwargs["tensor"]
        return function(*args, **kwargs)
