"""`segue sample`: corpora for a first try."""

from pathlib import Path

from rich.console import Console

from segue.cli.paragraphs import say
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
    if name in labelled_samples():
        say(console, f"{out}: {count:,} labelled texts, {characters:,} characters.", hang=2)
        following = f"segue finetune MODEL --task classify --train {out} --out {out.with_suffix('.run')}"
    else:
        say(console, f"{out}: {count:,} documents, {characters:,} characters.", hang=2)
        following = f"segue prepare {out} --out {out.with_suffix('.store')}"
    say(console, f"Next: {following}", hang=2, style="dim")


def default_name(name: str) -> Path:
    """What the file is called if nobody says."""
    return Path(f"{name}.jsonl" if name in labelled_samples() else f"{name}.txt")
