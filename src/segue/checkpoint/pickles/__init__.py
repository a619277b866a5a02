"""Pickles read as data: no foreign object is built, nothing is imported, no code runs.

`read` takes a pickle of protocol 0 to 5 and returns plain containers and scalars; anything that the pickle would import
becomes a `Name`, anything that it would call or build becomes a `PickledObject` (`values`). A few constructors of plain
containers are known and re-created (`containers`); a caller may add others. Work and memory are bounded
(`interpreter`). The meaning of the values is left to others.
"""

from segue.checkpoint.pickles.read import interpret, read_plain, read_record
from segue.checkpoint.pickles.values import Arguments, Constructors, Name, PickledObject, PlainCheck, Skipped, describe

__all__ = [
    "Arguments",
    "Constructors",
    "Name",
    "PickledObject",
    "PlainCheck",
    "Skipped",
    "describe",
    "interpret",
    "read_plain",
    "read_record",
]
