"""Packaging of a run as a model: weights of 16 bits, tokeniser, config and card.

In: the path or name of a model, its licence and its languages; for a fine-tuned one, the packaged model it was made
from. Out: a folder without paths of this machine and without training state, for `src/segue/models/` or SEGUE_MODELS.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from segue.checkpoint.card import Facts, unknown_sections, updated_card
from segue.checkpoint.differences import sums, write_differences
from segue.checkpoint.files import CARD, LARGEST_CARD, read_manifest, read_small, verify
from segue.checkpoint.find import find, model_folder, path_of
from segue.checkpoint.folder import (
    CONFIG,
    HEAD,
    LARGEST_CONFIG,
    LARGEST_TASK,
    NGRAMS,
    TASK,
    TOKENIZER,
    WEIGHTS,
    read_tensors,
    widened,
    write_tensors,
)
from segue.checkpoint.hub import card_of, new_card
from segue.checkpoint.packaged import Packaged, nearest_name, packaged_model
from segue.checkpoint.private import public_card, public_config
from segue.errors import CheckpointError
from segue.files import check_folder, write_folder

AVERAGE = "training/average.safetensors"
"""The averaged weights of a run that was stopped before its first validation; `best/` has them as its weights."""


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A packaged model."""

    folder: Path
    files: dict[str, int]
    """File sizes in bytes, by name."""
    averaged: bool
    """Whether the averaged weights came from a separate file."""
    unknown: Sequence[str]
    """Sections of the card that are still marked as unknown."""
    kept: float | None
    """For differences: share of their squared norm that is kept at this rank and precision."""


def package(
    source: str | Path,
    out: str | Path,
    *,
    licence: str,
    languages: Sequence[str],
    notes: str | Path | None = None,
    trunk: str | None = None,
    rank: int = 8,
    replace: bool = False,
) -> Packed:
    """Write the folder `out`, whose name is that of the model. `notes` is a Markdown file appended to the card.
    `trunk`: store only the differences from this packaged model, with matrices of rank `rank`."""
    target = Path(out)
    if not re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", target.name):
        raise CheckpointError(
            f"the name of a packaged model must consist of lower-case letters, digits, - and .; got {target.name!r}. "
            "Rename it."
        )
    read = [path_of(source), *([] if notes is None else [Path(notes)])]
    check_folder(target, kind="model", replace=replace, inputs=read, failure=CheckpointError)
    folder = model_folder(find(source))
    verify(folder)
    tensors, averaged = _weights(folder)
    base = None if trunk is None else _trunk(trunk, folder)
    card = updated_card(
        card_of(folder) or new_card(folder, Facts()), licence=licence, languages=languages, name=target.name
    )
    if notes is not None:
        card = f"{card}\n{read_small(Path(notes), limit=LARGEST_CARD // 2).decode('utf-8')}"

    def write(new: Path) -> None:
        config = read_small(folder / CONFIG, limit=LARGEST_CONFIG).decode("utf-8")
        (new / CONFIG).write_text(public_config(config)[0], encoding="utf-8")
        for name, limit in ((HEAD, LARGEST_CONFIG), (TASK, LARGEST_TASK)):
            if (folder / name).is_file():
                (new / name).write_bytes(read_small(folder / name, limit=limit))
        if (folder / NGRAMS).is_file():
            shutil.copyfile(folder / NGRAMS, new / NGRAMS)
        if base is None:
            write_tensors({name: value.bfloat16() for name, value in tensors.items()}, new / WEIGHTS)
            if (folder / TOKENIZER).is_dir():
                shutil.copytree(folder / TOKENIZER, new / TOKENIZER)
        else:
            write_differences(tensors, base, new, rank=rank)
        (new / CARD).write_text(public_card(card)[0], encoding="utf-8")

    write_folder(target, write, kind="model", replace=replace, inputs=read, failure=CheckpointError)
    return Packed(
        folder=target,
        files={path.relative_to(target).as_posix(): path.stat().st_size for path in _files(target)},
        averaged=averaged,
        unknown=unknown_sections(card),
        kept=None if base is None else _kept(tensors, base, target),
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _weights(folder: Path) -> tuple[dict[str, Tensor], bool]:
    """Return the averaged weights of a run if they are in a separate file, else the weights; and whether averaged."""
    tensors = widened(read_tensors(folder / WEIGHTS))
    if not (folder / AVERAGE).is_file():
        return tensors, False
    average = widened(read_tensors(folder / AVERAGE))
    if {name: value.shape for name, value in average.items()} != {name: tensors[name].shape for name in average}:
        raise CheckpointError(f"{folder / AVERAGE} must be averages of the weights beside it; got others. Use best/.")
    return tensors | average, True


def _trunk(name: str, folder: Path) -> Packaged:
    """Return the packaged model after checking that the model in the folder has the same tokeniser."""
    found = packaged_model(name)
    if found is None:
        raise CheckpointError(f"a trunk must be a packaged model; got {name!r}. {nearest_name(name)}")
    found.verify()
    own, theirs = (
        {file: digest for file, digest in read_manifest(place).items() if file.startswith(f"{TOKENIZER}/")}
        for place in (folder, found.folder)
    )
    if own != theirs:
        raise CheckpointError(
            f"{folder} must have the tokeniser of its trunk, {name}; got another. Name the model that it "
            "was fine-tuned from."
        )
    return found


def _kept(tensors: dict[str, Tensor], trunk: Packaged, written: Path) -> float:
    """Return the share of the squared differences from the trunk that the written file keeps."""
    base = widened(read_tensors(trunk.folder / WEIGHTS))
    again = sums(read_tensors(written / WEIGHTS), base, tensors)
    shared = [name for name, value in tensors.items() if name in base and base[name].shape == value.shape]
    lost = sum(float((tensors[name] - again[name]).double().square().sum()) for name in shared)
    whole = sum(float((tensors[name] - base[name]).double().square().sum()) for name in shared)
    return 1.0 - lost / whole if whole else 1.0
