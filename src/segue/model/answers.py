"""Heads for span extraction: independent start and end scores, and XLNet's beam search with answerability.

Besides the letters of `segue.model`: A candidate starts and Z candidate ends of each start.
"""

from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.config import ModelConfig
from segue.model.batch import Batch, Output
from segue.model.build import initialise
from segue.model.kernels import Dropout
from segue.model.memory import Memory
from segue.model.trunk import Trunk


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Gold answers of a batch."""

    start_B: Tensor
    end_B: Tensor
    impossible_B: Tensor | None = None
    """True where the text has no answer; start and end then point at CLS."""


@dataclass(frozen=True, kw_only=True)
class SimpleAnswer:
    """Scores of starts and ends, independent of each other."""

    start_logits_BQ: Tensor
    end_logits_BQ: Tensor
    loss: Tensor | None
    memory: Memory | None


class SimpleAnswerer(nn.Module):
    """Head with a start and an end score for each token."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.trunk = Trunk(config)
        self.bounds = nn.Linear(config.hidden_width, 2)
        initialise(self.bounds, config)

    def forward(
        self,
        batch: Batch,
        memory: Memory | None = None,
        *,
        allowed_BQ: Tensor | None = None,
        spans: Spans | None = None,
    ) -> SimpleAnswer:
        """Return the scores. `allowed_BQ`: positions where an answer may start or end. Default: all."""
        output: Output = self.trunk(batch, memory)
        return replace(self.judge(output.hidden_BQD, allowed_BQ=allowed_BQ, spans=spans), memory=output.memory)

    def judge(
        self, hidden_BQD: Tensor, *, allowed_BQ: Tensor | None = None, spans: Spans | None = None
    ) -> SimpleAnswer:
        """Return the scores for hidden states, for example those of whole documents."""
        start, end = self.bounds(hidden_BQD).unbind(-1)
        start, end = _only(start, allowed_BQ), _only(end, allowed_BQ)
        loss = None
        if spans is not None:
            loss = (F.cross_entropy(start, spans.start_B) + F.cross_entropy(end, spans.end_B)) / 2
        return SimpleAnswer(start_logits_BQ=start, end_logits_BQ=end, loss=loss, memory=None)


@dataclass(frozen=True, kw_only=True)
class BeamAnswer:
    """The best starts, the best ends of each, and the answerability of the question.

    Beams hold log-probabilities. In training (`spans` given) the beams are None, and the end
    scores are those after the gold start.
    """

    start_logits_BQ: Tensor
    end_logits: Tensor
    """End scores [B, Q] after the gold start, or [B, A, Q] after each start of the beam."""
    impossible_B: Tensor
    """Logit of "the text has no answer"."""
    start_index_BA: Tensor | None = None
    start_log_probability_BA: Tensor | None = None
    end_index_BAZ: Tensor | None = None
    end_log_probability_BAZ: Tensor | None = None
    loss: Tensor | None = None
    memory: Memory | None = None


class BeamAnswerer(nn.Module):
    """XLNet's head: the end depends on the start; answerability depends on the expected start and on CLS."""

    def __init__(self, config: ModelConfig, *, num_starts: int = 5, num_ends: int = 5) -> None:
        super().__init__()
        width = config.hidden_width
        self.num_starts = num_starts
        self.num_ends = num_ends
        self.trunk = Trunk(config)
        self.start = nn.Linear(width, 1)
        self.end_dense = nn.Linear(2 * width, width)
        self.end_norm = nn.LayerNorm(width, eps=config.norm_epsilon)
        self.end = nn.Linear(width, 1)
        self.impossible_dense = nn.Linear(2 * width, width)
        self.impossible = nn.Linear(width, 1, bias=False)
        self.dropout = Dropout(config.dropout)
        for part in (self.start, self.end_dense, self.end, self.impossible_dense, self.impossible):
            initialise(part, config)

    def forward(
        self,
        batch: Batch,
        memory: Memory | None = None,
        *,
        cls_B: Tensor,
        allowed_BQ: Tensor | None = None,
        spans: Spans | None = None,
    ) -> BeamAnswer:
        """Return the scores. `cls_B`: position of CLS. `allowed_BQ`: where an answer may start or end. Default: all."""
        output: Output = self.trunk(batch, memory)
        answer = self.judge(output.hidden_BQD, cls_B=cls_B, allowed_BQ=allowed_BQ, spans=spans)
        return replace(answer, memory=output.memory)

    def judge(
        self, hidden_BQD: Tensor, *, cls_B: Tensor, allowed_BQ: Tensor | None = None, spans: Spans | None = None
    ) -> BeamAnswer:
        """Return the scores for hidden states, for example those of whole documents."""
        start_BQ = _only(self.start(hidden_BQD).squeeze(-1), allowed_BQ)
        impossible_B = self._impossible(hidden_BQD, start_BQ, cls_B)
        if spans is not None:
            end_BQ = _only(self._ends(hidden_BQD, spans.start_B[:, None]).squeeze(1), allowed_BQ)
            loss = (F.cross_entropy(start_BQ, spans.start_B) + F.cross_entropy(end_BQ, spans.end_B)) / 2
            if spans.impossible_B is not None:
                impossible = spans.impossible_B.to(hidden_BQD.dtype)
                loss = loss + 0.5 * F.binary_cross_entropy_with_logits(impossible_B, impossible)
            return BeamAnswer(
                start_logits_BQ=start_BQ,
                end_logits=end_BQ,
                impossible_B=impossible_B,
                loss=loss,
            )
        length = hidden_BQD.shape[1]
        starts = start_BQ.log_softmax(dim=-1).topk(min(self.num_starts, length))
        end_BAQ = _only(self._ends(hidden_BQD, starts.indices), None if allowed_BQ is None else allowed_BQ[:, None])
        ends = end_BAQ.log_softmax(dim=-1).topk(min(self.num_ends, length))
        return BeamAnswer(
            start_logits_BQ=start_BQ,
            end_logits=end_BAQ,
            impossible_B=impossible_B,
            start_index_BA=starts.indices,
            start_log_probability_BA=starts.values,
            end_index_BAZ=ends.indices,
            end_log_probability_BAZ=ends.values,
        )

    def _ends(self, hidden_BQD: Tensor, start_BA: Tensor) -> Tensor:
        """Return the end scores [B, A, Q] after each start."""
        start_BAD = hidden_BQD.gather(1, start_BA[:, :, None].expand(-1, -1, hidden_BQD.shape[2]))
        rows, starts, length = *start_BA.shape, hidden_BQD.shape[1]
        pair = torch.cat(
            [
                hidden_BQD[:, None].expand(-1, starts, -1, -1),
                start_BAD[:, :, None].expand(-1, -1, length, -1),
            ],
            dim=-1,
        )
        end_BAQ = self.end(self.end_norm(self.end_dense(pair).tanh()))
        return cast(Tensor, end_BAQ).view(rows, starts, length)

    def _impossible(self, hidden_BQD: Tensor, start_BQ: Tensor, cls_B: Tensor) -> Tensor:
        expected_BD = torch.einsum("bq,bqd->bd", start_BQ.softmax(dim=-1), hidden_BQD)
        cls_BD = hidden_BQD[torch.arange(len(cls_B), device=cls_B.device), cls_B]
        pair = torch.cat([expected_BD, cls_BD], dim=-1)
        return cast(Tensor, self.impossible(self.dropout(self.impossible_dense(pair).tanh()))).squeeze(-1)


def _only(logits: Tensor, allowed: Tensor | None) -> Tensor:
    return logits if allowed is None else logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
