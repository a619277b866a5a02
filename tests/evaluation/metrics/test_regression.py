import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from segue.errors import DataError
from segue.evaluation.metrics.regression import regression
from tests.examples import examples


@settings(deadline=None, max_examples=examples(150))
@given(st.integers(2, 60), st.integers(0, 2**32 - 1), st.integers(0, 3), st.sampled_from([0.0, 5.0, -1e6]))
def test_as_scipy(count: int, seed: int, decimals: int, offset: float) -> None:
    random = np.random.default_rng(seed)
    gold = random.normal(size=count).round(decimals) + offset  # few decimals: many ties
    predicted = (gold + random.normal(size=count)).round(decimals)
    got = regression(gold, predicted, resamples=None)
    constant = len(set(gold)) == 1 or len(set(predicted)) == 1
    pearson = 0.0 if constant else stats.pearsonr(gold, predicted).statistic
    spearman = 0.0 if constant else stats.spearmanr(gold, predicted).statistic
    assert got["pearson"].value == pytest.approx(pearson, abs=1e-9)
    assert got["spearman"].value == pytest.approx(spearman, abs=1e-12)
    assert got["mean_squared_error"].value == pytest.approx(((gold - predicted) ** 2).mean(), rel=1e-12)


def test_by_hand() -> None:
    got = regression([1, 2, 3], [1, 3, 2], resamples=None)
    assert got["pearson"].value == pytest.approx(0.5)
    assert got["spearman"].value == pytest.approx(0.5)
    assert got["mean_squared_error"].value == pytest.approx(2 / 3)
    assert regression([1, 2, 3], [1, 8, 27], resamples=None)["spearman"].value == pytest.approx(1.0)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9, -3.3])
def test_constant_predictions_correlate_with_nothing(value: float) -> None:
    got = regression([0.1, 0.7, 0.3, 2.0], [value] * 4)
    for name in ("pearson", "spearman"):
        assert got[name].value == 0.0
    assert regression([value] * 4, [0.1, 0.7, 0.3, 2.0])["pearson"].value == 0


def test_intervals_are_those_of_the_slow_way() -> None:
    random = np.random.default_rng(5)
    gold = random.integers(0, 6, 150).astype(float)
    predicted = gold + random.normal(scale=2, size=150)
    got = regression(gold, predicted, resamples=2000)
    rows = [random.integers(0, 150, 150) for _ in range(1000)]
    slow = {
        "pearson": [stats.pearsonr(gold[r], predicted[r]).statistic for r in rows],
        "spearman": [stats.spearmanr(gold[r], predicted[r]).statistic for r in rows],
    }
    for name, values in slow.items():
        low, high = np.percentile(values, [2.5, 97.5])
        assert got[name].low == pytest.approx(low, abs=0.02)
        assert got[name].high == pytest.approx(high, abs=0.02)


def test_ranks_are_those_of_the_resample() -> None:
    # Every resample of two distinct points is either constant or in perfect order, however often they occur.
    got = regression([1] + [2] * 29, [10] + [30] * 29, resamples=200)
    assert got["spearman"].value == pytest.approx(1)
    assert (got["spearman"].low, got["spearman"].high) == pytest.approx((0, 1))


@pytest.mark.parametrize(
    ("gold", "predicted", "message"),
    [
        ([], [], "at least one example"),
        ([1.0, 2.0], [1.0], "got 2 and 1"),
        ([1.0, 2.0], [1.0, float("nan")], "predicted must be finite"),
        ([1.0, float("inf")], [1.0, 2.0], "gold must be finite"),
        ([[1.0]], [[1.0]], "1 dimension"),
        (["x"], [1.0], "numbers"),
    ],
)
def test_what_is_refused(gold: list[float], predicted: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        regression(gold, predicted)
