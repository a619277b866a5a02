"""Mapping of tensors through a name table: segue's under foreign names, and foreign ones under segue's.

Tensors that are neither mapped nor explained raise an error, and so do missing ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from segue.checkpoint.families.rules import NameTable, Rule
from segue.checkpoint.source import FLOATS, TensorInfo, TensorSource
from segue.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the report: the mapping of one or more tensors."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    shape: tuple[int, ...]
    """Shape of the first foreign tensor, or of the first of ours if there is none."""
    words: str


@dataclass(frozen=True, kw_only=True)
class MappedTensors:
    """Tensors under the names of the other side, with the report of each."""

    tensors: dict[str, Tensor]
    rows: list[Row] = field(default_factory=list)
    explained: list[Row] = field(default_factory=list)


def to_theirs(table: NameTable, ours: Mapping[str, Tensor]) -> MappedTensors:
    """Return our state dict under foreign names, with the copies and buffers that the format holds."""
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
    """Return the foreign tensors as our state dict. `ours` is the state dict of the model, used for shapes only; may be
    on `meta`.

    Names and shapes are checked before anything is read: every tensor of the file must be mapped or explained, and none
    that the model needs may be missing.
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
    """Compare the copies, and add the reasons why the remaining tensors are not needed."""
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
    """Raise CheckpointError unless the file matches the table: no missing or unknown tensors, the right shapes, and
    dtypes supported for weights."""
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
