"""Content of a PyTorch pickle as inert values, with the tensor names of `module.state_dict()`.

In: the tree returned by `pickles` and `torch_files`. Out: tensors, plain attributes and class names by dotted path.
"""

import math
from collections.abc import ItemsView, Mapping
from dataclasses import dataclass, field

import torch

from segue.checkpoint.pickles import Arguments, Constructors, Name, PickledObject, PlainCheck, describe
from segue.errors import CheckpointError

MAX_TENSORS = 2**16
MAX_VISITS = 2**21
"""Maximum number of attributes, tensors and modules visited; one reached several times counts each time."""
MAX_DEPTH = 64
MAX_NESTING = 4
MAX_NAME = 512
MAX_ATTRIBUTE = 2**16
"""Maximum number of values in one attribute; a larger one is left out."""
NESTED_UNDER = ("state_dict", "model_state_dict", "model_state", "model", "module")
"""Keys under which training scripts store the weights in a dict with other values."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Storage:
    """A block of numbers in the file. Its size is the pickle's claim, which the reader checks."""

    key: str
    dtype: torch.dtype
    size: int
    """Size in elements of its dtype, like `view_start`."""
    view_start: int = 0
    view_size: int | None = None
    """Part of the block, in files before PyTorch 1."""

    @property
    def start_byte(self) -> int:
        """Offset of its first number in the block, in bytes."""
        return self.view_start * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """Size of its numbers in bytes."""
        return (self.size if self.view_size is None else self.view_size) * self.dtype.itemsize


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredTensor:
    """A tensor's location in a storage, entirely inside it."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def span(self) -> int:
        """Number of elements from its first to its last number in the storage."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))


@dataclass(kw_only=True)
class Contents:
    """Tensors by state dict name, and attributes and classes of the modules by dotted path; "" is the root."""

    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    attributes: dict[str, Mapping[str, object]] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)


def read_contents(root: object, *, what: str) -> Contents:
    """Return tensors and attributes of a pickled module, of a state dict, or of either under a usual key."""
    return _Walk(what).walk(root)


class _Walk:
    def __init__(self, what: str) -> None:
        self.what = what
        self.plain = PlainCheck(limit=MAX_ATTRIBUTE)
        self.found = Contents()
        self.visits = 0

    def walk(self, root: object) -> Contents:
        for _ in range(MAX_NESTING):
            if _is_module(root):
                self.module(root, "", 0)
                break
            if not isinstance(root, dict):
                raise CheckpointError(
                    f"{self.what} must hold a module or named tensors; got {describe(root)}. "
                    "Save model.state_dict() with torch.save."
                )
            inner = next((root[key] for key in NESTED_UNDER if _holds_names(root.get(key))), None)
            self.describe_dict(root)
            if inner is None:
                self.state_dict(root)
                break
            root = inner
        if not self.found.tensors:
            raise CheckpointError(f"{self.what} must hold named tensors; got none. Save model.state_dict().")
        return self.found

    def module(self, module: object, prefix: str, depth: int) -> None:
        """Visit a module like `state_dict()`: its parameters, its buffers, then its submodules."""
        if depth > MAX_DEPTH:
            raise CheckpointError(f"{self.what} must nest modules at most {MAX_DEPTH} deep; got more. It is broken.")
        assert isinstance(module, PickledObject)
        state = module.state
        assert isinstance(state, dict)
        path = prefix.removesuffix(".")
        self.found.classes[path] = str(module.name)
        self.attributes(path, state)
        passing = state.get("_non_persistent_buffers_set")
        passing = passing if isinstance(passing, set) else set()
        for group in ("_parameters", "_buffers"):
            for name, value in self.visit(_group(state, group)):
                if value is not None and not (group == "_buffers" and name in passing):
                    self.tensor(prefix, name, value)
        for name, value in self.visit(_group(state, "_modules")):
            if _is_module(value):
                self.module(value, f"{prefix}{self.name(prefix, name)}.", depth + 1)
            elif value is not None:
                raise CheckpointError(
                    f"{self.what} must have modules in its modules; got {describe(value)} as {prefix}{describe(name)}. "
                    "Save model.state_dict() instead."
                )

    def visit(self, values: Mapping[object, object]) -> ItemsView[object, object]:
        self.visits += 1 + len(values)
        if self.visits > MAX_VISITS:
            raise CheckpointError(f"{self.what} must hold at most {MAX_VISITS} values; got more. It is broken.")
        return values.items()

    def state_dict(self, values: Mapping[object, object]) -> None:
        for name, value in self.visit(values):
            if isinstance(value, StoredTensor):
                self.tensor("", name, value)

    def tensor(self, prefix: str, name: object, value: object) -> None:
        if not isinstance(value, StoredTensor):
            raise CheckpointError(
                f"{self.what} must have dense tensors in its places for them; got {describe(value)} as "
                f"{prefix}{describe(name)}. Save its values as plain tensors."
            )
        self.found.tensors[prefix + self.name(prefix, name)] = value
        if len(self.found.tensors) > MAX_TENSORS:
            raise CheckpointError(f"{self.what} must have at most {MAX_TENSORS} tensors; got more. It is broken.")

    def name(self, prefix: str, name: object) -> str:
        if not isinstance(name, str) or len(prefix) + len(name) > MAX_NAME:
            raise CheckpointError(
                f"{self.what} must have names of at most {MAX_NAME} characters; got {describe(name)} in "
                f"{describe(prefix)}. It is broken."
            )
        return name

    def attributes(self, path: str, values: Mapping[object, object]) -> None:
        """Keep the plain attributes that are not private to PyTorch."""
        kept = self.found.attributes.setdefault(path, {})
        assert isinstance(kept, dict)
        for name, value in self.visit(values):
            if isinstance(name, str) and not name.startswith("_") and self.plain.problem(value) is None:
                kept.setdefault(name, value)

    def describe_dict(self, values: Mapping[object, object]) -> None:
        """Keep the values beside the weights: plain values, and the attributes of objects such as parsed arguments."""
        self.attributes("", values)
        for name, value in self.visit(values):
            if not isinstance(name, str) or not isinstance(value, PickledObject) or _is_module(value):
                continue
            if isinstance(value.state, dict):
                self.found.classes[self.name("", name)] = str(value.name)
                self.attributes(name, value.state)


def _is_module(value: object) -> bool:
    if not isinstance(value, PickledObject) or not isinstance(value.state, dict):
        return False
    return all(isinstance(_dict(value.state.get(name)), dict) for name in ("_parameters", "_buffers", "_modules"))


def _holds_names(value: object) -> bool:
    return (isinstance(value, dict) and bool(value)) or _is_module(value)


def _group(state: dict[object, object], name: str) -> dict[object, object]:
    group = _dict(state[name])
    assert group is not None
    return group


def _dict(value: object) -> dict[object, object] | None:
    """Return the items of a dict or of a subclass of dict; None for other values."""
    if isinstance(value, PickledObject):
        return value.items
    return value if isinstance(value, dict) else None


# Constructors of tensors: the functions that torch._utils would call, with every number checked


def _tensor(arguments: Arguments) -> StoredTensor:
    storage, offset, shape, stride = _first(arguments, 4)
    if not isinstance(storage, Storage):
        raise ValueError(f"a tensor must have a storage; got {describe(storage)}")
    return _place(storage, offset, shape, stride, storage.dtype)


def _tensor_with_dtype(arguments: Arguments) -> StoredTensor:
    storage, offset, shape, stride, _, _, dtype = _first(arguments, 7)
    if not isinstance(storage, Storage):
        raise ValueError(f"a tensor must have a storage; got {describe(storage)}")
    if not isinstance(dtype, Name) or dtype not in DTYPES:
        raise ValueError(f"a tensor must be of a known dtype; got {describe(dtype)}")
    return _place(storage, offset, shape, stride, DTYPES[dtype])


def _place(storage: Storage, offset: object, shape: object, stride: object, dtype: torch.dtype) -> StoredTensor:
    sizes, steps = _sizes(shape, "shape"), _sizes(stride, "stride")
    (start,) = _sizes((offset,), "offset")
    if len(sizes) != len(steps):
        raise ValueError(f"a tensor must have a stride for each size; got {len(sizes)} and {len(steps)}")
    if 0 in sizes and math.prod(max(1, size) for size in sizes) < 2**63:
        return StoredTensor(storage=storage, offset=0, shape=sizes, stride=steps, dtype=dtype)
    tensor = StoredTensor(storage=storage, offset=start, shape=sizes, stride=steps, dtype=dtype)
    count = math.prod(int(size) for size in sizes)
    if 0 in sizes or (start + max(tensor.span, count)) * dtype.itemsize > storage.bytes:
        raise ValueError(
            f"a tensor must be within its storage and no number be there twice; got shape {sizes}, stride {steps}, "
            f"offset {start} in {storage.bytes} bytes of {storage.key!r}"
        )
    return tensor


def _sizes(values: object, what: str) -> tuple[int, ...]:
    if not isinstance(values, tuple | list) or len(values) > 64:
        raise ValueError(f"a {what} must be a tuple of at most 64 numbers; got {describe(values)}")
    for value in values:
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f"a {what} must be of numbers from 0 to 2**63; got {describe(value)}")
    return tuple(values)


def _parameter(arguments: Arguments) -> object:
    return arguments[0] if arguments else None


def _subclass(arguments: Arguments) -> object:
    """Return the plain tensor in a tensor with attributes or of a subclass."""
    function, _, inner = _first(arguments, 3)
    rebuild = _TENSORS.get(function) if isinstance(function, Name) else None
    if rebuild is None or not isinstance(inner, tuple):
        raise ValueError(f"a tensor must be made by a known function; got {describe(function)}")
    return rebuild(inner)


def _first(arguments: Arguments, count: int) -> Arguments:
    if len(arguments) < count:
        raise ValueError(f"a tensor must be made of {count} or more arguments; got {len(arguments)}")
    return arguments[:count]


def _device(arguments: Arguments) -> str:
    if not 1 <= len(arguments) <= 2 or not isinstance(arguments[0], str):
        raise ValueError(f"a device must be made of its name; got {len(arguments)} arguments")
    return ":".join(describe(part) if isinstance(part, int) else str(part)[:40] for part in arguments)


_TENSORS: Constructors = {
    Name("torch._utils", "_rebuild_tensor"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v2"): _tensor,
    Name("torch._utils", "_rebuild_tensor_v3"): _tensor_with_dtype,
}
CONSTRUCTORS: Constructors = {
    **_TENSORS,
    Name("torch._utils", "_rebuild_parameter"): _parameter,
    Name("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    Name("torch._tensor", "_rebuild_from_type_v2"): _subclass,
    Name("torch", "Size"): lambda arguments: _sizes(arguments[0] if arguments else (), "shape"),
    Name("torch", "device"): _device,
}

DTYPES = {
    Name("torch", name): getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
        *("uint16", "uint32", "uint64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
}
STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
    "UntypedStorage": torch.uint8,
}
"""Dtypes by name of the storage class, in `torch`, `torch.cuda` and `torch.storage`."""
