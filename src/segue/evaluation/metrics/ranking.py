"""Ranking metrics: the quality of the order of documents for each query.

In: for each query the gold grades of its documents (0 = not relevant) and the scores of a model. Out: ndcg, err (both
at k), mrr, map, precision_at_1, as means over the queries, and the number of queries that could not be judged.

- NDCG discounts by log2(rank + 1). The gain of a grade is 2^grade - 1 (Burges et al. 2005; LETOR, XGBoost, LightGBM),
  or the grade itself with gain="linear" (Järvelin and Kekäläinen 2002; scikit-learn, trec_eval). With grades
  0 and 1 both are the same.
- ERR is that of Chapelle et al. 2009: a reader stops at a document with probability (2^grade - 1) / 2^highest grade.
- For mrr, map and precision_at_1 a grade above 0 is relevant. mrr and map use all ranks.
- A query without a relevant document has no right order: it is left out of the means and counted. (scikit-learn's
  NDCG counts it as 0: multiply by `judged / queries` for that.)
- Documents with equal scores are ranked in the worst order, so that a model that gives every document the same score
  is not rewarded for the order of the file. (scikit-learn averages over their orders; without ties both are the same.)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, SEED, Floats, Metric, measure_means
from segue.evaluation.metrics.inputs import as_floats, check_lengths

Gain = Literal["exponential", "linear"]
MAX_GRADE = 30
"""Maximum grade, so that sums of 2^grade stay exact."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Metrics over the judged queries, those with a relevant document, out of all queries."""

    metrics: dict[str, Metric]
    queries: int
    judged: int


def ranking(
    gold: Sequence[ArrayLike],
    scores: Sequence[ArrayLike],
    *,
    k: int | None = 10,
    gain: Gain = "exponential",
    highest_grade: int | None = None,
    resamples: int | None = RESAMPLES,
    seed: int = SEED,
) -> Ranking:
    """Return the metrics, from a row of grades and a row of scores for each query. `k=None` uses all ranks;
    `highest_grade` is that of the grading scale, for ERR. Default: the highest one in the data."""
    check_lengths(gold, scores, names=("gold", "scores"))
    if k is not None and k < 1:
        raise DataError(f"k must be at least 1; got {k}. Use None for all ranks.")
    if gain not in ("exponential", "linear"):
        raise DataError(f'gain must be "exponential" or "linear"; got {gain!r}.')
    rows = [_ordered(grades, row, query) for query, (grades, row) in enumerate(zip(gold, scores, strict=True))]
    top = max(float(row.max()) for row in rows)
    if highest_grade is not None and top > highest_grade:
        raise DataError(f"grades must be at most highest_grade; got {top:g} and {highest_grade}. Give the scale's top.")
    judged = [row for row in rows if row.max() > 0]
    if not judged:
        raise DataError(f"no relevant document in any of {len(rows)} queries; at least one grade must be above 0.")
    top = top if highest_grade is None else float(highest_grade)
    metrics = measure_means(
        {
            "ndcg": np.array([ndcg(row, k=k, gain=gain) for row in judged]),
            "err": np.array([err(row, k=k, highest_grade=top) for row in judged]),
            "mrr": np.array([1 / (1 + int((row > 0).argmax())) for row in judged]),
            "map": np.array([_average_precision(row > 0) for row in judged]),
            "precision_at_1": np.array([float(row[0] > 0) for row in judged]),
        },
        resamples=resamples,
        seed=seed,
    )
    return Ranking(metrics=metrics, queries=len(rows), judged=len(judged))


def ndcg(grades: Floats, *, k: int | None, gain: Gain = "exponential") -> float:
    """Return the normalised discounted cumulative gain of one query, from grades in rank order, not all 0."""
    gains = np.exp2(grades) - 1 if gain == "exponential" else grades
    discounts = 1 / np.log2(np.arange(2, len(grades) + 2))
    ideal = np.sort(gains)[::-1]
    return float(gains[:k] @ discounts[:k] / (ideal[:k] @ discounts[:k]))


def err(grades: Floats, *, k: int | None, highest_grade: float) -> float:
    """Return the expected reciprocal rank of one query, from grades in rank order."""
    stop = (np.exp2(grades[:k]) - 1) / np.exp2(highest_grade)
    reached = np.concatenate([[1.0], np.cumprod(1 - stop)[:-1]])
    return float((reached * stop / np.arange(1, len(stop) + 1)).sum())


def _average_precision(relevant: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
    ranks = np.flatnonzero(relevant) + 1
    return float((np.arange(1, len(ranks) + 1) / ranks).mean())


def _ordered(grades: ArrayLike, scores: ArrayLike, query: int) -> Floats:
    """Return the grades of a query's documents by descending score, the lowest grade first among equal scores."""
    grades_D = as_floats(grades, name=f"the grades of query {query}", dimensions=1)
    scores_D = as_floats(scores, name=f"the scores of query {query}", dimensions=1)
    if len(grades_D) != len(scores_D) or len(grades_D) == 0:
        raise DataError(
            f"a query needs a grade and a score for each of its documents; got {len(grades_D)} and {len(scores_D)} in "
            f"query {query}. Remove queries without documents."
        )
    if grades_D.min() < 0 or grades_D.max() > MAX_GRADE:
        raise DataError(
            f"grades must be from 0 (not relevant) to {MAX_GRADE}; got {grades_D.min():g} to {grades_D.max():g} in "
            f"query {query}. Map them to 0, 1, 2, ..."
        )
    ordered: Floats = grades_D[np.lexsort((grades_D, -scores_D))]
    return ordered
