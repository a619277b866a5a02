"""Provenance of results, and their files: every benchmark writes through `record`.

A result names the commit of its code, and whether that code had been changed since; the date, the machine, the versions
and the command.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch

import segue
from segue.model.kernels import library

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CODE = ["src", "benchmarks/*.py", "hatch_build.py", "pyproject.toml", "constraints.txt"]
"""Files on which results depend. Pages, tests and results may change without making a result older than its code."""
Result = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Provenance of a result, recorded when the benchmark started."""

    date: str
    commit: str | None
    """Commit of the code; None without a git repository."""
    changed: bool
    """True if the code differs from that commit."""
    command: str
    hardware: str
    cores: int | None
    threads: int
    load_average: list[float]
    python: str
    torch: str
    segue: str
    compiled_kernel: bool


def origin() -> Origin:
    """Return the provenance; to be called before anything is measured."""
    return Origin(
        date=date.today().isoformat(),
        commit=_git("rev-parse", "HEAD") or None,
        changed=bool(_git("status", "--porcelain", "--", *CODE)),
        command=command(),
        hardware=processor(),
        cores=os.cpu_count(),
        threads=torch.get_num_threads(),
        load_average=list(os.getloadavg()),
        python=platform.python_version(),
        torch=torch.__version__,
        segue=segue.__version__,
        compiled_kernel=library.available(),
    )


def record(what: str, values: Mapping[str, Any], *, origin: Origin, folder: Path = RESULTS) -> Path:
    """Write a result atomically, named by question, hardware and date."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{what}_{hardware()}_{origin.date}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps({**asdict(origin), **values}, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)
    print(f"written: {path.name}", flush=True)
    return path


def newest(folder: Path, what: str) -> Result | None:
    """Return the latest result of a question, by the date in the file's name; None without any."""
    paths = sorted(folder.glob(f"{what}_*.json"), key=lambda path: (path.stem.rsplit("_", 1)[1], path.stat().st_mtime))
    if not paths:
        return None
    result: Result = json.loads(paths[-1].read_text(encoding="utf-8"))
    return result | {"file": paths[-1].name}


def of_this_code(result: Result) -> bool:
    """Return True if a full run of the current code gave this result."""
    commit = result.get("commit")
    if commit is None or result["changed"] or result["quick"] or _git("status", "--porcelain", "--", *CODE):
        return False
    return _git("diff", "--name-only", commit, "HEAD", "--", *CODE) == ""


def source(result: Result) -> str:
    """Return the commit of a result, for display."""
    if result.get("commit") is None:
        return "commit not recorded"
    return f"commit {result['commit'][:10]}{', changed since' if result['changed'] else ''}"


def hardware() -> str:
    """Return machine and threads, for the name of a file."""
    return f"{platform.machine()}-{torch.get_num_threads()}threads"


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def command() -> str:
    """Return the command, with files of this machine by their names alone."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    program = f"-m {spec.name}" if spec is not None else Path(sys.argv[0]).name
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    return " ".join(["python", program, *words])


def seconds_since(started: float) -> float:
    """Return the seconds since a time of `time.monotonic`."""
    return round(time.monotonic() - started, 1)


def _git(*words: str) -> str | None:
    """Return the output of git; None if it fails."""
    try:
        run = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return run.stdout.strip() if run.returncode == 0 else None
