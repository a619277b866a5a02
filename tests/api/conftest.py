"""A folder with all that the examples of the functions name: models, texts, labelled rows."""

from pathlib import Path
from typing import Any

import pytest

import segue
from tests.tasks.models import ENGLISH, write_model

GOOD, BAD = ("clean", "kind", "new", "young"), ("dull", "weak", "asleep", "nearly")


def labelled_rows(count: int = 96) -> list[dict[str, Any]]:
    """Texts whose label is in their words."""
    rows = []
    for number in range(count):
        words = (GOOD, BAD)[number % 2]
        text = f"The {('room', 'film', 'story')[number % 3]} was {words[number % 4]} and {words[number // 4 % 4]}."
        rows.append({"text": text, "label": ("good", "bad")[number % 2]})
    return rows


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once; examples write into copies of it."""
    folder = tmp_path_factory.mktemp("shelf")
    write_model(folder / "model", objective="causal")
    write_model(folder / "xlnet")
    (folder / "texts.txt").write_text(ENGLISH.replace("\n", "\n\n"), encoding="utf-8")
    (folder / "finished-run").mkdir()
    (folder / "finished-run" / "metrics.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.5}\n')
    settings = {"train.epochs": 6, "train.learning_rate": 3e-3, "read.summary": "mean"}
    result = segue.finetune(folder / "xlnet", labelled_rows(), settings=settings, baselines=False, progress=False)
    assert result.metrics["valid"]["accuracy"].value == 1
    result.save(folder / "sentiment")
    return folder


@pytest.fixture
def place(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with links to what is on the shelf."""
    for one in shelf.iterdir():
        (tmp_path / one.name).symlink_to(one)
    monkeypatch.chdir(tmp_path)
    return tmp_path
