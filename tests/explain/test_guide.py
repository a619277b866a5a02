"""The guide runs as it stands, in both languages."""

import shutil
from pathlib import Path

import pytest

from segue.checkpoint.folder import TOKENIZER
from segue.tasks.folder import save_task_model
from segue.tasks.table import TASKS
from tests.tasks.made import task_model
from tests.tasks.models import write_model
from tests.test_guides import DOCS, LANGUAGES, run_page

ROWS = {
    "english": [{"text": "The room was clean", "label": "good"}, {"text": "A dull film", "label": "bad"}],
    "chinese": [{"text": "房间很干净", "label": "好"}, {"text": "写得太差了", "label": "差"}],
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_runs(language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "model", objective="causal", language=language)
    write_model(tmp_path / "xlnet", language=language)
    made = task_model(TASKS["classify"], tmp_path / "xlnet", ROWS[language])
    save_task_model(made, tmp_path / "topics", tokenizer=tmp_path / "xlnet" / TOKENIZER)
    shutil.rmtree(tmp_path / "model-tokenizer")
    monkeypatch.chdir(tmp_path)
    assert run_page(DOCS / f"explain{LANGUAGES[language]}.md") == 7
    for name in ("page", "xlnet", "texts", "models", "words", "answer", "page2"):
        assert (tmp_path / f"{name}.html").stat().st_size > 20_000
    assert (tmp_path / "head.png").read_bytes().startswith(b"\x89PNG")
