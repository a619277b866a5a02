"""`segue push`: a model folder to the hub, or what would go there."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from segue.checkpoint.hub import plan_push, push
from segue.cli.paragraphs import say


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
    """Lists the files and their sizes, then uploads them, unless it is a rehearsal."""
    console = Console(highlight=False)
    upload = plan_push(folder, name, licence=licence, languages=languages)
    for file, size in sorted(upload.files.items()):
        console.print(f"{_size(size):>10}  {file}", soft_wrap=True, markup=False)
    if upload.stripped:
        places = ", ".join(upload.stripped)
        say(console, f"Paths of this machine stay here, and only their last names go up: {places}.", hang=2)
    total = f"{len(upload.files)} files of {upload.folder}, {_size(sum(upload.files.values()))}"
    if dry_run:
        say(console, f"{total}: would go to {name}. Nothing was written or sent.", hang=2)
        return
    pushed = push(upload, private=private, revision=revision, message=message)
    say(console, f"{total}: are at {pushed.url}, commit {pushed.commit}.", hang=2)
    say(console, f'Next: segue.load("{name}", revision="{pushed.commit}")', hang=2, style="dim")


def _size(number: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} B"
