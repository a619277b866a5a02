"""The detector of collapse: silent on runs that learn or learn slowly, loud on those that lost what they had."""

import math

import pytest

from segue.train.collapse import CollapseDetector

CHANCE = math.log(2)


def feed(detector: CollapseDetector, losses: list[float]) -> str | None:
    for loss in losses:
        if found := detector.after_step(loss=loss, gradient_norm=1.0):
            return found
    return None


def test_a_run_that_learns_is_left_alone() -> None:
    detector = CollapseDetector(chance=CHANCE)
    assert feed(detector, [0.7] * 100 + [0.7 - 0.002 * n for n in range(200)]) is None
    assert detector.after_epoch(answers=2) is None


def test_a_loss_that_comes_back_to_guessing_is_a_collapse() -> None:
    detector = CollapseDetector(chance=CHANCE)
    found = feed(detector, [0.7] * 50 + [0.3] * 60 + [0.7] * 60)
    assert found is not None
    assert "back at" in found


def test_a_hard_task_that_never_left_guessing_is_no_collapse_while_answers_differ() -> None:
    detector = CollapseDetector(chance=CHANCE)
    assert feed(detector, [0.695] * 300) is None
    assert detector.after_epoch(answers=2) is None


def test_the_same_answer_to_everything_after_an_epoch_is_a_collapse() -> None:
    detector = CollapseDetector(chance=CHANCE)
    feed(detector, [0.695] * 60)
    assert "all answers are the same" in str(detector.after_epoch(answers=1))


def test_the_same_answer_with_a_falling_loss_is_not() -> None:
    detector = CollapseDetector(chance=CHANCE)
    feed(detector, [0.5] * 60)
    assert detector.after_epoch(answers=1) is None


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (math.inf, 1.0), (1.0, math.nan), (1.0, math.inf)])
def test_numbers_that_are_not_finite(loss: float, norm: float) -> None:
    assert "not finite" in str(CollapseDetector(chance=None).after_step(loss=loss, gradient_norm=norm))


def test_without_a_chance_loss_only_numbers_that_are_not_finite_count() -> None:
    detector = CollapseDetector(chance=None)
    assert feed(detector, [0.1] * 60 + [9.0] * 60) is None
    assert detector.after_epoch(answers=1) is None
