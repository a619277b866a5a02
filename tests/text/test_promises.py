"""The promises of `segue.text.tokenizer`, tried on every kind with random Unicode."""

import hashlib
import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from segue.errors import DataError
from segue.text.stream import StreamDecoder
from tests.examples import examples
from tests.text.samples import CHINESE, ENGLISH, HARD, KINDS, LOSSLESS, TILED, any_text, make, repaired

every_kind = pytest.mark.parametrize("kind", KINDS)
lossless = pytest.mark.parametrize("kind", LOSSLESS)
tries = settings(max_examples=examples(80), deadline=None)


@every_kind
@given(text=any_text)
@example(text="".join(HARD))
@example(text=" ")
@example(text="")
@tries
def test_ids_with_and_without_offsets_are_equal(kind: str, text: str) -> None:
    tokenizer = make(kind)
    encoding = tokenizer.encode_with_offsets(text)
    np.testing.assert_array_equal(tokenizer.encode(text), encoding.ids)
    assert encoding.ids.dtype == encoding.starts.dtype == encoding.ends.dtype == np.int64
    assert len(encoding.ids) == len(encoding.starts) == len(encoding.ends)
    assert ((encoding.ids >= 0) & (encoding.ids < tokenizer.size)).all()


@every_kind
@given(text=any_text)
@example(text="".join(HARD))
@tries
def test_offsets_never_fall_and_stay_inside(kind: str, text: str) -> None:
    encoding = make(kind).encode_with_offsets(text)
    bounds = [0, *encoding.starts.tolist()], [*encoding.ends.tolist(), len(text)]
    assert all(a <= b for side in bounds for a, b in itertools.pairwise(side))
    assert (encoding.starts <= encoding.ends).all()
    if encoding.ends.size:
        assert encoding.starts[0] >= 0


@lossless
@given(text=any_text)
@example(text="".join(HARD))
@tries
def test_lossless_kinds_give_the_text_back(kind: str, text: str) -> None:
    tokenizer = make(kind)
    assert tokenizer.decode(tokenizer.encode(text)) == repaired(text)


@pytest.mark.parametrize("kind", [*TILED, "characters"])
@given(text=any_text)
@example(text="".join(HARD))
@tries
def test_spans_tile_the_text(kind: str, text: str) -> None:
    encoding = make(kind).encode_with_offsets(text)
    spans = sorted(set(zip(encoding.starts.tolist(), encoding.ends.tolist(), strict=True)))
    assert "".join(text[start:end] for start, end in spans) == text
    assert all(start < end for start, end in spans)


@pytest.mark.parametrize("kind", TILED)
@given(text=any_text)
@tries
def test_a_token_decodes_to_its_span(kind: str, text: str) -> None:
    tokenizer = make(kind)
    encoding = tokenizer.encode_with_offsets(text)
    spans = list(zip(encoding.starts.tolist(), encoding.ends.tolist(), strict=True))
    for start, end in set(spans):
        ids = [int(i) for i, span in zip(encoding.ids, spans, strict=True) if span == (start, end)]
        assert tokenizer.decode(ids) == repaired(text[start:end])


@lossless
@given(first=any_text, second=any_text)
@tries
def test_texts_encoded_apart_decode_together(kind: str, first: str, second: str) -> None:
    tokenizer = make(kind)
    ids = np.concatenate([tokenizer.encode(first), tokenizer.encode(second)])
    assert tokenizer.decode(ids) == repaired(first) + repaired(second)


@every_kind
@given(text=any_text)
@example(text="".join(HARD))
@tries
def test_text_never_gives_a_special_id(kind: str, text: str) -> None:
    tokenizer = make(kind)
    forbidden = {index for name, index in tokenizer.specials.items() if name != "unk"}
    assert len(forbidden) == {"byte pairs": 1, "word pieces": 4, "word pieces with case": 4}.get(kind, 6)
    assert not forbidden & set(tokenizer.encode(text).tolist())
    if kind in LOSSLESS:
        assert tokenizer.specials.get("unk") not in tokenizer.encode(text)


@every_kind
@given(ids=st.lists(st.integers(0, 10_000), max_size=120), cuts=st.lists(st.integers(0, 120)))
@tries
def test_a_stream_gives_what_decode_gives(kind: str, ids: list[int], cuts: list[int]) -> None:
    check_stream(kind, [index % make(kind).size for index in ids], cuts)


@lossless
@given(text=any_text, cuts=st.lists(st.integers(0, 300)))
@tries
def test_a_stream_of_text_never_gives_half_a_character(kind: str, text: str, cuts: list[int]) -> None:
    tokenizer = make(kind)
    parts = check_stream(kind, tokenizer.encode(text).tolist(), cuts)
    assert "".join(parts).count("\ufffd") == repaired(text).count("\ufffd")


def check_stream(kind: str, ids: list[int], cuts: list[int]) -> list[str]:
    tokenizer = make(kind)
    edges = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    stream = StreamDecoder(tokenizer)
    parts = [stream.feed(ids[a:b]) for a, b in itertools.pairwise(edges)]
    parts.append(stream.finish())
    assert "".join(parts) == tokenizer.decode(ids)
    return parts


@every_kind
def test_a_long_stream_one_by_one(kind: str) -> None:
    tokenizer = make(kind)
    ids = tokenizer.encode((ENGLISH + CHINESE) * 5).tolist()
    stream = StreamDecoder(tokenizer)
    assert "".join([stream.feed([index]) for index in ids] + [stream.finish()]) == tokenizer.decode(ids)
    assert stream.feed(ids[:5]) + stream.finish() == tokenizer.decode(ids[:5])


def test_a_stream_waits_for_the_last_byte() -> None:
    stream = StreamDecoder(make("bytes"))
    assert [stream.feed([byte]) for byte in "a船".encode()] == ["a", "", "", "船"]
    assert stream.feed([0xE8, 0x88]) == ""
    assert stream.finish() == "\ufffd"


@every_kind
def test_small_things(kind: str) -> None:
    tokenizer = make(kind)
    assert tokenizer.encode("").tolist() == []
    assert tokenizer.encode_with_offsets("").starts.tolist() == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.decode([index for name, index in tokenizer.specials.items()]) == ""
    assert len(tokenizer.word_starts()) == tokenizer.size
    assert len({tokenizer.token(index) for index in range(tokenizer.size)}) == tokenizer.size
    for index in (-1, tokenizer.size):
        with pytest.raises(DataError, match="ids must be from 0 to"):
            tokenizer.decode([index])
        with pytest.raises(DataError, match="ids must be from 0 to"):
            tokenizer.token(index)
    assert tokenizer.fingerprint() == make(kind).fingerprint()


@pytest.mark.one_in(3)
@every_kind
@pytest.mark.parametrize("stretch", ["a", "船", "the keeper ", "\u2581", "\n", "\U0001f468", "e\u0301"])
def test_long_lines(kind: str, stretch: str) -> None:
    """No kind may be quadratic: 100,000 characters in one line would take minutes."""
    text = stretch * (100_000 // len(stretch))
    tokenizer = make(kind)
    ids = tokenizer.encode(text)
    if kind in LOSSLESS:
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_one_line_of_two_megabytes(kind: str) -> None:
    text = (ENGLISH.replace("\n", " ") + CHINESE.replace("\n", "")) * 3000
    tokenizer = make(kind)
    encoding = tokenizer.encode_with_offsets(text)
    assert encoding.ends[-1] == len(text) > 1_000_000
    assert tokenizer.decode(encoding.ids) == text


def test_all_kinds_differ_in_fingerprint() -> None:
    prints = [make(kind).fingerprint() for kind in KINDS]
    assert len(set(prints)) == len(KINDS)
    assert all(len(value) == len(hashlib.sha256().hexdigest()) for value in prints)
