"""`segue push`: upload of a model folder to the Hub, or a dry run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.api.hub import push as pushed_model
from segue.checkpoint.hub import Upload
from segue.cli.console import say


def run_push(
    folder: Path,
    name: str,
    *,
    private: bool,
    revision: str | None,
    message: str | None,
    licence: str | None,
    languages: Sequence[str],
    dry_run: bool,
) -> None:
    """List the files and their sizes, then upload them, unless it is a dry run."""
    console = Console(highlight=False, emoji=False)

    def show(upload: Upload) -> None:
        for file, size in sorted(upload.files.items()):
            console.print(f"{_size(size):>10}  {file}", soft_wrap=True, markup=False)
        if upload.stripped:
            places = ", ".join(upload.stripped)
            say(console, f"Local paths are reduced to their last component in: {places}.", hang=2)

    pushed = pushed_model(
        folder,
        name,
        private=private,
        revision=revision,
        message=message,
        license=licence,
        languages=languages,
        dry_run=dry_run,
        on_event=show,
    )
    total = f"{len(pushed.files)} files of {pushed.folder}, {_size(sum(pushed.files.values()))}"
    if pushed.url is None:
        say(console, f"{total}: would be uploaded to {name}. Nothing was written or sent.", hang=2)
        return
    say(console, f"{total}: uploaded to {pushed.url}, commit {pushed.commit}.", hang=2)
    say(console, f'Next: segue.load("{name}", revision="{pushed.commit}")', hang=2, style="dim")


def _size(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} B"


def push(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Model folder or run folder.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Name of the model on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="Create the model as private.")] = False,
    revision: Annotated[
        str | None,
        typer.Option(metavar="BRANCH", help="Branch to upload to; created if it does not exist. Default: main."),
    ] = None,
    message: Annotated[str | None, typer.Option(help="Commit message. Default: Upload a segue model.")] = None,
    license: Annotated[str | None, typer.Option(help="Licence for the model card, e.g. apache-2.0.")] = None,
    language: Annotated[
        list[str] | None, typer.Option(help="Language tag for the model card, e.g. en; repeatable.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the files and their sizes without uploading.")
    ] = False,
) -> None:
    """Upload a model folder and its model card to the Hugging Face Hub.

    Files are checked first, and local paths are not uploaded.

    \b
    Example:
      segue push run/best owner/name --license mit --language en --dry-run
    """
    run_push(
        folder,
        name,
        private=private,
        revision=revision,
        message=message,
        licence=license,
        languages=language or [],
        dry_run=dry_run,
    )
