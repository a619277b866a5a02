"""What a classifier must beat, on texts where it is plain what that is."""

import sys

import pytest

from segue.errors import ConfigError
from segue.evaluate.baselines import bag_of_words, most_frequent

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
