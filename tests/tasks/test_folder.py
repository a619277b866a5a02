"""Folders of fine-tuned models: the figures on their cards, and heads of other libraries that have no task."""

from pathlib import Path
from typing import Any

import pytest
import torch

from segue.checkpoint.card import Facts, Metric
from segue.checkpoint.convert import convert
from segue.checkpoint.files import CARD
from segue.checkpoint.folder import load
from segue.checkpoint.heads import build, head_config, save_head
from segue.errors import CheckpointError, SegueWarning
from segue.model import Batch
from segue.tasks.classify import CLASSIFY
from segue.tasks.folder import load_task_model, save_task_model
from segue.tasks.predict import answer_rows
from tests.tasks.made import task_model

ROWS = [{"text": "A kind man.", "label": "good"}, {"text": "A dull film.", "label": "bad"}]


def test_the_card_of_a_head_has_its_figures(english_model: Path, tmp_path: Path) -> None:
    made = task_model(CLASSIFY, english_model, ROWS)
    facts = Facts(command="segue finetune x", metrics=[Metric(name="accuracy", value=0.875, step=12)])
    save_task_model(made, tmp_path / "tuned", tokenizer=english_model / "tokenizer", facts=facts)
    card = (tmp_path / "tuned" / CARD).read_text()
    assert "| accuracy | 0.875 | 12 |" in card
    assert "    segue finetune x\n" in card


def converted(english_model: Path, tmp_path: Path, head: dict[str, Any]) -> Path:
    """A head as a conversion leaves it: from transformers, without a task."""
    chosen = head_config(head)
    model = build(load(english_model).config, chosen)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.2)
    save_head(model, chosen, tmp_path / "ours", tokenizer=english_model / "tokenizer")
    convert(tmp_path / "ours", tmp_path / "hf", to="hf", compare=False)
    convert(tmp_path / "hf", tmp_path / "again", vocabulary=english_model / "tokenizer", compare=False)
    return tmp_path / "again"


@pytest.mark.parametrize("labels", [[], ["bad", "so so", "good"]], ids=["numbers", "names"])
def test_a_converted_classifier_predicts(labels: list[str], english_model: Path, tmp_path: Path) -> None:
    values = {"kind": "sequence_classifier", "num_labels": 3, "labels": labels, "projected": False}
    folder = converted(english_model, tmp_path, values)
    names = labels or ["0", "1", "2"]
    with pytest.warns(SegueWarning, match=f"read for the task classify, one text a row, labels {', '.join(names)}"):
        made = load_task_model(folder)
    answers = [answered.prediction for answered in answer_rows(made, enumerate(ROWS), batch_size=2)]
    for row, answer in zip(ROWS, answers, strict=True):
        document = made.layout().arrange(row["text"]).document
        ids, segments = (torch.from_numpy(values)[None] for values in (document.ids, document.segments))
        with torch.no_grad():
            logits = made.model.eval()(Batch(ids_BQ=ids, segments_BQ=segments)).logits[0]
        assert answer.columns["prediction"] == names[int(logits.argmax())]
        assert answer.confidence == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)


def test_a_converted_regression_predicts(english_model: Path, tmp_path: Path) -> None:
    folder = converted(english_model, tmp_path, {"kind": "sequence_classifier", "num_labels": 1, "task": "regression"})
    with pytest.warns(SegueWarning, match="read for the task regress, one text a row, numbers as the head gives them"):
        made = load_task_model(folder)
    (answered,) = answer_rows(made, enumerate(ROWS[:1]), batch_size=1)
    assert answered.problem is None


def test_other_heads_say_what_to_do(english_model: Path, tmp_path: Path) -> None:
    folder = converted(english_model, tmp_path, {"kind": "token_tagger", "num_labels": 3})
    with pytest.raises(CheckpointError, match=r"must have task.toml, .* token_tagger; .*heads.load_head"):
        load_task_model(folder)
    with pytest.raises(CheckpointError, match=r"must hold a fine-tuned model, with task.toml.*segue convert"):
        load_task_model(english_model)
