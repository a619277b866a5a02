"""`segue sample`: corpora for a first try."""

from pathlib import Path

from rich.console import Console

from segue.cli.paragraphs import say
from segue.data.samples import samples, write_sample


def print_samples() -> None:
    """A paragraph for each."""
    console = Console(highlight=False)
    for name, sample in samples().items():
        say(console, f"{name}  {sample.language}", hang=2, style="bold")
        say(console, sample.about, indent=2)
        say(console, f"From {sample.origin}. To download: {sample.download}.", indent=2, style="dim")
    console.print()
    say(console, "`segue sample NAME --out FILE.txt` writes one, documents parted by blank lines.")


def write(name: str, out: Path, *, replace: bool) -> None:
    """Writes it and says what to do next."""
    console = Console(highlight=False)
    documents, characters = write_sample(name, out, replace=replace)
    say(console, f"{out}: {documents:,} documents, {characters:,} characters.", hang=2)
    say(console, f"Next: segue prepare {out} --out {out.with_suffix('.store')}", hang=2, style="dim")
