"""Builds the sdist and, from it, the wheel; installs the wheel with its required dependencies alone, away from the
sources; and uses it. Twice at the same time: with the C++ compiler that is there, and without any. The first has the
packaged models, the second is built without them (SEGUE_NO_MODELS).

.venv/bin/python .ci/wheel.py

PyTorch and the other requirements are not installed again: a fresh environment gets links to those of .venv, without
any of the optional packages.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL = [
    "pyarrow",
    "matplotlib",
    "sklearn",
    "optuna",
    "onnx",
    "onnxruntime",
    "huggingface_hub",
    "transformers",
    "tokenizers",
    "fastapi",
    "lm_eval",
]
_SERVER = ["fastapi", "starlette", "uvicorn", "h11", "prometheus_client"]
NEEDS_EXTRA = {"segue.serve": _SERVER, "segue.apps": _SERVER}
"""Packages of segue that only the verb of an extra imports, and what they may lack without it."""

IMPORT = """
import json, pathlib
import segue
print(json.dumps({"folder": str(pathlib.Path(segue.__file__).parent)}))
"""
IMPORT_EVERYTHING = f"""
import importlib, importlib.util, json, pathlib, pkgutil, sys
import segue
names = [module.name for module in pkgutil.walk_packages(segue.__path__, "segue.")]
names = [name for name in names if name not in ("segue.__main__", "segue.model.kernels.libnative")]
for name in names:
    package = ".".join(name.split(".")[:2])
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in {NEEDS_EXTRA}.get(package, []):
            raise
there = [name for name in {OPTIONAL} if importlib.util.find_spec(name) is not None]
folder = pathlib.Path(segue.__file__).parent
print(json.dumps({{"modules": len(names), "optional": there, "folder": str(folder)}}))
"""
SAVE_A_MODEL = """
import pathlib
import torch
from segue.checkpoint.folder import save
from segue.config import changed
from segue.model import LanguageModel
from segue.model.named import named
from segue.text.symbols import ByteTokenizer
tokenizer = ByteTokenizer()
pathlib.Path("tokenizer").mkdir()
tokenizer.save(pathlib.Path("tokenizer"))
torch.manual_seed(0)
config = changed(named("transformer-xl-enwik8-base"), num_layers=2, width=16, num_heads=2, head_width=8, inner_width=16,
                 vocabulary={"size": tokenizer.size}, memory={"length": 8})
save(LanguageModel(config), "model", tokenizer=pathlib.Path("tokenizer"))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(work / "dist")], cwd=ROOT)
        (sdist,) = (work / "dist").glob("*.tar.gz")
        with ThreadPoolExecutor() as pool:
            found = shutil.which(os.environ.get("CXX", "c++"))
            list(pool.map(partial(check, sdist, work), [None, found] if found else [None]))


def check(sdist: Path, work: Path, compiler: str | None) -> None:
    """The wheel that a compiler makes, or that comes of having none. What does not depend on it is tried once."""
    began = time.monotonic()
    folder = work / ("with-compiler" if compiler else "without-compiler")
    wheel = build(sdist, folder, compiler=compiler or "false")
    check_models(wheel, there=compiler is not None)
    segue, away = installed(wheel, folder, thorough=compiler is None)
    found = " ".join(run([segue, "doctor"], cwd=away).split())
    expect("All checks passed." in found, f"segue doctor must pass; it said: {found[-500:]}")
    state = "(definition, banded, native, step): checked" if compiler else "(native, step): not built"
    expect(f"kernel {state}" in found, f"segue doctor must say: kernel {state}")
    if compiler is None:
        small_verbs(wheel, segue, away)
        without_extras(segue, away)
    else:
        first_minute(Path(segue), away)
    print(f"{wheel.name} works ({'built with ' + compiler if compiler else 'built without a compiler'}; "
          f"{time.monotonic() - began:.0f} s)", flush=True)  # fmt: skip


def build(sdist: Path, folder: Path, *, compiler: str) -> Path:
    """The wheel that the sdist gives, in another folder than the sources."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    environment = os.environ | {"CXX": compiler, "CC": compiler, "SEGUE_NO_MODELS": "1" if compiler == "false" else ""}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    run(command, cwd=source, environment=environment)
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def check_models(wheel: Path, *, there: bool) -> None:
    """The wheel must have every file of the packaged models, or none."""
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if name.startswith("segue/models/")}
    folder = ROOT / "src" / "segue"
    files = {path.relative_to(folder.parent).as_posix() for path in (folder / "models").rglob("*") if path.is_file()}
    wanted = files if there else set()
    expect(found == wanted, f"{wheel.name} must have {len(wanted)} files of models; got {len(found)}")


def installed(wheel: Path, folder: Path, *, thorough: bool) -> tuple[str, Path]:
    """Installs the wheel, and imports it, or every module of it; gives the command, and a folder to work in."""
    python = fresh_environment(folder / "environment", wheel)
    away = folder / "away"
    away.mkdir()
    facts = json.loads(run([str(python), "-c", IMPORT_EVERYTHING if thorough else IMPORT], cwd=away))
    expect(Path(facts["folder"]).is_relative_to(folder), f"segue must be the installed one; got {facts['folder']}")
    if not thorough:
        return str(python.parent / "segue"), away
    modules = len(list((ROOT / "src" / "segue").rglob("*.py"))) - 2  # segue itself, and segue.__main__
    expect(facts["modules"] == modules, f"{modules} modules must be importable; got {facts['modules']}")
    expect(facts["optional"] == [], f"the environment must have no optional package; got {facts['optional']}")
    return str(python.parent / "segue"), away


def first_minute(segue: Path, away: Path) -> None:
    """Run the README's section "Try it at once" with no HOME and nothing but the environment on PATH.

    Nothing may be written into the installation, which may belong to somebody else.
    """

    def content() -> list[Path]:
        return sorted(path for path in segue.parents[1].rglob("*") if "__pycache__" not in path.parts)

    section = (ROOT / "README.md").read_text().partition("## Try it at once\n\n```bash\n")[2].partition("```")[0]
    commands = [shlex.split(line, comments=True) for line in section.splitlines()]
    expect(len(commands) >= 4, f"the README's first minute must have its commands; got {len(commands)}")
    before, environment = content(), {"PATH": str(segue.parent), "LANG": "C.UTF-8"}
    for words in commands:
        said = run([str(segue.with_name(words[0])), *words[1:]], cwd=away, environment=environment)
        expect(said.strip() != "", f"{shlex.join(words)} must print something")
    expect(content() == before, "nothing may be written into the installation")


def small_verbs(wheel: Path, segue: str, away: Path) -> None:
    version = run([segue, "--version"], cwd=away).strip()
    expect(version == wheel.name.split("-")[1], f"--version must be that of {wheel.name}; got {version}")
    expect("xlnet-base" in run([segue, "models"], cwd=away), "segue models must list xlnet-base")
    run([str(Path(segue).with_name("python")), "-c", SAVE_A_MODEL], cwd=away)
    run([segue, "generate", "model", "A text", "--max-tokens", "5", "--seed", "1"], cwd=away)


def without_extras(segue: str, away: Path) -> None:
    """What needs an optional package says which, and how to get it; no traceback."""
    (away / "table.jsonl").write_text('{"text": "a", "label": "b"}\n{"text": "c", "label": "d"}\n' * 20)
    (away / "corpus.parquet").write_bytes(b"PAR1")
    (away / "run").mkdir()
    (away / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    commands = {
        "pip install matplotlib": ["plot", "run", "--out", "run.png"],
        "pip install pyarrow": ["prepare", "corpus.parquet", "--out", "store"],
        "pip install optuna": ["tune", "model", "--task", "classify", "--train", "table.jsonl", "--out", "tuned"],
        "pip install onnx onnxscript onnxruntime": ["export", "model", "--what", "encoder", "--out", "exported"],
        "pip install fastapi uvicorn prometheus-client": ["serve", "model"],
        "pip install huggingface_hub": ["generate", "someone/some-model", "A text"],
    }
    commands["was built without its models (SEGUE_NO_MODELS)"] = ["generate", "transformer-xl-mini-en", "A text"]
    for message, words in commands.items():
        result = subprocess.run([segue, *words], cwd=away, capture_output=True, text=True, check=False)
        said = f"segue {' '.join(words)} must end with 2 and say `{message}`; got {result.returncode}: {result.stderr}"
        shown = " ".join(result.stderr.split())
        expect(result.returncode == 2 and message in shown and "Traceback" not in shown, said)


def fresh_environment(folder: Path, wheel: Path) -> Path:
    """An environment with the wheel, and with links to its required dependencies in this one; gives its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    for found in required(PROJECT["dependencies"]).values():
        for name in {file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(found.locate_file(name))))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    run([*install, "--disable-pip-version-check", str(wheel)])
    return python


def required(requirements: list[str]) -> dict[str, Distribution]:
    """The distributions that these need, with all that those need."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        one = waiting.pop()
        extras = ["", *one.extras]
        if one.name in found or (one.marker is not None and not any(one.marker.evaluate({"extra": e}) for e in extras)):
            continue
        found[one.name] = distribution(one.name)
        waiting += [Requirement(text) for text in found[one.name].requires or []]
    return found


def run(command: list[str], *, cwd: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """What a command prints; the script ends if it fails."""
    clean = {key: value for key, value in (environment or dict(os.environ)).items() if key != "PYTHONPATH"}
    clean["OMP_NUM_THREADS"] = "1"  # two things run at the same time
    result = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    expect(result.returncode == 0, f"{' '.join(command)[:300]}: {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def expect(true: bool, otherwise: str) -> None:
    if not true:
        raise SystemExit(otherwise)


if __name__ == "__main__":
    main()
