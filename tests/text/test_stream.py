"""Text that comes in parts, and ids that come one by one; more on the latter is in `test_promises`."""

import dataclasses
import functools
import io
import itertools
import json
import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer

from segue.errors import DataError
from segue.text.pieces import PieceTokenizer
from segue.text.released import ReleasedPieces
from segue.text.stream import StreamDecoder, StreamEncoder
from segue.text.symbols import ByteTokenizer, ListedBytes, collect_characters
from segue.text.tokenizer import Tokenizer, Unfinished
from segue.text.train import train_pieces
from segue.text.words import WordTokenizer, count_words
from tests.text.samples import CHINESE, CORPUS, ENGLISH, HARD, KINDS, any_text, make, repaired

# Runs that can be written in several ways with one and the same score: only the rounding of sums decides.
REPEATS = "aaaaaaaa aaa aa aaaaa ====== === == = 101010 1010 10 1 010 01 船船船 船船 灯灯灯灯 灯灯\n"


@functools.cache
def tied(kind: str) -> PieceTokenizer:
    return train_pieces([ENGLISH * 20, CHINESE * 20, REPEATS * 50], kind=kind, vocabulary_size=455)


@functools.cache
def other_release(*, vocab_size: int = 300, **how: object) -> ReleasedPieces:
    """Models as others release them: with other settings than XLNet's."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter([*ENGLISH.split("\n"), *CHINESE.split("\n"), REPEATS] * 5),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        num_threads=1,
        minloglevel=2,
        **how,
    )
    return ReleasedPieces(model.getvalue(), lower=True)


MORE = {
    "listed bytes": lambda: ListedBytes([number for number in range(255, -1, -1) if number != 10]),
    "words without lines": lambda: count_words(CORPUS),
    "words in lower case": lambda: count_words([*CORPUS, "ΟΔΟΣ ΣΑΣ"], lower=True, add_eos=True),
    "no words": lambda: count_words([], add_eos=True),
    "tied unigram": lambda: tied("unigram"),
    "tied bpe": lambda: tied("bpe"),
    "released bpe": lambda: other_release(model_type="bpe"),
    "released with bytes": lambda: other_release(byte_fallback=True, character_coverage=0.98, vocab_size=400),
    "released with repeats": lambda: other_release(vocab_size=340),
    "released without prefix": lambda: other_release(add_dummy_prefix=False),
    "released that keeps spaces": lambda: other_release(remove_extra_whitespaces=False),
    "released with suffixes": lambda: other_release(treat_whitespace_as_suffix=True),
    "released across words": lambda: other_release(split_by_whitespace=False),
}
every_kind = pytest.mark.parametrize("kind", [*KINDS, *MORE])
tries = settings(max_examples=20, deadline=None)
some_text = st.one_of(
    any_text,
    st.text("ab10= \n船灯老人，Σσ\u0301\u2581\ud83d\ude00'`,", max_size=80),
    st.lists(st.sampled_from([*REPEATS.split(), *ENGLISH.split()[:20], " ", "  ", "\n", "守塔的", "海浪。"])).map(
        "".join
    ),
)
some_cuts = st.lists(st.integers(0, 300), max_size=30)


@functools.cache
def tokenizer_of(kind: str) -> Tokenizer:
    return MORE[kind]() if kind in MORE else make(kind)


def streamed(tokenizer: Tokenizer, parts: list[str]) -> list[int]:
    encoder = StreamEncoder(tokenizer)
    ids = [encoder.feed(part) for part in parts] + [encoder.finish()]
    assert encoder.state == Unfinished()
    assert all(array.dtype == np.int64 for array in ids)
    return np.concatenate(ids).tolist()


def cut(text: str, cuts: list[int]) -> list[str]:
    edges = sorted([0, len(text), *(place for place in cuts if place < len(text))])
    return [text[a:b] for a, b in itertools.pairwise(edges)]


def spaced(text: str) -> str:
    """The rule for words that are too long, word by word."""
    return " ".join(" ".join(word[n : n + 8192] for n in range(0, len(word), 8192)) for word in text.split())


@pytest.mark.one_in(3)
@every_kind
@given(text=some_text, cuts=some_cuts)
@example(text="".join(HARD), cuts=list(range(0, 1000, 7)))
@example(text="", cuts=[])
@tries
def test_any_cut_gives_the_ids_of_the_whole(kind: str, text: str, cuts: list[int]) -> None:
    tokenizer = tokenizer_of(kind)
    whole = tokenizer.encode(text).tolist()
    assert streamed(tokenizer, cut(text, cuts)) == whole
    assert streamed(tokenizer, list(text)) == whole


@pytest.mark.one_in(3)
@every_kind
@given(text=some_text, cuts=some_cuts)
@tries
def test_what_waits_is_the_end_of_the_text(kind: str, text: str, cuts: list[int]) -> None:
    tokenizer = tokenizer_of(kind)
    encoder = StreamEncoder(tokenizer)
    fed, ids = "", []
    for part in cut(text, cuts):
        ids += encoder.feed(part).tolist()
        fed += repaired(part)
        if "released" in kind:
            assert " ".join(fed.split()).endswith(" ".join(encoder.waiting.split()))
        else:
            assert fed.endswith(encoder.waiting)
        assert len(encoder.state.text) <= 4096
        # Another encoder goes on from a state that went through JSON.
        saved = json.loads(json.dumps(dataclasses.asdict(encoder.state)))
        encoder = StreamEncoder(tokenizer, state=Unfinished(**saved))
    assert ids + encoder.finish().tolist() == tokenizer.encode(text).tolist()


@pytest.mark.one_in(4)
@every_kind
def test_lines_and_stretches_that_are_long(kind: str) -> None:
    """Lengths about the places where long lines are cut, with and without spaces and newlines there."""
    tokenizer, chance = tokenizer_of(kind), random.Random(1)
    words = [*ENGLISH.split(), *REPEATS.split()]
    chinese = CHINESE.replace("\n", "")
    for length in (2047, 2049, 4096, 4097):
        with_spaces = " ".join(chance.choice(words) for _ in range(length))[:length]
        without = (chinese * 60)[:length]
        runs = "".join(chance.choice("aa船灯") for _ in range(length))
        for body in (with_spaces, without, runs):
            text = body + chance.choice(["", "\n", "\n" * 600, " ", "x" * 3, " the" * 3]) + body[::-1][:3000]
            cuts = [chance.randrange(len(text)) for _ in range(40)]
            whole = tokenizer.encode(spaced(text) if "released" in kind or "fast" in kind else text).tolist()
            assert streamed(tokenizer, cut(text, cuts)) == whole, (length, body[:20])


@pytest.mark.parametrize(
    "kind", ["words", "unigram", "tied bpe", "released", "released accents", "released with bytes", "fast"]
)
@pytest.mark.parametrize(
    "stretch", ["ab ", "守塔的老人", "a" * 99 + "\n", "x \u0301 \u00a8\ufdfa", " ", "\u2581", "e\u0301"]
)
def test_memory_does_not_grow(kind: str, stretch: str) -> None:
    tokenizer = tokenizer_of(kind)
    encoder = StreamEncoder(tokenizer)
    for _ in range(5):
        encoder.feed(stretch * (4000 // len(stretch)))
        assert len(encoder.state.text) <= 12_400


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["released", "released lower", "released accents", "released with repeats"])
def test_a_released_model_cuts_words_that_are_too_long(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    chinese, chance = CHINESE.replace("\n", ""), random.Random(2)
    for lengths in ([8192], [8193], [20_000], [100, 8192, 8193], [30_000, 20, 16_385]):
        words = [(chinese * 300)[:length] for length in lengths]
        text = "\n".join(words)
        assert len(spaced(text)) == len(text) + sum((length - 1) // 8192 for length in lengths)
        for count in (0, 3, 50):
            cuts = [chance.randrange(len(text)) for _ in range(count)]
            assert streamed(tokenizer, cut(text, cuts)) == tokenizer.encode(spaced(text)).tolist()


def test_the_ties_are_real() -> None:
    """Where scores are equal, a word alone may be written otherwise than after a text: the tests above can fail."""
    tokenizer, chance = tied("unigram"), random.Random(0)
    differ = 0
    for _ in range(1000):
        before = " ".join(chance.choice(ENGLISH.split()) for _ in range(chance.randrange(1, 100)))
        word = " " + "a" * chance.randrange(1, 20)
        apart = [*tokenizer.encode(before).tolist(), *tokenizer.encode(word).tolist()]
        differ += tokenizer.encode(before + word).tolist() != apart
    assert differ > 0


def fed(kind: str, *parts: str) -> list[tuple[list[str], str]]:
    tokenizer = tokenizer_of(kind)
    encoder = StreamEncoder(tokenizer)
    return [([tokenizer.token(int(i)) for i in encoder.feed(part)], encoder.waiting) for part in parts]


def test_what_waits_by_hand() -> None:
    assert fed("bytes", "é") == [(["<0xC3>", "<0xA9>"], "")]
    assert fed("characters", "\ud83d", "船") == [(["<unk>"], ""), (["船"], "")]
    assert fed("words", "the sh", "ip", "\n") == [(["the"], "sh"), ([], "ship"), (["ship", "<eos>"], "")]
    assert fed("unigram", "the ship", "s", "\n") == [(["the"], " ship"), (["▁ship"], "s"), (["s", "\n"], "")]
    assert fed("unigram", "老人经", "过", "经\u2581") == [
        (["老", "人"], "经"),
        (["经过"], ""),
        (["经", "<0xE2>", "<0x96>", "<0x81>"], ""),
    ]
    assert fed("released", " the  keeper", "  ", "老人", "数") == [
        (["▁the"], "keeper"),
        (["▁keeper"], ""),
        (["▁", "老"], "人"),
        (["人"], "数"),
    ]
    assert fed("released", "cafe", "\u0301 ") == [([], "cafe"), (["▁", "c", "a", "f", "e"], "")]


def test_a_word_that_is_too_long_is_unknown_at_once() -> None:
    tokenizer = WordTokenizer(["the", "sea"], add_eos=True)
    encoder = StreamEncoder(tokenizer)
    assert encoder.feed("these").tolist() == [tokenizer.specials["unk"]]
    for _ in range(100):
        assert encoder.feed("a" * 1000).tolist() == []
        assert len(encoder.state.text) == 4
    assert encoder.feed(" sea ").tolist() == tokenizer.encode("sea").tolist()
    with pytest.raises(DataError, match="every word must be in a vocabulary"):
        StreamEncoder(WordTokenizer(["the"], specials=())).feed("these")


def test_a_part_that_is_refused_changes_nothing() -> None:
    tokenizer = WordTokenizer(["the", "sea"], specials=())
    encoder = StreamEncoder(tokenizer)
    assert encoder.feed("the se").tolist() == tokenizer.encode("the").tolist()
    with pytest.raises(DataError, match="every word"):
        encoder.feed("x ")
    assert encoder.feed("a ").tolist() == tokenizer.encode("sea").tolist()
    characters = StreamEncoder(collect_characters(["abc"], specials=()))
    with pytest.raises(DataError, match="every character"):
        characters.feed("x")
    assert characters.feed("abc").tolist() == [0, 1, 2]


@pytest.mark.parametrize("state", [
    Unfinished(text="ab", read=3, given=0),
    Unfinished(text="ab", read=-1, given=0),
    Unfinished(text="the sea", read=3, given=7),
    Unfinished(text="the sea", read=0, given=1),
])  # fmt: skip
def test_a_state_of_something_else_is_refused(state: Unfinished) -> None:
    for kind in ("unigram", "words", "released", "bytes"):
        with pytest.raises(DataError, match="must be one of the same tokeniser"):
            StreamEncoder(tokenizer_of(kind), state=state)


@pytest.mark.parametrize("kind", ["bytes", "words", "unigram", "bpe", "released", "released without prefix"])
def test_character_by_character_and_all_at_once_are_quick(kind: str) -> None:
    """Neither is quadratic: these would take minutes."""
    tokenizer = tokenizer_of(kind)
    text = (ENGLISH + CHINESE) * 200
    assert streamed(tokenizer, [text]) == tokenizer.encode(text).tolist()
    short = text[:1500]
    assert streamed(tokenizer, list(short)) == tokenizer.encode(short).tolist()


# Ids to text.


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", [*KINDS, "released without prefix", "released with bytes"])
@given(ids=st.lists(st.integers(0, 10_000), max_size=200), at=st.integers(0, 200))
@tries
def test_a_stream_goes_on_after_a_prompt(kind: str, ids: list[int], at: int) -> None:
    tokenizer = tokenizer_of(kind)
    ids = [index % tokenizer.size for index in ids]
    before, later = ids[:at], ids[at:]
    stream = StreamDecoder(tokenizer, after=before)
    text = "".join([stream.feed([index]) for index in later] + [stream.finish()])
    shown = tokenizer.decode(before)
    if not shown.endswith("\ufffd"):
        assert shown + text == tokenizer.decode(ids)


def test_the_space_of_the_next_word_is_not_lost() -> None:
    for kind in ("words", "released", "unigram"):
        tokenizer = tokenizer_of(kind)
        prompt, rest = tokenizer.encode("the"), tokenizer.encode("the keeper")[1:]
        assert tokenizer.decode([*prompt, *rest]) == "the keeper"
        assert StreamDecoder(tokenizer, after=prompt).feed(rest) == " keeper"


@every_kind
def test_many_spaces_stay(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    visible, space = tokenizer.encode("船")[-1:].tolist(), tokenizer.encode("\n  a")[:-1].tolist()
    ids = visible + space * 400 + visible
    stream = StreamDecoder(tokenizer)
    parts = [stream.feed([index]) for index in ids] + [stream.finish()]
    assert "".join(parts) == tokenizer.decode(ids)


def test_marks_alone_in_a_released_model_stay() -> None:
    tokenizer = make("released")
    names = [tokenizer.token(index) for index in range(tokenizer.size)]
    ship, mark = names.index("船"), names.index("\u2581")
    for ids in ([ship] + [mark] * 400 + [ship], [mark] * 400 + [ship]):
        stream = StreamDecoder(tokenizer)
        parts = [stream.feed([index]) for index in ids] + [stream.finish()]
        assert "".join(parts) == tokenizer.decode(ids)


@pytest.mark.parametrize("pattern", [[0xFF], [0xF0, 0x9F, 0x98], [0xE8, 0x88], [0x80]])
def test_bytes_that_are_no_text_do_not_pile_up(pattern: list[int]) -> None:
    tokenizer = ByteTokenizer()
    ids = pattern * 1000
    stream = StreamDecoder(tokenizer)
    parts = []
    for index in ids:
        parts.append(stream.feed([index]))
        assert len(stream._ids) <= 64
    parts += [stream.feed(list("船".encode())), stream.finish()]
    assert "".join(parts) == tokenizer.decode([*ids, *"船".encode()])
