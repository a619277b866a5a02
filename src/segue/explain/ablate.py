"""Ablation: the loss of a text without a term of the score, without a head, or without the memory.

In: a TextReading and an Ablation. Out: the loss on each token, by the library's own forward pass with memory; only the
kernel of the affected layers is replaced. An empty ablation changes nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import torch
from torch import Tensor

from segue.errors import ConfigError
from segue.explain.scores import TERMS, KernelInputs, computed_by
from segue.explain.text import TextReading
from segue.model.kernels import Kernel, ScoreTerms, View
from segue.model.kernels.definition import masked_softmax, mixed_values

ABLATED_AT_ONCE = 2**22
"""Number of scores computed at a time when a term is ablated."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The ablated part; without `layer` and `head` it is ablated everywhere."""

    term: str | None = None
    """Ablated term of the score, one of TERMS: its scores are zero."""
    head: int | None = None
    """Ablated head, whose output is zero; with a term or memory, the head in which that is ablated."""
    memory: bool = False
    """Whether memory is hidden."""
    layer: int | None = None
    """Affected layer; None: all layers."""

    def __post_init__(self) -> None:
        if self.term is not None and self.term not in TERMS:
            raise ConfigError(f"a term must be one of {', '.join(TERMS)}; got {self.term!r}. Use one of them.")

    def kernel(self, inner: Kernel) -> Kernel:
        """Return the kernel `inner` with this ablation."""

        def call(query: Tensor, key: Tensor, value: Tensor, *, terms: ScoreTerms, view: View, dropout: float) -> Tensor:
            seen = self._view(view, key.shape[1]) if self.memory else view
            if self.term is not None:
                found = _without_term(self.term, query, key, value, terms=terms, view=seen)
            elif self.memory or self.head is None:
                found = inner(query, key, value, terms=terms, view=seen, dropout=dropout)
            else:
                found = torch.zeros_like(query)
            if self.head is None:
                return found
            mixed_BQHE = inner(query, key, value, terms=terms, view=view, dropout=dropout).clone()
            mixed_BQHE[:, :, self.head] = found[:, :, self.head]
            return mixed_BQHE

        return call

    def _view(self, view: View, num_keys: int) -> View:
        hidden_K = torch.arange(num_keys, device=view.mask_BQK.device) < num_keys - view.segment_length
        return replace(view, mask_BQK=view.mask_BQK & ~hidden_K)


def _without_term(
    term: str, query_BQHE: Tensor, key_BKHE: Tensor, value_BKHE: Tensor, *, terms: ScoreTerms, view: View
) -> Tensor:
    """Compute attention by its definition, with one term of the score left out; some queries and one head at a time."""
    inputs = KernelInputs(query_BQHE=query_BQHE, key_BKHE=key_BKHE, terms=terms, view=view)
    rows, length, num_heads, _ = query_BQHE.shape
    size = max(1, ABLATED_AT_ONCE // (rows * key_BKHE.shape[1]))
    mixed_BQHE = torch.empty_like(query_BQHE)
    for head in range(num_heads):
        for start in range(0, length, size):
            part = inputs.part(heads=[head], queries=slice(start, min(start + size, length)))
            scores = part.scores()
            kept = [value for name, value in scores.terms.items() if name != term]
            score_BHQK = torch.stack(kept).sum(dim=0) if kept else torch.zeros_like(scores.content_BHQK)
            probability_BHQK = masked_softmax(score_BHQK, scores.mask_BQK)
            mixed_BQHE[:, start : start + size, head : head + 1] = mixed_values(
                probability_BHQK, value_BKHE[:, :, head : head + 1], terms=part.terms, view=part.view
            )
    return mixed_BQHE


def mean_loss(reading: TextReading, ablation: Ablation | None = None) -> float:
    """Return the mean of -log p in nats over the tokens that have one."""

    def make(index: int, kernel: Kernel) -> Kernel:
        concerned = ablation is not None and ablation.layer in (None, index)
        return ablation.kernel(kernel) if ablation is not None and concerned else kernel

    with computed_by(reading.model.trunk.reader, make):
        return float(np.nanmean(reading.losses()))


@dataclass(frozen=True, kw_only=True)
class Change:
    """The loss with an ablation, and its increase over the loss without."""

    ablation: Ablation
    loss: float
    change: float


def ablations(reading: TextReading, terms: Sequence[str]) -> list[Ablation]:
    """Return an ablation of each term everywhere, of the memory if there is one, and of each head of each layer."""
    config = reading.model.config
    found = [Ablation(term=term) for term in terms]
    if config.memory is not None:
        found.append(Ablation(memory=True))
    places = product(range(config.num_layers), range(config.num_heads))
    return found + [Ablation(layer=layer, head=head) for layer, head in places]


def changes(reading: TextReading, chosen: Sequence[Ablation]) -> Iterator[Change]:
    """Yield the change in loss of each ablation, as it is ready."""
    whole = mean_loss(reading)
    for ablation in chosen:
        loss = mean_loss(reading, ablation)
        yield Change(ablation=ablation, loss=loss, change=loss - whole)
