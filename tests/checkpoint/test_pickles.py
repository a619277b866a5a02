"""The reader of pickles: what Python gives where it is plain, inert records where it is not, and nothing else."""

import argparse
import pickle
import struct
import tracemalloc
from collections import Counter, OrderedDict, defaultdict
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.checkpoint.pickles import (
    Name,
    PickledObject,
    PlainCheck,
    Skipped,
    describe,
    interpreter,
    read_plain,
    read_record,
)
from segue.errors import CheckpointError
from tests.checkpoint.fuzz import no_acts
from tests.checkpoint.work import TooMuchWorkError, at_most
from tests.examples import examples

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.text() | st.binary()
)
KEYS = st.none() | st.integers(-(2**62), 2**62) | st.text() | st.binary() | st.tuples(st.text(), st.text())
PLAIN = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
        | st.frozensets(KEYS, max_size=4)
    ),
    max_leaves=20,
)


def short(text: bytes) -> bytes:
    """The opcode for a short string."""
    return b"\x8c" + bytes([len(text)]) + text


def reduce(module: str, name: str, argument: bytes) -> bytes:
    return f"c{module}\n{name}\n".encode() + b"(" + argument + b"tR"


CANARY = short(b"touch canary")
HOSTILE = {
    "os.system": reduce("os", "system", CANARY) + b".",
    "posix.system by stack": short(b"posix") + short(b"system") + b"\x93" + CANARY + b"\x85R.",
    "eval": reduce("builtins", "eval", short(b"open('canary', 'w')")) + b".",
    "exec in Python 2": reduce("__builtin__", "execfile", CANARY) + b".",
    "import": reduce("builtins", "__import__", short(b"antigravity")) + b".",
    "call of what a call gave": reduce("builtins", "getattr", b"cos\nsystem\n" + short(b"x")) + CANARY + b"\x85R.",
    "inst": b"(" + CANARY + b"ios\nsystem\n.",
    "obj": b"(cos\nsystem\n" + CANARY + b"o.",
    "newobj": b"csubprocess\nPopen\n" + CANARY + b"\x85\x81.",
    "newobj_ex": b"csubprocess\nPopen\n" + CANARY + b"\x85}\x92.",
    "reduce_ex": reduce("builtins", "getattr", b"cos\nsystem\n" + short(b"__reduce_ex__")) + b".",
    "build": b"ccollections\nOrderedDict\n)R}" + short(b"__class__") + b"cos\n_wrap_close\nsb.",
    "setstate": b"cbuiltins\nobject\n)\x81}" + short(b"__setstate__") + b"cos\nsystem\nsb" + CANARY + b"b.",
    "extension 1": b"\x82\x01.",
    "extension 2": b"\x83\x01\x00.",
    "extension 4": b"\x84\x01\x00\x00\x00.",
    "registry": reduce("copyreg", "add_extension", short(b"os") + short(b"system") + b"K\x01") + b"\x82\x01.",
    "persistent id": b"Px\n.",
    "persistent id of a list": b"]Q.",
    "out of band": b"\x97.",
    "read only": b"]\x98.",
    "empty": b"",
    "nothing": b".",
    "underflow": b"a.",
    "tuple of too few": b"N\x87.",
    "pop beyond a mark": b"N(0000.",
    "append through a mark": b"](Na.",
    "no mark": b"Nt.",
    "mark left": b"(N.",
    "values left": b"NN.",
    "odd items": b"}(Nu.",
    "items of a list": b"](NNu.",
    "append to a dict": b"}Na.",
    "memo": b"h\x07.",
    "memo place": b"Np-1\n.",
    "memo far": b"Nr\xff\xff\xff\xff.",
    "protocol": b"\x80\x09N.",
    "unknown opcode": b"\xfe.",
    "long": b"\x8b\xff\xff\xff\x7f.",
    "negative long": b"\x8b\xff\xff\xff\xff.",
    "long line": b"L" + b"9" * 5000 + b"L\n.",
    "integer line": b"I1_0\n.",
    "float line": b"Fabc\n.",
    "unicode": b"X\xff\xff\xff\xff.",
    "unicode 8": b"\x8d" + b"\xff" * 8 + b".",
    "bytes 8": b"\x8e" + struct.pack("<Q", 2**62) + b".",
    "bytearray 8": b"\x96" + struct.pack("<Q", 2**40) + b".",
    "negative string": b"T\xff\xff\xff\xff.",
    "frame": b"\x95" + b"\xff" * 8 + b"N.",
    "half a character": b"V\\ud800\n.",
    "not UTF-8": b"X\x01\x00\x00\x00\xff.",
    "quotes": b"Sabc\n.",
    "escape": b"S'\\q'\n.",
    "line without an end": b"Sabc",
    "name not printable": b"co\x1bs\nsystem\n.",
    "name too long": b"c" + b"a" * 300 + b"\nb\n.",
    "name of numbers": b"K\x01K\x02\x93.",
    "list as key": b"}]Ns.",
    "long as key": b"}\x8a\x10" + b"\x01" * 16 + b"Ns.",
    "nested key": b"}" + b")" + b"\x85" * 5000 + b"Ns.",
    "set of a string": b"cbuiltins\nset\n" + short(b"ab") + b"\x85R.",
    "encode to code": reduce("_codecs", "encode", short(b"ab") + short(b"rot13")) + b".",
    "list in itself": b"]2a.",
    "dict in itself": b"}2" + short(b"a") + b"N0hs.",
}
# A dict whose foreign state is dropped, and a memo that takes no more for a far place.
MOST_CALLS = 300_000
"""Most calls of functions that reading or refusing a hostile pickle may take: the most that any here takes is
100,133."""
HARMLESS = {"build", "memo far"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(60), deadline=None)
@given(value=PLAIN)
def test_plain_values_are_as_python_reads_them(protocol: int, value: object) -> None:
    data = pickle.dumps(value, protocol)
    found = read_plain(data)
    assert found == pickle.loads(data)
    assert repr(found) == repr(pickle.loads(data)) or isinstance(value, set | frozenset | dict | list | tuple)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kinds_of_dicts_become_dicts(protocol: int) -> None:
    values = [OrderedDict(b=1, a=2), Counter("abbb"), defaultdict(int, {"x": 1}), bytearray(b"\x00\xff")]
    found = read_plain(pickle.dumps(values, protocol))
    assert found == [{"b": 1, "a": 2}, {"a": 1, "b": 3}, {"x": 1}, b"\x00\xff"]
    assert isinstance(found, list)
    assert [type(value) for value in found] == [dict, dict, dict, bytes]
    assert list(found[0]) == ["b", "a"]


def test_ordered_dicts_of_python_2() -> None:
    pairs = pickle.dumps([["b", 1], ["a", 2]], 2)[2:-1]
    found = read_plain(b"\x80\x02ccollections\nOrderedDict\n" + pairs + b"\x85R.")
    assert list(found.items()) == [("b", 1), ("a", 2)]


def test_strings_of_python_2() -> None:
    assert read_plain(b"S'caf\\xc3\\xa9 \\'q\\'\\n'\np0\n.") == "café 'q'\n"
    assert read_plain(b"U\x05caf\xc3\xa9.") == "café"
    assert read_plain(b"T\x02\x00\x00\x00\xff\xfe.") == b"\xff\xfe"


def test_shared_values_stay_shared() -> None:
    shared = ["x"]
    first, second = read_plain(pickle.dumps([shared, shared]))
    assert first is second


class Vocab:
    """As the original's: words by id, ids by word, counts."""

    def __init__(self) -> None:
        self.counter = Counter({"the": 3, "of": 1})
        self.special = ["<eos>"]
        self.idx2sym = ["<eos>", "the", "of"]
        self.sym2idx = OrderedDict(zip(self.idx2sym, range(3), strict=True))


class Slots:
    __slots__ = ("a", "b")


class Words(list):
    """A list with an attribute."""


class Table(dict):
    """A dict of its own class."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_objects_are_inert_records(protocol: int) -> None:
    found = read_record(pickle.dumps(Vocab(), protocol))
    assert isinstance(found, PickledObject)
    assert found.name == Name(__name__, "Vocab")
    assert found.state["idx2sym"] == ["<eos>", "the", "of"]
    assert found.state["sym2idx"] == {"<eos>": 0, "the": 1, "of": 2}
    assert found.state["counter"] == {"the": 3, "of": 1}
    with pytest.raises(CheckpointError, match=r"plain values only.*a record of .*Vocab\. Export"):
        read_plain(pickle.dumps(Vocab(), protocol))


@pytest.mark.parametrize("protocol", range(2, 6))
def test_slots_lists_and_dicts_of_other_classes(protocol: int) -> None:
    slots, words = Slots(), Words(["x"])
    slots.a, slots.b, words.name = 1, 2, "n"
    found = read_record(pickle.dumps([slots, words, Table(k=1), argparse.Namespace(n_layer=4)], protocol))
    assert found[0].state == {"a": 1, "b": 2}
    assert (found[1].elements, found[1].state) == (["x"], {"name": "n"})
    assert found[2].items == {"k": 1}
    assert found[3].state == {"n_layer": 4}


def test_names_and_calls_are_not_followed(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with no_acts():
        found = read_record(HOSTILE["os.system"])
    assert isinstance(found, PickledObject)
    assert (found.name, found.arguments) == (Name("os", "system"), ("touch canary",))
    assert read_record(b"cbuiltins\neval\n.") == Name("builtins", "eval")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pickles(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with no_acts(), at_most(MOST_CALLS):
        if name not in HARMLESS:
            with pytest.raises(CheckpointError):
                read_plain(HOSTILE[name])
        with suppress(CheckpointError):
            read_record(HOSTILE[name])
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_file_and_the_place(tmp_path) -> None:
    path = tmp_path / "vocab.bin"
    path.write_bytes(b"\x80\x02]h\x07.")
    with pytest.raises(
        CheckpointError, match=r"vocab\.bin must .*filled before use; got 7, before byte 5\. It is broken"
    ):
        read_record(path)
    path.write_bytes(b"N.N.")
    with pytest.raises(CheckpointError, match="must end with its pickle"):
        read_record(path)
    with pytest.raises(CheckpointError, match=r"must be a readable file.*Check the path"):
        read_record(tmp_path / "nothing")


def test_lengths_take_no_memory() -> None:
    claims = [b"\x8d" + struct.pack("<Q", 2**40), b"\x8b\xff\xff\xff\x7f", b"X\xff\xff\xff\x7f", b"\x95" + b"\xff" * 8]
    tracemalloc.start()
    try:
        for claim in claims:
            with pytest.raises(CheckpointError):
                read_record(claim + b"abc.")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("levels", [30, 60, 5000])
def test_exponential_growth_is_not_written_out(levels: int) -> None:
    data = b")" + b"2\x86" * levels + b"."
    with at_most(MOST_CALLS):
        found = read_record(data)
        with pytest.raises(CheckpointError, match=r"nested deeper|written out"):
            read_plain(data)
    assert isinstance(found, tuple)


def test_deep_nesting_is_not_followed() -> None:
    deep = b"]" * 100_000 + b"a" * 99_999 + b"."
    assert isinstance(read_record(deep), list)
    with pytest.raises(CheckpointError, match="nested deeper than 64"):
        read_plain(deep)


def test_values_that_contain_themselves() -> None:
    loop: list[object] = []
    loop.append(loop)
    found = read_record(pickle.dumps(loop))
    assert found[0] is found
    with pytest.raises(CheckpointError, match="contains itself"):
        read_plain(pickle.dumps(loop))


@pytest.mark.parametrize(
    ("limit", "value", "data"),
    [
        ("MAX_STEPS", 1000, b"N0" * 600 + b"N."),
        ("MAX_CONTAINERS", 10, b"]0" * 11 + b"N."),
        ("MAX_MEMO", 10, b"N" + b"\x94" * 11 + b"."),
    ],
)
def test_limits(monkeypatch, limit: str, value: int, data: bytes) -> None:
    monkeypatch.setattr(interpreter, limit, value)
    with pytest.raises(CheckpointError, match=f"at most {value}"):
        read_record(data)


def test_copies_are_counted(monkeypatch) -> None:
    """A list of n made a set n times would take n * n."""
    monkeypatch.setattr(interpreter, "MAX_STEPS", 10_000)
    numbers = b"](" + b"".join(b"M" + struct.pack("<H", n) for n in range(1000)) + b"e\x94"
    data = b"cbuiltins\nset\n\x94" + numbers + b"0" + b"h\x00h\x01\x85R0" * 100 + b"."
    with pytest.raises(CheckpointError, match="at most 10000 steps"):
        read_record(data)


def test_long_strings_are_skipped(monkeypatch) -> None:
    monkeypatch.setattr(interpreter, "MAX_STRING", 100)
    assert read_record(pickle.dumps([b"x" * 101, "y" * 101, "z"])) == [Skipped(101), Skipped(101), "z"]
    with pytest.raises(CheckpointError, match="a Skipped"):
        read_plain(pickle.dumps(b"x" * 101))


def test_values_are_described_in_few_words() -> None:
    huge = 10**1000
    for value in [
        "x" * 1000,
        b"x" * 1000,
        huge,
        [huge],
        PickledObject(Name("a", "b"), (huge,)),
        Name("a", "b"),
        None,
        1.5,
    ]:
        assert len(describe(value)) < 60


def test_one_check_for_many_values() -> None:
    check = PlainCheck(limit=10)
    shared = list(range(5))
    assert check.problem({"a": shared}) is None
    assert check.problem([shared, shared]) == "more than 10 values when written out"


def test_a_vocabulary_of_real_size() -> None:
    words = [f"word{index}" for index in range(50_000)]
    value = {"idx2sym": words, "sym2idx": OrderedDict(zip(words, range(50_000), strict=True))}
    assert read_plain(pickle.dumps(value, 2)) == value


def test_work_beyond_the_bound_is_stopped() -> None:
    """An endless loop of calls, as a reader without a bound would make it."""
    endless = iter(lambda: len(""), None)
    with pytest.raises(TooMuchWorkError), at_most(1000):
        for _ in endless:
            pass
    with at_most(1000) as made:
        len("")
    assert 1 <= made[0] < 10
