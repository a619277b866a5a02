"""`segue export`: a model as ONNX or as a program of torch.export, checked before it is done."""

from pathlib import Path

from rich.console import Console

from segue.cli.paragraphs import say
from segue.infer.export import ExportSettings, export


def run_export(model: str, out: Path, settings: ExportSettings, *, replace: bool) -> None:
    """Exports, and prints the files, how far the program is from the model, and how long a run took."""
    console = Console(highlight=False)
    exported = export(model, out, settings, replace=replace)
    for name, size in exported.files.items():
        console.print(f"{size:>14,}  {name}", soft_wrap=True, markup=False)
    runner = "onnxruntime" if settings.format == "onnx" else "the program in memory"
    say(console, f"Largest difference to the model on random input: {exported.largest_difference:.1e}.", hang=2)
    if settings.what == "step":
        say(console, f"{runner}: {exported.milliseconds:.2f} ms a step here, the median of that check.", hang=2)
    if exported.left_out is not None:
        kind = exported.left_out.replace("_", " ")
        say(console, f"The head, a {kind}, is not part of it: the program ends before the head.", hang=2)
    console.print(f"{exported.folder}", soft_wrap=True, markup=False)
