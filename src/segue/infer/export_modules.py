"""What is exported: an encoder, and one step of a stream, as modules of plain operations on tensors of known shapes.

In: tensors. Out: tensors; nothing is kept or written in place, and nothing depends on the numbers but the result. The
weights are those of the model, not copied. Files are for `export`.

`Encoder` gives what the trunk gives for a segment without earlier ones. `StreamStep` gives what `model.streaming` gives
for one token of each row. There the memory is a buffer with an end that moves; here it comes in and goes out, always of
the same shape and right-aligned: the oldest position drops out, the new one comes last.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.config import AbsolutePositions, RotaryPositions
from segue.model import Batch, LanguageModel
from segue.model.attention import Geometry, ScoreBiases
from segue.model.cache import Cache
from segue.model.embeddings import Vocabulary
from segue.model.kernels import View
from segue.model.kernels.definition import attend
from segue.model.layers import Layer
from segue.model.masks import causal_mask
from segue.model.positions import RelativeTerms, distances, rotary_angles, rotary_angles_at
from segue.model.streaming import Streamer
from segue.model.trunk import Stack, Trunk

# ------------------------------------------------------------------------------------------------------- encoder


class Encoder(nn.Module):
    """ids_BQ, real_BQ -> the states of the last layer, hidden_BQD. Padding goes to the right."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.trunk = trunk

    def forward(self, ids_BQ: Tensor, real_BQ: Tensor) -> Tensor:
        hidden_BQD = _read_segment(self.trunk.reader, self.trunk.vocabulary, ids_BQ, real_BQ)
        if self.trunk.backward_reader is None:
            return hidden_BQD
        back_BQD = _read_segment(self.trunk.backward_reader, self.trunk.vocabulary, ids_BQ.flip(1), real_BQ.flip(1))
        return torch.cat([hidden_BQD, back_BQD.flip(1)], dim=-1)


def _read_segment(stack: Stack, vocabulary: Vocabulary, ids_BQ: Tensor, real_BQ: Tensor) -> Tensor:
    """As `Stack.forward` without a memory, but for its checks of the numbers and its choice of a kernel."""
    config, (rows, length) = stack.config, ids_BQ.shape
    zeros = config.memory is not None and config.memory.initial == "zeros"
    before = config.memory.length if config.memory is not None and zeros else 0
    position_BQ = _count(stack, real_BQ)
    hidden_BQD = stack.embed(embed_ids(vocabulary, ids_BQ), Batch(ids_BQ=ids_BQ), position_BQ)
    view = View(mask_BQK=_segment_mask(stack, real_BQ, before=before), segment_length=length)
    geometry = _segment_geometry(stack, ids_BQ, hidden_BQD.dtype, before=before)
    for index, layer in enumerate(stack.layers):
        assert isinstance(layer, Layer)
        if len(stack.per_layer):
            hidden_BQD = hidden_BQD + stack.per_layer[index](position_BQ, hidden_BQD.dtype)
        past_BMD = hidden_BQD.new_zeros(rows, before, config.width) if before else None
        read = partial(
            _attend_segment, layer, past_BMD=past_BMD, view=view, geometry=geometry, biases=_biases(stack, index)
        )
        hidden_BQD = layer.around(hidden_BQD, read)
    return stack.finish(hidden_BQD)


def _attend_segment(
    layer: Layer,
    source_BQD: Tensor,
    *,
    past_BMD: Tensor | None,
    view: View,
    geometry: Geometry,
    biases: ScoreBiases | None,
) -> Tensor:
    attention, rotation, source_BKD = layer.attention, geometry.rotation_2KE, source_BQD
    if past_BMD is not None:
        source_BKD = torch.cat([layer.attention_norm(past_BMD) if layer.norm_first else past_BMD, source_BQD], dim=1)
        rotation = None if rotation is None else rotation[:, past_BMD.shape[1] :]
    context = attention.context(source_BKD, geometry=geometry, biases=biases)
    mixed_BQHE = attend(
        attention.queries(source_BQD, rotation),
        context.key_BKHE,
        context.value_BKHE,
        terms=context.terms,
        view=view,
        dropout=0.0,
    )
    result_BQD: Tensor = attention.out(mixed_BQHE.flatten(2))
    return result_BQD


def _count(stack: Stack, real_BQ: Tensor) -> Tensor:
    """How many real tokens each row had before each position."""
    counted_BQ = (real_BQ.long().cumsum(1) - 1).clamp(min=0)
    positions = stack.config.positions
    if isinstance(positions, AbsolutePositions) and positions.count_from == "end":
        return counted_BQ[:, -1:] - counted_BQ
    return counted_BQ


def _segment_mask(stack: Stack, real_BQ: Tensor, *, before: int) -> Tensor:
    """Real tokens that are within reach, and whatever is there before the segment; everyone sees itself."""
    config, (rows, length), device = stack.config, real_BQ.shape, real_BQ.device
    there_BK = torch.cat([real_BQ.new_ones(rows, before), real_BQ], dim=1) if before else real_BQ
    mask_BQK = there_BK[:, None].expand(-1, length, -1)
    if not config.bidirectional:
        mask_BQK = mask_BQK & causal_mask(
            num_queries=length, num_keys=before + length, span=config.attention_span, device=device
        )
    query_Q1 = torch.arange(length, device=device)[:, None] + before
    return mask_BQK | (query_Q1 == torch.arange(before + length, device=device))


def _segment_geometry(stack: Stack, ids_BQ: Tensor, dtype: torch.dtype, *, before: int) -> Geometry:
    config, length, device = stack.config, ids_BQ.shape[1], ids_BQ.device
    if isinstance(config.positions, RotaryPositions):
        rotation_2KE = rotary_angles(
            num_keys=before + length,
            head_width=config.resolved_head_width,
            base=config.positions.base,
            device=device,
            dtype=dtype,
        )
        return Geometry(rotation_2KE=rotation_2KE)
    if stack.distance_encoding is None:
        return Geometry()
    distance_R = distances(
        num_queries=length, num_keys=before + length, bidirectional=config.bidirectional, device=device
    )
    return Geometry(encoding=stack.distance_encoding(distance_R[None], dtype))


# ---------------------------------------------------------------------------------------------- a step of a stream


class StreamState(NamedTuple):
    """All that a stream has between two tokens, M positions of B rows in L layers; in the order of the step."""

    key_LBHME: Tensor
    value_LBHME: Tensor
    valid_BM: Tensor
    """True where there is something to see."""
    position_B: Tensor
    """How many tokens each row has read."""


class StreamStep(nn.Module):
    """ids_B1 and the parts of a StreamState -> log p of what follows, [B, V], and the parts of the next state."""

    def __init__(self, model: LanguageModel, *, memory_length: int) -> None:
        """`memory_length` is how many earlier tokens each token sees, fewer where the attention span is shorter."""
        super().__init__()
        streamer = Streamer(model, memory_length=memory_length)  # refuses what cannot be streamed
        self.memory_length = streamer.memory_length
        self.model = model.adjusted().eval()
        self._two_streams = model.config.objective == "permutation"
        self.relative = nn.ModuleList(_relative_terms(self.model.trunk.reader, keys=self.memory_length + 1))

    @torch.no_grad()
    def initial_state(self, rows: int = 1) -> StreamState:
        """Of rows that have read nothing."""
        return self.state_of(Streamer(self.model, memory_length=self.memory_length).new_cache(rows))

    def state_of(self, cache: Cache) -> StreamState:
        """Of rows that a Streamer with the same memory length has read."""
        parts = cache.tensors()
        missing = self.memory_length - parts["valid"].shape[1]
        return StreamState(
            key_LBHME=F.pad(parts["key"], (0, 0, missing, 0)),
            value_LBHME=F.pad(parts["value"], (0, 0, missing, 0)),
            valid_BM=F.pad(parts["valid"], (missing, 0)),
            position_B=parts["position"].clone(),
        )

    def forward(
        self, ids_B1: Tensor, key_LBHME: Tensor, value_LBHME: Tensor, valid_BM: Tensor, position_B: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        stack, vocabulary = self.model.trunk.reader, self.model.trunk.vocabulary
        place_BS = position_B[:, None]
        hidden_BSD = stack.embed(embed_ids(vocabulary, ids_B1), Batch(ids_BQ=ids_B1), place_BS)
        if self._two_streams:  # the token, then the place behind it
            hidden_BSD = torch.cat([hidden_BSD, stack.embed_queries(place_BS + 1, hidden_BSD.dtype)], dim=1)
            place_BS = torch.cat([place_BS, place_BS + 1], dim=1)
        valid_BK = torch.cat([valid_BM, torch.ones_like(valid_BM[:, :1])], dim=1)
        glance = self._glance(valid_BK, place_BS, hidden_BSD.dtype)
        new: list[tuple[Tensor, Tensor]] = []
        for index, layer in enumerate(stack.layers):
            assert isinstance(layer, Layer)
            if len(stack.per_layer):
                hidden_BSD = hidden_BSD + stack.per_layer[index](place_BS, hidden_BSD.dtype)
            past = (key_LBHME[index], value_LBHME[index])
            hidden_BSD = layer.around(hidden_BSD, self._reader(index, layer, past, glance, new))
        logits_BV = self.model.logits(stack.finish(hidden_BSD[:, -1]))
        key_LBHKE, value_LBHKE = (torch.stack(parts) for parts in zip(*new, strict=True))
        return (
            logits_BV.log_softmax(-1),
            key_LBHKE[:, :, :, 1:],
            value_LBHKE[:, :, :, 1:],
            valid_BK[:, 1:],
            position_B + 1,
        )

    def _reader(
        self,
        index: int,
        layer: Layer,
        past: tuple[Tensor, Tensor],
        glance: "_Glance",
        new: list[tuple[Tensor, Tensor]],
    ) -> Callable[[Tensor], Tensor]:
        """What reads memory and token in a layer, and adds the keys and values of both to `new`."""
        attention, rotation, relative = layer.attention, glance.rotation_2BSE, self.relative[index]
        assert isinstance(relative, _Relative)
        biases = _biases(self.model.trunk.reader, index)

        def read(source_BSD: Tensor) -> Tensor:
            made = attention.keys_and_values(source_BSD[:, :1], None if rotation is None else rotation[:, :, :1])
            key_BHKE, value_BHKE = (
                torch.cat([past_BHME, x_B1HE.transpose(1, 2)], dim=2)
                for past_BHME, x_B1HE in zip(past, made, strict=True)
            )
            new.append((key_BHKE, value_BHKE))
            query_BSHE = attention.queries(source_BSD, rotation)
            mixed = [
                attend(
                    query_BSHE[:, ahead : ahead + 1],
                    key_BHKE.transpose(1, 2),
                    value_BHKE.transpose(1, 2),
                    terms=attention.terms(relative.seen(ahead=ahead), biases),
                    view=glance.view,
                    dropout=0.0,
                )
                for ahead in range(query_BSHE.shape[1])
            ]
            result_BSD: Tensor = attention.out(torch.cat(mixed, dim=1).flatten(2))
            return result_BSD

        return read

    def _glance(self, valid_BK: Tensor, place_BS: Tensor, dtype: torch.dtype) -> "_Glance":
        config, num_keys = self.model.config, valid_BK.shape[1]
        reach_1K = causal_mask(num_queries=1, num_keys=num_keys, span=config.attention_span, device=valid_BK.device)
        rotation = None
        if isinstance(config.positions, RotaryPositions):
            rotation = rotary_angles_at(
                place_BS, head_width=config.resolved_head_width, base=config.positions.base, dtype=dtype
            )
        view = View(mask_BQK=(valid_BK & reach_1K)[:, None], segment_length=1)
        return _Glance(view=view, rotation_2BSE=rotation)


@dataclass(frozen=True, kw_only=True)
class _Glance:
    """What all layers share of a step; the token and the place behind it see the same."""

    view: View
    rotation_2BSE: Tensor | None


class _Relative(nn.Module):
    """What a layer knows of the distances from K + 1 down to 0, where it works on distances."""

    def __init__(self, terms: RelativeTerms | None) -> None:
        super().__init__()
        self.there = terms is not None
        self.key_SRHE: Tensor | None
        self.bias_SRH: Tensor | None
        self.value_SRHE: Tensor | None
        self.register_buffer("key_SRHE", None if terms is None else _own(terms.key_SRHE), persistent=False)
        self.register_buffer("bias_SRH", None if terms is None else _own(terms.bias_SRH), persistent=False)
        self.register_buffer("value_SRHE", None if terms is None else _own(terms.value_SRHE), persistent=False)

    def seen(self, *, ahead: int) -> RelativeTerms | None:
        """Those of the distances K to 0, seen from the token, or from one place `ahead`: K + 1 to 1."""
        if not self.there:
            return None
        return RelativeTerms(
            key_SRHE=_window(self.key_SRHE, ahead),
            bias_SRH=_window(self.bias_SRH, ahead),
            value_SRHE=_window(self.value_SRHE, ahead),
        )


@torch.no_grad()
def _relative_terms(stack: Stack, *, keys: int) -> list[_Relative]:
    """Of each layer, computed once."""
    weight = stack.layers[0].get_parameter("attention_norm.weight")
    encoding = None
    if stack.distance_encoding is not None:
        distance_R = torch.arange(keys + 1, -1, -1, device=weight.device)
        encoding = stack.distance_encoding(distance_R[None], weight.dtype)
    found = []
    for layer in stack.layers:
        assert isinstance(layer, Layer)
        relative = layer.attention.relative
        found.append(_Relative(None if relative is None else relative(encoding)))
    return found


def _own(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().contiguous()


def _window(x_SR: Tensor | None, ahead: int) -> Tensor | None:
    return None if x_SR is None else x_SR[:, 1 - ahead : x_SR.shape[1] - ahead]


# ---------------------------------------------------------------------------------------------------------- shared


def embed_ids(vocabulary: Vocabulary, ids_BQ: Tensor) -> Tensor:
    """As the vocabulary does it, without looking at the numbers: every bin embeds every id, and one result is taken.
    An id that is too large stays too large in the last bin, so that whoever runs this refuses it."""
    bounds = vocabulary.bounds if len(vocabulary.tables) > 1 else [0, vocabulary.size]
    embedded_BQD = None
    for i, (start, stop) in enumerate(pairwise(bounds)):
        inside_BQ = ids_BQ
        if i > 0:
            inside_BQ = (inside_BQ - start).clamp(min=0)
        if stop < vocabulary.size:
            inside_BQ = inside_BQ.clamp(max=stop - start - 1)
        here_BQD = F.embedding(inside_BQ, vocabulary.tables[i])
        if vocabulary.projected[i]:
            here_BQD = F.linear(here_BQD, vocabulary.projection(i))
        if embedded_BQD is not None:
            here_BQD = torch.where((ids_BQ >= start)[:, :, None], here_BQD, embedded_BQD)
        embedded_BQD = here_BQD
    assert embedded_BQD is not None
    return embedded_BQD * vocabulary.scale


def _biases(stack: Stack, index: int) -> ScoreBiases | None:
    if not len(stack.biases):
        return None
    biases = stack.biases[index % len(stack.biases)]
    assert isinstance(biases, ScoreBiases)
    return biases
