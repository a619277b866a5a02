"""Values read from a pickle: plain values, and inert ones in place of all others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_DEPTH = 64
"""Maximum nesting of plain values. Pickled objects may nest deeper: nothing here walks them."""
_SCALARS = (bool, int, float, str, bytes)


@dataclass(frozen=True, slots=True)
class Name:
    """A name that the pickle would import."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute}"


@dataclass(eq=False, repr=False, slots=True)
class PickledObject:
    """The record of an object that the pickle would have built by calling `name`: only its inputs."""

    name: Name
    arguments: tuple[object, ...] = ()
    state: object = None
    """Argument of its `__setstate__`; usually its attributes by name."""
    elements: list[object] = field(default_factory=list)
    """Values appended to it, if it is a kind of list."""
    items: dict[object, object] = field(default_factory=dict)
    """Items set in it, if it is a kind of dict; or keyword arguments."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A string that was too long to keep."""

    size: int


Arguments = tuple[object, ...]
Constructors = Mapping[Name, Callable[[Arguments], object]]
"""Functions that return the value of a call with these arguments, or raise ValueError with the violated rule. They may
look at the items of an argument, but not deeper."""


def describe(value: object) -> str:
    """Return a short description of a value of any size, for an error message."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 64 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= 40 else f"{value[:40]!r}..."
    if isinstance(value, Name):
        return f"the name {value}"
    if isinstance(value, PickledObject):
        return f"a record of {value.name}"
    return f"a {type(value).__name__}"


class PlainCheck:
    """Check that values are plain, without cycles, and bounded in depth and in total size.

    Values seen before are not walked again, so they must outlive this object.
    """

    def __init__(self, *, limit: int) -> None:
        self.limit = limit
        self._seen: dict[int, tuple[int, int] | str | None] = {}

    def problem(self, value: object) -> str | None:
        """Return a description of the first part that is not plain; None if there is none."""
        result = self._measure(value, 0)
        return result if isinstance(result, str) else None

    def _measure(self, value: object, depth: int) -> tuple[int, int] | str:
        """Return size and height, or the problem."""
        if value is None or isinstance(value, _SCALARS):
            return 1, 0
        if not isinstance(value, list | tuple | dict | set | frozenset):
            return describe(value)
        if depth >= MAX_DEPTH:
            return f"values nested deeper than {MAX_DEPTH}"
        if id(value) not in self._seen:
            self._seen[id(value)] = None
            self._seen[id(value)] = self._measure_items(value, depth)
        return self._seen[id(value)] or "a container that contains itself"

    def _measure_items(self, value: object, depth: int) -> tuple[int, int] | str:
        size, height = 1, 0
        assert isinstance(value, list | tuple | dict | set | frozenset)
        for item in value if not isinstance(value, dict) else [*value.keys(), *value.values()]:
            result = self._measure(item, depth + 1)
            if isinstance(result, str):
                return result
            size, height = size + result[0], max(height, result[1] + 1)
        if height > MAX_DEPTH:
            return f"values nested deeper than {MAX_DEPTH}"
        if size > self.limit:
            return f"more than {self.limit} values when written out"
        return size, height
