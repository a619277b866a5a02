"""Pickles read as data: no foreign object is built, nothing is imported, no code runs.

In: a pickle of protocol 0 to 5. Out: plain containers and scalars; what the pickle would import is a `Name`, what it
would call or build is a `Record`. A few constructors of plain containers are known and re-created here; a caller adds
its own. Work and memory are bounded: see the limits below. What the values mean is left to others.
"""

import codecs
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NoReturn

from segue.errors import CheckpointError

# The released vocabulary of a billion words, the largest pickle in use, takes 5 million steps.
MAX_STEPS = 2**24
"""Opcodes, and items or characters that a constructor copies."""
MAX_CONTAINERS = 2**20
"""Lists, dicts, sets, tuples and records."""
MAX_MEMO = 2**22
MAX_STRING = 2**24
"""Longer strings, such as the numbers of an array, are `Skipped`."""
MAX_INTEGER_BYTES = 64
MAX_NAME = 256
MAX_DEPTH = 64
"""Of plain values. Records may nest deeper: nothing here walks them."""
MAX_KEY = 2**63

_REMEDY = "It is broken or not a pickle of data: use another copy."


@dataclass(frozen=True, slots=True)
class Name:
    """What the pickle would import."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute}"


@dataclass(eq=False, repr=False, slots=True)
class Record:
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


def read_plain(source: bytes | Path, *, what: str | None = None) -> object:
    """The value of a pickle that holds nothing but None, bool, int, float, str, bytes, list, tuple, set and dict.

    OrderedDict, Counter and defaultdict become dicts, bytearrays bytes."""
    what = what or _what(source)
    value = read_record(source, what=what)
    problem = PlainCheck(limit=MAX_STEPS).problem(value)
    if problem is not None:
        raise CheckpointError(
            f"{what} must hold plain values only (None, bool, int, float, str, bytes, list, tuple, set, dict); "
            f"got {problem}. Export it as plain data."
        )
    return value


def read_record(source: bytes | Path, *, what: str | None = None) -> object:
    """The value of a pickle with inert `Name` and `Record` in the place of whatever is not plain.

    Values may be shared and may contain themselves, as in the pickle."""
    what = what or _what(source)
    if isinstance(source, bytes):
        return _read_whole(BytesIO(source), what)
    try:
        with source.open("rb") as file:
            return _read_whole(file, what)
    except OSError as error:
        raise CheckpointError(f"{what} must be a readable file; got {error}. Check the path.") from None


def interpret(
    file: BinaryIO,
    *,
    what: str,
    constructors: Constructors | None = None,
    persistent: Callable[[object], object] | None = None,
) -> object:
    """The value of the pickle at the file's position, and the position moved behind it.

    `what` names the file in errors; `constructors` are known besides those of plain containers; `persistent` gives the
    value for a persistent id, or raises ValueError."""
    return _Machine(file, what, {**PLAIN, **(constructors or {})}, persistent).run()


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
    if isinstance(value, Record):
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


_SCALARS = (bool, int, float, str, bytes)


def _what(source: bytes | Path) -> str:
    return "the given bytes" if isinstance(source, bytes) else str(source)


def _read_whole(file: BinaryIO, what: str) -> object:
    value = interpret(file, what=what)
    if file.read(1):
        raise CheckpointError(f"{what} must end with its pickle; got more behind it. {_REMEDY}")
    return value


# Constructors of plain containers


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
        result[_key(pair[0])] = pair[1]
    return result


def _items(arguments: Arguments) -> list[object]:
    if not arguments:
        return []
    (source,) = _exactly(arguments, 1, "a set")
    if not isinstance(source, list | tuple | set | frozenset):
        raise ValueError(f"a set must be made of a list; got {describe(source)}")
    return [_key(item) for item in source]


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


def _key(value: object) -> object:
    """The value, if it may be a key: its hash costs little and others with the same hash cannot be made at will."""
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
_NEW_OBJECT = {Name("copyreg", "__newobj__"), Name("copy_reg", "__newobj__")}
_RECONSTRUCTOR = {Name("copyreg", "_reconstructor"), Name("copy_reg", "_reconstructor")}


class _Machine:
    """One pickle. A method for each kind of opcode; `_OPCODES` says which is which."""

    def __init__(
        self,
        file: BinaryIO,
        what: str,
        constructors: Constructors,
        persistent: Callable[[object], object] | None,
    ) -> None:
        self.file = file
        self.what = what
        self.constructors = constructors
        self.persistent = persistent
        self.stack: list[object] = []
        self.marks: list[int] = []  # heights of the stack
        self.memo: dict[int, object] = {}
        self.steps = 0
        self.containers = 0
        position = file.tell()
        self.end = file.seek(0, 2)
        file.seek(position)

    def run(self) -> object:
        read = self.file.read
        try:
            while (code := read(1)) != b".":
                self.steps += 1
                if self.steps > MAX_STEPS:
                    self.spend(0)
                opcode = _OPCODES.get(code)
                if opcode is None:
                    self.refuse(f"have known opcodes only; got {code!r}" if code else "be whole; got its beginning")
                opcode(self)
            result = self.pop()
        except ValueError as error:
            self.refuse(f"keep the rules of pickles: {error}")
        if self.stack or self.marks:
            self.refuse(f"end with one value; got {len(self.stack)} more on its stack")
        return result

    def refuse(self, problem: str) -> NoReturn:
        raise CheckpointError(f"the pickle in {self.what} must {problem}, before byte {self.file.tell()}. {_REMEDY}")

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            self.refuse(f"take at most {MAX_STEPS} steps; got more")

    # Reading

    def take(self, size: int) -> bytes:
        """The next bytes: memory is taken only for those that are there."""
        if size > 4096 and size > self.end - self.file.tell():
            raise ValueError(f"a string must be within the file; got a length of {size}")
        data = self.file.read(size)
        if len(data) < size:
            raise ValueError("it must be whole; got its beginning")
        return data

    def number(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(width), "little", signed=signed)

    def line(self) -> bytes:
        data = self.file.readline(MAX_STRING + 1)
        if not data.endswith(b"\n"):
            raise ValueError(f"a line must end within the file and {MAX_STRING} bytes")
        return data[:-1].rstrip(b"\r")

    def integer_line(self, *, suffix: bytes = b"") -> int:
        digits = self.line().removesuffix(suffix)
        if not re.fullmatch(rb"[-+]?[0-9]{1,150}", digits):
            raise ValueError(f"a number must be at most 150 digits; got {describe(digits)}")
        return int(digits)

    def string(self, size: int) -> bytes | Skipped:
        if size < 0:
            raise ValueError(f"a length must not be negative; got {size}")
        if size <= MAX_STRING:
            return self.take(size)
        if size > self.end - self.file.tell():
            raise ValueError(f"a string must be within the file; got a length of {size}")
        self.file.seek(size, 1)
        return Skipped(size)

    # The stack

    def push(self, value: object) -> None:
        self.stack.append(value)

    def contain(self, container: object) -> None:
        """Pushes a new container."""
        self.containers += 1
        if self.containers > MAX_CONTAINERS:
            self.refuse(f"hold at most {MAX_CONTAINERS} containers; got more")
        self.stack.append(container)

    def pop(self) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise ValueError("a value must be on the stack; got none")
        return self.stack.pop()

    def top(self) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise ValueError("a value must be on the stack; got none")
        return self.stack[-1]

    def pop_mark(self) -> list[object]:
        """The values above the last mark."""
        if not self.marks:
            raise ValueError("a mark must be on the stack; got none")
        height = self.marks.pop()
        values = self.stack[height:]
        del self.stack[height:]
        return values

    def pop_count(self, count: int) -> list[object]:
        return [self.pop() for _ in range(count)][::-1]

    # Opcodes

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def discard(self) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.pop()

    def put(self, index: int) -> None:
        if not 0 <= index < 2**32 or len(self.memo) >= MAX_MEMO:
            raise ValueError(f"the memo must have at most {MAX_MEMO} places; got place {describe(index)} and more")
        self.memo[index] = self.top()

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise ValueError(f"a place of the memo must be filled before use; got {describe(index)}")
        self.push(self.memo[index])

    def unicode(self, data: bytes | Skipped) -> None:
        self.push(data.decode("utf-8") if isinstance(data, bytes) else data)

    def python2_string(self, data: bytes | Skipped) -> None:
        """Text if it can be, otherwise bytes: Python 2 had one type for both."""
        try:
            self.push(data.decode("utf-8") if isinstance(data, bytes) else data)
        except UnicodeDecodeError:
            self.push(data)

    def quoted_string(self) -> None:
        line = self.line().strip()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            raise ValueError(f"a string must be in quotes; got {describe(line)}")
        self.python2_string(re.sub(rb"\\(x[0-9a-fA-F]{2}|.)", _unescape, line[1:-1], flags=re.DOTALL))

    def escaped_unicode(self) -> None:
        text, _ = codecs.raw_unicode_escape_decode(self.line())
        self.push(text.encode("utf-8").decode("utf-8"))  # raises where it is half a character

    def integer_or_bool(self) -> None:
        position = self.file.tell()
        line = self.line()
        if line in (b"00", b"01"):
            return self.push(line == b"01")
        self.file.seek(position)
        return self.push(self.integer_line())

    def long(self, size: int) -> None:
        if not 0 <= size <= MAX_INTEGER_BYTES:
            raise ValueError(f"an integer must be at most {MAX_INTEGER_BYTES} bytes; got {size}")
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def append(self, values: list[object]) -> None:
        target = self.top()
        if isinstance(target, Record):
            target.elements.extend(values)
        elif isinstance(target, list):
            target.extend(values)
        else:
            raise ValueError(f"values must be appended to a list; got {describe(target)}")

    def set_items(self, values: list[object]) -> None:
        target = self.top()
        if isinstance(target, Record):
            target = target.items
        if not isinstance(target, dict) or len(values) % 2:
            raise ValueError(f"pairs must be put into a dict; got {len(values)} values and {describe(target)}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[_key(key)] = value

    def make_dict(self) -> None:
        values = self.pop_mark()
        self.contain({})
        self.set_items(values)

    def add_items(self) -> None:
        values = self.pop_mark()
        target = self.top()
        if not isinstance(target, set):
            raise ValueError(f"values must be added to a set; got {describe(target)}")
        target.update(map(_key, values))

    def name(self, module: object, attribute: object) -> Name:
        for part in (module, attribute):
            if not isinstance(part, str) or not 0 < len(part) <= MAX_NAME or not part.isprintable():
                raise ValueError(f"a name must be 1 to {MAX_NAME} printable characters; got {describe(part)}")
        return Name(str(module), str(attribute))

    def name_lines(self) -> Name:
        return self.name(self.line().decode("utf-8"), self.line().decode("utf-8"))

    def stack_name(self) -> None:
        module, attribute = self.pop_count(2)
        self.push(self.name(module, attribute))

    def call(self, name: object, arguments: object, keywords: object = None) -> None:
        """Pushes what a known constructor gives, or the record of a call."""
        if not isinstance(name, Name) or not isinstance(arguments, tuple):
            raise ValueError(f"a name must be called with a tuple; got {describe(name)} and {describe(arguments)}")
        if name in _NEW_OBJECT and arguments:
            self.spend(len(arguments))
            name, arguments = arguments[0], arguments[1:]
        elif name in _RECONSTRUCTOR and len(arguments) == 3:
            name, arguments = arguments[0], arguments[2:]
        if not isinstance(name, Name):
            raise ValueError(f"an object must be made by a name; got {describe(name)}")
        construct = self.constructors.get(name)
        if construct is not None and keywords is None:
            self.spend(len(arguments))
            self.spend(sum(len(value) for value in arguments if isinstance(value, _SIZED)))
            return self.contain(construct(arguments))
        record = Record(name, arguments)
        if keywords is not None:
            if not isinstance(keywords, dict):
                raise ValueError(f"keyword arguments must be a dict; got {describe(keywords)}")
            record.items = keywords
        return self.contain(record)

    def call_object(self) -> None:
        values = self.pop_mark()
        if not values:
            raise ValueError("an object must be made by a name; got none")
        self.call(values[0], tuple(values[1:]))

    def build(self) -> None:
        """Gives a record its state. Attributes of plain containers, such as the versions in a state dict, go."""
        state = self.pop()
        target = self.top()
        if isinstance(target, Record):
            if target.state is not None:
                raise ValueError(f"a state must be given once; got a second one for {describe(target)}")
            target.state = self.with_slots(state)
        elif not isinstance(target, dict | list | set):
            raise ValueError(f"a state must be given to an object; got {describe(target)}")

    def with_slots(self, state: object) -> object:
        """Attributes and slots together, where they come as two dicts."""
        if not isinstance(state, tuple) or len(state) != 2:
            return state
        attributes, slots = state
        if not isinstance(attributes, dict | None) or not isinstance(slots, dict):
            return state
        self.spend(len(attributes or ()) + len(slots))
        return {**(attributes or {}), **slots}

    def persist(self, key: object) -> None:
        if self.persistent is None:
            raise ValueError(f"nothing must be stored outside of it; got the persistent id {describe(key)}")
        self.contain(self.persistent(key))

    def protocol(self) -> None:
        version = self.number(1)
        if version > 5:
            raise ValueError(f"the protocol must be 0 to 5; got {version}")

    def frame(self) -> None:
        size = self.number(8)
        if size > self.end - self.file.tell():
            raise ValueError(f"a frame must be within the file; got a length of {size}")

    def extension(self) -> None:
        raise ValueError("an extension code of another program's registry has no meaning here; got one")

    def out_of_band(self) -> None:
        raise ValueError("buffers must be in the pickle; got one that is elsewhere")


_SIZED = (str, bytes, list, tuple, dict, set, frozenset)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\", b"'": b"'", b'"': b'"'}


def _unescape(match: re.Match[bytes]) -> bytes:
    escape: bytes = match[1]
    if len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape not in _ESCAPES:
        raise ValueError(f"a string must have the escapes of Python 2; got \\{describe(escape)}")
    return _ESCAPES[escape]


_OPCODES: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _Machine.protocol,
    b"\x95": _Machine.frame,
    # scalars
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"I": _Machine.integer_or_bool,
    b"L": lambda m: m.push(m.integer_line(suffix=b"L")),
    b"J": lambda m: m.push(m.number(4, signed=True)),
    b"K": lambda m: m.push(m.number(1)),
    b"M": lambda m: m.push(m.number(2)),
    b"\x8a": lambda m: m.long(m.number(1)),
    b"\x8b": lambda m: m.long(m.number(4, signed=True)),
    b"F": lambda m: m.push(float(m.line().decode("ascii"))),
    b"G": lambda m: m.push(float(struct.unpack(">d", m.take(8))[0])),
    # strings
    b"V": _Machine.escaped_unicode,
    b"X": lambda m: m.unicode(m.string(m.number(4))),
    b"\x8c": lambda m: m.unicode(m.string(m.number(1))),
    b"\x8d": lambda m: m.unicode(m.string(m.number(8))),
    b"S": _Machine.quoted_string,
    b"T": lambda m: m.python2_string(m.string(m.number(4, signed=True))),
    b"U": lambda m: m.python2_string(m.string(m.number(1))),
    b"B": lambda m: m.push(m.string(m.number(4))),
    b"C": lambda m: m.push(m.string(m.number(1))),
    b"\x8e": lambda m: m.push(m.string(m.number(8))),
    b"\x96": lambda m: m.push(m.string(m.number(8))),
    # containers
    b"]": lambda m: m.contain([]),
    b"l": lambda m: m.contain(m.pop_mark()),
    b"a": lambda m: m.append([m.pop()]),
    b"e": lambda m: m.append(m.pop_mark()),
    b")": lambda m: m.push(()),
    b"t": lambda m: m.contain(tuple(m.pop_mark())),
    b"\x85": lambda m: m.contain(tuple(m.pop_count(1))),
    b"\x86": lambda m: m.contain(tuple(m.pop_count(2))),
    b"\x87": lambda m: m.contain(tuple(m.pop_count(3))),
    b"}": lambda m: m.contain({}),
    b"d": _Machine.make_dict,
    b"s": lambda m: m.set_items(m.pop_count(2)),
    b"u": lambda m: m.set_items(m.pop_mark()),
    b"\x8f": lambda m: m.contain(set()),
    b"\x90": _Machine.add_items,
    b"\x91": lambda m: m.contain(frozenset(map(_key, m.pop_mark()))),
    # stack and memo
    b"(": _Machine.mark,
    b"0": _Machine.discard,
    b"1": lambda m: m.pop_mark().clear(),
    b"2": lambda m: m.push(m.top()),
    b"g": lambda m: m.get(m.integer_line()),
    b"h": lambda m: m.get(m.number(1)),
    b"j": lambda m: m.get(m.number(4)),
    b"p": lambda m: m.put(m.integer_line()),
    b"q": lambda m: m.put(m.number(1)),
    b"r": lambda m: m.put(m.number(4)),
    b"\x94": lambda m: m.put(len(m.memo)),
    # objects
    b"c": lambda m: m.push(m.name_lines()),
    b"\x93": _Machine.stack_name,
    b"R": lambda m: m.call(*m.pop_count(2)),
    b"\x81": lambda m: m.call(*m.pop_count(2)),
    b"\x92": lambda m: m.call(*m.pop_count(3)),
    b"i": lambda m: m.call(m.name_lines(), tuple(m.pop_mark())),
    b"o": _Machine.call_object,
    b"b": _Machine.build,
    b"P": lambda m: m.persist(m.line().decode("ascii")),
    b"Q": lambda m: m.persist(m.pop()),
    b"\x82": _Machine.extension,
    b"\x83": _Machine.extension,
    b"\x84": _Machine.extension,
    b"\x97": _Machine.out_of_band,
    b"\x98": _Machine.out_of_band,
}
