import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from segue.errors import DataError
from segue.evaluation.metrics.ranking import ranking
from tests.examples import examples


@settings(deadline=None, max_examples=examples(150))
@given(st.integers(2, 15), st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 10, None]))
def test_as_sklearn(documents: int, seed: int, k: int | None) -> None:
    random = np.random.default_rng(seed)
    grades = random.integers(0, 4, (3, documents))
    grades[:, 0] = random.integers(1, 4, 3)
    scores = np.stack([random.permutation(documents) for _ in range(3)]) / 7  # no ties
    linear = ranking(list(grades), list(scores), k=k, gain="linear", resamples=None).metrics
    assert linear["ndcg"].value == pytest.approx(ndcg_score(grades, scores, k=k), abs=1e-12)
    exponential = ranking(list(grades), list(scores), k=k, resamples=None).metrics
    assert exponential["ndcg"].value == pytest.approx(ndcg_score(2**grades - 1, scores, k=k), abs=1e-12)
    expected = np.mean([average_precision_score(g > 0, s) for g, s in zip(grades, scores, strict=True)])
    assert exponential["map"].value == pytest.approx(expected, abs=1e-12)


def test_by_hand() -> None:
    # By score: grades 0, 3, 1, 0.
    got = ranking([[3, 0, 1, 0]], [[0.7, 0.9, 0.5, 0.1]], k=3, highest_grade=4, resamples=None).metrics
    ideal = 7 / np.log2(2) + 1 / np.log2(3)
    assert got["ndcg"].value == pytest.approx((7 / np.log2(3) + 1 / np.log2(4)) / ideal)
    # Chapelle et al. 2009, algorithm 1: R = (2^g - 1) / 16.
    assert got["err"].value == pytest.approx(7 / 16 / 2 + (1 - 7 / 16) * (1 / 16) / 3)
    assert got["mrr"].value == 0.5
    assert got["map"].value == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert got["precision_at_1"].value == 0


def test_err_of_the_first_rank_and_of_the_scale_in_the_data() -> None:
    grades, scores = [[2, 1, 0], [0, 1, 0]], [[3, 2, 1], [3, 2, 1]]
    got = ranking(grades, scores, k=1, resamples=None).metrics
    assert got["err"].value == pytest.approx((3 / 4 + 0) / 2)
    got = ranking(grades, scores, k=None, resamples=None).metrics
    assert got["err"].value == pytest.approx(((3 / 4 + 1 / 4 * 1 / 4 / 2) + (1 / 4 / 2)) / 2)


def test_queries_without_a_relevant_document_are_left_out_and_counted() -> None:
    alone = ranking([[0, 1]], [[0.2, 0.1]])
    got = ranking([[0, 0, 0], [0, 1], [0]], [[1, 2, 3], [0.2, 0.1], [1]])
    assert got.metrics == alone.metrics
    assert (got.queries, got.judged) == (3, 1)
    with pytest.raises(DataError, match="no relevant document in any of 2 queries"):
        ranking([[0, 0], [0]], [[1, 2], [1]])


def test_one_score_for_all_is_the_worst_order() -> None:
    constant = ranking([[1, 0, 0, 0]], [[0.5] * 4], resamples=None).metrics
    worst = ranking([[1, 0, 0, 0]], [[1, 2, 3, 4]], resamples=None).metrics
    assert constant == worst
    assert constant["mrr"].value == 0.25


def test_intervals_are_over_queries() -> None:
    random = np.random.default_rng(0)
    grades = [[1, 0]] * 400
    scores = [random.random(2) for _ in grades]
    got = ranking(grades, scores).metrics["precision_at_1"]
    assert got.low is not None
    assert got.high is not None
    assert got.high - got.low == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.15)


@pytest.mark.parametrize(
    ("gold", "scores", "message"),
    [
        ([], [], "at least one example"),
        ([[1]], [[1], [2]], "got 1 and 2"),
        ([[1, 0]], [[1]], "got 2 and 1 in query 0"),
        ([[1], []], [[1], []], "got 0 and 0 in query 1"),
        ([[1, 0]], [[1, float("nan")]], "scores of query 0 must be finite"),
        ([[-1, 0]], [[1, 2]], "from 0"),
        ([[100, 0]], [[1, 2]], "to 30"),
    ],
)
def test_what_is_refused(gold: list[list[float]], scores: list[list[float]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        ranking(gold, scores)


def test_which_settings_are_refused() -> None:
    with pytest.raises(DataError, match="None for all ranks"):
        ranking([[1]], [[1]], k=0)
    with pytest.raises(DataError, match="gain"):
        ranking([[1]], [[1]], gain="square")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="highest_grade; got 3 and 2"):
        ranking([[3]], [[1]], highest_grade=2)
