"""Exact match and F1 of extracted answers, as the scripts of SQuAD 1.1, SQuAD 2.0 and CMRC 2018 compute them.

In: for each question its gold answers and one predicted text. Out: scores of each question from 0 to 1, and metrics
from 0 to 100 like the scripts' own. The best of the gold answers counts.

- squad1: texts are compared in lower case without ASCII punctuation, articles (a, an, the) and extra spaces; F1 counts
  words in common. Two texts that are empty after that match exactly but have F1 0.
- squad2: as squad1, but for a question without answers the empty text is correct, gold answers that are empty after the
  normalisation are left out, and two empty texts have F1 1. With `no_answer` scores (higher: less likely to have an
  answer) and a threshold, a question whose score is above the threshold counts as unanswered.
- cmrc (also used for DRCD): texts are compared in lower case without the punctuation on the script's list; F1 is that
  of the longest common run of characters and words (see segmentation.py).
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, SEED, Floats, Metric, measure_means
from segue.evaluation.metrics.inputs import as_floats, check_lengths
from segue.evaluation.metrics.segmentation import mixed_units, without_punctuation

Script = Literal["squad1", "squad2", "cmrc"]
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, kw_only=True)
class AnswerScores:
    """Scores of each question, from 0 to 1."""

    exact_N: Floats
    f1_N: Floats


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A threshold on no-answer scores, above which a question is unanswered; `score` is from 0 to 100."""

    value: float
    score: float


def answers(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[str],
    *,
    script: Script,
    no_answer: ArrayLike | None = None,
    threshold: float | None = None,
    resamples: int | None = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Metric]:
    """Return exact and f1; for squad2 also has_answer_exact, has_answer_f1, no_answer_exact and no_answer_f1, if there
    are such questions. `no_answer` and `threshold` are for squad2 and go together; without them a question is left
    unanswered by an empty predicted text."""
    scores = answer_scores(gold, predicted, script=script)
    named = {"exact": 100 * scores.exact_N, "f1": 100 * scores.f1_N}
    if (no_answer is None) != (threshold is None) or (no_answer is not None and script != "squad2"):
        raise DataError("no_answer and threshold go together, with the script squad2. Give both or neither.")
    answerable_N = np.array([bool(row) for row in gold])
    if no_answer is not None and threshold is not None:
        unanswered_N = _no_answer_scores(no_answer, len(gold)) > threshold
        named = {name: np.where(unanswered_N, 100.0 * ~answerable_N, score_N) for name, score_N in named.items()}
    metrics = measure_means(named, resamples=resamples, seed=seed)
    if script == "squad2":
        for group, chosen_N in (("has_answer", answerable_N), ("no_answer", ~answerable_N)):
            if chosen_N.any():
                part = {f"{group}_{name}": score_N[chosen_N] for name, score_N in named.items()}
                metrics |= measure_means(part, resamples=resamples, seed=seed)
    return metrics


def answer_scores(gold: Sequence[Sequence[str]], predicted: Sequence[str], *, script: Script) -> AnswerScores:
    """Return the scores of each question, before any threshold."""
    if script not in get_args(Script):
        raise DataError(f"the script must be one of {', '.join(get_args(Script))}; got {script!r}.")
    check_lengths(gold, predicted)
    compare = {"squad1": _compare_squad1, "squad2": _compare_squad2, "cmrc": _compare_cmrc}[script]
    scores_N2 = np.zeros((len(gold), 2))
    for number, (row, text) in enumerate(zip(gold, predicted, strict=True)):
        if isinstance(row, str):
            raise DataError(
                f"the gold answers of a question must be a list of texts; got {row!r} in question {number}."
            )
        if script == "squad2":
            row = [answer for answer in row if normalised(answer)] or [""]
        if not row:
            raise DataError(
                f"a question must have at least one gold answer; got none in question {number}. "
                "Use the script squad2 for questions that may have none."
            )
        scores_N2[number] = _best(compare, row, text)
    return AnswerScores(exact_N=scores_N2[:, 0], f1_N=scores_N2[:, 1])


def best_threshold(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[str],
    no_answer: ArrayLike,
    *,
    by: Literal["exact", "f1"] = "f1",
) -> Threshold:
    """Return the threshold on the no-answer scores with the best exact match or F1 of squad2; the lowest of equals.

    It is the script's best_exact_thresh or best_f1_thresh if no two scores are equal. If some are, the script may
    report a result from between them that no threshold attains; this one is always attained. If it is best to answer
    nothing the value is 0, as in the script, or just below all scores if one is 0 or less. A threshold chosen on the
    examples it is reported on is optimistic: choose on one part, report on another.
    """
    if by not in ("exact", "f1"):
        raise DataError(f'a threshold is chosen by "exact" or "f1"; got {by!r}.')
    scores = answer_scores(gold, predicted, script="squad2")
    score_N = scores.exact_N if by == "exact" else scores.f1_N
    no_answer_N = _no_answer_scores(no_answer, len(gold))
    answerable_N = np.array([bool(row) for row in gold])
    given_N = np.array([bool(text) for text in predicted])
    # Gain of a question when it is answered, over leaving all unanswered. As in the script, any text is a wrong answer
    # to a question that has none.
    gain_N = np.where(answerable_N, score_N, -1.0 * given_N)
    order_N = np.argsort(no_answer_N, kind="stable")
    sorted_N = no_answer_N[order_N]
    ends = np.flatnonzero(np.append(sorted_N[1:] != sorted_N[:-1], True))
    totals = np.concatenate([[0.0], np.cumsum(gain_N[order_N])[ends]]) + (~answerable_N).sum()
    nothing = min(0.0, float(np.nextafter(sorted_N[0], -np.inf)))
    best = int(totals.argmax())
    value = nothing if best == 0 else float(sorted_N[ends[best - 1]])
    return Threshold(value=value, score=float(100 * totals[best] / len(gold)))


def normalised(text: str) -> str:
    """Return a text as normalised by the SQuAD scripts."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _best(
    compare: Callable[[str, str], tuple[float, float]], gold: Sequence[str], predicted: str
) -> tuple[float, float]:
    """Return the highest exact match and the highest F1, possibly of different gold answers."""
    exact, f1 = zip(*(compare(answer, predicted) for answer in gold), strict=True)
    return max(exact), max(f1)


def _compare_squad1(gold: str, predicted: str) -> tuple[float, float]:
    gold, predicted = normalised(gold), normalised(predicted)
    gold_words, predicted_words = gold.split(), predicted.split()
    common = (Counter(gold_words) & Counter(predicted_words)).total()
    return float(gold == predicted), _f1(common, len(gold_words), len(predicted_words))


def _compare_squad2(gold: str, predicted: str) -> tuple[float, float]:
    exact, f1 = _compare_squad1(gold, predicted)
    return exact, max(f1, exact)  # they differ for two empty texts only


def _compare_cmrc(gold: str, predicted: str) -> tuple[float, float]:
    exact = float(without_punctuation(gold) == without_punctuation(predicted))
    gold_units, predicted_units = mixed_units(gold), mixed_units(predicted)
    return exact, _f1(_longest_run(gold_units, predicted_units), len(gold_units), len(predicted_units))


def _longest_run(first: list[str], second: list[str]) -> int:
    """Return the length of the longest common contiguous part."""
    longest = 0
    above = [0] * (len(second) + 1)
    for unit in first:
        row = [0] * (len(second) + 1)
        for column, other in enumerate(second):
            if unit == other:
                row[column + 1] = above[column] + 1
        longest = max(longest, *row)
        above = row
    return longest


def _f1(common: int, gold: int, predicted: int) -> float:
    return 2 * common / (gold + predicted) if common else 0.0


def _no_answer_scores(no_answer: ArrayLike, count: int) -> NDArray[np.float64]:
    no_answer_N = as_floats(no_answer, name="no_answer", dimensions=1)
    if len(no_answer_N) != count:
        raise DataError(
            f"no_answer must have a score for each question; got {len(no_answer_N)} scores for {count} questions."
        )
    return no_answer_N
