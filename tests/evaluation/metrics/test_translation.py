import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from segue.errors import DataError
from segue.evaluation.metrics.translation import Tokenize, translation
from tests.examples import examples

WORDS = ["the", "cat", "sat", "on", "a", "mat", ".", ",", "Dog's", "1,000", "(so)", "我们", "喜欢", "猫。"]
SENTENCE = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@settings(deadline=None, max_examples=examples(80))
@given(
    st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=6),
    st.sampled_from(["13a", "zh", "intl", "char"]),
)
def test_as_sacrebleu(pairs: list[tuple[str, list[str]]], tokenize: Tokenize) -> None:
    predicted, references = [p for p, _ in pairs], [r for _, r in pairs]
    width = max(map(len, references))
    streams = [[row[i] if i < len(row) else None for row in references] for i in range(width)]
    got = translation(predicted, references, tokenize=tokenize, resamples=3)
    for name, scorer in (("bleu", BLEU(tokenize=tokenize)), ("chrf", CHRF())):
        expected = scorer.corpus_score(predicted, streams)
        assert got.metrics[name].value == pytest.approx(expected.score, abs=1e-9)
        assert got.signatures[name] == scorer.get_signature().format()


def test_by_hand() -> None:
    same = translation(["the cat sat on the mat"], [["the cat sat on the mat"]], resamples=None)
    assert same.metrics["bleu"].value == pytest.approx(100)
    assert same.metrics["chrf"].value == pytest.approx(100)
    # Precisions 5/5, 4/4, 3/3, 2/2; five words for six: brevity penalty exp(1 - 6/5).
    short = translation(["the cat sat on the"], [["the cat sat on the mat"]], resamples=None)
    assert short.metrics["bleu"].value == pytest.approx(100 * np.exp(1 - 6 / 5))
    assert "tok:13a" in same.signatures["bleu"]
    assert "nrefs:1|" in same.signatures["bleu"]
    assert "nc:6" in same.signatures["chrf"]


def test_chinese_is_cut_into_characters() -> None:
    got = translation(["我们喜欢小猫"], [["我们喜欢大猫"]], tokenize="zh", resamples=None)
    assert got.metrics["bleu"].value == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4))
    assert "tok:zh" in got.signatures["bleu"]


def test_nothing_said_is_zero() -> None:
    got = translation(["", ""], [["a b"], ["c d"]])
    assert all(metric.value == 0 for metric in got.metrics.values())


def test_intervals_are_those_of_the_slow_way() -> None:
    random = np.random.default_rng(0)
    references = [[" ".join(random.choice(WORDS[:9], 12))] for _ in range(30)]
    predicted = [" ".join(w for w in row[0].split() if random.random() < 0.8) for row in references]
    got = translation(predicted, references)
    assert got == translation(predicted, references)
    slow: dict[str, list[float]] = {"bleu": [], "chrf": []}
    for _ in range(150):
        rows = random.integers(0, 30, 30)
        part = translation([predicted[r] for r in rows], [references[r] for r in rows], resamples=None)
        for name, values in slow.items():
            values.append(part.metrics[name].value)
    for name, values in slow.items():
        low, high = np.percentile(values, [2.5, 97.5])
        width = high - low
        assert got.metrics[name].low == pytest.approx(low, abs=0.25 * width)
        assert got.metrics[name].high == pytest.approx(high, abs=0.25 * width)


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="at least one example"):
        translation([], [])
    with pytest.raises(DataError, match="got 1 and 2"):
        translation(["a", "b"], [["a"]])
    with pytest.raises(DataError, match="in row 1"):
        translation(["a", "b"], [["a"], []])
    with pytest.raises(DataError, match="list of at least one text"):
        translation(["a"], ["a"])
    with pytest.raises(DataError, match="13a"):
        translation(["a"], [["a"]], tokenize="moses")  # type: ignore[arg-type]
