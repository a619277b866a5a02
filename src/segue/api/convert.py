"""Conversion of checkpoints from and to other libraries, and export to other runtimes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from segue.api.configs import Settings, overrides
from segue.api.errors import python_errors
from segue.arguments import ModelPath, Positive
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
    """Convert a checkpoint from or to the format of another library, with a report on every tensor.

    Transformer-XL, XLNet, BERT and GPT-2 are supported.

    Args:
        source: A model folder, a transformers folder, a TensorFlow checkpoint (prefix or folder), a model.pt or state
            dict of the original PyTorch code, or a safetensors file. Pickles are read without executing them.
        out: Folder to write.
        to: "segue" for a model folder, "hf" for transformers, "tf" for the TensorFlow code, "original" for the original
            PyTorch code, as safetensors.
        settings: Settings that the source does not specify: {"model.memory.length": 1600, "head.summary": "mean"}.
        head: Fine-tuned head to convert, if a TensorFlow checkpoint has several; "none" for no head.
        vocabulary: Vocabulary in another place: a spiece.model, vocab.txt, pickled vocabulary or tokeniser folder.
        sha256: Expected SHA-256 digests: of the weights, or "NAME=DIGEST" for a particular file.
        compare: Whether to compare logits with those of transformers, if it is installed.
        replace: Whether to replace an earlier conversion.

    Returns:
        The conversion report; `summary()` returns its lines.

    Raises:
        CheckpointError: If the source cannot be read, or cannot be written in that format.

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
    model: ModelPath,
    out: str | Path,
    *,
    what: Literal["encoder", "step"] = "encoder",
    format: Literal["onnx", "torch"] = "onnx",
    memory_length: Positive | None = None,
    rows: Positive | None = None,
    replace: bool = False,
) -> Exported:
    """Export a model to ONNX or torch.export, and verify the exported program against the model.

    Args:
        model: A name or a folder.
        out: Folder to write.
        what: "encoder" (from token ids to the hidden states of the last layer) or "step" (from one token per row and
            the memory to log-probabilities and the next memory).
        format: "onnx", or "torch" for a .pt2 file of torch.export.
        memory_length: For "step": memory length in tokens. Default: as in the model.
        rows: For "step": batch size. Default: 1.
        replace: Whether to replace an earlier export.

    Returns:
        The files, and the largest difference between the program and the model.

    Raises:
        ConfigError: If a library is missing, or the model cannot be exported in this way.

    Examples:
        >>> done = segue.export("model", "program", format="torch")
        >>> done.largest_difference < 1e-4
        True
    """
    settings = ExportSettings(what=what, format=format, memory_length=memory_length, rows=rows)
    return exported(model, out, settings, replace=replace)
