"""Plots of runs, and helpers for the images of other commands."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from segue.api.errors import python_errors
from segue.errors import ConfigError, DataError
from segue.files import check_file, new_file
from segue.train.metrics import read_metrics

METRICS = "metrics.jsonl"

LARGEST = 1e100
"""Largest value that can be drawn."""


def figure() -> tuple[Any, Any]:
    """Return a figure with one pair of axes. Requires matplotlib, an optional extra."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("plots need matplotlib; it is not installed. Install it: pip install matplotlib.") from None
    mpl.use("agg")
    mpl.rcParams["text.parse_math"] = False  # the name of a run may contain dollar signs
    made = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    axes = made.subplots()
    axes.grid(alpha=0.3)
    return made, axes


def check_picture(out: Path, *, replace: bool, inputs: Iterable[str | Path]) -> None:
    """Raise an error, before any work, for a path that cannot be written or an unknown image format."""
    check_file(out, replace=replace, inputs=inputs)
    made, _ = figure()
    known = sorted(made.canvas.get_supported_filetypes())
    if out.suffix and _format_of(out) not in known:
        raise ConfigError(
            f"{out} must be an image file ({', '.join(known)}); got {out.suffix!r}. Name it .png, for example."
        )


def write_picture(made: Any, out: Path, *, replace: bool, inputs: Iterable[str | Path]) -> None:
    """Write the image atomically, in the format of its file name."""
    with new_file(out, replace=replace, inputs=inputs) as file:
        made.savefig(file, format=_format_of(out))


def _format_of(out: Path) -> str:
    return out.suffix.removeprefix(".").lower() or "png"


@python_errors
def plot(runs: str | Path | Sequence[str | Path], out: str | Path = "runs.png", *, replace: bool = False) -> Path:
    """Plot the loss curves of one or more runs: training as smoothed lines, validation as points.

    Args:
        runs: Run folders of `pretrain`.
        out: Image file to write; the extension determines the format.
        replace: Whether to overwrite an existing file.

    Returns:
        The path of the image.

    Raises:
        ConfigError: If matplotlib is missing, or the format is unknown.
        DataError: If a folder is not a run, or the file exists.

    Examples:
        >>> segue.plot("finished-run", "losses.png").name
        'losses.png'
    """
    place = Path(out)
    folders = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    if not folders:
        raise DataError("at least one run is needed to plot; got none. Give the folder of a run.")
    _draw(folders, place, replace=replace)
    return place


def _draw(runs: Sequence[Path], out: Path, *, replace: bool) -> None:
    inputs = [run / METRICS for run in runs]
    check_picture(out, replace=replace, inputs=inputs)
    made, axes = figure()
    for number, run in enumerate(runs):
        if not (run / METRICS).is_file():
            raise DataError(f"a run must contain {METRICS}; {run} does not. Check the path.")
        steps = read_metrics(run / METRICS)
        trained = [(line["step"], line["loss"]) for line in steps if _is_number(line, "loss")]
        validated = [(line["step"], line["validation_loss"]) for line in steps if _is_number(line, "validation_loss")]
        if not trained and not validated:
            raise DataError(f"{run / METRICS} must contain a loss to plot; got none. Check the path.")
        colour = f"C{number}"
        if trained:
            axes.plot(
                [s for s, _ in trained],
                smooth([v for _, v in trained]),
                color=colour,
                label=f"{run.name} (smoothed)",
                linewidth=1.2,
            )
        if validated:
            axes.plot(
                [s for s, _ in validated], [v for _, v in validated], "o", color=colour, label=f"{run.name}, validation"
            )
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats)")
    axes.legend()
    write_picture(made, out, replace=replace, inputs=inputs)


def _is_number(line: dict[str, Any], key: str) -> bool:
    """Return True if the value is a finite number; a skipped step has none."""
    value = line.get(key)
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < LARGEST


def smooth(values: list[float], weight: float = 0.8) -> list[float]:
    """Return an exponential moving average with bias correction at the start."""
    result, mean = [], 0.0
    for number, value in enumerate(values, start=1):
        mean = weight * mean + (1 - weight) * value
        result.append(mean / (1 - math.pow(weight, number)))
    return result
