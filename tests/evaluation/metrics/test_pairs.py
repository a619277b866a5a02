"""Accuracy on minimal pairs: groups, ties, and the two means."""

import numpy as np
import pytest

from segue.errors import DataError
from segue.evaluation.metrics.pairs import Group, pair_accuracy


def test_groups_ties_and_both_means() -> None:
    found = pair_accuracy(
        [-1.0, -2.0, -3.0, -4.0, -5.0],
        [-2.0, -2.0, -2.0, -5.0, -6.0],
        paradigms=["a", "a", "a", "b", "c"],
        phenomena=["x", "x", "x", "x", "y"],
    )
    assert found.paradigms == {
        "a": Group(pairs=3, ties=1, accuracy=0.5),
        "b": Group(pairs=1, ties=0, accuracy=1.0),
        "c": Group(pairs=1, ties=0, accuracy=1.0),
    }
    assert found.phenomena["x"] == Group(pairs=4, ties=1, accuracy=0.625)
    assert found.phenomenon_of == {"a": "x", "b": "x", "c": "y"}
    assert (found.pairs, found.ties) == (5, 1)
    assert found.accuracy.value == pytest.approx(3.5 / 5)
    assert found.mean_of_paradigms == pytest.approx(2.5 / 3)
    assert found.accuracy.low is None  # too few


def test_the_interval_is_that_of_a_proportion() -> None:
    good = np.random.default_rng(0).random(2000)
    bad = np.full(2000, 0.3)
    found = pair_accuracy(good, bad, paradigms=["a"] * 2000, phenomena=["a"] * 2000).accuracy
    assert found.low is not None
    assert found.high is not None
    half = 1.96 * np.sqrt(found.value * (1 - found.value) / 2000)
    assert found.value - found.low == pytest.approx(half, rel=0.15)
    assert found.high - found.value == pytest.approx(half, rel=0.15)


def test_scores_that_say_nothing_are_refused() -> None:
    with pytest.raises(DataError, match="finite"):
        pair_accuracy([float("nan")], [0.0], paradigms=["a"], phenomena=["a"])
    with pytest.raises(DataError, match="one entry for each"):
        pair_accuracy([1.0, 2.0], [0.0, 1.0], paradigms=["a"], phenomena=["a", "b"])
    with pytest.raises(DataError, match="at least one"):
        pair_accuracy([], [], paradigms=[], phenomena=[])
