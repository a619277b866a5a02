"""`segue inspect`: what a file or folder is. The manifest of a store says all, so that torch is not needed for it."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.cli.completion import complete_model
from segue.cli.console import say
from segue.data.manifest import NAME, load_manifest


def inspect(
    path: Annotated[Path, typer.Argument(help="File or folder, or name of a model.", autocompletion=complete_model)],
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
) -> None:
    """Say what a file or folder is, without loading weights.

    Models, runs, stores, tokenisers, sessions, exports, and checkpoints of other libraries.

    \b
    Example:
      segue inspect run --tensors
    """
    if not print_store(path):
        from segue.cli.inspect_model import run_inspection

        run_inspection(path, tensors=tensors)


def print_store(path: Path) -> bool:
    """Prints what is in a store; False if there is none."""
    if not (path / NAME).is_file() or not (path / "documents.bin").is_file():
        return False
    manifest = load_manifest(path)
    console = Console(highlight=False)
    say(console, f"{path}: segue store", hang=2, style="bold")
    counts = ("tokens", "documents", "vocabulary_size", "bytes")
    say(console, ", ".join(f"{name} {getattr(manifest, name)}" for name in counts), indent=2, hang=2)
    return True
