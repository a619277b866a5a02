"""What a pickle becomes: plain values, and inert ones in the place of all others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MAX_DEPTH = 64
"""Deepest nesting of plain values. Pickled objects may nest deeper: nothing here walks them."""
_SCALARS = (bool, int, float, str, bytes)


@dataclass(frozen=True, slots=True)
class Name:
    """What the pickle would import."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute}"


@dataclass(eq=False, repr=False, slots=True)
class PickledObject:
    """What the pickle would have built by calling `name`: only what it was given."""

    name: Name
    arguments: tuple[object, ...] = ()
    state: object = None
    """What its `__setstate__` would get; as a rule its attributes by name."""
    elements: list[object] = field(default_factory=list)
    """What was appended to it, if it is a kind of list."""
    items: dict[object, object] = field(default_factory=dict)
    """What was put into it, if it is a kind of dict; or keyword arguments."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A string that was too long to keep."""

    size: int


Arguments = tuple[object, ...]
Constructors = Mapping[Name, Callable[[Arguments], object]]
"""Each gives the value for a call with these arguments, or raises ValueError with the rule that they break. It may look
at the items of an argument, but not deeper."""


def describe(value: object) -> str:
    """A value in a few words for an error, however large it is."""
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
    """Says whether values are plain, without loops, nested to a bounded depth and of a bounded size written out.

    Values seen before are not walked again, so they must outlive this object."""

    def __init__(self, *, limit: int) -> None:
        self.limit = limit
        self._seen: dict[int, tuple[int, int] | str | None] = {}

    def problem(self, value: object) -> str | None:
        """What is not plain about it, or None."""
        result = self._measure(value, 0)
        return result if isinstance(result, str) else None

    def _measure(self, value: object, depth: int) -> tuple[int, int] | str:
        """Size and height, or the problem."""
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
