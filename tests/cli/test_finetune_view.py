"""What `segue finetune` says: of a tagger that finds nothing yet, of a config in place of a model; what it leaves."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from segue.cli.finetune import _LiveView
from segue.evaluation.metrics.bootstrap import Metric
from segue.train.events import Prepared, Validated
from tests.cli.test_pretrain import segue
from tests.tasks.models import write_model


@pytest.mark.parametrize(
    ("tags", "value", "said"),
    [
        (True, 0.0, "step 5: f1 0.0000, no entity found yet"),
        (True, 0.5, "step 5: f1 0.5000, the best so far"),
        (False, 0.0, "step 5: f1 0.0000, the best so far"),
    ],
)
def test_a_tagger_without_entities_is_not_praised(tags: bool, value: float, said: str) -> None:
    output = io.StringIO()
    view = _LiveView(Console(file=output, width=100), Path("run"), tags=tags)
    with view:
        view.show(Prepared(counts={"train": 2}, notes=[], preview=[], steps=9, parameters=1, metric="f1"))
        view.show(Validated(step=5, metrics={"f1": Metric(name="f1", value=value, low=None, high=None)}, best=True))
    assert output.getvalue().splitlines()[-1] == said


@pytest.mark.parametrize("model", ["small-xlnet", "transformer-xl-wt103"])
@pytest.mark.parametrize("options", [(), ("--new-weights",)])
def test_a_config_in_place_of_a_model_is_explained(model: str, options: tuple[str, ...], tmp_path: Path) -> None:
    words = ["finetune", model, "--task", "classify", "--train", "x.csv", "--out", tmp_path / "run", *options]
    message = segue(*words, code=2)
    assert f"{model} is a config, with neither weights nor a tokeniser" in message
    assert f"segue pretrain {model}" in message
    message = segue("pretrain", "small-xlnet", "--from", model, "--out", tmp_path / "run", code=2)
    assert f"{model} is a config" in message
    assert not (tmp_path / "run").exists()


def test_new_weights_are_no_option_of_pretraining(tmp_path: Path) -> None:
    message = segue("pretrain", "small-xlnet", "--new-weights", "--out", tmp_path / "run", code=2)
    assert "starts with new weights unless --from names a model" in message


def test_a_run_that_is_refused_leaves_no_folder(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    (tmp_path / "one.csv").write_text("text,label\na,x\nb,x\n", encoding="utf-8")
    for train in ("one.csv", "nowhere.csv"):
        words = ["finetune", model, "--task", "classify", "--train", tmp_path / train, "--out", tmp_path / "run"]
        segue(*words, code=2)
        assert not (tmp_path / "run").exists()
