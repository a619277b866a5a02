"""Reversible name tables: rules that rename, split, reshape and transpose tensors, in either direction.

A table is made for one config, so every name and every shape on either side is known before a weight is read. Tensors
go through it in `mapping`; torch is not needed until then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from segue.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

Tensors: TypeAlias = "tuple[Tensor, ...]"
Names: TypeAlias = str | Sequence[str]

# ------------------------------------------------------------------------------------------------ changes


@dataclass(frozen=True)
class Change:
    """A reversible change of foreign tensors to ours. Numbers are moved, never computed."""

    words: str
    forward: Callable[[Tensors], Tensors]
    backward: Callable[[Tensors], Tensors]


def _one(words: str, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Change:
    """Return a change that applies to each tensor separately."""
    return Change(words, lambda xs: tuple(map(forward, xs)), lambda xs: tuple(map(backward, xs)))


def _unflattened(tensor: Tensor, dimension: int, num_heads: int) -> Tensor:
    import torch

    return torch.unflatten(tensor, dimension, (num_heads, -1))


def _cat(tensors: Tensors) -> Tensor:
    import torch

    return torch.cat(tensors)


def _stacked(tensors: Tensors) -> Tensor:
    import torch

    return torch.stack(tensors)


SAME = _one("as it is", lambda x: x, lambda x: x)
TRANSPOSED = _one("transposed", lambda x: x.T, lambda x: x.T)
FLIPPED = _one("rows in the other order", lambda x: x.flip(0), lambda x: x.flip(0))
VECTOR = _one("[1, 1, D] as [D]", lambda x: x.flatten(), lambda x: x[None, None])


def heads_apart(num_heads: int) -> Change:
    """Return the change of a kernel [D, H, E] to the weight [H E, D] of a linear layer."""
    return _one("heads joined, transposed", lambda x: x.flatten(1).T, lambda x: _unflattened(x.T, 1, num_heads))


def heads_last(num_heads: int) -> Change:
    """Return the change of [..., H, E] to [..., H E]: an output kernel, or a table of vectors."""
    return _one("heads joined", lambda x: x.flatten(-2), lambda x: _unflattened(x, -1, num_heads))


def split(parts: int) -> Change:
    """Return the change of one tensor to several equal parts along its rows."""
    return Change(f"split in {parts}", lambda xs: tuple(xs[0].chunk(parts)), lambda xs: (_cat(xs),))


def joined(sizes: Sequence[int]) -> Change:
    """Return the change of several foreign tensors to one of ours."""
    return Change("joined", lambda xs: (_cat(xs),), lambda xs: tuple(xs[0].split_with_sizes(list(sizes))))


def by_layer(*, shared: bool = False) -> Change:
    """Return the change of one tensor, stacked over layers, to one per layer; `shared`: one for all layers."""
    if shared:
        return SAME
    return Change("one for each layer", lambda xs: tuple(xs[0].unbind(0)), lambda xs: (_stacked(xs),))


def repeated(count: int) -> Change:
    """Return the change of `count` equal tensors, one for each foreign layer, to one of ours."""

    def forward(tensors: Tensors) -> Tensors:
        if any(not tensor.equal(tensors[0]) for tensor in tensors):
            raise CheckpointError(
                "biases that the config shares must be equal in all layers; they differ. "
                "Set model.positions.shared_biases=false."
            )
        return tensors[:1]

    return Change(f"the same {count} times", forward, lambda xs: xs * count)


def then(first: Change, second: Change) -> Change:
    """Return the composition of two changes."""
    words = ", ".join(change.words for change in (first, second) if change is not SAME) or SAME.words
    return Change(words, lambda xs: second.forward(first.forward(xs)), lambda xs: first.backward(second.backward(xs)))


# -------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Rule:
    """Foreign tensors and the tensors of ours that they become."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    change: Change = SAME
    absent: str = ""
    """Reason why a file may lack the foreign tensors; ours are zeros then. Empty: they are required."""


@dataclass(frozen=True)
class Copy:
    """A foreign tensor that repeats another foreign one; must be equal to it if present."""

    theirs: str
    of: str
    written: bool
    """Whether the format stores it."""


@dataclass(frozen=True)
class Computed:
    """A foreign tensor that holds no weights: it is computed, not read."""

    theirs: str
    make: Callable[[], Tensor]
    why: str


@dataclass(frozen=True)
class Zero:
    """A tensor of ours that is missing in the foreign format, where it is always zero."""

    ours: str
    why: str


@dataclass(frozen=True)
class Explained:
    """Foreign tensors that no model needs, by a pattern of the full name."""

    pattern: str
    why: str


@dataclass(frozen=True, kw_only=True)
class NameTable:
    """All tensors of one config in a family, on either side."""

    family: str
    rules: Sequence[Rule]
    copies: Sequence[Copy] = ()
    computed: Sequence[Computed] = ()
    zeros: Sequence[Zero] = ()
    explained: Sequence[Explained] = ()

    def names(self) -> frozenset[str]:
        """Return the foreign names of the tensors that the model needs."""
        return frozenset(name for r in self.rules for name in r.theirs)

    def why(self, name: str) -> str | None:
        """Return why a foreign tensor that is neither mapped nor a copy may be left out; None if it may not."""
        for computed in self.computed:
            if name == computed.theirs:
                return computed.why
        return next((e.why for e in self.explained if re.fullmatch(e.pattern, name)), None)


def rule(theirs: Names, ours: Names, change: Change = SAME, *, absent: str = "") -> Rule:
    """Return a rule between single names or lists of names."""
    return Rule(_names(theirs), _names(ours), change, absent)


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
