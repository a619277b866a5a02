"""File names of a model folder, and checks of it that do without torch."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.checkpoint.files import inside, locate, read_small, shortened
from segue.errors import CheckpointError

CONFIG, HEAD, WEIGHTS, TOKENIZER = "config.toml", "head.toml", "model.safetensors", "tokenizer"
TASK, TRUNK = "task.toml", "trunk.toml"
"""The task of a fine-tuned model; and the packaged model that the weights are differences from, if they are."""
LARGEST_CONFIG, LONGEST_LINE = 1 << 16, 1 << 12
LARGEST_TASK = 1 << 22
"""Maximum size in bytes, enough for ten thousand labels."""


def is_model_folder(path: Path) -> bool:
    """Return True if the required files of a model folder exist; they may still be broken."""
    return (path / CONFIG).is_file() and (path / WEIGHTS).is_file()


def model_of_run(path: Path) -> Path:
    """Return the model in a run folder, its `best/` or else its `last/`; any other path is returned as it is."""
    for part in ("best", "last"):
        model = locate(path / part)
        if not is_model_folder(path) and is_model_folder(model):
            return model
    return path


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a small TOML file."""
    data = read_small(path, limit=LARGEST_CONFIG)
    if max(map(len, data.splitlines()), default=0) > LONGEST_LINE:  # keys with thousands of dots are slow to parse
        raise CheckpointError(f"{path} must have lines of at most {LONGEST_LINE} bytes; got more. Use another copy.")
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} must be TOML; got {shortened(error)}. Use another copy.") from None


@dataclass(frozen=True, kw_only=True)
class TrunkReference:
    """Content of `trunk.toml`: the packaged model that the differences refer to."""

    name: str
    sha256: str
    """SHA-256 of the trunk's weights."""


def read_trunk(folder: Path) -> TrunkReference:
    """Return the trunk of a folder of differences."""
    path = folder / TRUNK
    if not inside(folder, path):
        raise CheckpointError(f"{path} must be in its folder; it links to a place outside. Copy it there.")
    values = read_toml(path)
    name, digest = values.get("name"), values.get("sha256")
    if not isinstance(name, str) or not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise CheckpointError(f"{path} must have the name and the sha256 of a model; got others. Use another copy.")
    return TrunkReference(name=name, sha256=digest)
