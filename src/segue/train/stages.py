"""Runs that start from an existing model: its weights, and the record of their origin.

In: a model as a user names it, and a run folder. Out: an `Origin`. Its record is saved with the run's own state from
the start, so that a resumed run does not need the model any more.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from segue.checkpoint.detect import read_settings
from segue.checkpoint.files import locate, verify
from segue.checkpoint.find import find, model_folder, tokenizer_folder
from segue.checkpoint.folder import HEAD, WEIGHTS, load, not_finite, read_config, read_tensors
from segue.checkpoint.hub import Found
from segue.config import ModelConfig, model_config
from segue.errors import CheckpointError, ConfigError
from segue.files import sha256
from segue.model import LanguageModel
from segue.text.files import load_tokenizer
from segue.train.state import AVERAGE, NUMBERS, TRAINING


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The model that a run starts from."""

    given: str
    """Name that the user gave."""
    name: str
    """Name without paths of this machine."""
    sha256: str
    """Digest of the file with the weights that the run starts with."""
    averaged: bool
    """True if these are the averaged weights of a run."""
    step: int | None
    """Number of steps that the model had been trained for, if known."""
    tokenizer: str
    """Fingerprint of its tokeniser."""
    config: ModelConfig
    folder: Path | None = None
    """Folder of the model; None in the record of a run, which has its own state."""

    def described(self) -> str:
        """Return a short description for display."""
        kind = "averaged weights" if self.averaged else "weights"
        after = f" of step {self.step:,}" if self.step is not None else ""
        return f"{self.name} ({kind}{after}, sha256 `{self.sha256}`)"

    def record(self) -> dict[str, Any]:
        """Return the record for the state of the run."""
        return {
            "given": self.given,
            "name": self.name,
            "sha256": self.sha256,
            "averaged": self.averaged,
            "step": self.step,
            "tokenizer": self.tokenizer,
            "model": self.config.model_dump(mode="json", exclude_none=True),
        }

    def weights(self) -> dict[str, Tensor]:
        """Return the initial weights of the run, by their names in the model's state."""
        assert self.folder is not None
        source = load(self.folder)
        if self.averaged:
            weights = read_tensors(self.folder / AVERAGE)
            with torch.no_grad():
                for name, parameter in source.named_parameters():
                    parameter.copy_(weights[name])
        if problem := not_finite(source):
            raise CheckpointError(f"{self.folder} must hold finite weights to start from; {problem}")
        if sha256(_weights_file(self.folder)) != self.sha256:
            raise CheckpointError(f"{self.folder} must not change while it is read; it did. Start again.")
        return dict(source.float().state_dict())

    def data_seed(self, seed: int) -> int:
        """Return the seed for sampling batches: with the same seed, another stage on the same text draws other
        numbers."""
        digest = hashlib.sha256(f"{seed} {self.sha256}".encode()).digest()
        return int.from_bytes(digest[:7], "big")


def start_with(model: LanguageModel, weights: Mapping[str, Tensor]) -> None:
    """Load weights into a new model. Weights that only its own objective has (the initial query stream, segment
    encodings) stay as initialised; those that only the other objective has are ignored."""
    own = model.state_dict()
    model.load_state_dict(own | {name: weight for name, weight in weights.items() if name in own})


def find_origin(given: str | None, run: Path) -> Origin | None:
    """Return the model that a run starts from: as recorded, if the run has a state already; None for new weights."""
    state = locate(run / "last")
    if not (state / TRAINING / NUMBERS).is_file():
        return None if given is None else _open(given)
    recorded = recorded_origin(state)
    if given is None or (recorded is not None and given == recorded.given):
        return recorded
    if recorded is None:
        raise ConfigError(
            f"{run} started from new weights, so it cannot be resumed with --from. Leave --from out, or choose another "
            "--out."
        )
    if (other := _open(given)).sha256 != recorded.sha256:
        raise ConfigError(
            f"{run} must be resumed with the model it started from, {recorded.described()}; got {other.described()}. "
            "Leave --from out, or choose another --out."
        )
    return recorded


def _open(given: str) -> Origin:
    found = find(given)
    folder = model_folder(found)
    if (folder / HEAD).is_file():
        raise CheckpointError(
            f"--from must be a language model; got {folder}, a model with a head. Give the model that it was "
            "fine-tuned from."
        )
    config, _ = read_config(folder)
    weights = _weights_file(folder)
    if weights.name != WEIGHTS:
        verify(folder, [weights.relative_to(folder).as_posix()])
    numbers = folder / TRAINING / NUMBERS
    step = read_settings(numbers).get("step") if numbers.is_file() else None
    return Origin(
        given=given,
        name=_name(found, folder),
        sha256=sha256(weights),
        averaged=weights.name != WEIGHTS,
        step=step if isinstance(step, int) else None,
        tokenizer=load_tokenizer(tokenizer_folder(given, folder)).fingerprint(),
        config=config,
        folder=folder,
    )


def _weights_file(folder: Path) -> Path:
    """Return the file of the averaged weights if a run kept them, since they were validated and are in `best/`."""
    average = folder / AVERAGE
    return average if average.is_file() else folder / WEIGHTS


def _name(found: Found, folder: Path) -> str:
    if found.name is not None:
        return found.name if found.commit is None else f"{found.name} at commit {found.commit}"
    real = folder.resolve()
    return f"{real.parent.name}/{real.name}" if real.name in ("best", "last") else real.name


def recorded_origin(state: Path) -> Origin | None:
    """Return the model that a run started from, as its state records it; None for new weights."""
    record = read_settings(state / TRAINING / NUMBERS).get("origin")
    if not isinstance(record, Mapping):
        return None
    values = dict(record)
    try:
        return Origin(config=model_config(**values.pop("model")), **values)
    except (KeyError, TypeError):
        raise CheckpointError(
            f"{state / TRAINING / NUMBERS} must be as it was written; its origin is not. Use another copy."
        ) from None
