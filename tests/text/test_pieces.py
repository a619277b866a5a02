import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from segue.errors import CheckpointError, DataError
from segue.text.pieces import LAYOUT, RESERVED, PieceTokenizer
from segue.text.train import sample_sentences, train_pieces, train_tokenizer
from tests.examples import examples
from tests.text.samples import CHINESE, CORPUS, ENGLISH, any_text, bpe, released_model, repaired, unigram

DATA = Path(__file__).parents[3] / "shared" / "data"


def tokens(tokenizer: PieceTokenizer, text: str) -> list[str]:
    return [tokenizer.token(int(index)) for index in tokenizer.encode(text)]


@pytest.mark.parametrize("make", [unigram, bpe])
def test_the_layout_is_that_of_the_release(make) -> None:
    tokenizer = make()
    assert [tokenizer.token(index) for index in range(9)] == list(LAYOUT)
    assert tokenizer.specials == {"unk": 0, "cls": 3, "sep": 4, "pad": 5, "mask": 6, "eod": 7, "eop": 8}
    assert tokenizer.token(9) == "\n"
    assert tokenizer.token(RESERVED - 1) == "<0xFF>"


@pytest.mark.parametrize("make", [unigram, bpe])
def test_offsets_by_hand(make) -> None:
    text = "船\u2581\U0001f468\u200dé\ud800"
    encoding = make().encode_with_offsets(text)
    spans = list(zip(encoding.starts.tolist(), encoding.ends.tolist(), strict=True))
    assert spans == [(0, 1)] + [(1, 2)] * 3 + [(2, 3)] * 4 + [(3, 4)] * 3 + [(4, 5)] * 2 + [(5, 6)] * 3


def test_full_width_forms_and_spaces_stay() -> None:
    for tokenizer in (unigram(), bpe()):
        for text in ("（船），“海”：１２３ＡＢＣ\u3000。", "  two  spaces \t tab\r\n\n\n", " leading", "trailing "):
            assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=any_text, other=any_text)
@settings(max_examples=examples(100), deadline=None)
def test_a_line_does_not_depend_on_other_lines(text: str, other: str) -> None:
    for tokenizer in (unigram(), bpe()):
        together = tokenizer.encode(f"{text}\n{other}")
        np.testing.assert_array_equal(
            together, np.concatenate([tokenizer.encode(f"{text}\n"), tokenizer.encode(other)])
        )


@pytest.mark.parametrize("make", [unigram, bpe])
def test_a_cut_before_a_space_changes_nothing(make) -> None:
    line = ENGLISH.replace("\n", " ")
    np.testing.assert_array_equal(make().encode(line * 40), np.concatenate([make().encode(line[:-1])] + [
        make().encode(" " + line[:-1])] * 39 + [make().encode(" ")]))  # fmt: skip


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_training_is_reproducible(kind) -> None:
    first = train_pieces(iter(CORPUS), kind=kind, vocabulary_size=420)
    assert first.size == 420
    assert first.fingerprint() == train_pieces(CORPUS, kind=kind, vocabulary_size=420).fingerprint()
    assert first.fingerprint() != train_pieces(CORPUS, kind=kind, vocabulary_size=419).fingerprint()


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_space_has_a_piece_even_if_the_texts_have_none(kind) -> None:
    tokenizer = train_pieces([CHINESE], kind=kind, vocabulary_size=357)
    assert tokens(tokenizer, " ") == ["\u2581"]
    assert tokenizer.decode(tokenizer.encode("船 海\u2581 ")) == "船 海\u2581 "


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@given(texts=st.lists(any_text, min_size=1, max_size=5))
@example(texts=["<sep><unk></s> <mask>" * 20])
@example(texts=["\u2585 \u2581 \0a\t"])
@settings(max_examples=examples(40), deadline=None)
def test_any_text_can_be_trained_on(kind, texts: list[str]) -> None:
    """SentencePiece ends the whole process on some inputs; none of them may reach it."""
    if not sample_sentences(texts, max_sentences=9, seed=0):
        return
    with pytest.raises(DataError, match="must be at most") as caught:
        train_pieces(texts, kind=kind, vocabulary_size=50_000)
    largest = int(str(caught.value).split("at most ")[1].split()[0])
    tokenizer = train_pieces(texts, kind=kind, vocabulary_size=largest)
    for text in texts:
        assert tokenizer.decode(tokenizer.encode(text)) == repaired(text)


def test_sizes_that_do_not_fit_are_explained() -> None:
    with pytest.raises(DataError, match=r"must be at most \d+ for these texts; got 50000"):
        train_pieces(CORPUS, kind="unigram", vocabulary_size=50_000)
    with pytest.raises(DataError, match=r"must be at most (\d+) for these texts") as caught:
        train_pieces([ENGLISH], kind="bpe", vocabulary_size=50_000)
    largest = int(str(caught.value).split("at most ")[1].split()[0])
    assert train_pieces([ENGLISH], kind="bpe", vocabulary_size=largest).size == largest
    with pytest.raises(DataError, match=r"must be at least \d+ for the characters"):
        train_pieces(CORPUS, vocabulary_size=RESERVED + 5)
    with pytest.raises(DataError, match=f"must be above {RESERVED}"):
        train_pieces(CORPUS, vocabulary_size=100)
    for texts in ([], [""], ["\n\n"], ["\0\t"]):
        with pytest.raises(DataError, match="must have characters"):
            train_pieces(texts, vocabulary_size=300)
    with pytest.raises(DataError, match="character_coverage"):
        train_pieces(CORPUS, vocabulary_size=300, character_coverage=0.0)
    with pytest.raises(DataError, match="max_sentences"):
        train_pieces(CORPUS, vocabulary_size=300, max_sentences=0)
    with pytest.raises(DataError, match="unigram or bpe"):
        train_pieces(CORPUS, kind="word", vocabulary_size=300)
    with pytest.raises(DataError, match="vocabulary_size must be given"):
        train_tokenizer("bpe", CORPUS)
    with pytest.raises(DataError, match="one of unigram"):
        train_tokenizer("wordpiece", CORPUS)


def test_the_sample_is_seeded_bounded_and_fair() -> None:
    texts = [f"{number}\n" for number in range(2000)]
    sample = sample_sentences(texts, max_sentences=100, seed=1)
    assert len(sample) == 100
    assert sample == sample_sentences(iter(texts), max_sentences=100, seed=1)
    assert sample != sample_sentences(texts, max_sentences=100, seed=2)
    assert 700 < np.mean([int(text) for text in sample]) < 1300
    assert sample_sentences(["a" * 2500], max_sentences=9, seed=0) == ["a" * 1000, "a" * 1000, "a" * 500]
    assert sample_sentences(["b " * 400], max_sentences=9, seed=0) == ["b " * 400]


def test_word_starts() -> None:
    tokenizer = bpe()
    starts = tokenizer.word_starts()
    by_token = {tokenizer.token(index): bool(starts[index]) for index in range(tokenizer.size)}
    assert all(by_token[token] for token in (*LAYOUT, "\n", "\u2581", "\u2581the", ",", "船", "，", "<0x20>", "<0xE8>"))
    assert not any(by_token[token] for token in ("e", "er", "<0x88>", "<0x41>"))


def test_other_models_are_refused() -> None:
    with pytest.raises(CheckpointError, match="read_pieces"):
        PieceTokenizer(released_model())
    for model in (b"", b"not a model", released_model()[:-100], released_model()[:50]):
        with pytest.raises(CheckpointError, match="must be a"):
            PieceTokenizer(model)


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data sets are not beside the repository")
def test_real_text_round_trips() -> None:
    with lzma.open(DATA / "wikitext2" / "valid.txt.xz", "rt", encoding="utf-8") as file:
        english = file.read()[:400_000]
    with lzma.open(DATA / "cmrc2018" / "cmrc2018_trial.json.xz", "rt", encoding="utf-8") as file:
        chinese = json.load(file)
    texts = [english, json.dumps(chinese, ensure_ascii=False)[:200_000]]
    for kind in ("unigram", "bpe"):
        tokenizer = train_pieces([text[:100_000] for text in texts], kind=kind, vocabulary_size=5000)
        for text in texts:
            encoding = tokenizer.encode_with_offsets(text)
            assert tokenizer.decode(encoding.ids) == text
            assert encoding.ends[-1] == len(text)
