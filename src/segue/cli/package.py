"""`segue package`: a run as a packaged model, small and with its model card."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.api.hub import package as packaged
from segue.cli.console import say
from segue.cli.options import ModelArgument, ReplaceFolderOption


def run_packaging(
    model: str,
    out: Path,
    *,
    licence: str,
    languages: Sequence[str],
    notes: Path | None,
    trunk: str | None,
    rank: int | None,
    replace: bool,
) -> None:
    """Package a model, and print its files and notes on them."""
    console = Console(highlight=False, emoji=False)
    packed = packaged(
        model, out, license=licence, languages=languages, notes=notes, trunk=trunk, rank=rank, replace=replace
    )
    for name, size in packed.files.items():
        console.print(f"{size:>14,}  {name}", soft_wrap=True, markup=False)
    console.print(f"{sum(packed.files.values()):>14,}  bytes in total")
    if packed.averaged:
        say(console, "The weights are the averaged weights of the run, which were not validated.", hang=2)
    if packed.kept is not None:
        text = (
            f"{packed.kept:.1%} of the squared differences to {trunk} are kept. The result is a different model: "
            "evaluate it."
        )
        say(console, text, hang=2)
    if packed.unknown:
        say(console, f"The model card lacks: {', '.join(packed.unknown)}. Add it with --notes FILE.", hang=2)
    console.print(f"{packed.folder}", soft_wrap=True, markup=False)


def package(
    model: ModelArgument,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder to write; its name becomes the name of the model.")
    ],
    license: Annotated[str, typer.Option(help="Licence for the model card, e.g. apache-2.0.")],
    language: Annotated[list[str], typer.Option(help="Language tag for the model card, e.g. en; repeatable.")],
    notes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Markdown file to append to the model card: data, training, results. Default: none."
        ),
    ] = None,
    trunk: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Packaged model to store only low-rank differences to, with the head."),
    ] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="--trunk: rank of the differences. Default: 8.")] = None,
    replace: ReplaceFolderOption = False,
) -> None:
    """Package a model: 16-bit weights and a model card, loadable by name.

    Packaged models are found in segue itself and in the folder that SEGUE_MODELS names. For a pretraining run, the
    averaged weights are written.

    \b
    Example:
      segue package run models/my-model --license mit --language en
    """
    run_packaging(
        model,
        out,
        licence=license,
        languages=language,
        notes=notes,
        trunk=trunk,
        rank=rank,
        replace=replace,
    )
