"""Modules for export: an encoder, and one step of a stream, built from plain operations with known shapes.

In: tensors. Out: tensors; nothing is stored or written in place, and no operation depends on the values of a tensor.
The weights are those of the model, not copied. Files are left to `export`.

`Encoder` computes the same as the trunk for a segment without memory. `StreamStep` computes the same as
`model.streaming` for one token of each row. There the memory is a buffer with a moving end; here it is an input and an
output, always of the same shape and right-aligned: the oldest position is dropped, the new one comes last.
"""

from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.model import Batch, LanguageModel, Memory, Trunk
from segue.model.cache import Cache
from segue.model.embeddings import Vocabulary
from segue.model.kernels import ScoreTerms, View, definition
from segue.model.layers import Layer
from segue.model.masks import stream_mask
from segue.model.positions import RelativeTerms
from segue.model.stack import Stack
from segue.model.streaming import Streamer

# ------------------------------------------------------------------------------------------------------- encoder


class Encoder(nn.Module):
    """Encoder ids_BQ, real_BQ -> the states of the last layer, hidden_BQD. Padding must be on the right."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        weights = {id(parameter): parameter for parameter in trunk.parameters()}
        self.trunk = deepcopy(trunk, weights)  # separate modules with the same weights
        for stack in (self.trunk.reader, self.trunk.backward_reader):
            if stack is not None:
                _use_definition(stack)

    def forward(self, ids_BQ: Tensor, real_BQ: Tensor) -> Tensor:
        hidden_BQD = self._read(self.trunk.reader, ids_BQ, real_BQ)
        if self.trunk.backward_reader is None:
            return hidden_BQD
        back_BQD = self._read(self.trunk.backward_reader, ids_BQ.flip(1), real_BQ.flip(1))
        return torch.cat([hidden_BQD, back_BQD.flip(1)], dim=-1)

    def _read(self, stack: Stack, ids_BQ: Tensor, real_BQ: Tensor) -> Tensor:
        embedded_BQD = embed_ids(self.trunk.vocabulary, ids_BQ)
        batch = Batch(ids_BQ=ids_BQ, real_BQ=real_BQ)
        return stack.read(embedded_BQD, batch, _zeros(stack, embedded_BQD), remember=False).hidden_BQD


def _zeros(stack: Stack, embedded_BQD: Tensor) -> Memory | None:
    """Return the memory of new rows, for models that attend to zeros; its size may depend on that of the input."""
    settings, (rows, _, width) = stack.config.memory, embedded_BQD.shape
    if settings is None or settings.initial != "zeros":
        return None
    return Memory(
        hidden_LBMD=embedded_BQD.new_zeros(stack.config.num_layers, rows, settings.length, width),
        valid_BM=embedded_BQD.new_ones(rows, settings.length, dtype=torch.bool),
        position_B=embedded_BQD.new_zeros(rows, dtype=torch.long),
    )


# ---------------------------------------------------------------------------------------------- a step of a stream


class StreamState(NamedTuple):
    """The state of a stream between two tokens: M positions of B rows in L layers, in the order of a step's inputs."""

    key_LBHME: Tensor
    value_LBHME: Tensor
    valid_BM: Tensor
    """True for positions that can be seen."""
    position_B: Tensor
    """Number of tokens that each row has read."""


class StreamStep(nn.Module):
    """ids_B1 and the parts of a StreamState -> log p of the next token, [B, V], and the parts of the next state."""

    def __init__(self, model: LanguageModel, *, memory_length: int) -> None:
        """`memory_length`: number of earlier tokens that each token sees; fewer if the attention span is shorter."""
        super().__init__()
        streamer = Streamer(model, memory_length=memory_length)  # raises for models that cannot stream
        self.memory_length, self.span = streamer.memory_length, streamer.span
        self.model = model.adjusted().eval()
        _use_definition(self.model.trunk.reader)
        with torch.no_grad():
            terms = self.model.trunk.reader.distance_terms(self.memory_length + 2)
        self.relative = nn.ModuleList(_StoredTerms(one) for one in terms)

    @torch.no_grad()
    def initial_state(self, rows: int = 1) -> StreamState:
        """Return the state of rows that have read nothing."""
        return self.state_of(Streamer(self.model, memory_length=self.memory_length).new_cache(rows))

    def state_of(self, cache: Cache) -> StreamState:
        """Return the state of rows read by a Streamer with the same memory length."""
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
        stack = self.model.trunk.reader
        position_BJ = position_B[:, None]
        hidden_BJD = stack.embed(embed_ids(self.model.trunk.vocabulary, ids_B1), position_BJ)
        valid_BK = torch.cat([valid_BM, torch.ones_like(valid_BM[:, :1])], dim=1)
        views = [View(mask_BQK=stream_mask(valid_BK, num_queries=1, span=self.span), segment_length=1)]
        if stack.two_streams:  # the token, then the position behind it, which sees the same
            hidden_BJD = torch.cat([hidden_BJD, stack.embed_queries(position_BJ + 1, hidden_BJD.dtype)], dim=1)
            position_BJ = torch.cat([position_BJ, position_BJ + 1], dim=1)
            views *= 2
        rotation = stack.rotation_at(position_BJ, hidden_BJD.dtype)
        keys: list[Tensor] = []
        values: list[Tensor] = []

        def extend(index: int, key_B1HE: Tensor, value_B1HE: Tensor) -> tuple[Tensor, Tensor]:
            keys.append(torch.cat([key_LBHME[index], key_B1HE.transpose(1, 2)], dim=2))
            values.append(torch.cat([value_LBHME[index], value_B1HE.transpose(1, 2)], dim=2))
            return keys[-1].transpose(1, 2), values[-1].transpose(1, 2)

        def attention(index: int, layer: Layer, states_BJD: Tensor) -> Tensor:
            return layer.attention.forward_stream(
                states_BJD,
                views=views,
                rotation_2BJE=rotation,
                extend=partial(extend, index),
                terms=partial(self._terms, index, layer),
            )

        hidden_BJD = stack.run_stream(hidden_BJD, position_BJ, attention)
        logits_BV = self.model.logits(stack.finish(hidden_BJD[:, -1]))
        return (
            logits_BV.log_softmax(-1),
            torch.stack(keys)[:, :, :, 1:],
            torch.stack(values)[:, :, :, 1:],
            valid_BK[:, 1:],
            position_B + 1,
        )

    def _terms(self, index: int, layer: Layer, num_keys: int, ahead: int) -> ScoreTerms:
        """Return the score terms of a layer, seen from the token (distances K to 0) or one ahead (K + 1 to 1)."""
        relative = cast(_StoredTerms, self.relative[index]).terms()
        if relative is not None:
            relative = relative.between(1 - ahead, num_keys + 2 - ahead)
        return layer.attention.terms(relative, self.model.trunk.reader.biases_of(index))


class _StoredTerms(nn.Module):
    """The relative terms of a layer as buffers, so that they become constants of the exported program."""

    def __init__(self, terms: RelativeTerms | None) -> None:
        super().__init__()
        self.present = terms is not None
        self.key_SRHE: Tensor | None
        self.bias_SRH: Tensor | None
        self.value_SRHE: Tensor | None
        self.content_XHE: Tensor | None
        self.bucket_SR: Tensor | None
        for name in ("key_SRHE", "bias_SRH", "value_SRHE", "content_XHE", "bucket_SR"):
            value: Tensor | None = getattr(terms, name, None)
            self.register_buffer(name, None if value is None else value.detach().contiguous(), persistent=False)

    def terms(self) -> RelativeTerms | None:
        if not self.present:
            return None
        return RelativeTerms(
            key_SRHE=self.key_SRHE,
            bias_SRH=self.bias_SRH,
            value_SRHE=self.value_SRHE,
            content_XHE=self.content_XHE,
            bucket_SR=self.bucket_SR,
        )


# ---------------------------------------------------------------------------------------------------------- shared


def _use_definition(stack: Stack) -> None:
    """Make every layer compute attention by its definition, in operations that can be exported."""
    for layer in stack.each_layer():
        layer.attention.kernel = definition.attend


def embed_ids(vocabulary: Vocabulary, ids_BQ: Tensor) -> Tensor:
    """Return the embeddings without looking at the values of ids: every bin embeds every id, and one result is
    selected. An id that is too large stays too large in the last bin, so that the runtime refuses it."""
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
