"""What a classifier must beat, on texts where it is plain what that is, and beside scikit-learn."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from segue.evaluation import baselines
from segue.evaluation.baselines import (
    INVERSE_PENALTIES,
    Floats,
    _Regression,
    most_frequent,
    ngram_labels,
    probabilities,
    sample,
    tuned_ngrams,
)
from segue.text.ngrams import WORD

GOOD = ["a good film", "good and kind", "a very good room", "good food"]
BAD = ["a bad film", "bad and dull", "a very bad room", "bad food"]


def some_texts(count: int, *, classes: int) -> tuple[list[tuple[str]], np.ndarray]:
    """Random words, more often those of the text's own class."""
    random = np.random.default_rng(0)
    labels = random.integers(classes, size=count)
    words = [f"w{n}" for n in range(40)]
    texts = [
        (" ".join(random.choice(words, 6).tolist() + random.choice(words[5 * k : 5 * k + 5], 3).tolist()),)
        for k in labels
    ]
    return texts, labels[:, None] == np.arange(classes)


def test_the_most_frequent_class() -> None:
    assert most_frequent(["b", "a", "b"], 2) == ["b", "b"]


def test_words_decide() -> None:
    labels = ["good"] * 4 + ["bad"] * 4
    assert ngram_labels(GOOD + BAD, labels, ["good park", "bad park"], counted="words") == ["good", "bad"]


def test_characters_decide_in_chinese() -> None:
    texts = ["房间很好", "服务好", "很差劲", "太差了"]
    labels = ["好评", "好评", "差评", "差评"]
    assert ngram_labels(texts, labels, ["真好", "真差"], counted="characters") == ["好评", "差评"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("inverse_penalty", [1.0, 100.0])
def test_the_regression_is_that_of_scikit_learn(
    classes: int, inverse_penalty: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "SMALLEST_GRADIENT", 1e-12)
    monkeypatch.setattr(baselines, "MOST_STEPS", 5000)
    texts, gold_NC = some_texts(60, classes=classes)
    regression = _Regression(texts, gold_NC, counted="words", multiple=False)
    regression.fit(INVERSE_PENALTIES[0])  # going on from another penalty makes no difference
    regression.fit(inverse_penalty)
    plain = [text for (text,) in texts]
    words = TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True).fit(plain)
    other = LogisticRegression(C=inverse_penalty, solver="newton-cholesky", tol=1e-12)
    other.fit(words.transform(plain), gold_NC.argmax(axis=1))
    asked = ["w1 w2 w3", "w38 w7 w7", "nothing"]
    want_NC = other.predict_proba(words.transform(asked))
    found_NC = regression.classifier().probabilities([(text,) for text in asked])
    np.testing.assert_allclose(found_NC, want_NC, atol=1e-6)
    np.testing.assert_allclose(
        regression.answers(regression.ngrams.vectors([(text,) for text in asked])), want_NC, atol=1e-6
    )


def test_several_classes_at_once_are_regressions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "SMALLEST_GRADIENT", 1e-12)
    monkeypatch.setattr(baselines, "MOST_STEPS", 5000)
    texts, gold_NC = some_texts(120, classes=3)
    gold_NC = np.concatenate([gold_NC[:, :1] | gold_NC[:, 1:2], gold_NC[:, 2:], gold_NC[:, :1] | True], axis=1)
    regression = _Regression(texts, gold_NC, counted="words", multiple=True)
    regression.fit(10.0)
    found_NC = regression.classifier().probabilities(texts)
    for column in (0, 1):
        single = _Regression(
            texts, np.stack([~gold_NC[:, column], gold_NC[:, column]], axis=1), counted="words", multiple=False
        )
        single.fit(10.0)
        np.testing.assert_allclose(found_NC[:, column], single.classifier().probabilities(texts)[:, 1], atol=1e-6)
    np.testing.assert_allclose(found_NC[:, 2], 240 / 241)  # a class that all have


def test_a_class_that_the_sample_does_not_have_stays_possible() -> None:
    texts, gold_NC = some_texts(60, classes=2)
    regression = _Regression(
        texts, np.concatenate([gold_NC, np.zeros((60, 1), dtype=bool)], axis=1), counted="words", multiple=False
    )
    regression.fit(10.0)
    found_NC = regression.classifier().probabilities(texts)
    np.testing.assert_allclose(found_NC.sum(axis=1), 1)
    assert (found_NC[:, 2] > 0).all()
    assert (found_NC[:, 2] < 0.05).all()


def test_scores_of_a_text_do_not_hang_on_the_others() -> None:
    texts, gold_NC = some_texts(60, classes=3)
    regression = _Regression(texts, gold_NC, counted="characters", multiple=False)
    regression.fit(10.0)
    classifier = regression.classifier()
    whole_NC = classifier.scores(texts)
    for row, text in enumerate(texts):
        np.testing.assert_array_equal(classifier.scores([text])[0], whole_NC[row])
    np.testing.assert_allclose(probabilities(whole_NC, multiple=False).sum(axis=1), 1)
    assert classifier.scores([]).shape == (0, 3)


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
        made = tuned_ngrams(texts[:120], gold_NC[:120], texts[120:], score=score, multiple=False)
        assert made.classifier.ngrams.counted == counted
        assert made.inverse_penalty in INVERSE_PENALTIES
        assert made.trained_on == 120
        assert score(made.classifier.probabilities(texts[120:])) == 1


def test_classes_that_do_not_exclude_each_other_and_pairs() -> None:
    texts = [("red" if n % 2 else "no", "big" if n % 3 else "no") for n in range(60)]
    gold_NC = np.array([[n % 2 > 0, n % 3 > 0, True] for n in range(60)])
    made = tuned_ngrams(texts, gold_NC, texts, score=lambda f: float(((f > 0.5) == gold_NC).mean()), multiple=True)
    np.testing.assert_array_equal(made.classifier.probabilities(texts) > 0.5, gold_NC)


def test_large_tables_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [("a" * 10,)] * 1000
    assert len(sample(texts, letters=10**6)) == 1000
    some = sample(texts, letters=995)
    assert len(some) == 99
    assert (np.diff(some) > 0).all()
    assert len(sample(texts, letters=1)) == 1
    monkeypatch.setattr(baselines, "MOST_LETTERS", {"words": 300, "characters": 300})
    labels_NC = np.arange(1000)[:, None] % 2 == np.arange(2)
    made = tuned_ngrams(texts, labels_NC, texts[:5], score=lambda _: 0.0, multiple=False)
    assert made.trained_on == 30
