"""Text in another language than the tokeniser's is noticed, and text in its own is not."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import segue
from segue.errors import SegueWarning
from segue.infer.documents import text_parts
from segue.infer.embed import EmbedSettings, embed
from segue.infer.score import ScoreSettings, score
from segue.infer.text_model import load_text_model
from segue.text.coverage import LanguageWatch, coverage, token_kinds
from segue.text.symbols import ByteTokenizer
from segue.text.tokenizer import Tokenizer
from segue.text.train import train_pieces
from tests.tasks.models import CHINESE, ENGLISH, write_model


@pytest.fixture(scope="module")
def english() -> Tokenizer:
    return train_pieces(ENGLISH.splitlines() * 3, kind="unigram", vocabulary_size=370)


@pytest.fixture(scope="module")
def chinese() -> Tokenizer:
    """Trained on text with some English in it, as Chinese text has: the letters have pieces of their own."""
    draw = np.random.default_rng(0)
    lines = ["".join(map(chr, draw.integers(0x4E00, 0x4E00 + 500, 40).tolist())) for _ in range(200)]
    return train_pieces([*lines, "abcdefg hijklmnopq rstuvwxyz"], kind="unigram", vocabulary_size=850)


def share(tokenizer: Tokenizer, text: str) -> float:
    counts = np.bincount(tokenizer.encode(text), minlength=tokenizer.size)
    return coverage(token_kinds(tokenizer), counts).share


def test_bytes_count(english: Tokenizer) -> None:
    assert share(english, ENGLISH) < 0.01
    assert share(english, CHINESE) > 0.9


def test_pieces_of_a_script_that_the_vocabulary_has_few_of_count(chinese: Tokenizer) -> None:
    text = "a dull film with a weak story"
    assert chinese.specials["unk"] not in chinese.encode(text)
    assert not set(chinese.encode(text).tolist()) & set(np.flatnonzero(token_kinds(chinese).fallback).tolist())
    assert share(chinese, text) > 0.6
    assert share(chinese, "".join(map(chr, range(0x4E00, 0x4E00 + 100)))) < 0.05


def test_bytes_are_no_sign_where_there_is_nothing_else() -> None:
    assert share(ByteTokenizer(), CHINESE) == 0


def test_a_warning_comes_once(english: Tokenizer) -> None:
    watch = LanguageWatch(english)
    with pytest.warns(SegueWarning, match=r"another language.*9\d% are unknown or single bytes"):
        watch.read(english.encode(CHINESE))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch.read(english.encode(CHINESE))


def test_no_warning_for_its_own_language_or_a_few_odd_tokens(english: Tokenizer) -> None:
    watch = LanguageWatch(english)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        watch.read(english.encode("好"))
        watch.read(english.encode(ENGLISH))
        watch.read(english.encode("好好"))


def test_every_reader_watches(tmp_path: Path) -> None:
    loaded = load_text_model(write_model(tmp_path / "model"))
    with pytest.warns(SegueWarning, match="another language"):
        list(score(loaded.model, loaded.tokenizer, text_parts([CHINESE]), ScoreSettings(segment_length=32)))
    with pytest.warns(SegueWarning, match="another language"):
        list(embed(loaded.model, loaded.tokenizer, text_parts([CHINESE]), EmbedSettings(segment_length=32)))
    with pytest.warns(SegueWarning, match="another language"):
        segue.open(tmp_path / "model").feed(CHINESE)
