"""The attention of a model on a batch: scores, their terms, and probabilities.

In: a model, a Batch and a Memory. Out: AttentionReading, which stores the kernel inputs of each layer and computes the
scores of a layer, of some heads and of some queries on request: never all at once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from segue.arguments import checks_arguments
from segue.errors import ConfigError, kind_of
from segue.model.batch import Batch
from segue.model.kernels import Kernel, ScoreTerms, View, attend
from segue.model.kernels.definition import masked_softmax, score_parts
from segue.model.memory import Memory
from segue.model.positions import RelativeTerms
from segue.model.stack import Stack
from segue.model.trunk import Trunk

Stream: TypeAlias = Literal["content", "query"]
TERMS = ("content", "position", "content_bias", "position_bias", "segment", "segment_bias", "distance_bias")
"""Names of all terms that a score may have, in display order."""
BAND = 2**22
"""Number of scores of one head computed at a time, if the whole of a head is not needed."""


@dataclass(frozen=True, kw_only=True)
class AttentionScores:
    """The scores of some heads of one layer, split into terms; terms that a model lacks are None. Columns are the
    memory, then the segment. Numbers where the mask is False are meaningless."""

    content_BHQK: Tensor
    """Query times key: the content that the token looks for. With rotary positions, both are rotated."""
    position_BHQK: Tensor | None = None
    """Query times position key: the distance that the token looks for."""
    content_bias_BHQK: Tensor | None = None
    """u times key: the weight of the content, independent of the token."""
    position_bias_BHQK: Tensor | None = None
    """v times position key: the weight of the distance, independent of the token."""
    segment_BHQK: Tensor | None = None
    """Query times segment key: depends on whether the key is of the same segment, A or B."""
    segment_bias_BHQK: Tensor | None = None
    """s times segment key."""
    distance_bias_BHQK: Tensor | None = None
    """A scalar for each distance: ALiBi's, or a learned one."""
    mask_BQK: Tensor
    """True = may attend."""

    @property
    def terms(self) -> dict[str, Tensor]:
        """The existing terms, by name."""
        found = {name: getattr(self, f"{name}_BHQK") for name in TERMS}
        return {name: term_BHQK for name, term_BHQK in found.items() if term_BHQK is not None}

    @cached_property
    def score(self) -> Tensor:
        """The sum of the terms: the score that the kernel computes."""
        return torch.stack(tuple(self.terms.values())).sum(dim=0) if len(self.terms) > 1 else self.content_BHQK

    @cached_property
    def probability(self) -> Tensor:
        """The softmax over the keys that the mask allows; zeros for a query that sees none."""
        return masked_softmax(self.score, self.mask_BQK)


@dataclass(frozen=True, kw_only=True)
class KernelInputs:
    """The kernel inputs of one layer for one stream."""

    query_BQHE: Tensor
    key_BKHE: Tensor
    terms: ScoreTerms
    view: View

    def part(self, *, heads: Sequence[int] | None, queries: slice | None) -> "KernelInputs":
        """Return the inputs for some heads and queries."""
        chosen = self if heads is None else self._heads(torch.tensor(heads, device=self.key_BKHE.device))
        return chosen if queries is None else chosen._queries(queries)

    @torch.no_grad()
    def scores(self) -> AttentionScores:
        """Return all scores, split into terms."""
        parts = score_parts(self.query_BQHE, self.key_BKHE, terms=self.terms, view=self.view)
        named = {f"{name}_BHQK": part_BHQK for name, part_BHQK in parts.items()}
        return AttentionScores(mask_BQK=self.view.mask_BQK, **named)

    def _heads(self, heads: Tensor) -> "KernelInputs":
        terms, relative = self.terms, self.terms.relative
        if relative is not None:
            relative = RelativeTerms(
                key_SRHE=None if relative.key_SRHE is None else relative.key_SRHE[:, :, heads],
                bias_SRH=None if relative.bias_SRH is None else relative.bias_SRH[:, :, heads],
                value_SRHE=None if relative.value_SRHE is None else relative.value_SRHE[:, :, heads],
                content_XHE=None if relative.content_XHE is None else relative.content_XHE[:, heads],
                bucket_SR=relative.bucket_SR,
            )
        chosen = ScoreTerms(
            relative=relative,
            content_bias_HE=None if terms.content_bias_HE is None else terms.content_bias_HE[heads],
            position_bias_HE=None if terms.position_bias_HE is None else terms.position_bias_HE[heads],
            segment_key_2HE=None if terms.segment_key_2HE is None else terms.segment_key_2HE[:, heads],
            segment_bias_HE=None if terms.segment_bias_HE is None else terms.segment_bias_HE[heads],
        )
        return KernelInputs(
            query_BQHE=self.query_BQHE[:, :, heads], key_BKHE=self.key_BKHE[:, :, heads], terms=chosen, view=self.view
        )

    def _queries(self, queries: slice) -> "KernelInputs":
        view = self.view
        at_BQ = view.at_BQ
        if at_BQ is None:
            rows, length = self.query_BQHE.shape[:2]
            at_BQ = torch.arange(length, device=self.query_BQHE.device).expand(rows, -1)
        differs_BQK = None if view.differs_BQK is None else view.differs_BQK[:, queries]
        some = replace(view, mask_BQK=view.mask_BQK[:, queries], differs_BQK=differs_BQK, at_BQ=at_BQ[:, queries])
        return replace(self, query_BQHE=self.query_BQHE[:, queries], view=some)


@dataclass(frozen=True, kw_only=True)
class AttentionReading:
    """The attention of a model on a batch; scores are computed on request."""

    content: tuple[KernelInputs, ...]
    """Kernel inputs of each layer for the content stream."""
    query: tuple[KernelInputs, ...]
    """Kernel inputs of each layer for the query stream; empty if it predicts nothing."""
    memory: Memory | None
    """The memory for the next segment."""

    @property
    def num_layers(self) -> int:
        return len(self.content)

    @property
    def num_heads(self) -> int:
        return self.content[0].query_BQHE.shape[2]

    @property
    def memory_length(self) -> int:
        """Number of keys that are memory; they come first."""
        return self.content[0].key_BKHE.shape[1] - self.content[0].view.segment_length

    @checks_arguments
    def scores(
        self,
        layer: int,
        *,
        heads: int | Sequence[int] | None = None,
        queries: slice | None = None,
        stream: Stream = "content",
    ) -> AttentionScores:
        """Return the scores of one layer, split into their terms.

        Args:
            layer: Number of the layer, from 0; negative numbers count from the end.
            heads: Number of a head, or several; H is then as long as this. Default: all heads.
            queries: Which queries, as a slice; Q is then as long as this. Default: all queries.
            stream: "content", or for predictions of a permutation model "query".

        Returns:
            The terms, their sum and the probabilities.

        Raises:
            ConfigError: If there is no such layer, head or stream.
        """
        chosen = [heads] if isinstance(heads, int) else heads
        if chosen is not None and not chosen:
            raise ConfigError("heads must have at least one head; got none. Leave it out for all heads.")
        return self._layer(layer, chosen or (), stream).part(heads=chosen, queries=queries).scores()

    @checks_arguments
    def bands(self, layer: int, head: int, *, stream: Stream = "content") -> Iterator[tuple[slice, AttentionScores]]:
        """Yield the scores of one head, some queries at a time, to save memory."""
        inputs = self._layer(layer, [head], stream)
        rows, length = inputs.query_BQHE.shape[:2]
        size = max(1, BAND // (rows * inputs.key_BKHE.shape[1]))
        for start in range(0, length, size):
            queries = slice(start, min(start + size, length))
            yield queries, inputs.part(heads=[head], queries=None if size >= length else queries).scores()

    def _layer(self, layer: int, heads: Sequence[int], stream: Stream) -> KernelInputs:
        """Return the inputs of a layer, if it and the heads exist."""
        inputs = self._stream(stream)
        if not -len(inputs) <= layer < len(inputs):
            raise ConfigError(f"layer must be one of the {len(inputs)} layers, from 0; got {layer}. Use 0, or -1.")
        for head in heads:
            if not 0 <= head < self.num_heads:
                raise ConfigError(
                    f"heads must be among the {self.num_heads} heads, from 0; got {head}. Use 0, for example."
                )
        return inputs[layer]

    def _stream(self, stream: Stream) -> tuple[KernelInputs, ...]:
        if stream not in ("content", "query"):
            raise ConfigError(f'stream must be "content" or "query"; got {stream!r}. Use one of them.')
        if stream == "query" and not self.query:
            raise ConfigError(
                "the query stream is for predictions of a permutation model; got a batch without them. Use a batch "
                "with predicted_BP, as made by order_batch."
            )
        return self.query if stream == "query" else self.content


def trunk_of(model: nn.Module) -> Trunk:
    """Return the trunk of a language model, of a model with a head, or the trunk itself."""
    trunk = model if isinstance(model, Trunk) else getattr(model, "trunk", None)
    if not isinstance(trunk, Trunk):
        raise ConfigError(f"attention needs a segue model; got {kind_of(model)}. Use the result of segue.load.")
    return trunk


@contextmanager
def computed_by(stack: Stack, make: Callable[[int, Kernel], Kernel]) -> Iterator[None]:
    """Make every layer use the kernel that `make` returns for its index and its current kernel. Not for a model that
    another thread uses at the same time."""
    before = [layer.attention.kernel for layer in stack.each_layer()]
    try:
        for index, layer in enumerate(stack.each_layer()):
            layer.attention.kernel = make(index, layer.attention.kernel or attend)
        yield
    finally:
        for layer, kernel in zip(stack.each_layer(), before, strict=True):
            layer.attention.kernel = kernel


@contextmanager
def recorded(stack: Stack) -> Iterator[list[tuple[int, KernelInputs]]]:
    """Record the kernel inputs of the layers, in the order of the calls, each with the index of its layer."""
    calls: list[tuple[int, KernelInputs]] = []

    def make(index: int, kernel: Kernel) -> Kernel:
        def call(query: Tensor, key: Tensor, value: Tensor, *, terms: ScoreTerms, view: View, dropout: float) -> Tensor:
            calls.append((index, KernelInputs(query_BQHE=query, key_BKHE=key, terms=terms, view=view)))
            return kernel(query, key, value, terms=terms, view=view, dropout=dropout)

        return call

    with computed_by(stack, make):
        yield calls


@torch.no_grad()
def attention(model: nn.Module, batch: Batch, memory: Memory | None = None) -> AttentionReading:
    """Read a batch after a memory and record the attention of each layer, without dropout. For a model with two
    directions, that of the forward reader."""
    trunk = trunk_of(model)
    training = trunk.training
    trunk.eval()
    try:
        with recorded(trunk.reader) as calls:
            output = trunk(batch, memory)
    finally:
        trunk.train(training)
    return AttentionReading(
        content=tuple(inputs for _, inputs in calls if inputs.view.at_BQ is None),
        query=tuple(inputs for _, inputs in calls if inputs.view.at_BQ is not None),
        memory=output.memory,
    )
