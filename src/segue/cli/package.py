"""`segue package`: a run as a model that can be packaged, small and with its card."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from segue.checkpoint.packing import package
from segue.cli.paragraphs import say


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
    """Packages, and prints the files and what is to be known of them."""
    console = Console(highlight=False)
    settings = {} if rank is None else {"rank": rank}
    packed = package(
        model, out, licence=licence, languages=languages, notes=notes, trunk=trunk, replace=replace, **settings
    )
    for name, size in packed.files.items():
        console.print(f"{size:>14,}  {name}", soft_wrap=True, markup=False)
    console.print(f"{sum(packed.files.values()):>14,}  bytes together")
    if packed.averaged:
        say(console, "The weights are the averaged ones of the run, which no validation has judged.", hang=2)
    if packed.kept is not None:
        text = f"{packed.kept:.1%} of the squared differences to {trunk} are kept. It is another model now: measure it."
        say(console, text, hang=2)
    if packed.unknown:
        say(console, f"The card says nothing of: {', '.join(packed.unknown)}. Add it with --notes FILE.", hang=2)
    console.print(f"{packed.folder}", soft_wrap=True, markup=False)
