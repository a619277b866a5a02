"""`segue doctor`: the checks of `evaluation.checks`, with every kernel, each with an explanation."""

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console

from segue.api.doctor import examinations, extras
from segue.cli.completion import complete_model
from segue.cli.console import finding, say
from segue.evaluation.checks import Check


def examine(model: str | None) -> bool:
    """Print every result; return True if no check failed."""
    console = Console(highlight=False, emoji=False)
    fine = True
    for number, (title, checks) in enumerate(examinations(model)):
        fine = _report(console, title, checks) and fine
        if number == 0:  # after the installation
            _print_extras(console)
    console.print("\nAll checks passed." if fine else "\n[bold red]Some checks failed; see above.[/]")
    return fine


def _print_extras(console: Console) -> None:
    """Print the purpose of each extra, and its missing packages."""
    console.print("\n[bold]Extras[/]")
    for extra in extras():
        missing = f"missing; pip install {' '.join(extra.missing)}"
        state = missing if extra.missing else ", ".join(extra.packages)
        finding(console, None if extra.missing else True, f"{extra.name}: {state}")
        say(console, extra.purpose, indent=8, style="dim")


def _report(console: Console, title: str, checks: Iterable[Check]) -> bool:
    """Print one line for each result of a check, with the kernels that gave it; then the meaning of the check."""
    console.print(f"\n[bold]{title}[/]")
    fine = True
    for name, findings in groupby(checks, key=lambda check: check.name):
        kernels: dict[tuple[bool | None, str], list[str]] = {}
        meaning = ""
        for check in findings:
            kernels.setdefault((check.passed, check.measured), []).extend([check.kernel] if check.kernel else [])
            meaning, fine = check.meaning, fine and check.passed is not False
        for (passed, measured), names in kernels.items():
            where = f" ({', '.join(names)})" if names else ""
            finding(console, passed, f"{name}{where}: {measured}")
        say(console, meaning, indent=8, style="dim")
    return fine


def doctor(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Model folder, run folder, model name, or config file. Default: a small Transformer-XL and a "
            "small XLNet.",
            autocompletion=complete_model,
        ),
    ] = None,
) -> None:
    """Check the installation, and test a model for known implementation errors.

    Exits with status 1 if a check fails.

    \b
    Example:
      segue doctor run
    """
    raise typer.Exit(0 if examine(model) else 1)
