"""Token embeddings and the adaptive softmax: ids to vectors, hidden states to probabilities.

A vocabulary is split into bins at its cutoffs, frequent tokens first; without cutoffs there is one bin, and the
adaptive softmax is a plain one. Bin 0 is predicted directly, beside one "cluster" for each further bin; a token
of bin i has the probability of cluster i times its probability inside the bin. Every token has a bias.

Weights are tied without aliased parameters: the softmax is given the vocabulary and uses its tables.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar, Literal, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.errors import DataError
from segue.model.cross_entropy import weighted_nll

Bin: TypeAlias = Callable[[Tensor], Tensor]
"""The product with the weights of a bin, which returns its logits."""


class Vocabulary(nn.Module):
    """Embedding ids_BQ -> embedded_BQD, from one table, or from one per bin if bins shrink."""

    roles: ClassVar = {"projections": "projection"}

    def __init__(
        self,
        *,
        size: int,
        width: int,
        table_width: int,
        cutoffs: tuple[int, ...],
        shrink: int,
        project_first_bin: bool,
        scale: bool,
    ) -> None:
        super().__init__()
        self.size = size
        self.width = width
        self.shrink = shrink
        self.scale = width**0.5 if scale else 1.0
        self.bounds = [0, *cutoffs, size]
        """Bin i holds the ids from bounds[i] up to bounds[i + 1]."""
        self.bin_widths = [table_width // shrink**i for i in range(len(cutoffs) + 1)]
        self.projected = [w != width or (shrink > 1 and project_first_bin) for w in self.bin_widths]
        """Whether there is a projection between bin i and the model, on either side."""
        self.tables = token_tables(self.bounds, self.bin_widths, shrink=shrink)
        self.projections = nn.ParameterDict(
            {str(i): torch.zeros(width, self.bin_widths[i]) for i in range(len(self.tables)) if self.projected[i]}
        )

    def forward(self, ids_BQ: Tensor) -> Tensor:
        self._check(ids_BQ)
        if len(self.tables) == 1:
            return self._embed(ids_BQ, 0) * self.scale
        ids_N = ids_BQ.flatten()
        embedded_ND: Tensor = self.tables[0].new_zeros(ids_N.shape[0], self.width)
        for i, (start, stop) in enumerate(pairwise(self.bounds)):
            at = ((ids_N >= start) & (ids_N < stop)).nonzero().squeeze(1)
            if at.numel():
                embedded = self._embed(ids_N[at] - start, i).to(embedded_ND.dtype)
                embedded_ND = embedded_ND.index_copy(0, at, embedded)
        return embedded_ND.view(*ids_BQ.shape, self.width) * self.scale

    def projection(self, bin_index: int) -> Tensor:
        """Return the input projection [D, width of the bin] of this bin."""
        return cast(Tensor, self.projections["0" if self.shrink == 1 else str(bin_index)])

    def _embed(self, ids: Tensor, bin_index: int) -> Tensor:
        embedded = F.embedding(ids, self.tables[bin_index])
        return F.linear(embedded, self.projection(bin_index)) if self.projected[bin_index] else embedded

    def _check(self, ids_BQ: Tensor) -> None:
        if ids_BQ.device.type == "cpu":  # on other devices the check would force a synchronisation
            lowest, highest = int(ids_BQ.min()), int(ids_BQ.max())
            if lowest < 0 or highest >= self.size:
                wrong = lowest if lowest < 0 else highest
                raise DataError(
                    f"ids must be from 0 to {self.size - 1}, the model's vocabulary; got {wrong}. "
                    "Use the tokenizer that the model was trained with."
                )


class AdaptiveSoftmax(nn.Module):
    """Softmax from hidden states to log-probabilities; a plain one if the vocabulary has no cutoffs."""

    roles: ClassVar = {"projections": "projection", "token_biases": "bias", "cluster_bias": "bias"}

    def __init__(
        self,
        *,
        vocabulary: Vocabulary,
        tie_weights: bool,
        tie_projections: Literal["none", "all_but_first", "all"],
        cluster_order: Literal["forward", "reversed"],
    ) -> None:
        super().__init__()
        bounds, widths = vocabulary.bounds, vocabulary.bin_widths
        self.bounds = bounds
        self.shrink = vocabulary.shrink
        self.cluster_order = cluster_order
        self.num_clusters = len(widths) - 1
        self.token_biases = nn.ParameterList(
            [torch.zeros(n) for n in (_bin_sizes(bounds) if vocabulary.shrink > 1 else [vocabulary.size])]
        )
        self.tables = None if tie_weights else token_tables(bounds, widths, shrink=vocabulary.shrink)
        untied_from = {"none": len(widths), "all_but_first": 1, "all": 0}[tie_projections]
        self.projections = nn.ParameterDict(
            {
                str(i): torch.zeros(vocabulary.width, width)
                for i, width in enumerate(widths)
                if vocabulary.projected[i] and i < untied_from
            }
        )
        if self.num_clusters:
            self.cluster_weight = nn.Parameter(torch.zeros(self.num_clusters, widths[0]))
            self.cluster_bias = nn.Parameter(torch.zeros(self.num_clusters))

    def logits(self, hidden: Tensor, vocabulary: Vocabulary, *, bins: Sequence[Bin] | None = None) -> Tensor:
        """Return logits [..., V] for hidden states [..., D], with softmax(logits) = the probabilities
        (log-probabilities, if adaptive)."""
        if bins is None:
            bins = [partial(F.linear, weight=weight, bias=bias) for weight, bias in self.bins(vocabulary)]
        head, *tails = bins
        head_logits = head(self._project(hidden, vocabulary, 0))
        if not tails:
            return head_logits
        log_p = head_logits.log_softmax(-1)
        parts = [log_p[..., : self.bounds[1]]]
        for i, tail in enumerate(tails, start=1):
            inside = tail(self._project(hidden, vocabulary, i)).log_softmax(-1)
            parts.append(log_p[..., self._cluster_column(i), None] + inside)
        return torch.cat(parts, dim=-1)

    def nll(self, hidden: Tensor, targets: Tensor, vocabulary: Vocabulary) -> Tensor:
        """Return -log p(target) for hidden [..., D] and targets [...], in the order of the tokens, without gradient."""
        with torch.no_grad():
            return self.weighted_nll(hidden, targets, torch.ones_like(targets, dtype=hidden.dtype), vocabulary)[1]

    def weighted_nll(
        self, hidden: Tensor, targets: Tensor, weights: Tensor, vocabulary: Vocabulary
    ) -> tuple[Tensor, Tensor]:
        """Return the sum of weight * -log p(target), for training, and -log p(target) as in `nll`."""
        hidden_ND, targets_N, weights_N = hidden.flatten(0, -2), targets.flatten(), weights.flatten()
        column_N, tail_rows = targets_N, []
        for i, (start, stop) in enumerate(pairwise(self.bounds[1:]), start=1):
            rows = ((targets_N >= start) & (targets_N < stop)).nonzero().squeeze(1)
            column_N = column_N.index_fill(0, rows, self._cluster_column(i))
            tail_rows.append(rows)
        head, *tails = self.bins(vocabulary)
        total, nll_N = weighted_nll(self._project(hidden_ND, vocabulary, 0), *head, column_N, weights_N)
        for i, (tail, rows) in enumerate(zip(tails, tail_rows, strict=True), start=1):
            if rows.numel():
                projected = self._project(hidden_ND[rows], vocabulary, i)
                inside, inside_nll = weighted_nll(projected, *tail, targets_N[rows] - self.bounds[i], weights_N[rows])
                total, nll_N = total + inside, nll_N.index_add(0, rows, inside_nll)
        return total, nll_N.view(targets.shape)

    def _cluster_column(self, i: int) -> int:
        """Return the column of cluster i = 1, 2, ... in the head, after the tokens of bin 0, in `cluster_order`."""
        forward = self.cluster_order == "forward"
        return self.bounds[1] + (i - 1 if forward else self.num_clusters - i)

    def _project(self, hidden: Tensor, vocabulary: Vocabulary, i: int) -> Tensor:
        if not vocabulary.projected[i]:
            return hidden
        own = str(i) in self.projections
        return hidden @ (self.projections[str(i)] if own else vocabulary.projection(i))

    def bins(self, vocabulary: Vocabulary) -> list[tuple[Tensor, Tensor]]:
        """Return weight and bias of the head (tokens of bin 0, then clusters), then of each further bin."""
        tables = list(vocabulary.tables if self.tables is None else self.tables)
        biases = list(self.token_biases)
        if self.num_clusters and self.shrink == 1:  # one split, so that its gradient is joined once
            tables, biases = (list(x[0].split(_bin_sizes(self.bounds))) for x in (tables, biases))
        if self.num_clusters:
            tables[0] = torch.cat([tables[0], self.cluster_weight])
            biases[0] = torch.cat([biases[0], self.cluster_bias])
        return list(zip(tables, biases, strict=True))


def token_tables(bounds: list[int], bin_widths: list[int], *, shrink: int) -> nn.ParameterList:
    """Return one table for all tokens, or one for each bin if bins shrink."""
    if shrink == 1:
        return nn.ParameterList([torch.zeros(bounds[-1], bin_widths[0])])
    sizes = _bin_sizes(bounds)
    return nn.ParameterList([torch.zeros(n, w) for n, w in zip(sizes, bin_widths, strict=True)])


def _bin_sizes(bounds: list[int]) -> list[int]:
    return [stop - start for start, stop in pairwise(bounds)]
