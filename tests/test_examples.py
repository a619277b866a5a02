"""Every program and notebook in examples/ runs, with small models."""

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from pydoc_data.topics import topics
from unittest import mock

import pytest

from tests.tasks.models import write_model

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ARGUMENTS = {
    "pretrain.py": ["text.txt", "--steps", "2"],
    "stream.py": ["causal"],
    "orders.py": ["permutation"],
    "classify.py": ["permutation-chinese"],
    "search.py": ["permutation", "Where is the room?"],
}
IN_A_PROCESS = "stream.py"
"""Run as a user does; the others run here."""
SHORTER = {"STEPS = 400": "STEPS = 12", "topics.values()": "list(topics.values())[::12]"}
"""What notebooks read and train less in a test."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    write_model(folder / "causal", objective="causal")
    write_model(folder / "permutation")
    write_model(folder / "permutation-chinese", language="chinese")
    (folder / "text.txt").write_text("\n\n".join(list(topics.values())[::3]), encoding="utf-8")
    return folder


def run(place: Path, *arguments: str) -> str:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(place)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=place, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def run_here(place: Path, program: Path, *arguments: str) -> str:
    """The same in this process, which saves its imports."""
    output = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [str(program), *arguments]),
        mock.patch.object(tempfile, "tempdir", str(place)),
        contextlib.chdir(place),
        contextlib.redirect_stdout(output),
    ):
        runpy.run_path(str(program), run_name="__main__")
    return output.getvalue()


def test_every_example_is_run_and_listed() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    notebooks = {path.name for path in EXAMPLES.glob("*.ipynb")}
    assert programs == set(ARGUMENTS)
    assert len(notebooks) == 2
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in table for name in programs | notebooks)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_program_runs(name: str, place: Path) -> None:
    if name == IN_A_PROCESS:
        assert run(place, str(EXAMPLES / name), *ARGUMENTS[name]).strip()
    else:
        assert run_here(place, EXAMPLES / name, *ARGUMENTS[name]).strip()


@pytest.mark.parametrize("name", ["memory.ipynb", "permutation.ipynb"])
def test_a_notebook_runs(name: str, place: Path) -> None:
    """And what it shows without training is what it shows here."""
    notebook = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    program = "\n".join(cells)
    shorter = program
    for text, other in SHORTER.items():
        assert (text in program) == (name == "memory.ipynb")
        shorter = shorter.replace(text, other)
    (place / f"{name}.py").write_text(shorter, encoding="utf-8")
    output = run_here(place, place / f"{name}.py")
    if name == "permutation.ipynb":
        shown = ["".join(out["text"]) for cell in notebook["cells"] for out in cell.get("outputs", [])]
        masks = shown[1]
        assert masks in output
    else:
        assert "with memory" not in output
        assert "perplexity" in output
