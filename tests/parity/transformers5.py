"""Models and inputs of transformers 5 for the comparisons."""

import pytest
import torch
from torch import Tensor, nn

from tests.parity.weights import (
    noisy,
    sinusoids_in_double,
)

transformers = pytest.importorskip("transformers", minversion="5")

VOCABULARY, ROWS, LENGTH = 64, 4, 10
LEFT_PADDED = torch.arange(LENGTH) >= torch.tensor([[0], [1], [4], [3]])


def ids(rows: int = ROWS, length: int = LENGTH, *, below: int = VOCABULARY, seed: int = 1) -> Tensor:
    return torch.randint(below, (rows, length), generator=torch.Generator().manual_seed(seed))


def labels(values: Tensor, mask: Tensor) -> Tensor:
    """Return the targets in the form of transformers, with -100 for positions that do not count."""
    return values.masked_fill(~mask, -100)


def xlnet(kind: str, dtype: torch.dtype, **choices: object) -> nn.Module:
    """A tiny XLNet of this class, full of noise. Its memory is used only where a test passes it on."""
    settings = {"vocab_size": VOCABULARY, "n_layer": 3, "d_model": 24, "n_head": 3, "d_inner": 40}
    model = noisy(getattr(transformers, kind)(transformers.XLNetConfig(**(settings | choices))), dtype)
    if dtype == torch.float64:
        (model if kind == "XLNetModel" else model.transformer).positional_embedding = sinusoids_in_double
    return model


def sequence_labels(task: str, dtype: torch.dtype) -> Tensor:
    return {
        "single": torch.tensor([2, 0, 3, 3]),
        "multiple": ids(ROWS, 4, below=2, seed=3).to(dtype),
        "regression": torch.tensor([0.3, -1.2, 0.8, 2.0], dtype=dtype),
    }[task]
