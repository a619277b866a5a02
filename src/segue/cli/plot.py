"""`segue plot`: runs against each other."""

import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console

from segue.errors import ConfigError, DataError


def figure() -> tuple[Any, Any]:
    """A figure with one pair of axes; matplotlib is an extra."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("plots need matplotlib; got an installation without. pip install matplotlib.") from None
    mpl.use("agg")
    made = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = made.subplots()
    axes.grid(alpha=0.3)
    return made, axes


def plot_runs(runs: list[Path], out: Path) -> None:
    """Training losses as lines, smoothed, and validation losses as points, over tokens read."""
    made, axes = figure()
    for number, run in enumerate(runs):
        steps = read_metrics(run)
        trained = [(line["step"], line["loss"]) for line in steps if isinstance(line.get("loss"), float)]
        validated = [(line["step"], line["validation_loss"]) for line in steps if "validation_loss" in line]
        colour = f"C{number}"
        if trained:
            axes.plot(
                [s for s, _ in trained], smooth([v for _, v in trained]), color=colour, label=run.name, linewidth=1.2
            )
        if validated:
            axes.plot(
                [s for s, _ in validated], [v for _, v in validated], "o", color=colour, label=f"{run.name}, validation"
            )
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats)")
    axes.legend()
    made.savefig(out)
    Console(highlight=False).print(f"Plot: {out}")


def read_metrics(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise DataError(f"a run must hold metrics.jsonl; got {run} without. Check the path.")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def smooth(values: list[float], weight: float = 0.8) -> list[float]:
    """An exponential mean that does not lag at the start."""
    result, mean = [], 0.0
    for number, value in enumerate(values, start=1):
        mean = weight * mean + (1 - weight) * value
        result.append(mean / (1 - math.pow(weight, number)))
    return result
