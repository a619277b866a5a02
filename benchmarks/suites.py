"""How good is a language model on external suites? Minimal pairs, last words, gaps, and bits per character.

Each model and each baseline (gzip, xz, Kneser-Ney n-grams) is measured on every suite whose data exists. Each
measurement is a result of its own, so the same command continues after a stop; weights that have changed since are
measured again. A table of all results is printed and written beside them.

    .venv/bin/python -m benchmarks.suites --models RUN/best xlnet-base-cased --data DATA --results RESULTS
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.provenance import RESULTS, Result, newest, origin, record, seconds_since
from benchmarks.report import table
from benchmarks.suite_data import SUITES, Suite
from benchmarks.suite_measures import (
    NotMeasuredError,
    Values,
    measure_compressor,
    measure_model,
    measure_ngrams,
)
from segue.checkpoint.find import find, model_folder
from segue.checkpoint.folder import WEIGHTS
from segue.files import sha256
from segue.infer.text_model import TextModel, load_text_model

PAGE = "suites.md"
SHOWN = {
    "pairs": ("accuracy", "accuracy of random orders"),
    "last-word": ("accuracy", "perplexity of the word"),
    "gap": ("accuracy",),
    "text": ("bits per character", "after the training text", "8-grams of characters", "5-grams of words"),
}
"""Metrics in a cell of the table; the rest is in the results."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A row of the table."""

    name: str
    weights: str | None
    """Their sha256; None for a baseline."""
    measure: Callable[[Suite], Values]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[], help="folders, or names on the hub")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results go. Default: benchmarks/results")
    parser.add_argument("--suites", nargs="*", default=[suite.name for suite in SUITES], help="only these")
    parser.add_argument("--no-baselines", action="store_true", help="models only")
    parser.add_argument("--limit", type=int, help="only the first items or characters of each suite, for a try")
    arguments = parser.parse_args()
    suites = chosen_suites(arguments.suites, arguments.data)
    systems = [] if arguments.no_baselines else baselines(arguments.data, arguments.limit)
    systems += [model_system(source, arguments.data, arguments.limit) for source in arguments.models]
    for system in systems:
        for suite in suites:
            answer(system, suite, results=arguments.results, limit=arguments.limit)
    page = described(systems, suites, results=arguments.results, limit=arguments.limit)
    (arguments.results / PAGE).write_text(page, encoding="utf-8")
    print(page)


def chosen_suites(names: Sequence[str], data: Path) -> list[Suite]:
    """Return the suites whose data exists."""
    unknown = set(names) - {suite.name for suite in SUITES}
    if unknown:
        raise SystemExit(f"unknown suites: {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in SUITES)}")
    chosen = [suite for suite in SUITES if suite.name in names]
    for suite in chosen:
        if not (data / suite.file).is_file():
            print(f"{suite.name}: left out, {suite.file} is not in the data folder", file=sys.stderr)
    return [suite for suite in chosen if (data / suite.file).is_file()]


def baselines(data: Path, limit: int | None) -> list[System]:
    def compressor(name: str) -> Callable[[Suite], Values]:
        return lambda suite: measure_compressor(name, suite, data, limit=limit)

    return [
        *(System(name=name, weights=None, measure=compressor(name)) for name in ("gzip", "xz")),
        System(name="kneser-ney", weights=None, measure=lambda suite: measure_ngrams(suite, data, limit=limit)),
    ]


def model_system(source: str, data: Path, limit: int | None) -> System:
    """Return a model, which is loaded when it is first measured."""
    folder = model_folder(find(source))
    loaded: list[TextModel] = []

    def measure(suite: Suite) -> Values:
        if not loaded:
            loaded.append(load_text_model(source))
        return measure_model(loaded[0], suite, data, limit=limit)

    return System(name=short_name(source), weights=sha256(folder / WEIGHTS), measure=measure)


def short_name(source: str) -> str:
    """Return a name for a file and a row: for a run, its own name and that of the model."""
    parts = Path(source).parts
    kept = parts[-2:] if len(parts) > 1 and parts[-1] in ("best", "last") else parts[-1:]
    return "-".join(kept).replace("_", "-")


def question(system: System, suite: Suite, limit: int | None) -> str:
    """Return the name of a result."""
    return f"suites-{system.name}-{suite.name}" + ("" if limit is None else f"-first{limit}")


def kept(system: System, suite: Suite, *, results: Path, limit: int | None) -> Result | None:
    """Return an earlier result of the same weights."""
    found = newest(results, question(system, suite, limit))
    return found if found is not None and found["weights"] == system.weights else None


def answer(system: System, suite: Suite, *, results: Path, limit: int | None) -> None:
    if kept(system, suite, results=results, limit=limit) is not None:
        print(f"{system.name}, {suite.name}: kept", file=sys.stderr, flush=True)
        return
    print(f"{system.name}, {suite.name} ...", file=sys.stderr, flush=True)
    started, began = origin(), time.monotonic()
    values: Values
    try:
        values = {"metrics": system.measure(suite), "left out": None}
    except NotMeasuredError as reason:
        values = {"metrics": {}, "left out": str(reason)}
    values |= {
        "system": system.name,
        "weights": system.weights,
        "suite": suite.name,
        "quick": limit is not None,
        "limit": limit,
        "seconds": seconds_since(began),
    }
    record(question(system, suite, limit), values, origin=started, folder=results)


# ---------------------------------------------------------------------------------------------------------------- table


def described(systems: Sequence[System], suites: Sequence[Suite], *, results: Path, limit: int | None) -> str:
    """Return a table for each kind of suite, and the training texts of the baselines."""
    found = {
        (system.name, suite.name): kept(system, suite, results=results, limit=limit)
        for system in systems
        for suite in suites
    }
    parts = ["# Outside suites", ""]
    if limit is not None:
        parts += [f"Only the first {limit:,} items or characters of each: not comparable with anything.", ""]
    header = ["", *(suite.name for suite in suites)]
    lines = [[system.name, *(cell(found[system.name, suite.name], suite) for suite in suites)] for system in systems]
    parts += [table(header, lines), ""]
    parts += ["Accuracy in %, bits per character (bpc), perplexity of the last word (ppl).", ""]
    for result in found.values():
        if result is not None and result["metrics"].get("trained on") not in (None, "nothing"):
            metrics = result["metrics"]
            parts.append(
                f"- {result['system']} on {result['suite']}: trained on {metrics['trained on']}, "
                f"{metrics['training characters']:,} characters."
            )
    left_out = [result for result in found.values() if result is not None and result["left out"]]
    parts += [f"- {one['system']} on {one['suite']}: left out, {one['left out']}." for one in left_out]
    return "\n".join(parts) + "\n"


def cell(result: Result | None, suite: Suite) -> str:
    metrics = {} if result is None else result["metrics"]
    texts = []
    for name in SHOWN[suite.kind]:
        value = metrics.get(name)
        if value is None:
            continue
        if name.startswith("accuracy"):
            texts.append(f"{100 * value:.1f}" + (" (random orders)" if name != "accuracy" else ""))
        elif name == "perplexity of the word":
            texts.append(f"ppl {value:,.1f}")
        else:
            label = {"bits per character": "bpc"}.get(name, name)
            texts.append(f"{value:.3f} {label}")
    if metrics.get("unknown tokens", 0) >= 0.0005:
        texts.append(f"{metrics['unknown tokens']:.1%} unknown")
    return ", ".join(texts)


if __name__ == "__main__":
    main()
