"""What a classifier must beat, on texts where it is plain what that is."""

import sys

import numpy as np
import pytest

from segue.errors import ConfigError
from segue.evaluate import baselines
from segue.evaluate.baselines import INVERSE_PENALTIES, Floats, bag_of_words, most_frequent, sample, tuned_tfidf

GOOD = ["a good film", "good and kind", "a very good room", "good food"]
BAD = ["a bad film", "bad and dull", "a very bad room", "bad food"]


def test_the_most_frequent_class() -> None:
    assert most_frequent(["b", "a", "b"], 2) == ["b", "b"]


def test_words_decide() -> None:
    labels = ["good"] * 4 + ["bad"] * 4
    assert bag_of_words(GOOD + BAD, labels, ["good park", "bad park"], characters=False) == ["good", "bad"]


def test_characters_decide_in_chinese() -> None:
    texts = ["房间很好", "服务好", "很差劲", "太差了"]
    assert bag_of_words(texts, ["好评", "好评", "差评", "差评"], ["真好", "真差"], characters=True) == ["好评", "差评"]


def test_without_scikit_learn_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    with pytest.raises(ConfigError, match="pip install scikit-learn"):
        bag_of_words(GOOD, ["a", "b", "a", "b"], BAD, characters=False)


def test_what_is_counted_and_how_freely_is_chosen_by_the_validation_texts() -> None:
    """Words tell the first classes apart, and only characters the second ones: each word occurs once."""
    random = np.random.default_rng(0)
    words = ["".join(random.choice(list("abcdefgh"), 6)) for _ in range(160)]
    by_word = [(f"{'red' if n % 2 else 'blue'} {word}",) for n, word in enumerate(words)]
    by_letter = [(word[:3] + ("xq" if n % 2 else "qx") + word[3:],) for n, word in enumerate(words)]
    gold_NC = np.arange(160)[:, None] % 2 == np.arange(2)

    def score(found_NC: Floats) -> float:
        return float((found_NC.argmax(axis=1) == np.arange(120, 160) % 2).mean())

    for texts, counted in ((by_word, "words"), (by_letter, "characters")):
        made = tuned_tfidf(texts[:120], gold_NC[:120], texts[120:], [texts[:10]], score=score, multiple=False)
        assert made.counted == counted
        assert made.inverse_penalty in INVERSE_PENALTIES
        assert made.trained_on == 120
        assert score(made.answers[0]) == 1
        assert made.answers[1].shape == (10, 2)
        np.testing.assert_allclose(made.answers[0].sum(axis=1), 1)


def test_classes_that_do_not_exclude_each_other_and_pairs() -> None:
    texts = [("red" if n % 2 else "no", "big" if n % 3 else "no") for n in range(60)]
    gold_NC = np.array([[n % 2 > 0, n % 3 > 0, True] for n in range(60)])
    made = tuned_tfidf(texts, gold_NC, texts, [], score=lambda f: float(((f > 0.5) == gold_NC).mean()), multiple=True)
    np.testing.assert_array_equal(made.answers[0] > 0.5, gold_NC)


def test_large_tables_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [("a" * 10,)] * 1000
    assert len(sample(texts, letters=10**6)) == 1000
    some = sample(texts, letters=995)
    assert len(some) == 99
    assert (np.diff(some) > 0).all()
    assert len(sample(texts, letters=1)) == 1
    monkeypatch.setattr(baselines, "MOST_LETTERS", {"words": 300, "characters": 300})
    labels_NC = np.arange(1000)[:, None] % 2 == np.arange(2)
    made = tuned_tfidf(texts, labels_NC, texts[:5], [], score=lambda _: 0.0, multiple=False)
    assert made.trained_on == 30
