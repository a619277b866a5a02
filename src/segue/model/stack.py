"""The reader of a model: embeddings, positions, layers and memory. All models share it.

In: embedded tokens, a Batch and a Memory. Out: an Output with the next Memory. Training, streaming (`streaming`) and
export take the same steps: they embed, run the layers (`run_layers`) and finish, and differ only in where a layer finds
the keys and values of earlier segments. The vocabulary, and a second reader if there is one, belong to `trunk`.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from segue.config import ModelConfig
from segue.errors import DataError
from segue.model import build
from segue.model.attention import PositionInputs, ScoreBiases
from segue.model.batch import Batch, Output
from segue.model.kernels import Dropout, View
from segue.model.layers import Layer
from segue.model.masks import segment_masks
from segue.model.memory import Memory
from segue.model.positions import RelativeTerms, distances, take_positions, token_positions

Streams: TypeAlias = tuple[Tensor, Tensor | None]
"""The content stream, and the query stream if there is one."""
LayerCall: TypeAlias = Callable[[int, Layer, Tensor, Tensor | None], Streams]
"""A function that takes both streams through one layer, given its index."""
StreamAttention: TypeAlias = Callable[[int, Layer, Tensor], Tensor]
"""The attention of one layer for both streams concatenated in one tensor, given the layer's index."""


class Stack(nn.Module):
    """Positions, layers and memory of one reader."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.dropout = Dropout(config.dropout)
        self.segment_embedding = nn.Embedding(config.num_segments, width) if config.segments == "absolute" else None
        self.embedding_norm = nn.LayerNorm(width, eps=config.norm_epsilon) if config.embedding_norm else None
        self.mask_embedding_D = nn.Parameter(torch.zeros(width)) if config.objective == "permutation" else None
        self.absolute = build.absolute_encoding(config)
        self.per_layer = build.layer_encodings(config)
        self.rotary = build.rotary_encoding(config)
        self.distance_encoding = build.distance_encoding(config)
        self.biases = build.score_biases(config)
        self.layers = nn.ModuleList(build.layer(config) for _ in range(config.num_layers))
        self.final_norm = nn.LayerNorm(width, eps=config.norm_epsilon) if config.final_norm else None
        self.recompute = False
        """Whether training recomputes the inside of each layer in the backward pass, to save memory."""

    @property
    def two_streams(self) -> bool:
        """True if the model predicts with a query stream (two-stream attention)."""
        return self.mask_embedding_D is not None

    def forward(self, embedded_BQD: Tensor, batch: Batch, memory: Memory | None, *, remember: bool) -> Output:
        """Check the batch and read it after the memory; see `read`."""
        self._check(batch, memory)
        memory = self._recall(batch, memory)
        _check_padding(batch, memory)
        return self.read(embedded_BQD, batch, memory, remember=remember)

    def read(self, embedded_BQD: Tensor, batch: Batch, memory: Memory | None, *, remember: bool) -> Output:
        """Read a segment after exactly this memory. Can be exported: nothing depends on the values of tensors."""
        position_BQ = self.positions(batch.ids_BQ, batch.real_BQ, None if memory is None else memory.position_B)
        content_view, query_view = self._views(batch, memory)
        num_keys = content_view.mask_BQK.shape[2]
        shared = self.position_inputs(batch, num_keys=num_keys, dtype=embedded_BQD.dtype)
        at_BP = None if query_view is None else query_view.at_BQ
        inputs: list[Tensor] = []
        results: list[Tensor] = []

        def call(index: int, layer: Layer, content_BQD: Tensor, query_BPD: Tensor | None) -> Streams:
            inputs.append(content_BQD)
            run = partial(checkpoint, layer, use_reentrant=False) if self.recompute and self.training else layer
            streams = cast(
                Streams,
                run(
                    content_BQD,
                    query_BPD,
                    memory_BMD=None if memory is None else memory.hidden_LBMD[index],
                    content_view=content_view,
                    query_view=query_view,
                    positions=shared,
                    biases=self.biases_of(index),
                ),
            )
            results.append(streams[0])
            return streams

        content_BQD = self.embed(embedded_BQD, position_BQ, batch.segments_BQ)
        query_BPD = None if at_BP is None else self.embed_queries(position_BQ.gather(1, at_BP), content_BQD.dtype)
        results.append(content_BQD)
        content_BQD, query_BPD = self.run_layers(
            content_BQD, query_BPD, position_BQ=position_BQ, at_BP=at_BP, call=call
        )
        content_BQD = self.finish(content_BQD)
        if query_BPD is not None:
            query_BPD = self.finish(query_BPD)
        elif batch.predicted_BP is not None:
            query_BPD = take_positions(content_BQD, batch.predicted_BP)
        return Output(
            hidden_BQD=content_BQD,
            predicted_BPD=query_BPD,
            layers=tuple(results),
            memory=self._remember(inputs, batch, memory) if remember else None,
        )

    # ------------------------------------------------------------------------------------------------- layers

    def run_layers(
        self,
        content_BQD: Tensor,
        query_BPD: Tensor | None,
        *,
        position_BQ: Tensor,
        at_BP: Tensor | None,
        call: LayerCall,
    ) -> Streams:
        """Take both streams through all layers, each by `call`, and add the positional encodings of the layers."""
        for index, layer in enumerate(self.each_layer()):
            if len(self.per_layer):
                added_BQD = self.per_layer[index](position_BQ, content_BQD.dtype)
                content_BQD = content_BQD + added_BQD
                if query_BPD is not None and at_BP is not None:
                    query_BPD = query_BPD + take_positions(added_BQD, at_BP)
            content_BQD, query_BPD = call(index, layer, content_BQD, query_BPD)
        return content_BQD, query_BPD

    def run_stream(self, hidden_BJD: Tensor, position_BJ: Tensor, attention: StreamAttention) -> Tensor:
        """Take states through all layers with an attention of the caller, who caches keys and values. Both streams are
        concatenated in one tensor, so that the weights are read once."""

        def call(index: int, layer: Layer, states_BJD: Tensor, _: Tensor | None) -> Streams:
            return layer.around(states_BJD, partial(attention, index, layer)), None

        return self.run_layers(hidden_BJD, None, position_BQ=position_BJ, at_BP=None, call=call)[0]

    def each_layer(self) -> list[Layer]:
        """Return the layers, first to last."""
        return [cast(Layer, layer) for layer in self.layers]

    def biases_of(self, index: int) -> ScoreBiases | None:
        """Return the biases of the score in one layer, which all layers may share."""
        return cast(ScoreBiases, self.biases[index % len(self.biases)]) if len(self.biases) else None

    def embed(self, embedded_BQD: Tensor, position_BQ: Tensor, segments_BQ: Tensor | None = None) -> Tensor:
        """Return the input of the content stream: embedded tokens, with absolute positions and segments if any."""
        if self.absolute is not None:
            embedded_BQD = embedded_BQD + self.absolute(position_BQ, embedded_BQD.dtype)
        if self.segment_embedding is not None:
            segments = torch.zeros_like(position_BQ) if segments_BQ is None else segments_BQ
            embedded_BQD = embedded_BQD + self.segment_embedding(segments)
        if self.embedding_norm is not None:
            embedded_BQD = self.embedding_norm(embedded_BQD)
        return cast(Tensor, self.dropout(embedded_BQD))

    def embed_queries(self, position_BP: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the input of the query stream, which knows the position but not the token: one vector for all
        positions, and its absolute position if any."""
        assert self.mask_embedding_D is not None
        query_BPD = self.mask_embedding_D.expand(*position_BP.shape, -1)
        if self.absolute is not None:
            query_BPD = query_BPD + self.absolute(position_BP, dtype)
        if self.embedding_norm is not None:
            query_BPD = self.embedding_norm(query_BPD)
        return cast(Tensor, self.dropout(query_BPD))

    def finish(self, hidden: Tensor) -> Tensor:
        """Apply the final norm, if there is one, and dropout."""
        return cast(Tensor, self.dropout(hidden if self.final_norm is None else self.final_norm(hidden)))

    # ---------------------------------------------------------------------------------------------- positions

    def positions(self, ids_BQ: Tensor, real_BQ: Tensor | None, start_B: Tensor | None) -> Tensor:
        """Return the absolute positions of tokens, in rows that have read `start_B` tokens before."""
        if self.absolute is not None and self.absolute.count_from_end:
            position_BQ = token_positions(ids_BQ, real_BQ)
            return position_BQ[:, -1:] - position_BQ
        return token_positions(ids_BQ, real_BQ, start_B)

    def position_inputs(self, batch: Batch, *, num_keys: int, dtype: torch.dtype) -> PositionInputs:
        """Return the positional inputs shared by all layers, for `num_keys` positions of memory and segment."""
        length, device = batch.ids_BQ.shape[1], batch.ids_BQ.device
        if self.rotary is not None:
            return PositionInputs(rotation_2KE=self.rotary(num_keys=num_keys, device=device, dtype=dtype))
        if self.distance_encoding is None:
            return PositionInputs()
        distance_R = distances(
            num_queries=length, num_keys=num_keys, bidirectional=self.config.bidirectional, device=device
        )
        both = batch.reversed_B is not None
        distance_SR = torch.stack([distance_R, -distance_R]) if both else distance_R[None]
        return PositionInputs(encoding=self.distance_encoding(distance_SR, dtype), reversed_B=batch.reversed_B)

    def distance_terms(self, longest: int) -> list[RelativeTerms | None]:
        """Return the relative terms of each layer for all distances from `longest` down to 0, for reading a stream."""
        encoding = None
        if self.distance_encoding is not None:
            distance_R = torch.arange(longest, -1, -1, device=self._weight.device)
            encoding = self.distance_encoding(distance_R[None], self._weight.dtype)
        return [layer.attention.relative_terms(encoding) for layer in self.each_layer()]

    def rotation_at(self, position_BQ: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return the angles of rotary positions in a stream; None for other encodings."""
        return None if self.rotary is None else self.rotary.at(position_BQ, dtype)

    # ------------------------------------------------------------------------------------------------- memory

    def new_memory(self, rows: int) -> Memory | None:
        """Return the initial memory of `rows` rows; None if the model has no memory."""
        settings = self.config.memory
        return None if settings is None else self.initial_memory(rows, length=settings.length)

    def initial_memory(self, rows: int, *, length: int) -> Memory:
        """Return a memory of this length in its initial state: empty, or zeros that are attended to."""
        settings = self.config.memory
        return Memory.empty(
            layers=self.config.num_layers,
            rows=rows,
            length=length,
            width=self.config.width,
            valid=settings is not None and settings.initial == "zeros",
            device=self._weight.device,
            dtype=self._weight.dtype,
        )

    @property
    def _weight(self) -> Tensor:
        """A parameter that every stack has, for its device and dtype."""
        return self.layers[0].get_parameter("attention_norm.weight")

    def _recall(self, batch: Batch, memory: Memory | None) -> Memory | None:
        """Return the memory to read: reset where rows start, detached where gradients must stop."""
        settings = self.config.memory
        if settings is None:
            return None
        if memory is None:  # nothing to attend to yet, unless new rows attend to zeros
            return self.new_memory(batch.ids_BQ.shape[0]) if settings.initial == "zeros" else None
        if batch.starts_B is not None:
            memory = memory.reset(batch.starts_B, valid=settings.initial == "zeros")
        limit = settings.backprop_segments
        return memory.detach() if limit is None or memory.graph_segments > limit else memory

    def _remember(self, inputs: list[Tensor], batch: Batch, memory: Memory | None) -> Memory | None:
        """Return the memory after this segment: segment-level recurrence."""
        settings = self.config.memory
        if settings is None:
            return None
        inputs_LBQD = torch.stack(inputs)[:, :, : settings.reuse_length]
        if settings.backprop_segments is None:
            inputs_LBQD = inputs_LBQD.detach()
        layers, rows, _, width = inputs_LBQD.shape
        before = memory or Memory.empty(
            layers=layers,
            rows=rows,
            length=0,
            width=width,
            device=inputs_LBQD.device,
            dtype=inputs_LBQD.dtype,
        )
        real_BQ = None if batch.real_BQ is None else batch.real_BQ[:, : settings.reuse_length]
        after = before.then(inputs_LBQD, real_BQ=real_BQ, length=settings.length)
        return after.detach() if settings.backprop_segments is None else after

    # ----------------------------------------------------------------------------------------------- visibility

    def _views(self, batch: Batch, memory: Memory | None) -> tuple[View, View | None]:
        """Return the view of the content stream, and that of the query stream if it predicts something."""
        predicted_BP = batch.predicted_BP if self.two_streams else None
        content_BQK, query_BPK = segment_masks(
            None if memory is None else memory.valid_BM,
            torch.ones_like(batch.ids_BQ, dtype=torch.bool) if batch.real_BQ is None else batch.real_BQ,
            bidirectional=self.config.bidirectional,
            span=self.config.attention_span,
            visible_BQQ=batch.visible_BQQ,
            predicted_BP=predicted_BP,
        )
        length, differs_BQK = batch.ids_BQ.shape[1], self._segments_differ(batch, content_BQK.shape[2])
        content = View(mask_BQK=content_BQK, differs_BQK=differs_BQK, segment_length=length)
        if predicted_BP is None or query_BPK is None:
            return content, None
        query = View(
            mask_BQK=query_BPK,
            differs_BQK=None if differs_BQK is None else take_positions(differs_BQK, predicted_BP),
            at_BQ=predicted_BP,
            segment_length=length,
        )
        return content, query

    def _segments_differ(self, batch: Batch, num_keys: int) -> Tensor | None:
        """Return True for pairs of different segments, for the relative segment encoding; memory is segment 0."""
        if self.config.segments != "relative" or batch.segments_BQ is None:
            return None
        segments_BQ = batch.segments_BQ
        memory_BM = segments_BQ.new_zeros(segments_BQ.shape[0], num_keys - segments_BQ.shape[1])
        return segments_BQ[:, :, None] != torch.cat([memory_BM, segments_BQ], dim=1)[:, None, :]

    # -------------------------------------------------------------------------------------------------- checks

    def _check(self, batch: Batch, memory: Memory | None) -> None:
        config, (rows, length) = self.config, batch.ids_BQ.shape
        if memory is not None:
            if config.memory is None:
                raise DataError("a memory was given to a model without memory. Set model.memory.length.")
            memory.check(layers=config.num_layers, rows=rows, width=config.width)
        if batch.visible_BQQ is not None and not self.two_streams:
            raise DataError(
                f'batch.visible_BQQ is for objective "permutation"; got "{config.objective}". Leave it out.'
            )
        if self.two_streams and batch.predicted_BP is not None and batch.visible_BQQ is None:
            raise DataError(
                "predictions need batch.visible_BQQ, because contents that see each other pass the targets on; "
                "got none. Use order_batch, or masks.permutation_mask."
            )
        if batch.reversed_B is not None and not getattr(self.distance_encoding, "signed", False):
            raise DataError(
                'batch.reversed_B needs signed distances, positions of kind "xl" or "shaw"; got '
                f'"{config.positions.kind}". Leave it out.'
            )
        limit = config.learned_positions
        if limit is not None:
            longest = length + (int(memory.position_B.max()) if memory is not None else 0)
            if longest > limit:
                raise DataError(
                    f"the model has {limit} positions; got {longest} tokens since a row started. "
                    "Use shorter segments, start rows anew (starts_B), or relative positions."
                )


def _check_padding(batch: Batch, memory: Memory | None) -> None:
    """Raise DataError for padding between memory and tokens, which would change their distance."""
    if batch.real_BQ is not None and memory is not None:
        gap_B = (~batch.real_BQ[:, :-1] & batch.real_BQ[:, 1:]).any(dim=1) & memory.valid_BM.any(dim=1)
        if bool(gap_B.any()):
            row = int(gap_B.nonzero()[0, 0])
            raise DataError(
                f"with memory, padding must be on the right; got padding before a token in row {row}. "
                "Move it to the right, or start the row anew (starts_B)."
            )
