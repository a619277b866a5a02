"""The `tokenizer.json` of transformers 5: files of anyone are used or refused, and never hang or reach the library.

The promises of all tokenisers are tried in test_promises.py, the equality with transformers in tests/parity.
"""

import base64
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.checkpoint.unigram import described
from segue.errors import CheckpointError
from segue.text.fast import FastTokenizer, read_fast
from segue.text.library import LARGEST
from segue.text.pieces import LAYOUT
from segue.text.stream import StreamEncoder
from tests.examples import examples
from tests.text.samples import CHINESE, ENGLISH, HARD, fast, released_model


def values() -> dict[str, Any]:
    found = described(released_model(), lower=False)
    assert found is not None
    return found


def made(description: dict[str, Any]) -> FastTokenizer:
    return FastTokenizer(json.dumps(description).encode(), source="some/tokenizer.json")


def tokens(tokenizer: FastTokenizer, text: str) -> list[str]:
    return [tokenizer.token(index) for index in tokenizer.encode(text)]


def test_pieces_and_offsets() -> None:
    found = fast().encode_with_offsets("The  keeper, naïf")
    pieces = [fast().token(index) for index in found.ids]
    assert "".join(pieces) == "▁The▁keeper,▁naif"
    assert found.starts[0] == 0
    assert found.ends[-1] == len("The  keeper, naïf")
    assert fast().decode(found.ids) == "The keeper, naif"


@pytest.mark.parametrize("name", ["<sep>", "<cls>", "<mask>", "<eop>", "<eod>", "<pad>", "<s>", "</s>"])
def test_a_special_token_in_a_text_is_its_characters(name: str) -> None:
    control = {index for index in range(fast().size) if fast().token(index) in LAYOUT} - {fast().specials["unk"]}
    ids = fast().encode(f"a{name}b {name}").tolist()
    assert not control & set(ids)
    assert len(ids) > 4


def test_tokens_that_were_added_to_the_vocabulary() -> None:
    """Special ones are never found in a text; others are, under the ids that the file gives them."""
    changed = values()
    size = len(changed["model"]["vocab"])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    changed["added_tokens"] += [
        {"id": size, "content": "<speaker>", "special": True} | flags,
        {"id": size + 1, "content": "[lamp]", "special": False} | flags,
        {"id": size + 2, "content": "<other>", "special": True} | flags,
    ]
    tokenizer = made(changed)
    assert tokenizer.size == size + 3
    ids = tokenizer.encode("the [lamp] <speaker>s <other>").tolist()
    assert size + 1 in ids
    assert size not in ids
    assert size + 2 not in ids
    assert tokenizer.token(size + 1) == "[lamp]"
    assert tokenizer.decode([size, size + 1, size + 2]) == "[lamp]"


def test_a_token_with_a_space_waits_for_the_end_of_a_stream() -> None:
    changed = values()
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    size = len(changed["model"]["vocab"])
    changed["added_tokens"].append({"id": size, "content": "old keeper", "special": False} | flags)
    stream = StreamEncoder(made(changed))
    assert not len(stream.feed("the old "))
    assert stream.feed("keeper").tolist() + stream.finish().tolist() == made(changed).encode("the old keeper").tolist()


@given(
    text=st.text(st.sampled_from("a b\u0301\u200d \n\u3000船经过的①\U0001f3fb\U0001f468.(\u2581")),
    cut=st.integers(0, 20),
)
@settings(max_examples=examples(300), deadline=None)
def test_a_text_in_parts_gives_the_ids_of_the_whole(text: str, cut: int) -> None:
    stream = StreamEncoder(fast())
    ids = [*stream.feed(text[:cut]), *stream.feed(text[cut:]), *stream.finish()]
    assert ids == fast().encode(text).tolist()


def test_chinese_does_not_wait_for_a_space() -> None:
    stream = StreamEncoder(fast())
    text = CHINESE.replace("\n", "")
    fed = [index for character in text for index in stream.feed(character)]
    assert len(fed) > len(fast().encode(text)) / 2
    assert fed + stream.finish().tolist() == fast().encode(text).tolist()


def normalizer(*steps: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        found["normalizer"]["normalizers"] += steps

    return change


def table(data: bytes | str) -> Callable[[dict[str, Any]], None]:
    text = data if isinstance(data, str) else base64.b64encode(data).decode()

    def change(found: dict[str, Any]) -> None:
        found["normalizer"]["normalizers"][-1]["precompiled_charsmap"] = text

    return change


def piece(index: int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        found["model"]["vocab"][index] = value

    return change


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        for key in path[:-1]:
            found = found[key]
        found[path[-1]] = value

    return change


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "regular expression": (
        normalizer({"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}),
        "other normalisation",
    ),
    "growth": (
        normalizer(*[{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 40),
        "other normalisation: Replace, Replace, NFKD",
    ),
    "long replacement": (table(b"\0\0\0\0" + b"a" * 1000 + b"\0"), "more than 128 bytes"),
    "cut table": (table(b"\xff\xff\xff\x7f"), "not whole"),
    "no base64": (table("?"), "not in base64"),
    "words": (put("pre_tokenizer", value={"type": "Split", "pattern": {"Regex": "x"}}), "another pre-tokenizer"),
    "model": (put("model", "type", value="BPE"), "a model that is not XLNet's: BPE"),
    "bytes": (put("model", "byte_fallback", value=True), "a model that is not XLNet's"),
    "unknown": (put("model", "unk_id", value=10**9), "the unknown piece 1000000000"),
    "no pieces": (put("model", "vocab", value=[]), "no list of at most"),
    "nonsense": (put("model", "vocab", value=7), "no list of at most"),
    "infinite": (piece(20, ["x", 1e999]), "where a number should be"),
    "huge": (piece(20, ["x", 10**400]), "another form"),
    "long piece": (piece(20, ["x" * 2000, -1.0]), "not a text of 1 to 1024 characters"),
    "empty piece": (piece(20, ["", -1.0]), "not a text of 1 to 1024 characters"),
    "surrogate": (piece(20, ["\ud800", -1.0]), "not a text of 1 to 1024 characters"),
    "twice": (piece(20, ["▁the", -1.0]), "a piece twice"),
    "added": (
        put("added_tokens", value=[{"id": 10**6, "content": "<new>", "special": True}]),
        "the token '<new>' with the id 1000000",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_transformers_does_not_write_is_refused(name: str) -> None:
    change, message = HOSTILE[name]
    found = values()
    change(found)
    with pytest.raises(CheckpointError, match=r"some/tokenizer.json must be as transformers 5 writes it") as caught:
        made(found)
    assert message in str(caught.value)
    assert "--vocabulary spiece.model" in caught.value.on_command_line


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b"7", b"{}", b"\xff", b'{"normalizer": null}'])
def test_no_description_at_all(data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"must be as transformers 5 writes it"):
        FastTokenizer(data)


def test_a_table_that_the_library_cannot_follow() -> None:
    """A trie that leads out of itself makes the library panic, which is no Exception."""
    found = values()
    table(b"\x04\0\0\0" + b"\xff\xff\xff\x7f" + b"a\0")(found)
    with pytest.raises(CheckpointError, match="must be usable by the tokenizers library"):
        made(found).encode("".join(HARD) + ENGLISH)


@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.long)])
def test_damaged_files_are_used_or_refused(count: int) -> None:
    chance, refused = random.Random(count), 0
    data = json.dumps(values()).encode()
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 5))):
            place = chance.randrange(len(changed))
            changed[place : place + chance.choice((0, 1, 4))] = chance.randbytes(chance.choice((0, 1, 4)))
        try:
            tokenizer = FastTokenizer(bytes(changed))
            for text in (ENGLISH, CHINESE, "é ﬁ ½ 12,  \u2581 <eop> \ud800"):
                tokenizer.decode(tokenizer.encode(text))
                tokenizer.encode_with_offsets(text)
        except CheckpointError:
            refused += 1
    assert refused > count / 3


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(CheckpointError, match=r"some/tokenizer.json .*pip install tokenizers"):
        made(values())


def test_files_have_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(CheckpointError, match="must have at most"):
        read_fast(path)
