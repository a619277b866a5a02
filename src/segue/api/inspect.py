"""What a file or folder is. The manifest of a store says all, so that torch is not needed for it."""

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
    """A file or folder, and what it says of itself."""

    path: Path
    kind: str
    """"segue model", "segue run", "segue store", "transformers folder", "TensorFlow checkpoint" and others."""
    family: str | None = None
    """Whose names the tensors have, where they are those of a model that segue knows; what else the kind does not
    say."""
    facts: Sequence[str] = ()
    """Sentences for people: the shape of a model, how far a run is, the counts of a store."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The config as it is written there."""
    tensors: "Mapping[str, TensorInfo] | None" = None
    """The shapes and types of the tensors, by name; None where there are none."""


@python_errors
def inspect(path: str | Path) -> Inspection:
    """Say what a file or folder is, in any supported format, without loading weights.

    Args:
        path: A model, a run, a store, a tokeniser, a session, an export, a checkpoint of another library, or the name
            of a packaged model.

    Returns:
        Its kind, facts about it, its settings, and its tensors with their shapes.

    Raises:
        CheckpointError: If it is nothing that segue knows.

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
    """What is in a store; None if there is none."""
    if not (path / NAME).is_file() or not (path / "documents.bin").is_file():
        return None
    manifest = load_manifest(path)
    counts = {name: getattr(manifest, name) for name in ("tokens", "documents", "vocabulary_size", "bytes")}
    facts = [", ".join(f"{name} {count}" for name, count in counts.items())]
    return Inspection(path=path, kind="segue store", facts=facts, settings=counts)
