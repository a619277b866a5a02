"""`segue sample`: sample corpora."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.api.sample import samples, written_sample
from segue.cli.console import say
from segue.cli.options import ReplaceFileOption


def print_samples() -> None:
    """Print a paragraph for each sample."""
    console = Console(highlight=False, emoji=False)
    for name, sample in samples().items():
        say(console, f"{name}  {sample.language}", hang=2, style="bold")
        say(console, sample.about, indent=2)
        say(console, f"From {sample.origin}. To download: {sample.download}.", indent=2, style="dim")
    console.print()
    say(
        console,
        "`segue sample NAME --out FILE` writes one: documents separated by blank lines, or labelled texts as JSON "
        "lines.",
    )


def write(name: str, out: Path | None, *, replace: bool) -> None:
    """Write a sample and print the next command."""
    console = Console(highlight=False, emoji=False)
    done = written_sample(name, out, replace=replace)
    what = "documents" if done.task is None else "labelled texts"
    say(console, f"{done.path}: {done.count:,} {what}, {done.characters:,} characters.", hang=2)
    if done.task is not None:
        following = f"segue finetune MODEL --task {done.task} --train {done.path} --out {done.path.with_suffix('.run')}"
    else:
        following = f"segue prepare {done.path} --out {done.path.with_suffix('.store')}"
    say(console, f"Next: {following}", hang=2, style="dim")


def sample(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Corpus to write. Default: list all.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write. Default: NAME.txt, or NAME.jsonl for labelled texts.")
    ] = None,
    replace: ReplaceFileOption = False,
) -> None:
    """Write a sample corpus, English or Chinese, plain or labelled.

    \b
    Example:
      segue sample english-modules --out modules.jsonl
    """
    if name is None:
        print_samples()
    else:
        write(name, out, replace=replace)
