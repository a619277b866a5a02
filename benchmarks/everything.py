"""Runs all benchmarks of docs/benchmarks.md, one after the other, each in the environment that it needs; then the
report.

    .venv/bin/python -m benchmarks.everything [--data FOLDER]

A question with a full result of the current code is not measured again, so the same command continues after a stop.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.provenance import RESULTS, ROOT, newest, of_this_code
from benchmarks.report import SERVING


@dataclass(frozen=True)
class Question:
    """A module of `benchmarks`, its environment, its arguments, and the results that it writes."""

    module: str
    environment: str
    results: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    with_data: bool = False


OURS, NEW, OLD = ".venv", ".venv-transformers5", ".venv-transformers4"
SETS = ("chnsenticorp", "imdb")
QUESTIONS = [
    Question("encoder", NEW, ("encoder",)),
    Question("pretraining", NEW, ("pretraining",)),
    Question("transformer_xl", OLD, ("transformer_xl",)),
    Question("peak_memory", NEW, ("peak_memory",)),
    Question("growth", OURS, ("growth",)),
    Question("step_profile", OURS, ("step_profile",)),
    Question("generation", OLD, ("generation-transformer-xl",), ("--peer", "transformer-xl")),
    Question("generation", NEW, ("generation-xlnet",), ("--peer", "xlnet")),
    Question("streaming", OURS, ("streaming",)),
    Question("eight_bits", OURS, ("eight_bits",)),
    Question("serving", OURS, tuple(SERVING)),
    *(Question("finetuning", NEW, (f"finetuning-{name}",), ("--set", name), with_data=True) for name in SETS),
    *(
        Question("finetuning", NEW, (f"finetuning-accuracy-{name}",), ("--set", name, "--accuracy"), with_data=True)
        for name in SETS
    ),
]


def command(question: Question, *, data: Path | None, results: Path, quick: bool) -> list[str]:
    """Return the command of a question."""
    words = [str(ROOT / question.environment / "bin" / "python"), "-m", f"benchmarks.{question.module}"]
    words += question.arguments
    if question.with_data:
        words += ["--data", str(data)]
    return [*words, "--results", str(results), *(["--quick"] if quick else [])]


def is_answered(question: Question, results: Path) -> bool:
    """Return True if every result of a question exists and is of the current code."""
    found = [newest(results, what) for what in question.results]
    return all(result is not None and of_this_code(result) for result in found)


def ask(*, data: Path | None, results: Path, quick: bool) -> None:
    for question in QUESTIONS:
        name = " ".join([question.module, *question.arguments])
        if question.with_data and data is None:
            print(f"left out, because there is no data: {name}", flush=True)
        elif not quick and is_answered(question, results):
            print(f"answered already by this code: {name}", flush=True)
        else:
            print(f"-- {name}", flush=True)
            subprocess.run(command(question, data=data, results=results, quick=quick), cwd=ROOT, check=True)
    report = [sys.executable, "-m", "benchmarks.report", "--results", str(results)]
    subprocess.run([*report, *(["--print-only"] if quick else [])], cwd=ROOT, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with chnsenticorp and imdb, for fine-tuning")
    parser.add_argument("--quick", action="store_true", help="small shapes, printed only")
    options = parser.parse_args()
    data = options.data if options.data is not None and options.data.is_dir() else None
    if options.quick:
        with TemporaryDirectory() as folder:
            ask(data=data, results=Path(folder), quick=True)
    else:
        ask(data=data, results=RESULTS, quick=False)


if __name__ == "__main__":
    main()
