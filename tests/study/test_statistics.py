import math

import numpy as np
import pytest

from segue.study.statistics import estimate, paired, student_quantile


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423)]
)
def test_quantiles_are_those_of_the_tables(freedom: int, expected: float) -> None:
    assert student_quantile(freedom) == pytest.approx(expected, abs=1e-4)


def test_with_many_degrees_of_freedom_it_is_the_normal_distribution() -> None:
    assert student_quantile(100_000) == pytest.approx(1.95996, abs=1e-4)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(5.0, 2.0, size=(4000, 3))
    found = [estimate([float(value) for value in row]) for row in draws]
    inside = sum(one is not None and one.low is not None and one.low <= 5.0 <= (one.high or 0) for one in found)
    assert inside / len(found) == pytest.approx(0.95, abs=0.012)


def test_one_value_has_no_interval_and_none_has_no_mean() -> None:
    one = estimate([3.0])
    assert one is not None
    assert (one.mean, one.low, one.high, one.sign) == (3.0, None, None, 0)
    assert estimate([]) is None


def test_differences_are_paired_by_seed() -> None:
    found = paired({1: 11.0, 2: 22.1, 3: 33.0, 4: 9.0}, {3: 32.0, 1: 10.0, 2: 21.0})
    assert found is not None
    assert found.count == 3
    assert found.mean == pytest.approx(3.1 / 3)
    assert found.sign == 1  # although the values themselves scatter far more
    whole = estimate([11.0, 22.1, 33.0])
    assert whole is not None
    assert math.isclose(whole.mean, 66.1 / 3)
    assert whole.sign == 0
