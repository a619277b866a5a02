"""Reversible name tables: rules that rename, split, reshape and transpose, read in either direction.

A table is made for one config, so every name and every shape on either side is known before a weight is read. What is
neither mapped nor explained is an error, and so is what is missing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from segue.checkpoint.source import FLOATS, TensorInfo, TensorSource
from segue.errors import CheckpointError

Tensors: TypeAlias = tuple[Tensor, ...]
Names: TypeAlias = str | Sequence[str]

# ------------------------------------------------------------------------------------------------ changes


@dataclass(frozen=True)
class Change:
    """How tensors of theirs become ours, and back. Numbers are moved, never computed."""

    words: str
    forward: Callable[[Tensors], Tensors]
    backward: Callable[[Tensors], Tensors]


def _one(words: str, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Change:
    """A change of each tensor by itself."""
    return Change(words, lambda xs: tuple(map(forward, xs)), lambda xs: tuple(map(backward, xs)))


SAME = _one("as it is", lambda x: x, lambda x: x)
TRANSPOSED = _one("transposed", lambda x: x.T, lambda x: x.T)
FLIPPED = _one("rows in the other order", lambda x: x.flip(0), lambda x: x.flip(0))
VECTOR = _one("[1, 1, D] as [D]", lambda x: x.flatten(), lambda x: x[None, None])


def heads_apart(num_heads: int) -> Change:
    """A kernel [D, H, E] as the weight [H E, D] of a linear layer."""
    return _one(
        "heads joined, transposed", lambda x: x.flatten(1).T, lambda x: torch.unflatten(x.T, 1, (num_heads, -1))
    )


def heads_last(num_heads: int) -> Change:
    """[..., H, E] as [..., H E]: an output kernel, or a table of vectors."""
    return _one("heads joined", lambda x: x.flatten(-2), lambda x: torch.unflatten(x, -1, (num_heads, -1)))


def split(parts: int) -> Change:
    """One tensor, several beside each other in its rows."""
    return Change(f"split in {parts}", lambda xs: tuple(xs[0].chunk(parts)), lambda xs: (torch.cat(xs),))


def joined(sizes: Sequence[int]) -> Change:
    """Several tensors that are one here."""
    return Change("joined", lambda xs: (torch.cat(xs),), lambda xs: tuple(torch.split(xs[0], list(sizes))))


def by_layer(*, shared: bool = False) -> Change:
    """One tensor with a row for each layer; `shared`: one that all layers share."""
    if shared:
        return SAME
    return Change("one for each layer", lambda xs: tuple(xs[0].unbind(0)), lambda xs: (torch.stack(xs),))


def repeated(count: int) -> Change:
    """The same numbers once for each layer there, and once here."""

    def forward(tensors: Tensors) -> Tensors:
        if any(not torch.equal(tensor, tensors[0]) for tensor in tensors):
            raise CheckpointError(
                "biases that the config shares must be equal in all layers; they differ. "
                "Set model.positions.shared_biases=false."
            )
        return tensors[:1]

    return Change(f"the same {count} times", forward, lambda xs: xs * count)


def then(first: Change, second: Change) -> Change:
    """One change after the other."""
    words = ", ".join(change.words for change in (first, second) if change is not SAME) or SAME.words
    return Change(words, lambda xs: second.forward(first.forward(xs)), lambda xs: first.backward(second.backward(xs)))


# -------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Rule:
    """Tensors of theirs that become tensors of ours."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    change: Change = SAME
    absent: str = ""
    """Why a file may do without theirs; ours are zeros then. Empty: it may not."""


@dataclass(frozen=True)
class Copy:
    """A tensor of theirs that repeats another one of theirs; where it is there, it must be equal."""

    theirs: str
    of: str
    written: bool
    """Whether the format holds it."""


@dataclass(frozen=True)
class Computed:
    """A tensor of theirs that holds no weights: it is computed, not read."""

    theirs: str
    make: Callable[[], Tensor]
    why: str


@dataclass(frozen=True)
class Zero:
    """A tensor of ours that theirs do not have, because there it is always zero."""

    ours: str
    why: str


@dataclass(frozen=True)
class Explained:
    """Tensors of theirs that no model needs, by a pattern of their whole name."""

    pattern: str
    why: str


@dataclass(frozen=True, kw_only=True)
class NameTable:
    """All that one config has in a family, on either side."""

    family: str
    rules: Sequence[Rule]
    copies: Sequence[Copy] = ()
    computed: Sequence[Computed] = ()
    zeros: Sequence[Zero] = ()
    explained: Sequence[Explained] = ()

    def names(self) -> frozenset[str]:
        """The tensors of theirs that hold what the model needs."""
        return frozenset(name for r in self.rules for name in r.theirs)

    def why(self, name: str) -> str | None:
        """Why a tensor of theirs that is neither mapped nor a copy may be left out; None if it may not."""
        for computed in self.computed:
            if name == computed.theirs:
                return computed.why
        return next((e.why for e in self.explained if re.fullmatch(e.pattern, name)), None)


def rule(theirs: Names, ours: Names, change: Change = SAME, *, absent: str = "") -> Rule:
    """A rule between single names or lists of them."""
    return Rule(_names(theirs), _names(ours), change, absent)


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


# ----------------------------------------------------------------------------------------------- mappings


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the report: what became of some tensors."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    shape: tuple[int, ...]
    """Shape of the first of their tensors, or of the first of ours where they have none."""
    words: str


@dataclass(frozen=True, kw_only=True)
class MappedTensors:
    """Tensors under the names of the other side, and what became of each."""

    tensors: dict[str, Tensor]
    rows: list[Row] = field(default_factory=list)
    explained: list[Row] = field(default_factory=list)


def to_theirs(table: NameTable, ours: Mapping[str, Tensor]) -> MappedTensors:
    """Our state dict under their names, with the copies and buffers that the format holds."""
    known = {name for r in table.rules for name in r.ours} | {zero.ours for zero in table.zeros}
    assert known == set(ours), f"{table.family}: the table and the model differ in {sorted(known ^ set(ours))}"
    result = MappedTensors(tensors={})
    for r in table.rules:
        tensors = r.change.backward(tuple(ours[name] for name in r.ours))
        result.tensors.update(zip(r.theirs, tensors, strict=True))
        result.rows.append(Row(theirs=r.theirs, ours=r.ours, shape=tuple(tensors[0].shape), words=r.change.words))
    for zero in table.zeros:
        value = ours[zero.ours]
        if not value.is_meta and bool(value.any()):
            raise CheckpointError(
                f"{zero.ours} must be zero for {table.family}, where {zero.why}; it is not. Write another format."
            )
        result.explained.append(Row(theirs=(), ours=(zero.ours,), shape=tuple(value.shape), words=zero.why))
    for copy in table.copies:
        if copy.written:
            value = result.tensors[copy.theirs] = result.tensors[copy.of]
            words = f"equal to {copy.of}"
            result.explained.append(Row(theirs=(copy.theirs,), ours=(), shape=tuple(value.shape), words=words))
    for computed in table.computed:
        value = result.tensors[computed.theirs] = computed.make()
        row = Row(theirs=(computed.theirs,), ours=(), shape=tuple(value.shape), words=computed.why)
        result.explained.append(row)
    return result


def to_ours(table: NameTable, source: TensorSource, ours: Mapping[str, Tensor]) -> MappedTensors:
    """Their tensors as our state dict; `ours` is that of the model, for the shapes alone, and may be on `meta`.

    Names and shapes are checked before anything is read: every tensor of the file is mapped or explained, and none that
    the model needs is missing.
    """
    infos = source.tensors
    check(table, infos, ours)
    result = MappedTensors(tensors={})
    dtype = torch.float32
    for r in table.rules:
        if _absent(r, infos):
            continue
        tensors = r.change.forward(tuple(source.read(name) for name in r.theirs))
        dtype = tensors[0].dtype
        result.tensors.update({name: t.contiguous() for name, t in zip(r.ours, tensors, strict=True)})
        shape = infos[r.theirs[0]].shape
        result.rows.append(Row(theirs=r.theirs, ours=r.ours, shape=shape, words=r.change.words))
    for r in table.rules:
        if _absent(r, infos):
            words = f"zeros: {r.absent}"
            _fill(result, r.ours, ours, dtype, words)
    for zero in table.zeros:
        _fill(result, (zero.ours,), ours, dtype, f"zeros: {zero.why}")
    _explain(result, table, source)
    return result


def _fill(
    result: MappedTensors, names: Iterable[str], like: Mapping[str, Tensor], dtype: torch.dtype, words: str
) -> None:
    for name in names:
        result.tensors[name] = torch.zeros(like[name].shape, dtype=dtype)
        result.explained.append(Row(theirs=(), ours=(name,), shape=tuple(like[name].shape), words=words))


def _explain(result: MappedTensors, table: NameTable, source: TensorSource) -> None:
    """Compares the copies, and says why the rest is not needed."""
    infos = source.tensors
    for copy in table.copies:
        if copy.theirs not in infos:
            continue
        if not torch.equal(source.read(copy.theirs), source.read(copy.of)):
            raise CheckpointError(
                f"{copy.theirs} must be equal to {copy.of}, which the config ties it to; it differs. "
                "Correct the config: the weights are not tied."
            )
        row = Row(theirs=(copy.theirs,), ours=(), shape=infos[copy.theirs].shape, words=f"checked: equal to {copy.of}")
        result.explained.append(row)
    mapped = {name for r in table.rules for name in r.theirs} | {copy.theirs for copy in table.copies}
    for name, info in infos.items():
        if name not in mapped:
            words = table.why(name)
            assert words is not None
            result.explained.append(Row(theirs=(name,), ours=(), shape=info.shape, words=words))


def check(table: NameTable, infos: Mapping[str, TensorInfo], ours: Mapping[str, Tensor]) -> None:
    """Raises unless a file with these tensors is one of this table: nothing missing, nothing left over, all shapes
    right, all numbers of a kind that weights are kept in."""
    meta = {name: torch.empty(t.shape, device="meta") for name, t in ours.items()}
    wanted = {name: tuple(t.shape) for name, t in to_theirs(table, meta).tensors.items()}
    needed = [name for r in table.rules if not _absent(r, infos) for name in r.theirs]
    if missing := [name for name in needed if name not in infos]:
        raise CheckpointError(
            f"a checkpoint of {table.family} with this config must hold {_listed(missing)}; got a file without. "
            "Check the config, or use the whole file."
        )
    mapped = {name for r in table.rules for name in r.theirs} | {copy.theirs for copy in table.copies}
    if left := [name for name in infos if name not in mapped and table.why(name) is None]:
        raise CheckpointError(
            f"every tensor of a checkpoint of {table.family} must have a place in a model of this config; got "
            f"{_listed(left)}, which have none. Check the config."
        )
    for name in needed:
        if infos[name].shape != wanted[name]:
            raise CheckpointError(
                f"{name} must have the shape {list(wanted[name])} of the config; got {list(infos[name].shape)}. "
                "Correct the config: it belongs to other weights."
            )
        if infos[name].dtype not in FLOATS:
            known = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATS)
            raise CheckpointError(
                f"{name} must hold {known}; got {str(infos[name].dtype).removeprefix('torch.')}. "
                "Use weights that are not quantised."
            )


def _absent(r: Rule, infos: Mapping[str, TensorInfo]) -> bool:
    return bool(r.absent) and not any(name in infos for name in r.theirs)


def _listed(names: Sequence[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
