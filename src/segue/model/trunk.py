"""The stack that every model shares: a Batch and a Memory in, an Output with the next Memory out.

`Stack` is one reader: embeddings, positions, layers, memory. `Trunk` gives it the vocabulary, and a second
reader where the config wants both directions. Heads and losses are elsewhere.
"""

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from segue.config import (
    AbsolutePositions,
    ModelConfig,
    PerLayerPositions,
    RotaryPositions,
    ShawPositions,
    XLPositions,
    trunk_parameter_count,
)
from segue.errors import DataError
from segue.model import build
from segue.model.attention import Geometry
from segue.model.embeddings import Vocabulary
from segue.model.kernels import Dropout, View
from segue.model.masks import causal_mask
from segue.model.memory import Memory
from segue.model.positions import AbsoluteEncoding, distances, rotary_angles
from segue.model.room import check_room
from segue.model.values import Batch, Output

TOO_LARGE = "Use fewer or narrower layers or a smaller vocabulary, or another machine."


class Trunk(nn.Module):
    """Ids and memory to hidden states and memory."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        check_room(trunk_parameter_count(config), what="the model", remedy=TOO_LARGE)
        self.config = config
        words = config.vocabulary
        self.vocabulary = Vocabulary(
            size=words.size,
            width=config.width,
            table_width=words.width or config.width,
            cutoffs=words.cutoffs,
            shrink=words.shrink,
            project_first_bin=words.project_first_bin,
            scale=words.scale,
        )
        self.reader = Stack(config)
        # The other reader never has a memory: it would come from the future.
        alone = config.model_copy(update={"memory": None})
        self.backward_reader = Stack(alone) if config.directions == "both" else None
        build.initialise(self, config)

    def forward(self, batch: Batch, memory: Memory | None = None, *, remember: bool = True) -> Output:
        """Without a memory, rows start anew. Without `remember`, none is made of this segment: it is the last one."""
        _check_types(batch, memory)
        output: Output = self.reader(self.vocabulary(batch.ids_BQ), batch, memory, remember=remember)
        if self.backward_reader is None:
            return output
        other = batch.backwards()
        backward: Output = self.backward_reader(self.vocabulary(other.ids_BQ), other, None, remember=False)
        layers = tuple(
            torch.cat([ahead, back.flip(1)], dim=-1) for ahead, back in zip(output.layers, backward.layers, strict=True)
        )
        hidden_BQD = torch.cat([output.hidden_BQD, backward.hidden_BQD.flip(1)], dim=-1)
        return replace(output, hidden_BQD=hidden_BQD, layers=layers)

    def new_memory(self, rows: int) -> Memory | None:
        """The memory of rows that have read nothing; None if the model has no memory."""
        return self.reader.new_memory(rows)


def _check_types(batch: object, memory: object) -> None:
    """Every model is entered here, so a call with something else ends with a rule and not inside the layers."""
    if not isinstance(batch, Batch):
        raise DataError(
            f"a model reads a Batch; got a {type(batch).__name__}. Use segue.Batch(ids_BQ=ids), with ids of shape "
            "[rows, positions]."
        )
    if memory is not None and not isinstance(memory, Memory):
        raise DataError(
            f"a memory must be what the model gave for the segment before; got a {type(memory).__name__}. Pass "
            "output.memory on."
        )


class Stack(nn.Module):
    """One reader: positions, layers and memory."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width, positions = config.width, config.positions
        self.dropout = Dropout(config.dropout)
        self.segment_embedding = nn.Embedding(config.num_segments, width) if config.segments == "absolute" else None
        self.embedding_norm = nn.LayerNorm(width, eps=config.norm_epsilon) if config.embedding_norm else None
        self.mask_embedding_D = nn.Parameter(torch.zeros(width)) if config.objective == "permutation" else None
        self.absolute = build.absolute_encoding(config)
        self.per_layer = nn.ModuleList(
            AbsoluteEncoding(width=width, max_length=positions.max_length)
            for _ in range(config.num_layers)
            if isinstance(positions, PerLayerPositions)
        )
        self.distance_encoding = build.distance_encoding(config)
        self.biases = build.score_biases(config)
        self.layers = nn.ModuleList(build.layer(config) for _ in range(config.num_layers))
        self.final_norm = nn.LayerNorm(width, eps=config.norm_epsilon) if config.final_norm else None
        self.recompute = False
        """Whether training computes the inside of each layer again in the backward pass, to save memory."""

    def new_memory(self, rows: int) -> Memory | None:
        memory = self.config.memory
        if memory is None:
            return None
        weight = self.layers[0].get_parameter("attention_norm.weight")
        return Memory.empty(
            layers=self.config.num_layers,
            rows=rows,
            length=memory.length,
            width=self.config.width,
            valid=memory.initial == "zeros",
            device=weight.device,
            dtype=weight.dtype,
        )

    def forward(self, embedded_BQD: Tensor, batch: Batch, memory: Memory | None, *, remember: bool) -> Output:
        self._check(batch, memory)
        memory = self._recall(batch, memory)
        self._check_padding(batch, memory)
        position_BQ = self._positions(batch, memory)
        content_view, query_view = self._views(batch, memory)
        geometry = self._geometry(batch, memory, embedded_BQD.dtype)
        at_BP = None if query_view is None else query_view.at_BQ

        content_BQD = self.embed(embedded_BQD, batch, position_BQ)
        query_BPD = None if at_BP is None else self.embed_queries(position_BQ.gather(1, at_BP), content_BQD.dtype)
        inputs: list[Tensor] = []
        results = [content_BQD]
        for index, layer in enumerate(self.layers):
            if len(self.per_layer):
                added_BQD = self.per_layer[index](position_BQ, content_BQD.dtype)
                content_BQD = content_BQD + added_BQD
                if query_BPD is not None and at_BP is not None:
                    query_BPD = query_BPD + _take(added_BQD, at_BP)
            inputs.append(content_BQD)
            run = partial(checkpoint, layer, use_reentrant=False) if self.recompute and self.training else layer
            content_BQD, query_BPD = run(
                content_BQD,
                query_BPD,
                memory_BMD=None if memory is None else memory.hidden_LBMD[index],
                content_view=content_view,
                query_view=query_view,
                geometry=geometry,
                biases=self.biases[index % len(self.biases)] if len(self.biases) else None,
            )
            results.append(content_BQD)
        content_BQD = self.finish(content_BQD)
        if query_BPD is not None:
            query_BPD = self.finish(query_BPD)
        elif batch.predicted_BP is not None:
            query_BPD = _take(content_BQD, batch.predicted_BP)
        return Output(
            hidden_BQD=content_BQD,
            predicted_BPD=query_BPD,
            layers=tuple(results),
            memory=self._remember(inputs, batch, memory) if remember else None,
        )

    # ------------------------------------------------------------------------------------------------- memory

    def _recall(self, batch: Batch, memory: Memory | None) -> Memory | None:
        """The memory to read: reset where rows start, cut from the graph where gradients must stop."""
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

    # ------------------------------------------------------------------------------------- who sees whom, where

    def _views(self, batch: Batch, memory: Memory | None) -> tuple[View, View | None]:
        """What each stream sees. Everyone sees valid memory. In the content stream a token sees itself as well,
        padding included, so that no row is empty; in the query stream it never does."""
        config, (rows, length) = self.config, batch.ids_BQ.shape
        device = batch.ids_BQ.device
        past_BM = torch.ones(rows, 0, dtype=torch.bool, device=device) if memory is None else memory.valid_BM
        num_keys = past_BM.shape[1] + length
        if config.bidirectional:
            reach_QK = torch.ones(length, num_keys, dtype=torch.bool, device=device)
        else:
            reach_QK = causal_mask(num_queries=length, num_keys=num_keys, span=config.attention_span, device=device)
        real_BQ = torch.ones_like(batch.ids_BQ, dtype=torch.bool) if batch.real_BQ is None else batch.real_BQ
        known_BQK = reach_QK & torch.cat([past_BM, real_BQ], dim=1)[:, None]
        if batch.visible_BQQ is not None:
            past_BQM = past_BM[:, None].expand(-1, length, -1)
            known_BQK = known_BQK & torch.cat([past_BQM, batch.visible_BQQ], dim=2)
        self_QK = torch.eye(length, dtype=torch.bool, device=device)
        self_QK = torch.cat([self_QK.new_zeros(length, num_keys - length), self_QK], dim=1)
        differs_BQK = self._segments_differ(batch, num_keys)
        content = View(mask_BQK=known_BQK | self_QK, differs_BQK=differs_BQK, segment_length=length)
        if config.objective != "permutation" or batch.predicted_BP is None:
            return content, None
        query = View(
            mask_BQK=_take(known_BQK & ~self_QK, batch.predicted_BP),
            differs_BQK=None if differs_BQK is None else _take(differs_BQK, batch.predicted_BP),
            at_BQ=batch.predicted_BP,
            segment_length=length,
        )
        return content, query

    def _segments_differ(self, batch: Batch, num_keys: int) -> Tensor | None:
        if self.config.segments != "relative" or batch.segments_BQ is None:
            return None
        segments_BQ = batch.segments_BQ
        memory_BM = segments_BQ.new_zeros(segments_BQ.shape[0], num_keys - segments_BQ.shape[1])
        return segments_BQ[:, :, None] != torch.cat([memory_BM, segments_BQ], dim=1)[:, None, :]

    def _positions(self, batch: Batch, memory: Memory | None) -> Tensor:
        """How many real tokens each row had before each position: what absolute encodings encode."""
        real_BQ = torch.ones_like(batch.ids_BQ) if batch.real_BQ is None else batch.real_BQ.long()
        counted_BQ = (real_BQ.cumsum(1) - 1).clamp(min=0)
        positions = self.config.positions
        if isinstance(positions, AbsolutePositions) and positions.count_from == "end":
            return counted_BQ[:, -1:] - counted_BQ
        return counted_BQ if memory is None else counted_BQ + memory.position_B[:, None]

    def _geometry(self, batch: Batch, memory: Memory | None, dtype: torch.dtype) -> Geometry:
        config, length = self.config, batch.ids_BQ.shape[1]
        num_keys = length if memory is None else length + memory.length
        device = batch.ids_BQ.device
        if isinstance(config.positions, RotaryPositions):
            rotation_2KE = rotary_angles(
                num_keys=num_keys,
                head_width=config.resolved_head_width,
                base=config.positions.base,
                device=device,
                dtype=dtype,
            )
            return Geometry(rotation_2KE=rotation_2KE)
        if self.distance_encoding is None:
            return Geometry()
        distance_R = distances(num_queries=length, num_keys=num_keys, bidirectional=config.bidirectional, device=device)
        both = batch.reversed_B is not None
        distance_SR = torch.stack([distance_R, -distance_R]) if both else distance_R[None]
        encoding = self.distance_encoding(distance_SR, dtype)
        if isinstance(config.positions, XLPositions):
            encoding = self.dropout(encoding)
        return Geometry(encoding=encoding, reversed_B=batch.reversed_B)

    # --------------------------------------------------------------------------------------------- both ends

    def embed(self, embedded_BQD: Tensor, batch: Batch, position_BQ: Tensor) -> Tensor:
        if self.absolute is not None:
            embedded_BQD = embedded_BQD + self.absolute(position_BQ, embedded_BQD.dtype)
        if self.segment_embedding is not None:
            segments = torch.zeros_like(batch.ids_BQ) if batch.segments_BQ is None else batch.segments_BQ
            embedded_BQD = embedded_BQD + self.segment_embedding(segments)
        if self.embedding_norm is not None:
            embedded_BQD = self.embedding_norm(embedded_BQD)
        result_BQD: Tensor = self.dropout(embedded_BQD)
        return result_BQD

    def embed_queries(self, position_BP: Tensor, dtype: torch.dtype) -> Tensor:
        """The query stream knows where it is, not what is there: one vector, and its absolute position if any."""
        assert self.mask_embedding_D is not None
        query_BPD = self.mask_embedding_D.expand(*position_BP.shape, -1)
        if self.absolute is not None:
            query_BPD = query_BPD + self.absolute(position_BP, dtype)
        if self.embedding_norm is not None:
            query_BPD = self.embedding_norm(query_BPD)
        result_BPD: Tensor = self.dropout(query_BPD)
        return result_BPD

    def finish(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.dropout(hidden if self.final_norm is None else self.final_norm(hidden))
        return result

    # -------------------------------------------------------------------------------------------------- checks

    def _check(self, batch: Batch, memory: Memory | None) -> None:
        config, (rows, length) = self.config, batch.ids_BQ.shape
        if memory is not None:
            if config.memory is None:
                raise DataError(
                    "a memory was given to a model without one; got model.memory left out. Set model.memory.length."
                )
            memory.check(layers=config.num_layers, rows=rows, width=config.width)
        if batch.visible_BQQ is not None and config.objective != "permutation":
            raise DataError(
                f'batch.visible_BQQ is for objective "permutation"; got "{config.objective}". Leave it out.'
            )
        if config.objective == "permutation" and batch.predicted_BP is not None and batch.visible_BQQ is None:
            raise DataError(
                "predictions need batch.visible_BQQ, because contents that see each other pass the targets on; "
                "got none. Use order_batch, or masks.permutation_mask."
            )
        if batch.reversed_B is not None and not isinstance(config.positions, XLPositions | ShawPositions):
            raise DataError(
                'batch.reversed_B needs signed distances, positions of kind "xl" or "shaw"; got '
                f'"{config.positions.kind}". Leave it out.'
            )
        limit = getattr(config.positions, "max_length", None)
        learned = self.absolute is None or self.absolute.table is not None
        if limit is not None and learned:
            longest = length + (int(memory.position_B.max()) if memory is not None else 0)
            if longest > limit:
                raise DataError(
                    f"the model has {limit} positions; got {longest} tokens since a row started. "
                    "Use shorter segments, start rows anew (starts_B), or relative positions."
                )

    @staticmethod
    def _check_padding(batch: Batch, memory: Memory | None) -> None:
        """Padding between memory and tokens would lengthen the distance between them."""
        if batch.real_BQ is not None and memory is not None:
            gap_B = (~batch.real_BQ[:, :-1] & batch.real_BQ[:, 1:]).any(dim=1) & memory.valid_BM.any(dim=1)
            if bool(gap_B.any()):
                row = int(gap_B.nonzero()[0, 0])
                raise DataError(
                    f"with memory, padding must be on the right; got padding before a token in row {row}. "
                    "Move it to the right, or start the row anew (starts_B)."
                )


def _take(x_BQX: Tensor, at_BP: Tensor) -> Tensor:
    """The rows of each example at these positions."""
    return x_BQX.gather(1, at_BP[:, :, None].expand(-1, -1, x_BQX.shape[2]))
