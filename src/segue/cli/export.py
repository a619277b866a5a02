"""`segue export`: a model as ONNX or as a program of torch.export, verified against the model."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from segue.api.convert import export as exported_model
from segue.cli.console import say
from segue.cli.options import ModelArgument, ReplaceFolderOption
from segue.infer.export import ExportSettings


def run_export(model: str, out: Path, settings: ExportSettings, *, replace: bool) -> None:
    """Export a model, and print the files, the largest difference between program and model, and the time of a run."""
    console = Console(highlight=False, emoji=False)
    exported = exported_model(
        model,
        out,
        what=settings.what,
        format=settings.format,
        memory_length=settings.memory_length,
        rows=settings.rows,
        replace=replace,
    )
    for name, size in exported.files.items():
        console.print(f"{size:>14,}  {name}", soft_wrap=True, markup=False)
    runner = "onnxruntime" if settings.format == "onnx" else "the program in memory"
    say(console, f"Largest difference from the model on random input: {exported.largest_difference:.1e}.", hang=2)
    if settings.what == "step":
        say(
            console,
            f"{runner}: {exported.milliseconds:.2f} ms per step on this machine, median during that check.",
            hang=2,
        )
    if exported.left_out is not None:
        kind = exported.left_out.replace("_", " ")
        say(console, f"The head, a {kind}, is not exported: the program ends before it.", hang=2)
    console.print(f"{exported.folder}", soft_wrap=True, markup=False)


def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    what: Annotated[
        Literal["encoder", "step"],
        typer.Option(
            help="Program to export. encoder: from token ids to the hidden states of the last layer, without a "
            "head. step: from one token per row and the memory to log-probabilities and the next memory."
        ),
    ],
    format: Annotated[
        Literal["onnx", "torch"],
        typer.Option(help="Output format; torch is a .pt2 file of torch.export, for PyTorch only."),
    ] = "onnx",
    memory_length: Annotated[
        int | None,
        typer.Option(min=1, help="--what step: memory length in tokens. Default: as in the model."),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=1, help="--what step: batch size. Default: 1.")] = None,
    replace: ReplaceFolderOption = False,
) -> None:
    """Export a model to ONNX or torch.export.

    The exported program is verified against the model.

    \b
    Example:
      segue export model --what step --out program
    """
    settings = ExportSettings(what=what, format=format, memory_length=memory_length, rows=rows)
    run_export(model, out, settings, replace=replace)
