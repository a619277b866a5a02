"""Every public function is documented, and its example runs."""

import ast
import doctest
import inspect
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.study import pool
from tests.study.studies import forked_worker
from tests.tasks.models import write_model

FUNCTIONS = [name for name in segue.__all__ if inspect.isfunction(getattr(segue, name)) and name != "named"]
PRIVATE_EXAMPLES = ["segue.api.errors", "segue.api.progress", "segue.api.configs", "segue.api.tables"]


def test_there_are_functions() -> None:
    assert {"prepare", "pretrain", "finetune", "predict", "score", "embed", "generate"} <= set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_names_every_argument_and_its_type_is_known(name: str) -> None:
    function = getattr(segue, name)
    text = inspect.getdoc(function) or ""
    parameters = inspect.signature(function).parameters
    for section in ("Args:", "Returns:", "Raises:", "Examples:") if parameters else ("Returns:", "Examples:"):
        assert f"\n{section}\n" in text, section
    arguments = text.partition("\nArgs:\n")[2].partition("\nReturns:\n")[0]
    described = re.findall(r"^    (\w+): ", arguments, flags=re.MULTILINE)
    assert described == list(parameters)
    assert all(one.annotation is not inspect.Parameter.empty for one in parameters.values())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_runs(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_started", forked_worker)  # of studies
    if name == "export":  # takes the longer, the more layers there are
        (place / "model").unlink()
        write_model(place / "model", objective="causal", layers=1)
    run_examples(getattr(segue, name), name)


@pytest.mark.parametrize("name", PRIVATE_EXAMPLES)
def test_examples_inside_run(name: str) -> None:
    module = __import__(name, fromlist=["_"])
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


def run_examples(function: Callable[..., Any], name: str) -> None:
    names = {"segue": segue, "math": math, "Path": Path}
    examples = doctest.DocTestFinder(recurse=False).find(function, name, globs=names)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    shown: list[str] = []
    for one in examples:
        runner.run(one, out=shown.append)
    assert runner.tries, f"{name} has no example"
    assert not runner.failures, "".join(shown)


# ------------------------------------------------------------------------------------------------------- the module


def test_names_are_shown_found_and_typed() -> None:
    assert set(segue.__all__) == {*segue._HOME, "__version__"}
    assert segue.__all__ == sorted(segue.__all__)
    assert set(segue.__all__) <= set(dir(segue))
    for name in segue.__all__:
        assert getattr(segue, name) is not None
        place = Path(segue.__file__).parent / name
        assert not place.with_suffix(".py").exists(), name  # a module of that name would take its place
        assert not (place / "__init__.py").exists(), name
    source = Path(segue.__file__).read_text(encoding="utf-8")
    guard = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    typed = {
        alias.asname: (node.module, alias.name)
        for node in guard.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {name: (module, name) for name, module in segue._HOME.items()}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        segue.nothing  # noqa: B018


def test_the_docstring_of_the_module_names_every_function() -> None:
    assert segue.__doc__ is not None
    for name in [*FUNCTIONS, "named"]:
        assert re.search(rf"\b{name}\b", segue.__doc__), name


def test_importing_segue_loads_no_torch() -> None:
    code = "import sys, segue; dir(segue); assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
