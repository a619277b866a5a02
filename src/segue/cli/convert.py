"""`segue convert`: conversion of a checkpoint to a model folder, or of a model to the format of another library."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from segue.api.convert import convert as converted
from segue.checkpoint.convert import REPORT
from segue.checkpoint.families.family import Target
from segue.cli.console import say
from segue.cli.options import ReplaceFolderOption


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
    """Convert a checkpoint and print a summary; the details are in the report."""
    console = Console(highlight=False, emoji=False)
    report = converted(
        source,
        out,
        to=to,
        settings=settings,
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
    say(console, f"Report on every tensor: {out / REPORT}", indent=2, hang=2, style="dim")


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Model folder; transformers folder; TensorFlow checkpoint, by prefix or folder; model.pt or "
            "state dict of the original PyTorch code; or safetensors file.",
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write.")],
    to: Annotated[
        Literal["segue", "hf", "tf", "original"],
        typer.Option(
            help="Output format. segue: a model folder. hf: for transformers. tf: for the original TensorFlow "
            "code. original: a state dict of the original PyTorch code, as safetensors."
        ),
    ] = "segue",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Setting that the source does not specify, e.g. model.memory.length=1600; repeatable.",
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(help='Fine-tuned head to convert, if a TensorFlow checkpoint has several; "none" for no head.'),
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            help="Vocabulary in another place: spiece.model, vocab.txt, pickled vocabulary or tokeniser folder."
        ),
    ] = None,
    sha256: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]DIGEST",
            help="Expected SHA-256 of the weights, or of the file NAME; repeatable. Any other is refused.",
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare",
            help="Whether to compare logits with transformers, if installed. Default: yes.",
        ),
    ] = True,
    replace: ReplaceFolderOption = False,
) -> None:
    """Convert a checkpoint from or to the format of another library.

    Supports Transformer-XL, XLNet, BERT and GPT-2, and reports on every tensor. Pickles are read without executing
    them, and never written.

    \b
    Example:
      segue convert some-folder model
    """
    run_conversion(
        source,
        out,
        to=to,
        settings=settings or [],
        head=head,
        vocabulary=vocabulary,
        sha256=sha256 or [],
        compare=compare,
        replace=replace,
    )
