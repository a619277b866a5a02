"""Description of a file or folder. A store is described by its manifest, without loading torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.api.errors import python_errors
from segue.data.manifest import NAME, load_manifest

if TYPE_CHECKING:
    from segue.checkpoint.source import TensorInfo


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Description of a file or folder."""

    path: Path
    kind: str
    """"segue model", "segue run", "segue store", "transformers folder", "TensorFlow checkpoint" and others."""
    family: str | None = None
    """Family of the checkpoint, if its tensor names are known to segue; or a further detail about the kind."""
    facts: Sequence[str] = ()
    """Facts as sentences: the shape of a model, the progress of a run, the counts of a store."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The config as stored."""
    tensors: "Mapping[str, TensorInfo] | None" = None
    """Shapes and types of the tensors by name; None if there are none."""


@python_errors
def inspect(path: str | Path) -> Inspection:
    """Describe a file or folder in any supported format, without loading weights.

    Args:
        path: A model, a run, a store, a tokeniser, a session, an export, a checkpoint of another library, or the name
            of a packaged model.

    Returns:
        Its kind, facts about it, its settings, and its tensors with their shapes.

    Raises:
        CheckpointError: If the format is not recognised.

    Examples:
        >>> found = segue.inspect("model")
        >>> found.kind, found.facts[0]
        ('segue model', 'causal, xl positions, memory of 32: 2 layers of 32, 2 heads, vocabulary of 370')
    """
    store = _store(Path(path))
    if store is not None:
        return store
    from segue.api.inspect_model import inspect_model

    return inspect_model(Path(path))


def _store(path: Path) -> Inspection | None:
    """Return the description of a store; None if the path is not a store."""
    if not (path / NAME).is_file() or not (path / "documents.bin").is_file():
        return None
    manifest = load_manifest(path)
    counts = {name: getattr(manifest, name) for name in ("tokens", "documents", "vocabulary_size", "bytes")}
    facts = [", ".join(f"{name} {count}" for name, count in counts.items())]
    return Inspection(path=path, kind="segue store", facts=facts, settings=counts)
