"""The guide pages run as they stand: their files are written, their commands and their Python are run in order."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from segue.cli.app import app
from segue.tasks.table import TASKS
from tests.tasks.models import write_model

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted((DOCS / "tasks").glob("*.md"))
STREAM_PAGES = [DOCS / f"{name}{ending}.md" for name in ("generate", "score", "context") for ending in ("", ".zh-CN")]
"""Their `model` is a Transformer-XL, and `xlnet` is there too."""
BLOCK = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"english": "", "chinese": ".zh-CN"}


def test_every_task_has_a_page_in_both_languages() -> None:
    expected = {f"{name}{ending}.md" for name in [*TASKS, "tune"] for ending in LANGUAGES.values()}
    assert expected <= {page.name for page in PAGES}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {language: write_model(folder / language, language=language) for language in LANGUAGES}


@pytest.fixture(scope="module")
def causal_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("causal")
    return {language: write_model(folder / language, objective="causal", language=language) for language in LANGUAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_runs(page: Path, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(models[language_of(page)], tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize("page", STREAM_PAGES, ids=lambda page: page.name)
def test_the_page_of_streams_runs(
    page: Path,
    models: dict[str, Path],
    causal_models: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(causal_models[language_of(page)], tmp_path / "model")
    shutil.copytree(models[language_of(page)], tmp_path / "xlnet")
    monkeypatch.chdir(tmp_path)
    run_page(page)


def language_of(page: Path) -> str:
    return "chinese" if page.name.endswith(".zh-CN.md") else "english"


def run_page(page: Path) -> None:
    """In the current folder: files first, then commands and Python, which is one program, from top to bottom."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert any(kind == "bash" and text.startswith("segue ") for kind, _, text in blocks)
    for _, name, text in blocks:
        if name:
            assert Path(name).name == name
            Path(name).write_text(text, encoding="utf-8")
    names: dict[str, object] = {}
    for kind, name, text in blocks:
        if kind == "bash":
            for command in joined(text):
                run(command)
        elif kind == "python" and not name:
            exec(compile(text, page.name, "exec"), names)


def run(command: str) -> None:
    """In this process where it is a command of segue alone, which saves its imports; else in a shell."""
    if command.startswith("segue ") and not set(command) & set("|<>&;$"):
        app(shlex.split(command)[1:], standalone_mode=False)
        return
    path = shlex.quote(str(Path(sys.executable).parent))
    result = subprocess.run(
        ["bash", "-c", f"PATH={path}:$PATH; {command}"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"


def joined(text: str) -> list[str]:
    """Commands, those over several lines put together; comments left out."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]
