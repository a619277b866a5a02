"""The memory of segment-level recurrence: a value passed into a model and returned, never hidden on a module.

A memory has a fixed shape. In each row, the valid positions are the latest ones (right-aligned), so the distance
from a query to a memory position follows from its index alone, and rows of different age share a batch. Each
position holds the *input* of each layer there: keys and values are projected from it again, so that it is
exact for any positional encoding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from segue.errors import DataError
from segue.model.room import check_room


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of B rows: M positions in each of L layers."""

    hidden_LBMD: Tensor
    valid_BM: Tensor
    """True for positions that can be attended to."""
    position_B: Tensor
    """Number of tokens that each row has read since it started: absolute positions continue from here."""
    graph_segments: int = 0
    """Number of segments through which gradients flow back from here."""

    @classmethod
    def empty(
        cls,
        *,
        layers: int,
        rows: int,
        length: int,
        width: int,
        valid: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> "Memory":
        """Return a memory of zeros, ignored by attention unless `valid`."""
        remedy = "Use a shorter model.memory.length (--memory-length), or fewer rows."
        check_room(layers * rows * length * width, what="the memory", remedy=remedy, device=device)
        return cls(
            hidden_LBMD=torch.zeros(layers, rows, length, width, device=device, dtype=dtype),
            valid_BM=torch.full((rows, length), valid, device=device),
            position_B=torch.zeros(rows, dtype=torch.long, device=device),
        )

    @classmethod
    def join(cls, parts: Sequence["Memory"]) -> "Memory":
        """Return the rows of several memories of the same shape, one after the other."""
        return cls(
            hidden_LBMD=torch.cat([part.hidden_LBMD for part in parts], dim=1),
            valid_BM=torch.cat([part.valid_BM for part in parts]),
            position_B=torch.cat([part.position_B for part in parts]),
            graph_segments=max(part.graph_segments for part in parts),
        )

    @property
    def rows(self) -> int:
        return self.valid_BM.shape[0]

    @property
    def length(self) -> int:
        return self.valid_BM.shape[1]

    def detach(self) -> "Memory":
        """Return the same memory without its graph, so that no gradient flows through it."""
        return replace(self, hidden_LBMD=self.hidden_LBMD.detach(), graph_segments=0)

    def reset(self, starts_B: Tensor, *, valid: bool = False) -> "Memory":
        """Return the memory with the rows where `starts_B` is True reset."""
        return replace(
            self,
            hidden_LBMD=self.hidden_LBMD.masked_fill(starts_B[None, :, None, None], 0.0),
            valid_BM=torch.where(starts_B[:, None], torch.full_like(self.valid_BM, valid), self.valid_BM),
            position_B=self.position_B.masked_fill(starts_B, 0),
        )

    def select(self, rows: Sequence[int] | Tensor) -> "Memory":
        """Return the memory of these rows, in this order; a row may occur more than once."""
        index = torch.as_tensor(rows, device=self.valid_BM.device)
        return replace(
            self,
            hidden_LBMD=self.hidden_LBMD[:, index],
            valid_BM=self.valid_BM[index],
            position_B=self.position_B[index],
        )

    def resized(self, length: int) -> "Memory":
        """Return the latest `length` positions, padded on the left with invalid ones."""
        missing = max(0, length - self.length)
        return replace(
            self,
            hidden_LBMD=F.pad(self.hidden_LBMD[:, :, self.length - min(length, self.length) :], (0, 0, missing, 0)),
            valid_BM=F.pad(self.valid_BM[:, self.length - min(length, self.length) :], (missing, 0)),
        )

    def compact(self) -> "Memory":
        """Return the memory without the oldest positions that are valid in no row."""
        return self.resized(int(self.valid_BM.sum(dim=1).max()) if self.length else 0)

    def to(self, *args: Any, **kwargs: Any) -> "Memory":
        """Return the memory moved or cast by `Tensor.to`; only the hidden states change dtype."""
        hidden = self.hidden_LBMD.to(*args, **kwargs)
        return replace(
            self,
            hidden_LBMD=hidden,
            valid_BM=self.valid_BM.to(hidden.device),
            position_B=self.position_B.to(hidden.device),
        )

    def then(self, inputs_LBQD: Tensor, *, real_BQ: Tensor | None, length: int) -> "Memory":
        """Return the memory after a segment with these layer inputs: the latest `length` real positions of each row."""
        rows, new = inputs_LBQD.shape[1:3]
        real = torch.ones(rows, new, dtype=torch.bool, device=inputs_LBQD.device) if real_BQ is None else real_BQ
        hidden = torch.cat([self.hidden_LBMD, inputs_LBQD], dim=2)
        valid = torch.cat([self.valid_BM, real], dim=1)
        if real_BQ is not None:  # move padding to the left of everything, so that distances stay correct
            order_BK = valid.long().argsort(dim=1, stable=True)
            hidden = hidden.gather(2, order_BK[None, :, :, None].expand_as(hidden))
            valid = valid.gather(1, order_BK)
        missing = max(0, length - valid.shape[1])
        return Memory(
            hidden_LBMD=F.pad(hidden[:, :, -length:], (0, 0, missing, 0)),
            valid_BM=F.pad(valid[:, -length:], (missing, 0)),
            position_B=self.position_B + real.sum(dim=1),
            graph_segments=self.graph_segments + 1,
        )

    def check(self, *, layers: int, rows: int, width: int) -> None:
        """Raise DataError unless the memory fits a model of that shape and a batch of that many rows."""
        if self.rows != rows:
            raise DataError(
                f"a memory must have a row for each row of the batch; got {self.rows} and {rows}. "
                "Row b of a batch continues row b of the one before: keep the rows, or use memory.select(rows)."
            )
        got = (self.hidden_LBMD.shape[0], self.hidden_LBMD.shape[3])
        if got != (layers, width):
            raise DataError(
                f"a memory must come from the same model; got {got[0]} layers of width {got[1]} for a model "
                f"with {layers} of width {width}. Start with no memory."
            )
