"""The input and the output of a model: Batch and Output.

Both are immutable records of tensors. The meaning of None is given beside each field.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from segue.errors import DataError, kind_of
from segue.model.memory import Memory


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One segment of each row, with its targets and everything that determines visibility."""

    ids_BQ: Tensor
    targets: Tensor | None = None
    """Tokens to predict, [B, Q], or [B, P] with `predicted_BP`; None: no loss."""
    target_mask: Tensor | None = None
    """True for targets that count; None: all."""
    real_BQ: Tensor | None = None
    """True for tokens, False for padding; None: no padding."""
    starts_B: Tensor | None = None
    """True for rows that start a new document and so forget their memory; None: none does."""
    segments_BQ: Tensor | None = None
    """Segment ids (A 0, B 1, CLS 2, ...) for models with segment encodings; None: all the same."""
    visible_BQQ: Tensor | None = None
    """Permutation objective: True if the token at q may see the content at k. None: every token sees every other, none
    is predicted."""
    predicted_BP: Tensor | None = None
    """Positions whose tokens are predicted, for the permutation and masked objectives; None: none or all."""
    reversed_B: Tensor | None = None
    """True for rows whose text runs backwards, so that distances change sign; None: none."""

    def __post_init__(self) -> None:
        for name, given in vars(self).items():
            if given is not None and not isinstance(given, Tensor):
                raise DataError(
                    f"batch.{name} must be a tensor; got {kind_of(given)}. Use torch.tensor(...), a row for each text."
                )
        if self.ids_BQ.dim() != 2 or 0 in self.ids_BQ.shape or self.ids_BQ.dtype != torch.long:
            raise DataError(
                "a batch needs ids of shape [rows, positions], neither zero, dtype int64; got "
                f"{list(self.ids_BQ.shape)}, {self.ids_BQ.dtype}. Drop empty rows, or unsqueeze a single row."
            )
        rows, length = self.ids_BQ.shape
        predicted = self.ids_BQ if self.predicted_BP is None else self.predicted_BP
        expected: dict[str, tuple[int, ...]] = {
            "targets": (rows, *predicted.shape[1:]),
            "target_mask": (rows, *predicted.shape[1:]),
            "real_BQ": (rows, length),
            "starts_B": (rows,),
            "segments_BQ": (rows, length),
            "visible_BQQ": (rows, length, length),
            "predicted_BP": (rows, *predicted.shape[1:]),
            "reversed_B": (rows,),
        }
        for name, shape in expected.items():
            value: Tensor | None = getattr(self, name)
            if value is not None and tuple(value.shape) != shape:
                raise DataError(
                    f"batch.{name} must have shape {list(shape)} to fit ids of {[rows, length]}; "
                    f"got {list(value.shape)}. Build it from the same rows."
                )
        for name in ("target_mask", "real_BQ", "starts_B", "visible_BQQ", "reversed_B"):
            value = getattr(self, name)
            if value is not None and value.dtype != torch.bool:
                raise DataError(
                    f"batch.{name} must be boolean, True = yes; got {value.dtype}. Convert it with .bool()."
                )

    def to(self, *args: Any, **kwargs: Any) -> "Batch":
        """Return the batch with every tensor moved or cast by `Tensor.to`."""
        present = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v.to(*args, **kwargs) for k, v in present.items() if v is not None})

    def rows(self, start: int, stop: int) -> "Batch":
        """Return the rows from `start` up to `stop`."""
        present = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{k: v[start:stop] for k, v in present.items() if v is not None})

    def count_targets(self) -> int:
        """Return the number of targets that count."""
        if self.target_mask is not None:
            return int(self.target_mask.sum())
        return 0 if self.targets is None else self.targets.numel()

    def backwards(self) -> "Batch":
        """Return the segment in reverse order, for the backward reader."""
        return Batch(
            ids_BQ=self.ids_BQ.flip(1),
            real_BQ=None if self.real_BQ is None else self.real_BQ.flip(1),
            segments_BQ=None if self.segments_BQ is None else self.segments_BQ.flip(1),
        )


@dataclass(frozen=True, kw_only=True)
class Output:
    """Hidden states and the next memory: the result of a trunk."""

    hidden_BQD: Tensor
    """The final state at every position (content stream)."""
    predicted_BPD: Tensor | None
    """The state at every predicted position (of the query stream, if there is one); None if nothing is predicted."""
    layers: tuple[Tensor, ...]
    """Embeddings, then the result of each layer, each [B, Q, D]."""
    memory: Memory | None
    """The memory for the next segment; None if the model has no memory, or with `remember=False`."""
