"""The network of a recommender: a language model whose tokens are items, with a softmax over all items.

The vector of an item is learned for its id, projected from its features (`features_VF`), or the sum of both. The same
table embeds past items and scores the next one, so an item with features alone can be read and recommended. Embeddings
of the kind and the time gap of an event are added to the vector of its item.

In each training step, the ids of some items are hidden together with their popularity, so that their features must
suffice.
"""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.apps.recommend.batches import Segment
from segue.apps.recommend.histories import GAPS
from segue.config import ModelConfig, model_config
from segue.model import Batch, LanguageModel, Memory, Output
from segue.model.cross_entropy import weighted_nll
from segue.model.masks import permutation_mask

SMOOTHED = 0.75
"""Exponent of the item counts for sampling negatives; below 1, rare items are sampled more often than they occur."""
Objective: TypeAlias = Literal["causal", "permutation", "masked"]


def network_config(
    *, items: int, objective: Objective, layers: int, width: int, heads: int, memory: int, dropout: float
) -> ModelConfig:
    """Return the config of a pre-norm trunk with relative positional encoding. In a causal network the attention span
    is the memory length, wherever segments end, so that evaluation and sessions agree. A masked network reads its
    segment in both directions, without memory."""
    return model_config(
        objective=objective,
        vocabulary={"size": items + 1},
        num_layers=layers,
        width=width,
        num_heads=heads,
        inner_width=4 * width,
        activation="gelu",
        norm_first=True,
        final_norm=True,
        dropout=dropout,
        attention_span=memory + 1 if objective == "causal" else None,
        **({} if objective == "masked" else {"memory": {"length": memory}}),
    )


class EventNetwork(nn.Module):
    """A language model of items, with embeddings of kinds and time gaps, and item features."""

    features_VF: Tensor

    def __init__(self, config: ModelConfig, *, kind_weights: Sequence[float], features_VF: Tensor, ids: bool) -> None:
        """`kind_weights` are loss weights by kind, the first for unknown kinds. The first feature is the popularity."""
        super().__init__()
        self.config, self.ids = config, ids
        self.negatives: int | None = None
        """Number of negative items sampled per step; None for the softmax over all items."""
        self.shares_V = torch.zeros(0)
        """Sampling probability of each item."""
        self.model = LanguageModel(config)
        self.kinds = nn.Embedding(len(kind_weights), config.width)
        self.gaps = nn.Embedding(GAPS, config.width)
        self.project = nn.Linear(features_VF.shape[1], config.width, bias=False)
        for part in (self.kinds, self.gaps):
            nn.init.normal_(part.weight, std=config.init_std)
        nn.init.normal_(self.project.weight, std=config.init_std)
        self.register_buffer("features_VF", features_VF)
        self.register_buffer("kind_weights", torch.tensor(kind_weights))

    def draw_items(self, negatives: int, counts_V: Tensor) -> None:
        """Sample negatives by item counts in each training step, instead of using all items."""
        shares_V = counts_V.double().clamp(min=0) ** SMOOTHED + 1e-3
        shares_V[0] = 0.0
        self.negatives, self.shares_V = negatives, (shares_V / shares_V.sum()).float()

    def table(self, hidden_V: Tensor | None = None) -> Tensor:
        """Return the vectors of all items, [V, D]; the ids of items in the mask `hidden_V` are hidden."""
        ids_VD = self.id_vectors
        known_V = torch.zeros(len(ids_VD)) if not self.ids else torch.ones(len(ids_VD))
        features_VF = self.features_VF
        if hidden_V is not None:
            known_V = known_V.masked_fill(hidden_V, 0.0)
            features_VF = features_VF.clone()
            features_VF[hidden_V, 0] = 0.0
        known_V[0] = 1.0  # the mask has no text
        return ids_VD * known_V[:, None] + cast(Tensor, self.project(features_VF))

    @torch.no_grad()
    def served(self, fresh_V: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors, [V, D], and biases, [V], of all items as they are used. Items in the mask, those without
        training events, have vectors of their features alone, if there are features besides the popularity, and the
        median bias: training has only told their ids and biases that they do not occur."""
        table_VD = self.table(fresh_V if self.features_VF.shape[1] > 1 else None).clone()
        known = self.bias[1:][~fresh_V[1:]]
        middle = known.median() if len(known) else self.bias.new_zeros(())
        return table_VD, torch.where(fresh_V, middle, self.bias)

    @property
    def id_vectors(self) -> Tensor:
        """Learned vectors of the item ids: [V, D]."""
        return cast(Tensor, self.model.trunk.vocabulary.tables[0])

    @property
    def bias(self) -> Tensor:
        """Output bias of each item: [V]."""
        return cast(Tensor, self.model.softmax.token_biases[0])

    def embed(self, table_VD: Tensor, items: Tensor, kinds: Tensor, gaps: Tensor) -> Tensor:
        """Return the embeddings of events: [..., D]."""
        return F.embedding(items, table_VD) + cast(Tensor, self.kinds(kinds)) + cast(Tensor, self.gaps(gaps))

    def read(self, embedded_BQD: Tensor, batch: Batch, memory: Memory | None, *, remember: bool = True) -> Output:
        """Run embedded events through the layers of the trunk."""
        return cast(Output, self.model.trunk.reader(embedded_BQD, batch, memory, remember=remember))

    def forward(
        self, segment: Segment, memory: Memory | None, *, draw: torch.Generator, hidden_share: float, events: int
    ) -> tuple[Tensor, Memory | None]:
        """Return the loss of a segment and the next memory. The loss is the sum over its events, weighted by kind,
        divided by `events`, the size of a full segment, so that small segments count less."""
        hidden_V = None
        if self.ids and hidden_share and self.features_VF.shape[1] > 1:
            hidden_V = torch.rand(len(self.features_VF), generator=draw) < hidden_share
        table_VD = self.table(hidden_V)
        batch, items_BQ = drawn_batch(self.config.objective, segment, draw)
        masked_BQ = items_BQ == 0  # what is masked tells nothing of its kind and time either
        kinds_BQ, gaps_BQ = segment.kinds_BQ.masked_fill(masked_BQ, 0), segment.gaps_BQ.masked_fill(masked_BQ, 0)
        output = self.read(self.embed(table_VD, items_BQ, kinds_BQ, gaps_BQ), batch, segment.past(memory))
        hidden = output.hidden_BQD if output.predicted_BPD is None else output.predicted_BPD
        assert batch.targets is not None
        assert batch.target_mask is not None
        kinds = segment.next_kinds_BQ if self.config.objective == "causal" else segment.kinds_BQ
        if batch.predicted_BP is not None:
            kinds = kinds.gather(1, batch.predicted_BP)
        asked = batch.target_mask
        weights_N = self.get_buffer("kind_weights")[kinds[asked]] / events
        targets_N = batch.targets[asked]
        if self.negatives is None:
            loss, _ = weighted_nll(hidden[asked], table_VD, self.bias, targets_N, weights_N)
        else:
            drawn_S = torch.multinomial(self.shares_V, self.negatives, replacement=True, generator=draw)
            loss = sampled_nll(
                hidden[asked], table_VD, self.bias, targets_N, weights_N, drawn_S=drawn_S, shares_V=self.shares_V
            )
        return loss, output.memory


def sampled_nll(
    hidden_ND: Tensor,
    table_VD: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    weights_N: Tensor,
    *,
    drawn_S: Tensor,
    shares_V: Tensor,
) -> Tensor:
    """Return the sum of weights_N * -log p(target), with the partition function estimated from sampled items.

    With S items sampled with replacement with probabilities q, the expectation of the sum of exp(logit_i) / (S q_i) is
    the sum over all items; so log(S q_i) is subtracted from the logit of each sampled item (the log-Q correction). The
    target is counted exactly once: samples of it are left out, and the others stand for all other items.
    """
    count = len(drawn_S)
    share_NS = shares_V[drawn_S].log()[None] + math.log(count)
    logits_NS = hidden_ND @ table_VD[drawn_S].T + bias_V[drawn_S] - share_NS
    logits_NS = logits_NS.masked_fill(drawn_S[None] == targets_N[:, None], -1e9)
    own_N1 = ((hidden_ND * table_VD[targets_N]).sum(dim=1) + bias_V[targets_N])[:, None]
    nll_N = torch.cat([own_N1, logits_NS], dim=1).logsumexp(dim=1) - own_N1[:, 0]
    return (weights_N * nll_N).sum()


def drawn_batch(objective: str, segment: Segment, draw: torch.Generator) -> tuple[Batch, Tensor]:
    """Return the batch of a segment with its targets, and the items as the network reads them."""
    real_BQ = segment.real_BQ
    if objective == "causal":
        batch = Batch(
            ids_BQ=segment.items_BQ,
            targets=segment.next_BQ,
            target_mask=segment.next_BQ > 0,
            real_BQ=real_BQ,
        )
        return batch, segment.items_BQ
    rows, length = real_BQ.shape
    if objective == "permutation":
        # Half of the rows are predicted in order of time, as at inference; the others in a random permutation order.
        any_BQ = torch.rand(rows, length, generator=draw).argsort(dim=1)
        in_time_B1 = torch.rand(rows, 1, generator=draw) < 0.5
        rank_BQ = torch.where(in_time_B1, torch.arange(length).expand(rows, -1), any_BQ)
        return order_batch(segment, rank_BQ), segment.items_BQ
    chosen_BQ = (torch.rand(rows, length, generator=draw) < 0.2) & real_BQ
    last_B = (real_BQ.sum(dim=1) - 1).clamp(min=0)
    chosen_BQ[torch.arange(rows), last_B] |= (torch.rand(rows, generator=draw) < 0.5) & real_BQ[:, 0]
    return masked_batch(segment, chosen_BQ), segment.items_BQ.masked_fill(chosen_BQ, 0)


def order_batch(segment: Segment, rank_BQ: Tensor) -> Batch:
    """Return a batch in which every event is predicted from those of lower rank, and from memory."""
    everything_BQ = torch.ones_like(segment.real_BQ)
    positions_BQ = torch.arange(rank_BQ.shape[1]).expand(len(rank_BQ), -1).contiguous()
    return Batch(
        ids_BQ=segment.items_BQ,
        targets=segment.items_BQ,
        target_mask=segment.real_BQ,
        real_BQ=segment.real_BQ,
        visible_BQQ=permutation_mask(rank_BQ, everything_BQ),
        predicted_BP=positions_BQ,
    )


def masked_batch(segment: Segment, chosen_BQ: Tensor) -> Batch:
    """Return a batch in which the chosen events are predicted from all others of the segment."""
    most = max(1, int(chosen_BQ.sum(dim=1).max()))
    predicted_BP = (~chosen_BQ).long().argsort(dim=1, stable=True)[:, :most]
    return Batch(
        ids_BQ=segment.items_BQ,
        targets=segment.items_BQ.gather(1, predicted_BP),
        target_mask=chosen_BQ.gather(1, predicted_BP),
        real_BQ=segment.real_BQ,
        predicted_BP=predicted_BP,
    )
