"""Fine-tuned models stored as low-rank differences from a packaged model, their trunk, in 16 bits.

In: a model folder, the folder of its trunk and a rank; or such a folder of differences. Out: a small folder, or the
whole model folder again.

The small folder has the files of a fine-tuned model except for the tokeniser, which is that of the trunk. `trunk.toml`
names the trunk and the sha256 of its weights. For each tensor W of the model, with T of the same name and shape in the
trunk, its `model.safetensors` holds

- `NAME.left` and `NAME.right`, whose product is W - T rounded to the rank (its truncated singular value decomposition),
  if that takes less room than W - T;
- else `NAME.difference`, W - T; nothing if that is zero;
- `NAME`, W itself, if the trunk has no such tensor: the head.

All are bfloat16. Sums are computed in float32.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import tomli_w
import torch
from torch import Tensor

from segue.checkpoint.files import CARD, LARGEST_CARD, read_manifest, read_small, verify
from segue.checkpoint.folder import (
    CONFIG,
    HEAD,
    LARGEST_CONFIG,
    LARGEST_TASK,
    NGRAMS,
    TASK,
    TOKENIZER,
    TRUNK,
    WEIGHTS,
    read_config,
    read_tensors,
    read_toml,
    replace_model,
    widened,
    write_tensors,
)
from segue.checkpoint.heads import build, head_config
from segue.checkpoint.packaged import Packaged, nearest_name, packaged_model
from segue.checkpoint.parts import TrunkReference as TrunkReference
from segue.checkpoint.parts import read_trunk as read_trunk
from segue.config import parse
from segue.errors import CheckpointError
from segue.model.build import shapes_only

_SIZES = ("num_layers", "width", "num_heads", "resolved_head_width", "inner_width", "vocabulary", "positions")
LEFT, RIGHT, DIFFERENCE = ".left", ".right", ".difference"


def trunk_of(reference: TrunkReference, *, wanted_by: str | Path) -> Packaged:
    """Return the packaged trunk after checking its files and that it is the model the differences refer to."""
    trunk = packaged_model(reference.name)
    if trunk is None:
        raise CheckpointError(
            f"{wanted_by} is made of the packaged model {reference.name}, which must be there; got none of this name. "
            f"{nearest_name(reference.name)}"
        )
    trunk.verify()
    found = read_manifest(trunk.folder).get(WEIGHTS)
    if found != reference.sha256:
        raise CheckpointError(
            f"{wanted_by} is made of a {reference.name} whose weights have the sha256 {reference.sha256}; got {found} "
            f"in {trunk.folder}. Use the version of segue that both came with."
        )
    return trunk


# ---------------------------------------------------------------------------------------------------------- writing


def differences(model: Mapping[str, Tensor], trunk: Mapping[str, Tensor], *, rank: int) -> dict[str, Tensor]:
    """Return the tensors to store for a model."""
    found: dict[str, Tensor] = {}
    for name, value in model.items():
        base = trunk.get(name)
        if base is None or base.shape != value.shape:
            found[name] = value.bfloat16()
            continue
        difference = value.double() - base.double()
        if not bool(difference.any()):
            continue
        rows, columns = value.shape[0] if value.dim() else 1, value[0].numel() if value.dim() else 1
        if value.dim() < 2 or rank * (rows + columns) >= rows * columns:
            found[f"{name}{DIFFERENCE}"] = difference.bfloat16()
            continue
        left, scale, right = torch.linalg.svd(difference.flatten(1), full_matrices=False)
        root = scale[:rank].sqrt()
        found[f"{name}{LEFT}"] = (left[:, :rank] * root).bfloat16()
        found[f"{name}{RIGHT}"] = (root[:, None] * right[:rank]).bfloat16()
    return found


def sums(held: Mapping[str, Tensor], trunk: Mapping[str, Tensor], shapes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Restore the tensors of the model in float32 from the stored ones. `shapes`: tensors with the expected shapes."""
    left_over = set(held)
    made: dict[str, Tensor] = {}

    def take(name: str) -> Tensor | None:
        left_over.discard(name)
        return held[name].float() if name in held else None

    for name, shape in shapes.items():
        whole, difference = take(name), take(f"{name}{DIFFERENCE}")
        left, right = take(f"{name}{LEFT}"), take(f"{name}{RIGHT}")
        base = trunk.get(name)
        if whole is None and base is not None and base.shape == shape.shape:
            whole = base.float()
            if left is not None and right is not None and left.dim() == right.dim() == 2:
                fits = (left.shape[0], right.shape[1]) == (shape.shape[0], shape.shape[1:].numel())
                whole = whole + (left @ right).view(shape.shape) if fits and left.shape[1] == right.shape[0] else None
            elif difference is not None:
                whole = whole + difference if difference.shape == shape.shape else None
        if whole is None or whole.shape != shape.shape:
            raise CheckpointError(
                f"differences must give every tensor of the config; got none that fits for {name}. Use another copy."
            )
        made[name] = whole
    if left_over:
        raise CheckpointError(
            f"differences must be to tensors of the config; got others, first {min(left_over)[:200]}. Use another copy."
        )
    return made


def write_differences(tensors: dict[str, Tensor], trunk: Packaged, folder: Path, *, rank: int) -> None:
    """Write `model.safetensors` and `trunk.toml` for the tensors of a model."""
    held = differences(tensors, widened(read_tensors(trunk.folder / WEIGHTS)), rank=rank)
    write_tensors(held, folder / WEIGHTS)
    reference = {"name": trunk.name, "sha256": read_manifest(trunk.folder)[WEIGHTS], "rank": rank}
    (folder / TRUNK).write_text(tomli_w.dumps(reference), encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------- reading


def put_together(folder: Path, out: Path) -> None:
    """Write the whole model folder in float32."""
    verify(folder)
    trunk = trunk_of(read_trunk(folder), wanted_by=folder)
    config, of_trunk = parse(read_toml(folder / CONFIG)).model, read_config(trunk.folder)[0]
    if any(getattr(config, name) != getattr(of_trunk, name) for name in _SIZES):
        raise CheckpointError(f"{folder} must have the sizes of its trunk, {trunk.name}; got others. Use another copy.")
    head = head_config(read_toml(folder / HEAD)) if (folder / HEAD).is_file() else None
    with shapes_only():
        shapes = build(config, head).state_dict()
    held = read_tensors(folder / WEIGHTS)
    tensors = sums(held, read_tensors(trunk.folder / WEIGHTS), shapes)

    def write(new: Path) -> None:
        limits = {CONFIG: LARGEST_CONFIG, HEAD: LARGEST_CONFIG, TASK: LARGEST_TASK, CARD: LARGEST_CARD}
        for name, limit in limits.items():
            if (folder / name).is_file():
                (new / name).write_bytes(read_small(folder / name, limit=limit))
        if (folder / NGRAMS).is_file():
            shutil.copyfile(folder / NGRAMS, new / NGRAMS)
        write_tensors(tensors, new / WEIGHTS)
        shutil.copytree(trunk.folder / TOKENIZER, new / TOKENIZER)

    replace_model(out, write)
