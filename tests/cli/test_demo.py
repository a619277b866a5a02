"""The demo, with two updates for each model: everything it promises is there."""

from pathlib import Path

from tests.cli.test_pretrain import segue


def test_the_demo_goes_from_text_to_a_table(tmp_path: Path) -> None:
    """Chinese text comes in a package; where no index is reachable, the demo says so and goes on."""
    output = segue("demo", "--out", tmp_path / "demo", "--steps", 2)
    assert "English  transformer-xl  64" in output
    assert "English  transformer-xl  none" in output
    assert "Chinese is left out" in output or (
        "Chinese  xlnet" in output
        and "TF-IDF and logistic regression" in output
        and "XLNet, pretrained above" in output
        and (tmp_path / "demo" / "sentiment" / "best" / "task.toml").exists()
    )
    assert "The module provides" in output
    assert (tmp_path / "demo" / "runs.png").stat().st_size > 5000
    assert (tmp_path / "demo" / "transformer-xl" / "last" / "model.safetensors").exists()
