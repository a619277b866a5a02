"""What a threshold promises: by questions that nothing was fitted to, and never above what is accepted."""

import doctest
from collections.abc import Sequence
from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest

import segue
from segue.apps.desk import confidence, report
from segue.apps.desk.confidence import Outcomes, calibration_error, curve, threshold_for, upper_bound
from segue.apps.desk.crosswise import FOLDS, Evidence, decide
from segue.apps.desk.parts import PARTS
from segue.apps.desk.ranker import put_forward
from segue.errors import ConfigError, DataError
from tests.apps.faq import ENGLISH, rows

ERRORS = (0.01, 0.02, 0.05, 0.1)


def outcomes(sure: np.ndarray, right: np.ndarray) -> Outcomes:
    every = np.ones(len(sure))
    return Outcomes(confidence_N=sure, right_N=right, inside_N=every > 0, weight_N=every)


def drawn(draw: np.random.Generator, count: int) -> Outcomes:
    """Calibrated: 86 of 100 are right."""
    sure = 1 / (1 + np.exp(-draw.normal(3, 2.2, count)))
    return outcomes(sure, draw.random(count) < sure)


def test_the_error_on_new_questions_is_within_a_point_of_what_is_accepted() -> None:
    draw = np.random.default_rng(1)
    new = drawn(draw, 50_000)
    for count in (180, 600):
        for error in ERRORS:
            found = [new.at(threshold_for(drawn(draw, count), error=error)) for _ in range(100)]
            mean = float(np.mean([one.share_wrong for one in found if one.answered]))
            assert abs(mean - error) < 0.01, (count, error, mean)


def test_no_threshold_is_measured_above_what_is_accepted() -> None:
    draw = np.random.default_rng(2)
    for _ in range(200):
        some = drawn(draw, int(draw.integers(1, 200)))
        if draw.random() < 0.5:  # far too sure
            some = replace(some, confidence_N=some.confidence_N**0.2)
        for error in ERRORS:
            assert some.at(threshold_for(some, error=error)).share_wrong <= error
    wrong = outcomes(np.linspace(0.1, 0.9, 50), np.zeros(50, dtype=bool))
    assert threshold_for(wrong, error=0.05) > 1


def test_the_bound_holds_as_often_as_it_says() -> None:
    """Sum the probabilities of all counts of wrong answers to 150 questions for which the bound holds."""
    for share in (0.01, 0.05, 0.2):
        likely = [comb(150, wrong) * share**wrong * (1 - share) ** (150 - wrong) for wrong in range(151)]
        holds = sum(one for wrong, one in enumerate(likely) if upper_bound(wrong, 150) >= share)
        assert 0.975 <= holds < 1
    assert upper_bound(0, 147) == pytest.approx(1 - 0.025 ** (1 / 147))
    assert upper_bound(3, 3) == 1
    assert doctest.testmod(confidence).attempted == 1
    assert doctest.testmod(report).attempted == 1
    assert doctest.testmod(confidence).failed == doctest.testmod(report).failed == 0


def test_counts_are_of_questions_inside_and_outside_apart() -> None:
    some = Outcomes(
        confidence_N=np.array([0.9, 0.8, 0.7, 0.0, 0.85, 0.1]),
        right_N=np.array([True, True, False, True, False, False]),
        inside_N=np.array([True, True, True, True, False, False]),
        weight_N=np.array([1, 1, 1, 1, 0, 0.0]),
    )
    found = some.at(0.7)
    assert (found.inside, found.answered, found.wrong, found.never) == (4, 3, 1, 1)
    assert (found.outside, found.outside_answered) == (2, 1)
    assert found.error == pytest.approx(1 / 3)
    assert some.at(0.0).answered == 3  # what is never answered is not, whatever the threshold
    assert threshold_for(some, error=0.2) == 0.8
    counted = replace(some, weight_N=np.array([1, 1, 1, 1, 2, 2.0]))  # half of all questions are outside
    assert threshold_for(counted, error=0.2) == 0.9
    again = Outcomes.of(some.rows())
    assert again.rows() == some.rows()
    assert Outcomes.of([[0.3001808, 1], [0.2, 0]]).at(0.3001808).answered == 1
    points = curve(some)
    assert (points[-1].threshold, points[-1].answered) == (0.7, 0.75)
    assert curve(Outcomes.of([])) == []
    assert calibration_error(np.full(100, 0.9), np.arange(100) % 2 == 0) == pytest.approx(0.4)


def evidence(golds: Sequence[tuple[int, ...]]) -> Evidence:
    """Parts that are often right about the first topics that the questions have; some topics were hidden."""
    draw = np.random.default_rng(4)
    many, topics = len(golds), 10
    scores = []
    for place in range(many + 40):
        one = draw.random((len(PARTS), topics)).astype(np.float32)
        one[4:] = 0
        if place < many:
            one[[0, 3], place % topics] += draw.random() * 1.2
        scores.append(put_forward(one))
    return Evidence(
        golds=golds,
        scores=scores[:many],
        plain=scores[:many],
        hidden=scores[many:],
        folds_N=np.arange(many) // topics % FOLDS,
        hidden_folds_M=np.arange(40) % FOLDS,
        answerable_T=np.ones(topics, dtype=bool),
    )


@pytest.mark.parametrize("place", [57, *(pytest.param(place, marks=pytest.mark.long) for place in (0, 123))])
def test_no_question_has_a_part_in_what_judges_it(place: int) -> None:
    """Another label of a question changes what the others get, but not what it gets itself."""
    golds = [(place % 10,) for place in range(200)]
    before = decide(evidence(golds), error=0.1, outside_share=None)
    changed = [*golds]
    changed[place] = ((golds[place][0] + 1) % 10,)
    after = decide(evidence(changed), error=0.1, outside_share=None)
    fold = place // 10 % FOLDS
    own, others = np.arange(200) // 10 % FOLDS == fold, np.arange(200) // 10 % FOLDS != fold
    assert (after.confidence_N[own] == before.confidence_N[own]).all()
    assert (after.inside_N[own] == before.inside_N[own]).all()
    assert (after.ranked[place].topics == before.ranked[place].topics).all()
    assert (after.confidence_N[others] != before.confidence_N[others]).any()
    assert abs(after.counts.answered - before.counts.answered) < 60
    counts = before.outcomes.at(before.threshold)
    assert 0 < counts.answered < counts.inside == 200
    assert counts.outside == 40
    assert before.counts.inside == 200
    assert before.calibration < 0.15


def test_threshold_of_a_fold_does_not_see_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen on four folds is the same whatever the labels of the fifth are."""
    golds = [(place % 10,) for place in range(200)]
    chosen: list[list[float]] = []

    def remembered(asked: Outcomes, *, error: float) -> float:
        chosen[-1].append(threshold_for(asked, error=error))
        return chosen[-1][-1]

    monkeypatch.setattr("segue.apps.desk.crosswise.threshold_for", remembered)
    for fold in (None, 2):
        chosen.append([])
        wrong = [((gold[0] + 5) % 10,) if place // 10 % FOLDS == fold else gold for place, gold in enumerate(golds)]
        decide(evidence(wrong), error=0.1, outside_share=None)
    (first, *before), (last, *after) = chosen
    assert (len(before), len(after)) == (FOLDS, FOLDS)
    assert before[2] == after[2]
    assert first != last


def test_an_expected_share_of_questions_outside_counts(tmp_path: Path) -> None:
    more = segue.learn_desk(rows(), tmp_path / "more", model="none", error=0.2, outside_share=0.5, progress=False)
    none = segue.learn_desk(rows(), tmp_path / "none", model="none", error=0.2, outside_share=0, progress=False)
    assert more.numbers["outside_share"] == 0.5
    assert more.numbers["counts"]["outside"] == none.numbers["counts"]["outside"] > 0
    assert more.numbers["counts"]["answered"] < none.numbers["counts"]["answered"]
    assert "50.0% of all questions are expected" in more.page.with_suffix(".md").read_text(encoding="utf-8")
    few = [{"question": f"{word} {n}", "answer": word} for word in ("parcel", "refund") for n in range(8)]
    with pytest.raises(ConfigError, match="needs examples of questions outside"):
        segue.learn_desk(few, tmp_path / "few", model="none", outside_share=0.5, progress=False)
    with pytest.raises(ConfigError, match="must be at least 0 and less than 1"):
        segue.learn_desk(few, tmp_path / "few", model="none", outside_share=1, progress=False)


def test_a_desk_without_answers_answers_nothing(tmp_path: Path) -> None:
    some = [{"text": one["question"], "category": one["intent"]} for one in rows() if one["intent"] in ENGLISH]
    found = segue.learn_desk(some, tmp_path / "desk", model="none", error=0.3, progress=False)
    assert found.numbers["answered"] == found.numbers["counts"]["answered"] == 0
    assert found.numbers["columns"] == ["sources: question from the column text, intent from the column category"]
    text = found.page.with_suffix(".md").read_text(encoding="utf-8")
    assert "No topic has an answer: a person answers every question." in text
    with pytest.raises(DataError, match="must have a column question, answer or turns; got a, b"):
        segue.learn_desk([{"a": "one", "b": "two"}], tmp_path / "other", model="none", progress=False)


def test_the_report_has_counts_and_the_threshold_in_use(learned: Path) -> None:
    found = segue.describe_desk(learned)
    numbers = found.numbers
    assert numbers["counts"]["wrong"] <= numbers["accepted_error"] * numbers["counts"]["answered"]
    assert numbers["answered"] == pytest.approx(numbers["counts"]["answered"] / numbers["counts"]["inside"], abs=1e-4)
    text = found.page.with_suffix(".md").read_text(encoding="utf-8")
    for part in ("in use", "The correct topic came first in", "were recognised (", "what it looks at",
                 "expected calibration error", "Questions it was least sure of"):  # fmt: skip
        assert part in text, part
