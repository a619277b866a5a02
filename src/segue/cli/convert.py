"""`segue convert`: from anyone's checkpoint to a model folder, or from a model to what others read."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from segue.checkpoint.convert import REPORT, convert
from segue.checkpoint.families.family import Target
from segue.cli.paragraphs import say


def run_conversion(
    source: Path,
    out: Path,
    *,
    to: Target,
    settings: Sequence[str],
    head: str | None,
    vocabulary: Path | None,
    sha256: Sequence[str],
    compare: bool,
    replace: bool,
) -> None:
    """Converts, and prints what is to be known of it; the rest is in the report."""
    console = Console(highlight=False)
    report = convert(
        source,
        out,
        to=to,
        overrides=settings,
        head=head,
        vocabulary=vocabulary,
        sha256=sha256,
        compare=compare,
        replace=replace,
    )
    first, *lines = report.summary()
    say(console, first, hang=2, style="bold")
    for line in lines:
        say(console, line, indent=2, hang=2)
    say(console, f"Every tensor: {out / REPORT}", indent=2, hang=2, style="dim")
