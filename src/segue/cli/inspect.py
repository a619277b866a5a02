"""`segue inspect`: a description of a file or folder in any supported format, without loading weights."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from segue.api.inspect import inspect as inspected
from segue.cli.completion import complete_model
from segue.cli.console import say

if TYPE_CHECKING:
    from segue.checkpoint.source import TensorInfo

_LARGEST = 5


def run_inspection(path: Path, *, tensors: bool) -> None:
    """Print the description; `tensors` lists all of them."""
    console = Console(highlight=False, emoji=False)
    found = inspected(path)
    say(console, f"{path}: {found.kind}{_family(found.family)}", hang=2, style="bold")
    for line in found.facts:
        say(console, line, indent=2, hang=2)
    if found.tensors is not None:
        _print_tensors(console, found.tensors, every=tensors)


def _family(family: str | None) -> str:
    """Return the text after the kind: the family of the checkpoint, or the fine-tuned task."""
    if family is None:
        return ""
    return f", {family}" if family.startswith("fine-tuned") else f": {family}"


def _print_tensors(console: Console, tensors: "Mapping[str, TensorInfo]", *, every: bool) -> None:
    sizes = {name: math.prod(info.shape) for name, info in tensors.items()}
    dtypes = Counter(str(info.dtype).removeprefix("torch.") for info in tensors.values())
    kinds = ", ".join(f"{count} {dtype}" for dtype, count in dtypes.most_common())
    say(console, f"{len(tensors)} tensors, {sum(sizes.values()):,} numbers: {kinds}", indent=2, hang=2)
    names = list(tensors) if every else sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST]
    if not every and names:
        say(console, "the largest:", indent=2)
    for name in names:
        info = tensors[name]
        shape = " x ".join(map(str, info.shape)) or "one number"
        dtype = str(info.dtype).removeprefix("torch.")
        console.print(f"    {name}  {shape}  {dtype}", soft_wrap=True, markup=False)


def inspect(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="File, folder or model name.", autocompletion=complete_model)
    ],
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
) -> None:
    """Describe a file or folder, without loading weights.

    Recognises models, runs, stores, tokenisers, sessions, exports, and checkpoints of other libraries.

    \b
    Example:
      segue inspect run --tensors
    """
    run_inspection(path, tensors=tensors)
