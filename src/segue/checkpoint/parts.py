"""The parts of a model folder by name, and what can be said of it without torch."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.checkpoint.files import inside, locate, read_small, shortened
from segue.errors import CheckpointError

CONFIG, HEAD, WEIGHTS, TOKENIZER = "config.toml", "head.toml", "model.safetensors", "tokenizer"
TASK, TRUNK = "task.toml", "trunk.toml"
"""What a fine-tuned model is for; and the packaged model to which the weights are differences, where they are."""
LARGEST_CONFIG, LONGEST_LINE = 1 << 16, 1 << 12
LARGEST_TASK = 1 << 22
"""Bytes: ten thousand labels have room."""


def is_model_folder(path: Path) -> bool:
    """Whether the parts that make a model folder are there; they may still be broken."""
    return (path / CONFIG).is_file() and (path / WEIGHTS).is_file()


def model_of_run(path: Path) -> Path:
    """The model in a run folder, its `best/` or else its `last/`; any other path is itself."""
    for part in ("best", "last"):
        model = locate(path / part)
        if not is_model_folder(path) and is_model_folder(model):
            return model
    return path


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a small TOML file."""
    data = read_small(path, limit=LARGEST_CONFIG)
    if max(map(len, data.splitlines()), default=0) > LONGEST_LINE:  # keys with thousands of dots take long to read
        raise CheckpointError(f"{path} must have lines of at most {LONGEST_LINE} bytes; got more. Use another copy.")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} must be TOML; got {shortened(error)}. Use another copy.") from None


@dataclass(frozen=True, kw_only=True)
class TrunkReference:
    """What `trunk.toml` says: which packaged model the differences are to."""

    name: str
    sha256: str
    """SHA-256 of its weights."""


def read_trunk(folder: Path) -> TrunkReference:
    """The trunk of a folder of differences."""
    path = folder / TRUNK
    if not inside(folder, path):
        raise CheckpointError(f"{path} must be in its folder; it links to a place outside. Copy it there.")
    values = read_toml(path)
    name, digest = values.get("name"), values.get("sha256")
    if not isinstance(name, str) or not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise CheckpointError(f"{path} must have the name and the sha256 of a model; got others. Use another copy.")
    return TrunkReference(name=name, sha256=digest)
