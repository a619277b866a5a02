"""Which words decided: completeness of integrated gradients, through segments and memory, for every task."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import segue
from segue.errors import DataError
from segue.explain.decision import decide
from segue.explain.faithful import explain_words
from segue.explain.words import MOST_UNITS, integrated_gradients, leave_one_out, received_attention, versions_of
from segue.tasks.folder import TaskModel
from segue.tasks.predict import answers_in_order
from segue.tasks.table import TASKS
from tests.tasks.made import task_model
from tests.tasks.models import ENGLISH, write_model

# Three segments of 16 tokens have about 110 characters.
LONG = ENGLISH.replace("\n", " ").strip()
LISTS = {"query": "a coat", "documents": ["a new coat for his wife", "the river"]}
ROWS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "classify": ([{"text": "clean", "label": "good"}, {"text": "dull", "label": "bad"}], {"text": LONG[:120]}),
    "pair": (
        [{"first": "clean", "second": "a", "label": "x"}, {"first": "b", "second": "dull", "label": "y"}],
        {"first": LONG[:60], "second": "The room was dull"},
    ),
    "regress": ([{"text": "clean", "number": 1}, {"text": "dull", "number": 0}], {"text": LONG[:60]}),
    "tag": (
        [
            {"text": "born in Paris", "tags": [{"start": 8, "end": 13, "type": "place"}]},
            {"text": "to London", "tags": [{"start": 3, "end": 9, "type": "place"}]},
        ],
        {"text": LONG[:90]},
    ),
    "answer": (
        [{"context": "born in Paris", "question": "Where?", "answer": [{"text": "Paris", "start": 8}]}],
        {"context": LONG[:120], "question": "Where?"},
    ),
    "choose": (
        [{"context": "He wants a coat", "question": "What?", "options": ["a coat", "a hat"], "answer": "A"}],
        {"context": LONG[:90], "question": "What?", "options": ["a coat", "a new hat"]},
    ),
    "rank": ([LISTS | {"relevance": [1, 0]}], LISTS),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("words") / "xlnet")


def made_for(name: str, folder: Path) -> TaskModel:
    return task_model(TASKS[name], folder, ROWS[name][0])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ROWS)
def test_integrated_gradients_are_complete(name: str, folder: Path) -> None:
    """The numbers of all words add up to the difference to a text without words."""
    versions = versions_of(decide(made_for(name, folder), ROWS[name][1]))
    found = integrated_gradients(versions)
    nothing = versions.without(range(len(versions.units)))
    here, there = versions.values([versions.ids_N, nothing])
    assert abs(here - there) > 1e-4
    assert found.gap == pytest.approx(here - there - found.values_N.sum())
    assert abs(found.gap) <= 0.01 * np.abs(found.values_N).sum()
    texts = " ".join(unit.text for unit in versions.units)
    assert "room" in texts or "coat" in texts
    trunk = versions.trunk
    assert "forward" not in vars(trunk.vocabulary) or trunk.vocabulary.forward.__name__ == "forward"


def test_more_points_leave_a_smaller_gap(folder: Path) -> None:
    made = made_for("classify", folder)
    made.model.double()
    versions = versions_of(decide(made, {"text": LONG[:60]}))
    few, many = (integrated_gradients(versions, steps=steps) for steps in (2, 64))
    assert few.gap is not None
    assert many.gap is not None
    assert abs(many.gap) < 0.1 * abs(few.gap)
    assert abs(many.gap) < 1e-3 * np.abs(many.values_N).sum()


def test_gradients_reach_the_first_segment_through_memory(folder: Path) -> None:
    made = made_for("classify", folder)
    assert made.config.memory is not None
    versions = versions_of(decide(made, {"text": LONG[:130]}))
    left = len(versions.ids_N) - 2 * made.segment_length
    assert left > 4
    early = [n for n, unit in enumerate(versions.units) if unit.places[-1] < left]
    found = integrated_gradients(versions, steps=2)
    assert (np.abs(found.values_N[early]) > 0).all()
    before = versions.trunk.reader.config
    assert before == made.config, "the reader is as it was"


def test_the_gradient_is_that_of_finite_differences(folder: Path) -> None:
    """One point in the middle of the way, in float64: integrated gradients with one step are that gradient."""
    made = made_for("classify", folder)
    made.model.double()
    versions = versions_of(decide(made, {"text": LONG[:120]}))
    found = integrated_gradients(versions, steps=1)
    trunk = versions.trunk
    with torch.no_grad():
        tables = [
            trunk.vocabulary(torch.from_numpy(ids)[None])[0]
            for ids in (versions.ids_N, versions.without(range(len(versions.units))))
        ]
        from segue.explain.words import _embedded_as

        middle_ND, way_ND = (tables[0] + tables[1]) / 2, tables[0] - tables[1]
        numbered = versions.item(np.arange(len(versions.ids_N)))
        for number in (0, 3, len(versions.units) - 1):
            step_ND = torch.zeros_like(way_ND)
            places = list(versions.units[number].places)
            step_ND[places] = way_ND[places] * 1e-5
            values = []
            for sign in (1, -1):
                with _embedded_as(trunk, middle_ND + sign * step_ND):
                    values.append(float(versions.decision.values([numbered])[0]))
            assert found.values_N[number] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-8)


def test_leave_one_out_is_the_answer_to_the_other_text(folder: Path) -> None:
    made = made_for("classify", folder)
    decision = decide(made, {"text": LONG[:60]})
    versions = versions_of(decision)
    found = leave_one_out(versions)
    best = int(decision.prediction.value.argmax())
    with torch.no_grad():
        for number in (0, 2):
            item = versions.item(versions.without([number]))
            probability = made.task.answers(made.model, [item], made.reader())[0][best]
            expected = np.log(decision.prediction.value[best]) - np.log(probability)
            assert found.values_N[number] == pytest.approx(expected, abs=1e-5)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ROWS)
def test_a_report_says_how_true_it_is(name: str, folder: Path) -> None:
    made = made_for(name, folder)
    report = explain_words(decide(made, ROWS[name][1]))
    assert [one.method for one in report.faithfulness] == [
        "integrated_gradients",
        "leave_one_out",
        "attention",
        "random",
    ]
    assert [one.method for one in report.attributions] == ["integrated_gradients", "leave_one_out", "attention"]
    assert all(len(one.values_N) == len(report.units) for one in report.attributions)
    assert len(report.first(count=3)) == 3
    assert report.task == name
    if name in ("classify", "pair", "choose"):
        example = made.task.example(1, ROWS[name][1], labelled=False)
        assert report.value == pytest.approx(answers_in_order(made, [example])[0].confidence, abs=1e-5)


def test_leaving_out_one_word_first_is_better_than_chance(folder: Path) -> None:
    made = made_for("classify", folder)
    report = explain_words(decide(made, {"text": LONG[:60]}))
    by_name: Mapping[str, Any] = {one.method: one for one in report.faithfulness}
    assert by_name["leave_one_out"].comprehensiveness > by_name["random"].comprehensiveness


def test_attention_is_all_there(folder: Path) -> None:
    """What all tokens receive is what all queries give: one for each layer and head."""
    made = made_for("classify", folder)
    versions = versions_of(decide(made, {"text": LONG}))
    received = received_attention(versions).values_N.sum()
    queries = len(versions.ids_N) * made.config.num_layers * made.config.num_heads
    assert 0.5 * queries < received < queries  # special tokens receive the rest


def test_a_long_text_has_units_of_several_words(folder: Path) -> None:
    versions = versions_of(decide(made_for("classify", folder), {"text": LONG * 6}))
    assert MOST_UNITS / 2 < len(versions.units) <= MOST_UNITS
    places = [place for unit in versions.units for place in unit.places]
    assert len(places) == len(set(places))
    special = set(versions.decision.made.tokenizer.specials.values())
    assert len(places) == sum(int(index) not in special for index in versions.ids_N)


def test_what_all_options_share_is_one_text(folder: Path) -> None:
    versions = versions_of(decide(made_for("choose", folder), ROWS["choose"][1]))
    assert len(versions.units[0].places) == 2 * (len(versions.units[0].places) // 2)
    assert {unit.document for unit in versions.units} == {0, 1}


def test_chinese_words_are_told_apart(tmp_path: Path) -> None:
    made = task_model(
        TASKS["classify"],
        write_model(tmp_path / "zh", language="chinese"),
        [{"text": "干净", "label": "好"}, {"text": "太差", "label": "差"}],
    )
    versions = versions_of(decide(made, {"text": "房间很干净，服务员的态度也非常好"}))
    assert len(versions.units) > 4


def test_rows_that_cannot_be_explained(folder: Path) -> None:
    with pytest.raises(DataError, match="must have first, second"):
        decide(made_for("pair", folder), {"first": "a"})
    with pytest.raises(DataError, match="must have text"):
        decide(made_for("classify", folder), {"text": " "})


def test_n_grams_that_are_joined_have_their_say() -> None:
    text = "A dull film with a weak story"
    report = segue.explain_answer("sentiment-en", text)
    assert report.whole == segue.predict("sentiment-en", [text], progress=False)[0]["prediction"]
