"""A file imports its own folder and lower levels only (docs/design/layout.md)."""

import ast
import dataclasses
import functools
import inspect
import re
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel

import segue

SOURCE = Path(__file__).parents[1] / "src" / "segue"
LEVELS = [
    {"errors", "arguments", "files", "config"},
    {"text", "model"},
    {"data", "checkpoint"},
    {"infer", "evaluation", "report"},
    {"tasks"},
    {"train", "explain"},
    {"study"},
    {"api"},
    {"serve"},
    {"apps"},
    {"cli", "__main__"},
]
LEVEL = {name: number for number, names in enumerate(LEVELS) for name in names}


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """What the tests look at, of a file that is parsed once."""
    kinds = (ast.Import, ast.ImportFrom, ast.Attribute, ast.Call)
    return [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, kinds)]


def imports(path: Path) -> set[str]:
    """The parts of segue that a file imports, at its top or inside functions."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in found if name and name.startswith("segue.")}


def test_imports_go_one_way() -> None:
    files = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert len(files) > 20
    for path in files:
        part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        assert part in LEVEL, f"{path}: {part} has no level; add it to LEVELS and to docs/design/layout.md"
        for other in imports(path) - {part}:
            allowed = LEVEL[other] < LEVEL[part] or (part, other) in {
                ("arguments", "errors"),
                ("config", "errors"),
                ("files", "errors"),
                ("__main__", "cli"),
            }
            assert allowed, f"{path} imports segue.{other}"


def test_import_segue_goes_one_way_too() -> None:
    """Below the command line, `import segue` is for its version and place alone: other names are of higher levels."""
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in ("cli", "__init__.py"):
            continue
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "segue":
                assert node.attr in ("__version__", "__file__"), f"{path}:{node.lineno}: segue.{node.attr}"
            if isinstance(node, ast.ImportFrom) and node.module == "segue":
                assert [alias.name for alias in node.names] == ["__version__"], f"{path}:{node.lineno}"


OWN_PROGRAMS = {"demo", "tour", "serve", "desk", "monitor", "monitor_views", "recommend", "lm_eval"}
"""Verbs that are programs of their own (docs/design/layout.md)."""
BESIDE_THE_INTERFACE = ("segue.api", "segue.cli", "segue.errors", "segue.config", "segue.files", "segue.report")
"""What any verb may use: the interface, itself, messages, config values, output files, and how numbers are shown."""
UNICODE = "segue.text.unicode"


def test_verbs_call_the_interface_and_nothing_else() -> None:
    """From other levels a verb imports values: dataclasses, aliases, constants. Functions it finds in `segue.api`."""
    files = [path for path in (SOURCE / "cli").glob("*.py") if path.stem not in OWN_PROGRAMS]
    assert len(files) > 25
    checked = 0
    for path in files:
        for node in nodes(path):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("segue."):
                continue
            assert node.module is not None
            if node.module.startswith(BESIDE_THE_INTERFACE) or node.module == UNICODE:
                continue
            for alias in node.names:
                checked += 1
                found = getattr(import_module(node.module), alias.name)
                assert not inspect.isroutine(found), f"{path}: {node.module}.{alias.name} is a function"
                known = dataclasses.is_dataclass(found) or not inspect.isclass(found) or _describes(found)
                assert known, f"{path}: {node.module}.{alias.name} does work; take it from segue.api"
    assert checked > 30


def _describes(one: type) -> bool:
    """Whether a class only describes: a protocol, a named tuple, a record of pydantic."""
    return getattr(one, "_is_protocol", False) or issubclass(one, tuple | BaseModel)


def test_tests_follow_the_folders_of_the_source() -> None:
    tests = Path(__file__).parent
    folders = [path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()]
    assert len(folders) > 8
    for name in folders:
        assert list((tests / name).glob("test_*.py")) or (tests / f"test_{name}.py").exists(), name


def test_only_the_command_line_prints() -> None:
    for path in SOURCE.rglob("*.py"):
        if "cli" not in path.relative_to(SOURCE).parts:
            for node in nodes(path):
                called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
                assert called not in {"print", "exit"}, f"{path}:{node.lineno}"


def test_the_reference_has_every_public_name() -> None:
    page = (SOURCE.parents[1] / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert len(segue.__all__) > 30
    for name in segue.__all__:
        assert name == "__version__" or re.search(rf"^::: segue\.[\w.]+\.{name}$", page, re.M), name
