"""Heads for sequence classification, token tagging and sequence scoring.

Every head takes a Batch and a Memory and returns logits, a loss if labels are given, and the next Memory; or it takes
the DocumentStates of whole documents in `logits` and `cost`. Heads for span answers are in `answers`.
"""

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.config import ModelConfig
from segue.errors import DataError
from segue.model.batch import Batch, Output
from segue.model.build import initialise
from segue.model.kernels import Dropout
from segue.model.language_model import masked_mean
from segue.model.memory import Memory
from segue.model.reading import DocumentStates, GroupedStates
from segue.model.trunk import Trunk


@dataclass(frozen=True, kw_only=True)
class HeadOutput:
    """Logits in the shape given by the head, the loss if labels were given, and the next memory."""

    logits: Tensor
    loss: Tensor | None
    memory: Memory | None


class Summary(nn.Module):
    """Pooling of a sequence into one vector: its first or last real token, the mean of its real tokens, or attention by
    a learned query; then, if `projected`, a dense layer with tanh."""

    def __init__(
        self, config: ModelConfig, *, kind: Literal["first", "last", "mean", "attention"], projected: bool
    ) -> None:
        super().__init__()
        width = config.hidden_width
        self.kind = kind
        self.num_heads = config.num_heads
        self.dropout = Dropout(config.dropout)
        self.dense = nn.Linear(width, width) if projected else None
        if kind == "attention":
            inner = config.num_heads * config.resolved_head_width
            self.query_D = nn.Parameter(torch.zeros(width))
            self.query = nn.Linear(width, inner, bias=False)
            self.key = nn.Linear(width, inner, bias=False)
            self.value = nn.Linear(width, inner, bias=False)
            self.out = nn.Linear(inner, width, bias=False)
            self.norm = nn.LayerNorm(width, eps=config.norm_epsilon)
        initialise(self, config)

    def forward(self, hidden_BQD: Tensor, real_BQ: Tensor | None = None) -> Tensor:
        summary_BD = self._pool(hidden_BQD, real_BQ)
        if self.dense is not None:
            summary_BD = self.dense(summary_BD).tanh()
        return cast(Tensor, self.dropout(summary_BD))

    def _pool(self, hidden_BQD: Tensor, real_BQ: Tensor | None) -> Tensor:
        rows, length, _ = hidden_BQD.shape
        if real_BQ is None:
            real_BQ = torch.ones(rows, length, dtype=torch.bool, device=hidden_BQD.device)
        match self.kind:
            case "first":
                return hidden_BQD[torch.arange(rows, device=hidden_BQD.device), real_BQ.long().argmax(dim=1)]
            case "last":
                last_B = length - 1 - real_BQ.flip(1).long().argmax(dim=1)
                return hidden_BQD[torch.arange(rows, device=hidden_BQD.device), last_B]
            case "mean":
                weight_BQ = real_BQ.to(hidden_BQD.dtype)
                weight_BQ = weight_BQ / weight_BQ.sum(dim=1, keepdim=True).clamp(min=1)
                return torch.einsum("bq,bqd->bd", weight_BQ, hidden_BQD)
            case "attention":
                return self._attend(hidden_BQD, real_BQ)

    def _attend(self, hidden_BQD: Tensor, real_BQ: Tensor) -> Tensor:
        query_HE = self.query(self.query_D).unflatten(-1, (self.num_heads, -1))
        key_BQHE = self.key(hidden_BQD).unflatten(-1, (self.num_heads, -1))
        value_BQHE = self.value(hidden_BQD).unflatten(-1, (self.num_heads, -1))
        score_BHQ = torch.einsum("he,bqhe->bhq", query_HE, key_BQHE) * query_HE.shape[-1] ** -0.5
        score_BHQ = score_BHQ.masked_fill(~real_BQ[:, None], torch.finfo(score_BHQ.dtype).min)
        mixed_BHE = torch.einsum("bhq,bqhe->bhe", score_BHQ.softmax(dim=-1), value_BQHE)
        return cast(Tensor, self.norm(self.dropout(self.out(mixed_BHE.flatten(1)))))


class Pool(nn.Module):
    """Pooling of the vectors of a document's segments into one: the last, the mean, the maximum, or the mean weighted
    by a learned query. All are the same for a single segment."""

    def __init__(self, config: ModelConfig, *, kind: Literal["last", "mean", "max", "attention"]) -> None:
        super().__init__()
        self.kind = kind
        if kind == "attention":
            self.query_D = nn.Parameter(torch.zeros(config.hidden_width))

    def forward(self, segments_BND: Tensor, there_BN: Tensor) -> Tensor:
        match self.kind:
            case "last":
                return segments_BND[:, -1]
            case "max":
                lowest = torch.finfo(segments_BND.dtype).min
                return segments_BND.masked_fill(~there_BN[:, :, None], lowest).amax(dim=1)
            case "mean":
                score_BN = torch.zeros_like(segments_BND[:, :, 0])
            case "attention":
                score_BN = segments_BND @ self.query_D
        weight_BN = score_BN.masked_fill(~there_BN, float("-inf")).softmax(dim=1)
        return torch.einsum("bn,bnd->bd", weight_BN, segments_BND)


class SequenceClassifier(nn.Module):
    """Classifier with one class (`logits` [B, classes]), several classes, or a number for each sequence."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_labels: int,
        task: Literal["single", "multiple", "regression"] = "single",
        summary: Literal["first", "last", "mean", "attention"] = "last",
        projected: bool = True,
        pool: Literal["last", "mean", "max", "attention"] = "last",
    ) -> None:
        super().__init__()
        if task == "regression" and num_labels != 1:
            raise DataError(f"regression has a single label; got num_labels {num_labels}. Use 1.")
        self.task = task
        self.trunk = Trunk(config)
        self.summary = Summary(config, kind=summary, projected=projected)
        self.pool = Pool(config, kind=pool)
        self.classifier = nn.Linear(config.hidden_width, num_labels)
        initialise(self.classifier, config)

    def forward(self, batch: Batch, memory: Memory | None = None, *, labels: Tensor | None = None) -> HeadOutput:
        """Return the logits. `labels`: classes [B]; or 0/1 [B, classes] for several at once; or numbers [B]."""
        output: Output = self.trunk(batch, memory)
        logits = self.classifier(self.summary(output.hidden_BQD, batch.real_BQ))
        loss = None if labels is None else self.cost(logits, labels)
        return HeadOutput(logits=logits, loss=loss, memory=output.memory)

    def logits(self, reading: DocumentStates | GroupedStates) -> Tensor:
        """Return the logits of whole documents, [B, classes]."""
        result_BC: Tensor = self.classifier(self.pool(*reading.summaries(self.summary)))
        return result_BC

    def cost(self, logits: Tensor, labels: Tensor, *, weight_C: Tensor | None = None) -> Tensor:
        """Return the mean loss of the rows; `weight_C` is the weight of each class."""
        match self.task:
            case "single":
                return F.cross_entropy(logits, labels, weight=weight_C, reduction="sum") / len(labels)
            case "multiple":
                return F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype), pos_weight=weight_C)
            case "regression":
                return F.mse_loss(logits.squeeze(-1), labels.to(logits.dtype))


class TokenTagger(nn.Module):
    """Classifier with a class for each token: `logits` [B, Q, tags]."""

    def __init__(self, config: ModelConfig, *, num_tags: int) -> None:
        super().__init__()
        self.trunk = Trunk(config)
        self.classifier = nn.Linear(config.hidden_width, num_tags)
        initialise(self.classifier, config)

    def forward(
        self,
        batch: Batch,
        memory: Memory | None = None,
        *,
        tags_BQ: Tensor | None = None,
        tagged_BQ: Tensor | None = None,
    ) -> HeadOutput:
        """Return the logits. `tagged_BQ`: True for tokens that count. Default: all that are not padding."""
        output: Output = self.trunk(batch, memory)
        logits = self.classifier(output.hidden_BQD)
        if tags_BQ is None:
            return HeadOutput(logits=logits, loss=None, memory=output.memory)
        loss = self.cost(logits, tags_BQ, batch.real_BQ if tagged_BQ is None else tagged_BQ)
        return HeadOutput(logits=logits, loss=loss, memory=output.memory)

    def logits(self, reading: DocumentStates | GroupedStates) -> Tensor:
        """Return the logits of every token of whole documents, [B, T, tags]; padding is on the right."""
        hidden_BTD, _ = reading.tokens()
        return cast(Tensor, self.classifier(hidden_BTD))

    def cost(
        self, logits: Tensor, tags_BT: Tensor, tagged_BT: Tensor | None, *, weight_C: Tensor | None = None
    ) -> Tensor:
        """Return the mean loss of the tokens that count; `weight_C` is the weight of each tag."""
        nll_BT = F.cross_entropy(logits.transpose(1, 2), tags_BT, reduction="none", weight=weight_C)
        return masked_mean(nll_BT, tagged_BT)


class SequenceScorer(nn.Module):
    """Head with a score for each of several sequences of one question: options to choose from, or documents to rank.

    Rows come question by question, `group` sequences each; `logits` is [questions, group].
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        loss: Literal["choice", "pointwise", "pairwise"],
        summary: Literal["first", "last", "mean", "attention"] = "last",
        projected: bool = True,
        pool: Literal["last", "mean", "max", "attention"] = "last",
    ) -> None:
        super().__init__()
        self.loss = loss
        self.trunk = Trunk(config)
        self.summary = Summary(config, kind=summary, projected=projected)
        self.pool = Pool(config, kind=pool)
        self.scorer = nn.Linear(config.hidden_width, 1)
        initialise(self.scorer, config)

    def forward(
        self, batch: Batch, memory: Memory | None = None, *, group: int, labels: Tensor | None = None
    ) -> HeadOutput:
        """Return the scores. `labels`: the right option [questions], or grades [questions, group] for ranking."""
        rows = batch.ids_BQ.shape[0]
        if rows % group:
            raise DataError(f"rows must come in groups of {group}; got {rows} rows. Pad or drop the last question.")
        output: Output = self.trunk(batch, memory)
        scores = self.scorer(self.summary(output.hidden_BQD, batch.real_BQ)).view(-1, group)
        loss = None if labels is None else self.cost(scores, labels)
        return HeadOutput(logits=scores, loss=loss, memory=output.memory)

    def logits(self, reading: DocumentStates | GroupedStates) -> Tensor:
        """Return a score for each document, [B]."""
        return cast(Tensor, self.scorer(self.pool(*reading.summaries(self.summary)))).squeeze(-1)

    def cost(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of scores [questions, group]."""
        match self.loss:
            case "choice":
                return F.cross_entropy(scores, labels)
            case "pointwise":  # relevant or not, each document separately
                return F.binary_cross_entropy_with_logits(scores, (labels > 0).to(scores.dtype))
            case "pairwise":  # every pair of a question in which one is more relevant: log(1 + exp(worse - better))
                better = labels[:, :, None] > labels[:, None, :]
                return masked_mean(F.softplus(scores[:, None, :] - scores[:, :, None]), better)
