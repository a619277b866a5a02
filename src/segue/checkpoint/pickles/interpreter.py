"""Interpreter of pickle opcodes, with a stack, a memo and a budget; calls become values or records.

In: a file positioned at a pickle. Out: its value; the file is positioned behind it.
"""

import codecs
import re
import struct
from collections.abc import Callable
from typing import BinaryIO, NoReturn

from segue.checkpoint.pickles.containers import checked_key
from segue.checkpoint.pickles.values import Constructors, Name, PickledObject, Skipped, describe
from segue.errors import CheckpointError

# The released vocabulary of a billion words, the largest pickle in use, takes 5 million steps.
MAX_STEPS = 2**24
"""Maximum number of opcodes, and of items or characters copied by constructors."""
MAX_CONTAINERS = 2**20
"""Maximum number of lists, dicts, sets, tuples and records."""
MAX_MEMO = 2**22
MAX_STRING = 2**24
"""Maximum length in bytes. Longer strings, such as the numbers of an array, become `Skipped`."""
MAX_INTEGER_BYTES = 64
MAX_NAME = 256

REMEDY = "It is broken or not a pickle of data: use another copy."
_NEW_OBJECT = {Name("copyreg", "__newobj__"), Name("copy_reg", "__newobj__")}
_RECONSTRUCTOR = {Name("copyreg", "_reconstructor"), Name("copy_reg", "_reconstructor")}


class Interpreter:
    """Interpreter of one pickle, with a method for each kind of opcode; `_OPCODES` maps opcodes to methods."""

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
        self.calls: set[Name] = set()
        """Functions that the pickle asks to call; none is called."""
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
        raise CheckpointError(f"the pickle in {self.what} must {problem}, before byte {self.file.tell()}. {REMEDY}")

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            self.refuse(f"take at most {MAX_STEPS} steps; got more")

    # Reading

    def take(self, size: int) -> bytes:
        """Return the next bytes, without allocating for more than there are."""
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
        """Push a new container."""
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
        """Pop and return the values above the last mark."""
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
        """Push text if the bytes are valid UTF-8, else bytes: Python 2 had one type for both."""
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
        self.push(text.encode("utf-8").decode("utf-8"))  # raises for half a surrogate pair

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
        if isinstance(target, PickledObject):
            target.elements.extend(values)
        elif isinstance(target, list):
            target.extend(values)
        else:
            raise ValueError(f"values must be appended to a list; got {describe(target)}")

    def set_items(self, values: list[object]) -> None:
        target = self.top()
        if isinstance(target, PickledObject):
            target = target.items
        if not isinstance(target, dict) or len(values) % 2:
            raise ValueError(f"pairs must be put into a dict; got {len(values)} values and {describe(target)}")
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[checked_key(key)] = value

    def make_dict(self) -> None:
        values = self.pop_mark()
        self.contain({})
        self.set_items(values)

    def add_items(self) -> None:
        values = self.pop_mark()
        target = self.top()
        if not isinstance(target, set):
            raise ValueError(f"values must be added to a set; got {describe(target)}")
        target.update(map(checked_key, values))

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

    def call(self, name: object, arguments: object, keywords: object = None, *, made: bool = False) -> None:
        """Push the value of a known constructor, or the record of a call. `made`: the opcode creates an object without
        calling any other function."""
        if not isinstance(name, Name) or not isinstance(arguments, tuple):
            raise ValueError(f"a name must be called with a tuple; got {describe(name)} and {describe(arguments)}")
        if name in _NEW_OBJECT and arguments:
            self.spend(len(arguments))
            name, arguments = arguments[0], arguments[1:]
        elif name in _RECONSTRUCTOR and len(arguments) == 3:
            name, arguments = arguments[0], arguments[2:]
        elif not made and name not in self.constructors:
            self.calls.add(name)
        if not isinstance(name, Name):
            raise ValueError(f"an object must be made by a name; got {describe(name)}")
        construct = self.constructors.get(name)
        if construct is not None and keywords is None:
            self.spend(len(arguments))
            self.spend(sum(len(value) for value in arguments if isinstance(value, _SIZED)))
            return self.contain(construct(arguments))
        record = PickledObject(name, arguments)
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
        """Give a record its state. Attributes of plain containers, as in a state dict, are dropped."""
        state = self.pop()
        target = self.top()
        if isinstance(target, PickledObject):
            if target.state is not None:
                raise ValueError(f"a state must be given once; got a second one for {describe(target)}")
            target.state = self.with_slots(state)
        elif not isinstance(target, dict | list | set):
            raise ValueError(f"a state must be given to an object; got {describe(target)}")

    def with_slots(self, state: object) -> object:
        """Merge attributes and slots if they come as two dicts."""
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


_OPCODES: dict[bytes, Callable[[Interpreter], None]] = {
    b"\x80": Interpreter.protocol,
    b"\x95": Interpreter.frame,
    # scalars
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"I": Interpreter.integer_or_bool,
    b"L": lambda m: m.push(m.integer_line(suffix=b"L")),
    b"J": lambda m: m.push(m.number(4, signed=True)),
    b"K": lambda m: m.push(m.number(1)),
    b"M": lambda m: m.push(m.number(2)),
    b"\x8a": lambda m: m.long(m.number(1)),
    b"\x8b": lambda m: m.long(m.number(4, signed=True)),
    b"F": lambda m: m.push(float(m.line().decode("ascii"))),
    b"G": lambda m: m.push(float(struct.unpack(">d", m.take(8))[0])),
    # strings
    b"V": Interpreter.escaped_unicode,
    b"X": lambda m: m.unicode(m.string(m.number(4))),
    b"\x8c": lambda m: m.unicode(m.string(m.number(1))),
    b"\x8d": lambda m: m.unicode(m.string(m.number(8))),
    b"S": Interpreter.quoted_string,
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
    b"d": Interpreter.make_dict,
    b"s": lambda m: m.set_items(m.pop_count(2)),
    b"u": lambda m: m.set_items(m.pop_mark()),
    b"\x8f": lambda m: m.contain(set()),
    b"\x90": Interpreter.add_items,
    b"\x91": lambda m: m.contain(frozenset(map(checked_key, m.pop_mark()))),
    # stack and memo
    b"(": Interpreter.mark,
    b"0": Interpreter.discard,
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
    b"\x93": Interpreter.stack_name,
    b"R": lambda m: m.call(*m.pop_count(2)),
    b"\x81": lambda m: m.call(*m.pop_count(2), made=True),
    b"\x92": lambda m: m.call(*m.pop_count(3), made=True),
    b"i": lambda m: m.call(m.name_lines(), tuple(m.pop_mark())),
    b"o": Interpreter.call_object,
    b"b": Interpreter.build,
    b"P": lambda m: m.persist(m.line().decode("ascii")),
    b"Q": lambda m: m.persist(m.pop()),
    b"\x82": Interpreter.extension,
    b"\x83": Interpreter.extension,
    b"\x84": Interpreter.extension,
    b"\x97": Interpreter.out_of_band,
    b"\x98": Interpreter.out_of_band,
}
