"""Attention of a text packed for the page: queries and keys in 16 bits, from which it computes any tile.

In: the attention of a text, segment by segment. Out: one block of bytes for each layer, head and stream, and a
description. The scores of a text of T tokens are T x T numbers for each head; queries and keys are T x E, so the page
holds these and multiplies what it shows. Queries are already scaled; `log_sum` turns scores into probabilities.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.explain.scores import AttentionReading, KernelInputs, Stream
from segue.explain.text import SegmentAttention

Halves = NDArray[np.float16]


@dataclass(frozen=True, kw_only=True)
class PackedAttention:
    """Data from which the page draws attention maps."""

    description: dict[str, Any]
    blocks: dict[str, str]
    """Bytes in base64, by "LAYER-HEAD-STREAM" or "mask-SEGMENT-STREAM"."""


@dataclass
class _Head:
    """The parts of one head, with one array per segment."""

    log_sum: list[NDArray[np.float32]] = field(default_factory=list)
    query: list[Halves] = field(default_factory=list)
    key: list[Halves] = field(default_factory=list)
    content_bias: list[Halves] = field(default_factory=list)


class Packer:
    """Packer of one segment after the other. With rotary positions and memory the keys of memory are packed, too,
    because they are rotated anew for each segment; otherwise those of the segments are enough."""

    def __init__(self, *, layers: Sequence[int], streams: Sequence[Stream], with_memory: bool) -> None:
        self.layers, self.streams, self.with_memory = tuple(layers), tuple(streams), with_memory
        self.heads: dict[tuple[int, int, Stream], _Head] = {}
        self.segments: list[dict[str, Any]] = []
        self.masks: dict[str, str] = {}
        self.positions: dict[tuple[int, int], tuple[list[Halves], int]] = {}
        self.terms: tuple[str, ...] = ()
        self.buckets: list[int] = []
        """The bucket of each distance, if u depends on the bucket."""
        self.bucket_count = 1

    def add(self, segment: SegmentAttention) -> None:
        """Add all chosen layers of a segment."""
        reading, span = segment.reading, segment.span
        memory, first = reading.memory_length, int((segment.key_tokens < 0).sum())
        number = len(self.segments)
        self.segments.append(
            {
                "new": span.new,
                "stop": span.stop,
                "first": int(segment.key_tokens[first]),
                "keys": int(segment.key_tokens[first]) if self.with_memory else span.start,
                "start": span.start,
            }
        )
        repeated = span.new - span.start
        for stream in self.streams:
            inputs = _of(reading, stream)
            mask = inputs[0].view.mask_BQK[0, repeated:, first:].cpu().numpy()
            self.masks[f"mask-{number}-{stream}"] = _base64(np.packbits(mask, bitorder="little"))
            for layer in self.layers:
                for head in range(reading.num_heads):
                    self._add(reading, layer, head, stream, skip=repeated, first=first if self.with_memory else memory)

    def _add(self, reading: AttentionReading, layer: int, head: int, stream: Stream, *, skip: int, first: int) -> None:
        packed = self.heads.setdefault((layer, head, stream), _Head())
        inputs = _of(reading, stream)[layer].part(heads=[head], queries=None)
        scale = inputs.query_BQHE.shape[-1] ** -0.5
        packed.query.append(_halves(inputs.query_BQHE[0, skip:, 0] * scale))
        sums = [
            scores.score[0, 0].masked_fill(~scores.mask_BQK[0], -torch.inf).logsumexp(dim=-1)
            for _, scores in reading.bands(layer, head, stream=stream)
        ]
        packed.log_sum.append(torch.cat(sums)[skip:].float().cpu().numpy())
        if stream == "content":
            key_KE = inputs.key_BKHE[0, first:, 0]
            packed.key.append(_halves(key_KE))
            bias_HE = inputs.terms.content_bias_HE
            if bias_HE is not None:
                packed.content_bias.append(_halves(key_KE @ bias_HE[0] * scale))
            elif inputs.terms.relative is not None and inputs.terms.relative.content_XHE is not None:
                packed.content_bias.append(_halves(key_KE @ inputs.terms.relative.content_XHE[:, 0].T * scale))
            self._distances(layer, head, inputs, scale)

    def _distances(self, layer: int, head: int, inputs: KernelInputs, scale: float) -> None:
        """Add the terms of each distance, from the segment with the most keys."""
        relative, num_keys = inputs.terms.relative, inputs.key_BKHE.shape[1]
        if relative is None or self.positions.get((layer, head), ([], -1))[1] >= num_keys:
            return
        parts = []
        if relative.key_SRHE is not None:
            key_RE = relative.key_SRHE[0, :, 0]
            parts.append(_halves(key_RE))
            if inputs.terms.position_bias_HE is not None:
                parts.append(_halves(key_RE @ inputs.terms.position_bias_HE[0] * scale))
        if relative.bias_SRH is not None:
            parts.append(_halves(relative.bias_SRH[0, :, 0]))
        if relative.bucket_SR is not None:
            self.buckets = relative.bucket_SR[0].tolist()
        if relative.content_XHE is not None:
            self.bucket_count = len(relative.content_XHE)
        self.positions[layer, head] = (parts, num_keys)

    def packed(self, terms: tuple[str, ...]) -> PackedAttention:
        """Return everything that was added. `terms` are those of the model's score."""
        blocks = dict(self.masks)
        some = next(iter(self.heads.values()))
        for (layer, head, stream), one in self.heads.items():
            distances = self.positions.get((layer, head), ([], 0))[0] if stream == "content" else []
            arrays: list[NDArray[Any]] = [*one.log_sum, *one.query, *one.key, *one.content_bias, *distances]
            blocks[f"{layer}-{head}-{stream}"] = base64.b64encode(b"".join(x.tobytes() for x in arrays)).decode("ascii")
        parts, longest = next(iter(self.positions.values()), ([], 0))
        description = {
            "layers": list(self.layers),
            "heads": 1 + max(head for _, head, _ in self.heads),
            "width": some.query[0].shape[1],
            "streams": list(self.streams),
            "terms": list(terms),
            "distances": len(parts[0]) if parts else 0,
            "longest": longest,
            "buckets": self.buckets,
            "bucket_count": self.bucket_count,
            "segments": self.segments,
        }
        return PackedAttention(description=description, blocks=blocks)


def packed_size(*, tokens: int, layers: int, heads: int, width: int, streams: int) -> int:
    """Return the approximate size in bytes of the maps of a text on the page."""
    return int(4 / 3 * 2 * tokens * width * heads * layers * (1 + streams))


def _of(reading: AttentionReading, stream: Stream) -> tuple[KernelInputs, ...]:
    return reading.query if stream == "query" else reading.content


def _halves(x: Tensor) -> Halves:
    limit = torch.finfo(torch.float16).max
    return np.ascontiguousarray(x.detach().float().clamp(-limit, limit).half().cpu().numpy())


def _base64(x: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(x).tobytes()).decode("ascii")
