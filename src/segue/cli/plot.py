"""`segue plot`: runs against each other."""

import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console

from segue.cli.rows import check_regular
from segue.errors import ConfigError, DataError

LONGEST_LINE = 2**16
LARGEST = 1e100
"""What can be drawn."""


def figure() -> tuple[Any, Any]:
    """A figure with one pair of axes; matplotlib is an extra."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "plots need matplotlib; got an installation without. pip install 'segue[pictures]'."
        ) from None
    mpl.use("agg")
    mpl.rcParams["text.parse_math"] = False  # the name of a run may have dollar signs
    made = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = made.subplots()
    axes.grid(alpha=0.3)
    return made, axes


def save_figure(made: Any, path: Path) -> None:
    """Writes a picture in the format that its name tells."""
    check_regular(path)
    known = made.canvas.get_supported_filetypes()
    ending = path.suffix.removeprefix(".").lower() or "png"
    if ending not in known:
        raise ConfigError(f"{path} must end as a picture does ({', '.join(known)}); got .{ending}. Rename it.")
    try:
        made.savefig(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} must be a file that can be written; got {error}. Choose another place.") from None


def plot_runs(runs: list[Path], out: Path) -> None:
    """Training losses as lines, smoothed, and validation losses as points, over tokens read."""
    made, axes = figure()
    for number, run in enumerate(runs):
        steps = read_metrics(run)
        trained = [(line["step"], line["loss"]) for line in steps if _is_number(line, "loss")]
        validated = [(line["step"], line["validation_loss"]) for line in steps if _is_number(line, "validation_loss")]
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
    save_figure(made, out)
    Console(highlight=False).print(f"Plot: {out}")


def read_metrics(run: Path) -> list[dict[str, Any]]:
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise DataError(f"a run must hold metrics.jsonl; got {run} without. Check the path.")
    found = []
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), start=1):
            try:
                values = json.loads(line) if line.strip() else {}
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path} must have JSON lines; got {error} in line {number}. Mend it.") from None
            if not isinstance(values, dict) or not (_is_number(values, "step") or not line.strip()):
                raise DataError(f"{path} must have a table with a step in each line; line {number} has none. Mend it.")
            found.append(values)
    return found


def _is_number(line: dict[str, Any], key: str) -> bool:
    """Whether there is such a number; of a step that was skipped there is none."""
    value = line.get(key)
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < LARGEST


def smooth(values: list[float], weight: float = 0.8) -> list[float]:
    """An exponential mean that does not lag at the start."""
    result, mean = [], 0.0
    for number, value in enumerate(values, start=1):
        mean = weight * mean + (1 - weight) * value
        result.append(mean / (1 - math.pow(weight, number)))
    return result
