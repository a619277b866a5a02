"""`segue study`: comparisons of variants, and the list of built-in studies."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.api.study import check_study, run_study, studies, study_text
from segue.cli.console import say
from segue.cli.options import OverridesArgument
from segue.errors import ConfigError


def study(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE", help="Name of a built-in study, or a TOML file. Default: list the built-in studies."
        ),
    ] = None,
    overrides: OverridesArgument = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="TOKENS", help="Training tokens of the first variant. Default: as the study specifies."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="REPORT", help="Folder for the report and the runs; several studies may share it."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes. Default: one per core, or a single one on a GPU.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print a built-in study as TOML, as a starting point.")] = False,
) -> None:
    """Compare variants of a model at equal budgets, over several seeds.

    Ctrl-C loses no finished run; the same command continues the study. Results computed earlier, by this study or by
    another with the same --out, are reused.

    \b
    Example:
      segue study
      segue study clip-range --budget 200000 --out studies
    """
    console = Console(highlight=False, emoji=False)
    if study is None:
        for name, title in studies().items():
            say(console, f"{name:26}{title}", hang=26)
        return
    if show:
        if study not in studies():
            raise ConfigError(
                f"--show needs the name of a built-in study ({', '.join(studies())}); got {study!r}. Check the name."
            )
        console.print(study_text(study), end="", markup=False, soft_wrap=True)
        return
    if out is None:
        check_study(study, overrides or [])
        raise ConfigError("a study needs a folder for its report; got no --out. Give --out REPORT.")
    found = run_study(study, out, budget=budget, settings=overrides, workers=workers)
    finished = sum(one.state == "finished" for one in found.results)
    diverged = sum(one.state == "diverged" for one in found.results)
    more = f", {diverged} diverged" if diverged else ""
    say(console, f"{finished} of {len(found.results)} runs finished{more}.")
    say(console, f"Report: {found.report}, and {found.report.stem}.md beside it.")
    if found.stopped_by is not None:
        say(console, "Stopped. Nothing is lost: the same command continues.")
        raise typer.Exit(128 + found.stopped_by)
    if found.problems:
        for name, problem in found.problems.items():
            say(console, f"{name}: failed: {problem}", indent=2)
        raise typer.Exit(1)
