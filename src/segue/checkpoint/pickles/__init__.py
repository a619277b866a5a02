"""Pickles read as data: no foreign object is built, nothing is imported, no code runs.

`read` takes a pickle of protocol 0 to 5 and gives plain containers and scalars; what the pickle would import is a
`Name`, what it would call or build is a `PickledObject` (`values`). A few constructors of plain containers are known
and re-created (`containers`); a caller adds its own. Work and memory are bounded (`interpreter`). What the values mean
is left to others.
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
