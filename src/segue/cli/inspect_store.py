"""`segue inspect` of a store: its manifest says all, so torch is not needed."""

from pathlib import Path

from rich.console import Console

from segue.cli.paragraphs import say
from segue.data.manifest import NAME, load_manifest


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
