"""The demo, small: everything it promises is there."""

import os
import signal
from pathlib import Path

import pytest

from segue.cli import demo
from segue.train.loop import StepReport
from tests.cli.test_pretrain import both, segue

TINY = {"num_layers": 1, "width": 32, "num_heads": 2, "inner_width": 32}


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the demo trains from nothing is as it says, but small."""
    assert TINY.keys() <= demo.SMALL["model"].keys()
    monkeypatch.setattr(demo, "VOCABULARY", 400)
    monkeypatch.setattr(demo, "SMALL", demo.SMALL | {"model": demo.SMALL["model"] | TINY})


@pytest.mark.usefixtures("few_texts")
@pytest.mark.parametrize("languages", [1, pytest.param(2, marks=pytest.mark.long)])
def test_the_demo_goes_from_packaged_models_to_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, languages: int
) -> None:
    """Reviews come in packages; where no index is reachable, the demo says so and goes on."""
    monkeypatch.setattr(demo, "REVIEWS", demo.REVIEWS[:languages])
    monkeypatch.setattr(demo, "TEST", 40)
    monkeypatch.setattr(demo, "EPOCHS", {"train.epochs": 1})
    output = segue("demo", "--out", tmp_path / "demo", "--steps", 2, "--rows", 60)
    for model in (*demo.WRITERS, *demo.GAPS, demo.TAGGER):
        assert f"{model}: " in output
    assert "memory" in output
    assert (tmp_path / "demo" / "runs.png").stat().st_size > 5000
    assert (tmp_path / "demo" / "memory-64" / "last" / "model.safetensors").exists()
    for reviews in demo.REVIEWS:
        folder = tmp_path / "demo" / reviews.sample
        assert "Skipped: " in output or (
            f"{reviews.model}, fine-tuned" in output
            and "both combined" in output
            and all(text in output for text in reviews.examples)
            and (folder / "best" / "task.toml").exists()
        )


@pytest.mark.usefixtures("few_texts")
def test_the_demo_ends_with_the_run_that_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not go on to the next model with half-trained weights; the same command resumes."""
    report = StepReport.__init__

    def stop(self: StepReport, **values: object) -> None:
        report(self, **values)  # type: ignore[arg-type]
        if values["step"] == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(demo, "REVIEWS", [])
    for part in ("_write", "_fill", "_tag"):
        monkeypatch.setattr(demo, part, lambda console: None)
    with monkeypatch.context() as patch:
        patch.setattr(StepReport, "__init__", stop)
        output, _ = both("demo", "--out", tmp_path, "--steps", 6, code=143)
    assert "Stopped. The same command resumes." in output
    assert (tmp_path / "memory-64" / "last").exists()
    assert not (tmp_path / "no-memory").exists()
    assert "bits/character" in segue("demo", "--out", tmp_path, "--steps", 6)
