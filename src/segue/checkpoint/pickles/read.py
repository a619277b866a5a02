"""Reading of pickles from files and bytes.

In: a path, bytes, or an open file. Out: the value of the pickle, plain or with inert records.
"""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from segue.checkpoint.pickles import interpreter as limits
from segue.checkpoint.pickles.containers import PLAIN
from segue.checkpoint.pickles.interpreter import REMEDY, Interpreter
from segue.checkpoint.pickles.values import Constructors, Name, PlainCheck
from segue.errors import CheckpointError


def read_plain(source: bytes | Path, *, what: str | None = None) -> object:
    """Return the value of a pickle that holds only None, bool, int, float, str, bytes, list, tuple, set and dict.

    OrderedDict, Counter and defaultdict become dicts, bytearrays bytes.
    """
    what = what or _what(source)
    value = read_record(source, what=what)
    problem = PlainCheck(limit=limits.MAX_STEPS).problem(value)
    if problem is not None:
        raise CheckpointError(
            f"{what} must hold plain values only (None, bool, int, float, str, bytes, list, tuple, set, dict); "
            f"got {problem}. Export it as plain data."
        )
    return value


def read_record(source: bytes | Path, *, what: str | None = None, calls: set[Name] | None = None) -> object:
    """Return the value of a pickle, with inert `Name` and `PickledObject` in place of anything that is not plain.

    Values may be shared and may contain themselves, as in the pickle. Functions it asks to call are added to `calls`.
    """
    what = what or _what(source)
    if isinstance(source, bytes):
        return _read_whole(BytesIO(source), what, calls)
    try:
        with source.open("rb") as file:
            return _read_whole(file, what, calls)
    except OSError as error:
        raise CheckpointError(f"{what} must be a readable file; got {error}. Check the path.") from None


def interpret(
    file: BinaryIO,
    *,
    what: str,
    constructors: Constructors | None = None,
    persistent: Callable[[object], object] | None = None,
    calls: set[Name] | None = None,
) -> object:
    """Return the value of the pickle at the file's position, and move the position behind it.

    `what` names the file in errors; `constructors` are used in addition to those of plain containers; `persistent`
    returns the value for a persistent id, or raises ValueError; functions that the pickle asks to call are added to
    `calls`.
    """
    interpreter = Interpreter(file, what, {**PLAIN, **(constructors or {})}, persistent)
    value = interpreter.run()
    if calls is not None:
        calls |= interpreter.calls
    return value


def _what(source: bytes | Path) -> str:
    return "the given bytes" if isinstance(source, bytes) else str(source)


def _read_whole(file: BinaryIO, what: str, calls: set[Name] | None) -> object:
    value = interpret(file, what=what, calls=calls)
    if file.read(1):
        raise CheckpointError(f"{what} must end with its pickle; got more behind it. {REMEDY}")
    return value
