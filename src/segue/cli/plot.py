"""`segue plot`: loss curves of runs."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.api.plot import plot as drawn
from segue.cli.options import ReplaceFileOption


def plot_runs(runs: list[Path], out: Path, *, replace: bool) -> None:
    """Draw the plot, and print its path."""
    Console(highlight=False, emoji=False).print(f"Plot: {drawn(runs, out, replace=replace)}")


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders.")],
    out: Annotated[Path, typer.Option(help="Image file to write.")] = Path("runs.png"),
    replace: ReplaceFileOption = False,
) -> None:
    """Plot the loss curves of one or more runs.

    \b
    Example:
      segue plot run other-run --out losses.png
    """
    plot_runs(runs, out, replace=replace)
