"""Checkpoints of other libraries, and programs for other runtimes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from segue.api.configs import Settings, overrides
from segue.api.errors import python_errors
from segue.checkpoint.convert import ConversionReport
from segue.checkpoint.convert import convert as converted
from segue.checkpoint.families.family import Target
from segue.infer.export import Exported, ExportSettings
from segue.infer.export import export as exported


@python_errors
def convert(
    source: str | Path,
    out: str | Path,
    *,
    to: Target = "segue",
    settings: Settings | None = None,
    head: str | None = None,
    vocabulary: str | Path | None = None,
    sha256: Sequence[str] = (),
    compare: bool = True,
    replace: bool = False,
) -> ConversionReport:
    """Convert a checkpoint from or to another library, with a report of every tensor.

    Transformer-XL, XLNet, BERT and GPT-2 are known.

    Args:
        source: A model folder, a folder of transformers, a TensorFlow checkpoint (prefix or folder), a model.pt or
            state dict of the original PyTorch code, or a safetensors file. Pickles are read without running them.
        out: Folder to write.
        to: "segue" for a model folder, "hf" for transformers, "tf" for the TensorFlow code, "original" for the original
            PyTorch code, as safetensors.
        settings: What the source does not say: {"model.memory.length": 1600, "head.summary": "mean"}.
        head: Which of several fine-tuned heads of a TensorFlow checkpoint; "none" for no head.
        vocabulary: A spiece.model, a vocab.txt, a pickled vocabulary or a tokeniser folder that lies elsewhere.
        sha256: Expected digests: of the weights, or "NAME=DIGEST" of a file that is read.
        compare: Whether logits are compared with those of transformers, where it is installed.
        replace: Whether an earlier conversion is replaced.

    Returns:
        The report; `summary()` has its lines.

    Raises:
        CheckpointError: If the source cannot be read, or cannot be written in that form.

    Examples:
        >>> report = segue.convert("model", "copy", compare=False)
        >>> (Path("copy") / "config.toml").is_file()
        True
    """
    return converted(
        source,
        out,
        to=to,
        overrides=overrides(settings),
        head=head,
        vocabulary=vocabulary,
        sha256=sha256,
        compare=compare,
        replace=replace,
    )


@python_errors
def export(
    model: str | Path,
    out: str | Path,
    *,
    what: Literal["encoder", "step"] = "encoder",
    format: Literal["onnx", "torch"] = "onnx",
    memory_length: int | None = None,
    rows: int | None = None,
    replace: bool = False,
) -> Exported:
    """Write a model as ONNX or as a program of torch.export, and check that it computes the same.

    Args:
        model: A name or a folder.
        out: Folder to write.
        what: "encoder" for ids to states of the last layer, "step" for a token of each row and the memory to
            log-probabilities and the next memory.
        format: "onnx", or "torch" for a .pt2 of torch.export.
        memory_length: For a step: earlier tokens that each token sees. Default: as in the model.
        rows: For a step: batch size. Default: 1.
        replace: Whether an earlier export is replaced.

    Returns:
        The files, and how far the program is from the model.

    Raises:
        ConfigError: If a library is missing, or the model cannot be exported so.

    Examples:
        >>> done = segue.export("model", "program", format="torch")
        >>> done.largest_difference < 1e-4
        True
    """
    settings = ExportSettings(what=what, format=format, memory_length=memory_length, rows=rows)
    return exported(model, out, settings, replace=replace)
