"""Documents of any length through a trunk: segment by segment, with memory, rows of different length in one batch.

In: a trunk and documents (ids). Out: DocumentStates, the hidden states of every token, the input of the heads.

A document is split into segments from its end, so that the last segment is full and the first takes the remainder: the
tokens read last, where XLNet has its CLS, always have a whole segment of text beside them. The segmentation of a
document does not depend on the other rows. Without memory, segments may overlap. A row joins the batch with its first
segment; padding is on the right of each segment.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from segue.errors import DataError
from segue.model.batch import Batch
from segue.model.memory import Memory
from segue.model.segmenting import Span, pad_rows, segments_from_end
from segue.model.trunk import Trunk


@dataclass(frozen=True, kw_only=True)
class TokenDocument:
    """A text as the ids that a model reads."""

    ids: NDArray[np.int64]
    segments: NDArray[np.int64]
    """Segment ids (A 0, B 1, CLS 2), for models with segment encodings."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True)
class DocumentStates:
    """The hidden states of some documents. Rows are sorted, longest first: each segment has the first rows."""

    hidden: tuple[Tensor, ...]
    """The states of each segment, first to last: [rows, Q, D]."""
    real: tuple[Tensor, ...]
    """True for tokens, [rows, Q]."""
    lengths: NDArray[np.int64]
    """The lengths of the rows, longest first."""
    order: NDArray[np.int64]
    """Row n of the documents is row `order[n]` here."""
    segment_length: int
    overlap: int
    """Number of tokens that a segment repeats of the one before."""
    memory: Memory | None
    """The memory for a continuation, with the rows in this order; None if the model has none."""

    @property
    def tokens_read(self) -> int:
        return int(self.lengths.sum())

    @property
    def positions_computed(self) -> int:
        """Number of positions that went through the model, padding included."""
        return sum(real.numel() for real in self.real)

    def summaries(self, summary: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return one vector per segment, [B, N, D], and which exist, [B, N]: the last N segments of each row."""
        rows = len(self.lengths)
        vectors, there = [], []
        for hidden, real in zip(self.hidden, self.real, strict=True):
            missing = rows - hidden.shape[0]
            vectors.append(F.pad(summary(hidden, real), (0, 0, 0, missing)))
            there.append(torch.arange(rows, device=hidden.device) < hidden.shape[0])
        order = torch.from_numpy(self.order).to(vectors[0].device)
        return torch.stack(vectors, dim=1)[order], torch.stack(there, dim=1)[order]

    def tokens(self) -> tuple[Tensor, Tensor]:
        """Return the states of all tokens, [B, T, D], and a mask of the real ones, [B, T]; padding is on the right."""
        device = self.hidden[0].device
        count, widths = len(self.hidden), [hidden.shape[1] for hidden in self.hidden]
        bases = np.cumsum([0] + [hidden.shape[0] * hidden.shape[1] for hidden in self.hidden])[:-1]
        real_BT = np.arange(self.lengths.max())[None] < self.lengths[:, None]
        flat_BT = np.zeros(real_BT.shape, dtype=np.int64)
        for row, length in enumerate(self.lengths.tolist()):
            spans = segments_from_end(length, self.segment_length, overlap=self.overlap)
            flat_BT[row] = bases[-1] + row * widths[-1]  # padding: any vector will do
            for number, span in enumerate(spans, start=count - len(spans)):
                places = np.arange(span.new - span.start, len(span))
                flat_BT[row, span.new : span.stop] = bases[number] + row * widths[number] + places
        every = torch.cat([hidden.flatten(0, 1) for hidden in self.hidden])
        index = torch.from_numpy(flat_BT[self.order]).to(device)
        return every[index], torch.from_numpy(real_BT[self.order]).to(device)


@dataclass(frozen=True, kw_only=True)
class GroupedStates:
    """The states of documents that were read in groups, in the original order."""

    parts: tuple[DocumentStates, ...]
    order: NDArray[np.int64]
    """Document n is row `order[n]` of all parts, concatenated."""

    def summaries(self, summary: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Return the summaries of all segments of each document, in order."""
        found = [part.summaries(summary) for part in self.parts]
        most = max(there_BN.shape[1] for _, there_BN in found)
        vectors = torch.cat([F.pad(vector, (0, 0, most - vector.shape[1], 0)) for vector, _ in found])
        there = torch.cat([F.pad(there_BN, (most - there_BN.shape[1], 0)) for _, there_BN in found])
        order = torch.from_numpy(self.order).to(vectors.device)
        return vectors[order], there[order]

    def tokens(self) -> tuple[Tensor, Tensor]:
        """Return the states of all tokens of each document, in order."""
        found = [part.tokens() for part in self.parts]
        most = max(real_BT.shape[1] for _, real_BT in found)
        hidden = torch.cat([F.pad(hidden_BTD, (0, 0, 0, most - hidden_BTD.shape[1])) for hidden_BTD, _ in found])
        real = torch.cat([F.pad(real_BT, (0, most - real_BT.shape[1])) for _, real_BT in found])
        order = torch.from_numpy(self.order).to(hidden.device)
        return hidden[order], real[order]


def read_documents(
    trunk: Trunk,
    documents: Sequence[TokenDocument],
    *,
    segment_length: int,
    overlap: int = 0,
    gradient_segments: int | None = None,
    remember: bool = False,
) -> DocumentStates:
    """Read every document to its end. `overlap`: number of tokens that each segment repeats of the one before, for
    trunks without memory; a token's states are those of the segment where it is new. `gradient_segments`: only the last
    segments, this many, have a gradient; earlier ones are read for their memory. Default: all have one, and
    `model.memory.backprop_segments` limits its flow through memory. `remember`: whether to return a memory of the last
    segment, too."""
    if not documents or not all(len(document) for document in documents):
        raise DataError("documents must have at least one token each; got an empty one, or none. Drop empty texts.")
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    sorted_rows = np.argsort(-lengths, kind="stable")
    documents = [documents[row] for row in sorted_rows]
    lengths = lengths[sorted_rows]
    spans = [segments_from_end(length, segment_length, overlap=overlap) for length in lengths.tolist()]
    count = len(spans[0])
    memory: Memory | None = None
    hidden, real = [], []
    for number in range(count):
        left = count - number  # segments left to read, this one included
        parts = [(document, own[-left]) for document, own in zip(documents, spans, strict=True) if len(own) >= left]
        batch = _batch(trunk, parts)
        constant = gradient_segments is not None and number < count - gradient_segments
        with torch.no_grad() if constant else nullcontext():
            before = _joined(trunk, memory, rows=len(batch.ids_BQ))
            output = trunk(batch, before, remember=remember or number < count - 1)
        memory = output.memory
        if memory is not None:
            memory = memory.compact().detach() if constant else memory.compact()
        hidden.append(output.hidden_BQD)
        real.append(torch.ones_like(batch.ids_BQ, dtype=torch.bool) if batch.real_BQ is None else batch.real_BQ)
    return DocumentStates(
        hidden=tuple(hidden),
        real=tuple(real),
        lengths=lengths,
        order=np.argsort(sorted_rows, kind="stable"),
        segment_length=segment_length,
        overlap=overlap,
        memory=memory,
    )


def _batch(trunk: Trunk, parts: Sequence[tuple[TokenDocument, Span]]) -> Batch:
    """Return one segment of each document, padded on the right."""
    device = next(trunk.parameters()).device
    width = max(len(span) for _, span in parts)
    ids, real = pad_rows([document.ids[span.start : span.stop] for document, span in parts], width=width)
    segments, _ = pad_rows([document.segments[span.start : span.stop] for document, span in parts], width=width)
    return Batch(
        ids_BQ=torch.from_numpy(ids).to(device),
        real_BQ=None if real.all() else torch.from_numpy(real).to(device),
        segments_BQ=None if trunk.config.segments is None else torch.from_numpy(segments).to(device),
    )


def _joined(trunk: Trunk, memory: Memory | None, *, rows: int) -> Memory | None:
    """Return the memory of the rows so far, extended by that of the rows that begin here."""
    if memory is None or memory.rows == rows:
        return memory
    new = trunk.new_memory(rows - memory.rows)
    assert new is not None
    length = max(memory.length, new.length if bool(new.valid_BM.any()) else 0)
    return Memory.join([memory.resized(length), new.resized(length)])
