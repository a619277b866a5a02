"""`segue sample`: corpora for a first try."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.cli.console import say
from segue.cli.options import ReplaceFileOption
from segue.data.samples import labelled_samples, samples, write_sample


def print_samples() -> None:
    """A paragraph for each."""
    console = Console(highlight=False)
    for name, sample in (samples() | labelled_samples()).items():
        say(console, f"{name}  {sample.language}", hang=2, style="bold")
        say(console, sample.about, indent=2)
        say(console, f"From {sample.origin}. To download: {sample.download}.", indent=2, style="dim")
    console.print()
    say(
        console,
        "`segue sample NAME --out FILE` writes one: documents parted by blank lines, or labelled texts as JSON lines.",
    )


def write(name: str, out: Path, *, replace: bool) -> None:
    """Writes it and says what to do next."""
    console = Console(highlight=False)
    count, characters = write_sample(name, out, replace=replace)
    if (labelled := labelled_samples().get(name)) is not None:
        say(console, f"{out}: {count:,} labelled texts, {characters:,} characters.", hang=2)
        following = f"segue finetune MODEL --task {labelled.task} --train {out} --out {out.with_suffix('.run')}"
    else:
        say(console, f"{out}: {count:,} documents, {characters:,} characters.", hang=2)
        following = f"segue prepare {out} --out {out.with_suffix('.store')}"
    say(console, f"Next: {following}", hang=2, style="dim")


def default_name(name: str) -> Path:
    """What the file is called if nobody says."""
    return Path(f"{name}.jsonl" if name in labelled_samples() else f"{name}.txt")


def sample(
    name: Annotated[str | None, typer.Argument(help="Corpus to write. Default: describe them all.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write. Default: NAME.txt, or NAME.jsonl for labelled texts.")
    ] = None,
    replace: ReplaceFileOption = False,
) -> None:
    """Write a real corpus for a first try, English or Chinese, plain or labelled.

    \b
    Example:
      segue sample english-modules --out modules.jsonl
    """
    if name is None:
        print_samples()
    else:
        write(name, default_name(name) if out is None else out, replace=replace)
