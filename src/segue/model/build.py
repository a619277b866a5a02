"""Construction of a model's parts from a config, and initialisation of their weights.

This is the only place that knows the kinds of positions: `stack` puts the parts together, and the rest of the model
queries the parts, not the config. Modules declare the roles of their parameters (`roles`), and `initialise` draws the
weights by role.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from segue.config import (
    AbsolutePositions,
    AlibiPositions,
    LearnedRelativePositions,
    ModelConfig,
    PerLayerPositions,
    RotaryPositions,
    ShawPositions,
    XLPositions,
)
from segue.model.attention import Attention, ScoreBiases
from segue.model.kernels import Dropout
from segue.model.layers import FeedForward, Layer
from segue.model.positions import (
    AbsoluteEncoding,
    AlibiTerms,
    BucketTerms,
    ClippedDistances,
    LearnedTerms,
    PlainDistances,
    RotaryEncoding,
    ShawTerms,
    SinusoidalDistances,
    XLTerms,
)


def absolute_encoding(config: ModelConfig) -> AbsoluteEncoding | None:
    """Return the encoding that is added to the embeddings; None unless positions are absolute."""
    positions = config.positions
    if not isinstance(positions, AbsolutePositions):
        return None
    learned = positions.encoding == "learned"
    return AbsoluteEncoding(
        width=config.width,
        max_length=positions.max_length if learned else None,
        count_from_end=positions.count_from == "end",
    )


def layer_encodings(config: ModelConfig) -> nn.ModuleList:
    """Return the encodings added to the input of each layer (Al-Rfou et al. 2018); empty for other positions."""
    positions = config.positions
    if not isinstance(positions, PerLayerPositions):
        return nn.ModuleList()
    return nn.ModuleList(
        AbsoluteEncoding(width=config.width, max_length=positions.max_length) for _ in range(config.num_layers)
    )


def rotary_encoding(config: ModelConfig) -> RotaryEncoding | None:
    """Return the encoding that rotates queries and keys; None unless positions are rotary."""
    positions = config.positions
    if not isinstance(positions, RotaryPositions):
        return None
    return RotaryEncoding(head_width=config.resolved_head_width, base=positions.base)


def distance_encoding(config: ModelConfig) -> nn.Module | None:
    """Return the encoding of distances that all layers share; None unless positions are relative."""
    match config.positions:
        case XLPositions(clamp_distance=clamp, biases=biases):
            return SinusoidalDistances(
                width=config.width,
                clamp_distance=clamp,
                dropout=Dropout(config.dropout),
                buckets=biases == "buckets",
            )
        case ShawPositions(clip_distance=clip):
            return ClippedDistances(lowest=-clip, highest=clip)
        case LearnedRelativePositions(max_distance=longest):
            return ClippedDistances(lowest=0, highest=longest)
        case AlibiPositions():
            return PlainDistances()
        case _:
            return None


def relative_terms(config: ModelConfig) -> nn.Module | None:
    """Return the module with which a layer turns encoded distances into terms of its attention."""
    heads, head_width = config.num_heads, config.resolved_head_width
    match config.positions:
        case XLPositions(biases="buckets", bias_init=init):
            return BucketTerms(width=config.width, num_heads=heads, head_width=head_width, zeros=init == "zeros")
        case XLPositions():
            return XLTerms(width=config.width, num_heads=heads, head_width=head_width)
        case ShawPositions(clip_distance=clip, on_values=on_values):
            return ShawTerms(num_distances=2 * clip + 1, num_heads=heads, head_width=head_width, on_values=on_values)
        case LearnedRelativePositions(max_distance=longest):
            return LearnedTerms(num_distances=longest + 1, num_heads=heads, head_width=head_width)
        case AlibiPositions():
            return AlibiTerms(num_heads=heads)
        case _:
            return None


def score_biases(config: ModelConfig) -> nn.ModuleList:
    """Return the learned biases of the score, one module per layer, or one for all layers; empty without biases."""
    positions, segment = config.positions, config.segments == "relative"
    xl = positions if isinstance(positions, XLPositions) else None
    vectors = xl is not None and xl.biases in ("vectors", "tied")
    content = vectors or isinstance(positions, LearnedRelativePositions)
    if not content and not segment:
        return nn.ModuleList()
    shared = xl is not None and xl.shared_biases
    return nn.ModuleList(
        ScoreBiases(
            num_heads=config.num_heads,
            head_width=config.resolved_head_width,
            content=content,
            position=xl is not None and xl.biases == "vectors",
            segment=segment,
            tied=xl is not None and xl.biases == "tied",
            zeros=xl is not None and xl.bias_init == "zeros",
        )
        for _ in range(1 if shared else config.num_layers)
    )


def layer(config: ModelConfig) -> Layer:
    """Build one layer."""
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


Role = Literal["weight", "projection", "bias"]
"""Initialisation of a parameter: normal with `init_std`, normal with `projection_init_std`, or zero."""


def initialise(part: nn.Module, config: ModelConfig, role: Role | None = None) -> None:
    """Initialise the weights of a module and all its submodules.

    A module names the roles of its parameters and submodules in `roles`, if they are not plain weights. The bias of a
    linear layer is a bias; LayerNorm keeps PyTorch's initial values, ones and zeros.
    """
    if isinstance(part, nn.LayerNorm):
        return
    declared: dict[str, Role] = {"bias": "bias"} if isinstance(part, nn.Linear) else getattr(part, "roles", {})
    for name, parameter in part.named_parameters(recurse=False):
        match role or declared.get(name, "weight"):
            case "weight":
                nn.init.normal_(parameter, std=config.init_std)
            case "projection":
                nn.init.normal_(parameter, std=config.projection_init_std)
            case "bias":
                nn.init.zeros_(parameter)
    for name, child in part.named_children():
        initialise(child, config, role or declared.get(name))


@contextmanager
def shapes_only() -> Iterator[None]:
    """Build models with shapes but no numbers in this context: they take no memory, and a checkpoint may fill them."""
    with torch.device("meta"), _NothingDrawn():
        yield


class _NothingDrawn(TorchFunctionMode):
    """Skips random initialisation: PyTorch would import its compiler for it, which takes seconds, to no effect."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function in (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_):
            return kwargs["tensor"]
        return function(*args, **kwargs)
