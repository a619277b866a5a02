import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from segue.errors import DataError
from segue.evaluation.metrics.classification import classification, confusion, multilabel, per_class, reliability
from tests.examples import examples


def one_hot(labels: list[int], num_labels: int) -> np.ndarray:
    return np.eye(num_labels)[labels]


@settings(deadline=None, max_examples=examples(150))
@given(st.integers(1, 7), st.data())
def test_as_sklearn(num_labels: int, data: st.DataObject) -> None:
    label = st.integers(0, num_labels - 1)
    pairs = data.draw(st.lists(st.tuples(label, label), min_size=1, max_size=40))
    gold, predicted = [g for g, _ in pairs], [p for _, p in pairs]
    got = classification(gold, one_hot(predicted, num_labels), num_labels=num_labels, resamples=None)
    assert got["accuracy"].value == pytest.approx(sklearn_metrics.accuracy_score(gold, predicted), abs=1e-12)
    for average in ("macro", "micro"):
        expected = sklearn_metrics.f1_score(gold, predicted, average=average)
        assert got[f"{average}_f1"].value == pytest.approx(expected, abs=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single label
        assert got["mcc"].value == pytest.approx(sklearn_metrics.matthews_corrcoef(gold, predicted), abs=1e-12)
        expected = sklearn_metrics.confusion_matrix(gold, predicted, labels=range(num_labels))
    np.testing.assert_array_equal(confusion(gold, predicted, num_labels=num_labels), expected)


def test_by_hand() -> None:
    gold, predicted = [0, 0, 1, 1, 1], [0, 1, 1, 1, 0]
    got = classification(gold, one_hot(predicted, 4), num_labels=4, resamples=None)
    assert got["accuracy"].value == pytest.approx(3 / 5)
    assert got["macro_f1"].value == pytest.approx((1 / 2 + 2 / 3) / 2)  # the labels 2 and 3 do not occur
    assert got["mcc"].value == pytest.approx((2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2))
    assert got["calibration_error"].value == pytest.approx(2 / 5)  # sure, and wrong twice
    assert all(metric.low is None for metric in got.values())
    np.testing.assert_array_equal(confusion(gold, predicted, num_labels=2), [[1, 1], [1, 2]])


def test_a_collapsed_model_has_no_correlation() -> None:
    got = classification([0, 1, 1] * 20, one_hot([1, 1, 1] * 20, 2), num_labels=2)
    assert got["mcc"].value == 0
    assert got["macro_f1"].value == pytest.approx(0.4)
    assert got["mcc"].low is None  # resamples have none either
    assert np.isfinite([got["macro_f1"].low, got["macro_f1"].high]).all()


@pytest.mark.parametrize(("count", "low"), [(1, None), (29, None), (30, 0.886), (1000, 0.996)])
def test_a_model_that_is_always_right_may_still_be_wrong(count: int, low: float | None) -> None:
    """One example that is right was once reported as 1.0000, from 1.0000 to 1.0000."""
    got = classification([0] * count, one_hot([0] * count, 2), num_labels=2)["accuracy"]
    assert got.value == 1
    assert got.low == (None if low is None else pytest.approx(low, abs=1e-3))
    assert got.high == (None if low is None else 1.0)


def test_single_classes_are_measured_as_scikit_learn_does() -> None:
    random = np.random.default_rng(0)
    gold, predicted = random.integers(0, 4, 100), random.integers(0, 3, 100)
    classes = np.arange(4)
    found = per_class(gold[:, None] == classes, predicted[:, None] == classes)
    expected = sklearn_metrics.precision_recall_fscore_support(gold, predicted, labels=classes, zero_division=0)
    for name, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert [getattr(one, name) for one in found] == pytest.approx(list(values))
    assert found[3].predicted == 0


def test_a_reliability_diagram_adds_up_to_the_calibration_error() -> None:
    random = np.random.default_rng(0)
    probabilities = random.dirichlet([1, 1, 1], 400)
    gold = random.integers(0, 3, 400)
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == gold
    bins = reliability(confidence, correct)
    assert sum(one.count for one in bins) == 400
    assert [one.confidence for one in bins] == sorted(one.confidence for one in bins)
    error = sum(one.count * abs(one.confidence - one.accuracy) for one in bins) / 400
    assert error == pytest.approx(classification(gold, probabilities, num_labels=3)["calibration_error"].value)


def test_intervals_are_those_of_the_slow_way() -> None:
    random = np.random.default_rng(0)
    gold = random.integers(0, 3, 200)
    probabilities = random.dirichlet([1, 1, 1], 200)
    probabilities[np.arange(200), gold] += 0.5
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    got = classification(gold, probabilities, num_labels=3, resamples=2000)
    predicted = probabilities.argmax(axis=1)
    slow: dict[str, list[float]] = {"macro_f1": [], "mcc": [], "accuracy": []}
    for _ in range(400):
        rows = random.integers(0, 200, 200)
        slow["macro_f1"].append(sklearn_metrics.f1_score(gold[rows], predicted[rows], average="macro"))
        slow["mcc"].append(sklearn_metrics.matthews_corrcoef(gold[rows], predicted[rows]))
        slow["accuracy"].append((gold[rows] == predicted[rows]).mean())
    for name, values in slow.items():
        low, high = np.percentile(values, [2.5, 97.5])
        assert got[name].low == pytest.approx(low, abs=0.02)
        assert got[name].high == pytest.approx(high, abs=0.02)


def test_calibration_error_from_its_definition() -> None:
    random = np.random.default_rng(2)
    probabilities = random.dirichlet([0.5] * 4, 500)
    probabilities[0] = [1, 0, 0, 0]
    probabilities[1] = [0.4, 0.2, 0.2, 0.2]  # 6/15: the upper edge of its bin
    gold = random.integers(0, 4, 500)
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == gold
    expected = 0.0
    for number in range(15):
        inside = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        if inside.any():
            expected += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    got = classification(gold, probabilities, num_labels=4)["calibration_error"]
    assert got.value == pytest.approx(expected, abs=1e-12)
    assert got.low is not None
    assert got.high is not None
    assert 0 < got.low < got.high < 1


@settings(deadline=None, max_examples=examples(100))
@given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_several_labels_as_sklearn(labels: int, rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    gold = random.integers(0, 2, (rows, labels))
    probabilities = random.random((rows, labels)).round(1)
    predicted = (probabilities >= 0.5).astype(int)
    got = multilabel(gold, probabilities, resamples=20)
    for average in ("macro", "micro"):
        if labels == 1:  # scikit-learn takes one column for a binary task
            expected = sklearn_metrics.f1_score(gold[:, 0], predicted[:, 0], zero_division=0)
        else:
            expected = sklearn_metrics.f1_score(gold, predicted, average=average, zero_division=0)
        assert got[f"{average}_f1"].value == pytest.approx(expected, abs=1e-12)
    assert got["exact_match"].value == pytest.approx(sklearn_metrics.accuracy_score(gold, predicted), abs=1e-12)
    assert got["hamming_loss"].value == pytest.approx(sklearn_metrics.hamming_loss(gold, predicted), abs=1e-12)


def test_several_labels_by_hand() -> None:
    gold = [[1, 0, 0], [1, 1, 0]]
    got = multilabel(gold, [[0.9, 0.5, 0.1], [0.2, 0.7, 0.3]], threshold=0.5, resamples=None)
    assert got["micro_f1"].value == pytest.approx(2 * 2 / (3 + 3))
    assert got["macro_f1"].value == pytest.approx((2 / 3 + 2 / 3 + 0) / 3)
    assert got["exact_match"].value == 0
    assert got["hamming_loss"].value == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("gold", "probabilities", "message"),
    [
        ([], np.zeros((0, 2)), "at least one example"),
        ([0, 1], [[1, 0]], "got 2 and 1"),
        ([0, 2], [[1, 0], [0, 1]], "from 0 to 1 .*got 2 at row 1"),
        ([0, -1], [[1, 0], [0, 1]], "got -1 at row 1"),
        ([0.0, 1.0], [[1, 0], [0, 1]], "whole numbers"),
        ([0, 1], [[1, 0], [float("nan"), 1]], r"finite; got nan at \[1, 0\]"),
        ([0, 1], [[1, 0, 0], [0, 1, 0]], "got 3 columns"),
        ([0, 1], [[3.0, -2.0], [0, 1]], "softmax"),
        ([0, 1], [[0.9, 0.8], [0, 1]], "sum to 1; got 1.7 in row 0"),
        ([0, 1], [1, 0], "2 dimension"),
        ([0, 1], [[1, 0], [1]], "rows of one length"),
        ([0, 1], [["a", "b"], ["c", "d"]], "numbers"),
    ],
)
def test_what_is_refused(gold: list[int], probabilities: list[list[float]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        classification(gold, probabilities, num_labels=2)


def test_what_else_is_refused() -> None:
    with pytest.raises(DataError, match="got 1 and 2"):
        confusion([0], [0, 1], num_labels=2)
    with pytest.raises(DataError, match="predicted labels must be from 0 to 1"):
        confusion([0, 1], [0, 5], num_labels=2)
    with pytest.raises(DataError, match="at least one label"):
        confusion([0], [0], num_labels=0)
    with pytest.raises(DataError, match="0 or 1"):
        multilabel([[2, 0]], [[0.5, 0.5]])
    with pytest.raises(DataError, match="at least one example"):
        multilabel([], [])
    with pytest.raises(DataError, match="got 1 and 2"):
        multilabel([[0, 1]], [[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(DataError, match="threshold"):
        multilabel([[1, 0]], [[0.5, 0.5]], threshold=0)
    with pytest.raises(DataError, match="finite"):
        multilabel([[1, 0]], [[0.5, float("nan")]])
