"""Constructors of plain containers, re-created: the few calls in data pickles that have a plain value."""

from collections.abc import Callable

from segue.checkpoint.pickles.values import Arguments, Constructors, Name, describe

MAX_KEY = 2**63


def _mapping(arguments: Arguments) -> dict[object, object]:
    if not arguments:
        return {}
    (source,) = _exactly(arguments, 1, "a dict")
    if isinstance(source, dict):
        return dict(source)
    if not isinstance(source, list | tuple):
        raise ValueError(f"a dict must be made of a dict or pairs; got {describe(source)}")
    result: dict[object, object] = {}
    for pair in source:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(f"a dict must be made of pairs; got {describe(pair)}")
        result[checked_key(pair[0])] = pair[1]
    return result


def _items(arguments: Arguments) -> list[object]:
    if not arguments:
        return []
    (source,) = _exactly(arguments, 1, "a set")
    if not isinstance(source, list | tuple | set | frozenset):
        raise ValueError(f"a set must be made of a list; got {describe(source)}")
    return [checked_key(item) for item in source]


def _bytes(arguments: Arguments) -> bytes:
    if not arguments:
        return b""
    text, *encoding = arguments
    if isinstance(text, bytes) and not encoding:
        return text
    if isinstance(text, str) and encoding in (["latin1"], ["latin-1"]):
        return text.encode("latin1")
    raise ValueError(f"bytes must be made of latin1 text; got {describe(text)} and {len(encoding)} more arguments")


def _exactly(arguments: Arguments, count: int, what: str) -> Arguments:
    if len(arguments) != count:
        raise ValueError(f"{what} must be made of {count} argument; got {len(arguments)}")
    return arguments


def checked_key(value: object) -> object:
    """Return the value if it may be a key: cheap to hash, and not open to deliberate hash collisions."""
    if value is None or isinstance(value, float | str | bytes | Name):
        return value
    if isinstance(value, int) and -MAX_KEY <= value < MAX_KEY:
        return value
    if isinstance(value, tuple) and len(value) <= 8 and all(isinstance(item, str | bytes) for item in value):
        return value
    raise ValueError(f"a key must be a string, a number of 64 bits or a short tuple of strings; got {describe(value)}")


def _python(modules: str, attribute: str, call: Callable[[Arguments], object]) -> dict[Name, Callable[..., object]]:
    return {Name(module, attribute): call for module in modules.split()}


PLAIN: Constructors = {
    **_python("collections", "OrderedDict", _mapping),
    **_python("collections", "Counter", _mapping),
    **_python("collections", "defaultdict", lambda arguments: _mapping(arguments[1:])),
    **_python("builtins __builtin__", "dict", _mapping),
    **_python("builtins __builtin__", "set", lambda arguments: set(_items(arguments))),
    **_python("builtins __builtin__", "frozenset", lambda arguments: frozenset(_items(arguments))),
    **_python("builtins __builtin__", "bytes", _bytes),
    **_python("builtins __builtin__", "bytearray", _bytes),
    **_python("_codecs", "encode", _bytes),
}
