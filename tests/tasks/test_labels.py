"""Labels that are missing or look so, and texts that are in two parts."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from segue.data.tables import open_table
from segue.errors import DataError
from segue.tasks.classify import CLASSIFY, ClassifySettings
from segue.tasks.examples import understand
from segue.tasks.generate import Generate, GenerateSettings
from segue.tasks.labels import label_text
from segue.tasks.overlap import warnings_of
from segue.tasks.task import Example, Task


def learned(labels: list[Any], **settings: Any) -> Any:
    rows = [(number, {"text": f"text {number}", "label": label}) for number, label in enumerate(labels, 1)]
    return CLASSIFY.learn(rows, ClassifySettings(**settings))


def test_missing_values_are_no_classes_unless_the_user_says_so() -> None:
    labels = ["good", "bad", "NaN", "nan", "None", "NULL", "<NA>", "good", "nan"]
    with pytest.raises(DataError) as caught:
        learned(labels)
    message = str(caught.value)
    for part in ("'NaN' in 1 row (line or record 3)", "'nan' in 2 rows (line or record 4, 9)", "'None' in 1 row"):
        assert part in message
    assert "task.missing=leave_out" in message
    assert learned(labels, missing="leave_out").labels == ("bad", "good")
    assert "NaN" in learned(labels, missing="class").labels
    assert learned(["none", "mild", "NA"]).labels == ("NA", "mild", "none")  # words of people


@pytest.mark.parametrize("multiple", [False, True])
def test_rows_with_missing_labels_are_left_out_and_counted(multiple: bool, tmp_path: Path) -> None:
    task = learned(["good", "bad"], missing="leave_out", multiple=multiple)
    rows = [
        (1, {"text": "a", "label": "good"}),
        (2, {"text": "b", "label": "nan"}),
        (3, {"text": "c", "label": math.nan}),
    ]
    (tmp_path / "t.jsonl").write_text(json.dumps({"text": "a"}))
    found = understand(task, open_table(tmp_path / "t.jsonl"), rows, labelled=True)
    assert len(found.examples) == 1
    assert found.unusable == {"a missing label": (1, 2), "an empty label": (1, 3)}


def test_the_remedy_where_only_the_validation_table_has_them() -> None:
    with pytest.raises(DataError, match=r"got 'NaN'.*task\.missing=leave_out"):
        learned(["good", "bad"]).example(1, {"text": "a", "label": "NaN"}, labelled=True)


def examples(*pairs: tuple[str, Any]) -> list[Example]:
    return [Example(number=number, texts=(text,), gold=gold) for number, (text, gold) in enumerate(pairs, 1)]


def test_equal_texts_in_several_parts_are_counted() -> None:
    task: Task = learned(["a", "b"])
    train = examples(("One  two", 0), ("three", 1), ("Ｆｏｕｒ", 0), ("three", 0), *((f"x{n}", 0) for n in range(50)))
    valid = examples(("one two", 0), ("THREE", 1), ("four", 1), *((f"y{n}", 0) for n in range(50)))
    test = examples(("y1", 1), *((f"z{n}", 0) for n in range(50)))
    conflict, overlap, both = warnings_of(task, train, {"valid": valid, "test": test})
    assert conflict.startswith(
        "1 training text occurs with different answers (2 examples; the first: line or record 2, 4)"
    )
    assert overlap.startswith("3 of 53 validation examples have the text of a training example, 1 of them with another")
    assert both.startswith("1 of 51 test example has the text of a validation example, 1 of them with another answer")
    assert warnings_of(task, train[4:], {"valid": valid[3:], "test": test[1:]}) == []


def test_too_few_examples_are_said() -> None:
    train = examples(*((f"x{n}", n % 2) for n in range(50)))
    (few,) = warnings_of(learned(["a", "b"]), train, {"valid": examples(("new", 0)), "test": []})
    assert few.startswith("1 validation example is too few to select and evaluate the model")


def test_sources_may_have_several_targets() -> None:
    train = examples(("a", ("x",)), ("a", ("y",)))
    assert warnings_of(Generate(settings=GenerateSettings()), train, {"valid": []}) == []


def test_a_label_can_always_be_saved() -> None:
    assert label_text("b\ud800") == "b\ufffd"
