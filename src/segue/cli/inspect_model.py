"""`segue inspect`: what a file or folder is, in any supported format, without loading weights."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from segue.checkpoint.detect import Detected, detect, read_settings
from segue.checkpoint.differences import read_trunk
from segue.checkpoint.files import locate
from segue.checkpoint.find import local_folder
from segue.checkpoint.folder import CONFIG, TASK, TRUNK, read_config, read_toml
from segue.checkpoint.heads import read_head
from segue.checkpoint.packaged import packaged_model
from segue.checkpoint.source import TensorInfo
from segue.cli.console import say
from segue.config import ModelConfig
from segue.train.metrics import newest_losses
from segue.train.stages import recorded_origin
from segue.train.state import NUMBERS, TRAINING

_LARGEST = 5
_SHOWN = 300
"""Characters of the settings."""


def run_inspection(path: Path, *, tensors: bool) -> None:
    """Prints what is there; `tensors` lists all of them."""
    console = Console(highlight=False)
    packaged = None if path.exists() else packaged_model(str(path))
    place = path if packaged is None else packaged.folder
    trunk = read_trunk(place).name if (place / TRUNK).is_file() else None
    found = detect(place if trunk is None else local_folder(path))
    family = "" if found.family is None else f": {found.family.name}"
    if (found.path / TASK).is_file():
        family = ", fine-tuned" + ("" if trunk is None else f", kept as differences to {trunk}")
    say(console, f"{path}: {found.kind}{family}", hang=2, style="bold")
    for line in _settings(found):
        say(console, line, indent=2, hang=2)
    if found.source is not None:
        _print_tensors(console, found.source.tensors, every=tensors)


def _settings(found: Detected) -> Iterator[str]:
    match found.kind:
        case "segue model":
            yield _in_short(read_config(found.path)[0])
            yield from _state(found.path)
            yield from _task(found.path)
        case "segue model with a head":
            config, head, _ = read_head(found.path)
            yield _in_short(config)
            yield f"head: {_listed(head.model_dump(exclude_defaults=True))}"
            yield from _task(found.path)
        case "segue run":
            parts = [name for name in ("best", "last") if (found.path / name / CONFIG).is_file()]
            yield f"with {' and '.join(parts)}: `segue inspect {found.path / parts[0]}` says more"
            yield from _state(locate(found.path / "last"))
            for metric in newest_losses(found.path / "metrics.jsonl").values():
                yield f"{metric.name}: {metric.value:.4f} at step {metric.step:,}"
            yield from _task(found.path / parts[0])
        case "segue session":
            model, read = str(found.settings.get("model")), int(found.settings.get("count", 0))
            waiting = found.source.tensors["unread"].shape[0] if found.source is not None else 0
            yield f"{read + waiting} tokens read, by the model with the fingerprint {model[:12]}"
        case "segue export":
            shown = ("what", "file", "objective", "vocabulary_size", "opset", "torch")
            yield _listed({name: found.settings[name] for name in shown if name in found.settings})
        case "segue store":
            counts = ("tokens", "documents", "vocabulary_size", "bytes")
            yield _listed({name: found.settings.get(name) for name in counts})
        case _:
            if listed := _listed(found.settings):
                yield f"settings: {listed}"
            if root := found.attributes.get(""):
                yield f"attributes: {_listed(root)}"


def _state(folder: Path) -> Iterator[str]:
    """How far a run is whose state is there, and what it started from."""
    if not (folder / TRAINING / NUMBERS).is_file():
        return
    numbers = read_settings(folder / TRAINING / NUMBERS)
    planned = read_toml(folder / CONFIG).get("train", {}).get("steps")
    yield _listed({"step": f"{numbers.get('step')} of {planned}", "tokens": numbers.get("tokens")})
    origin = recorded_origin(folder)
    if origin is not None:
        yield f"started from {origin.described()}"


def _task(folder: Path) -> Iterator[str]:
    """What a fine-tuned model is for."""
    if (folder / TASK).is_file():
        yield f"task: {_listed({'': read_toml(folder / TASK).get('task')}).strip()}"


def _in_short(config: ModelConfig) -> str:
    memory = "no memory" if config.memory is None else f"memory of {config.memory.length}"
    return (
        f"{config.objective}, {config.positions.kind} positions, {memory}: {config.num_layers} layers of "
        f"{config.width}, {config.num_heads} heads, vocabulary of {config.vocabulary.size:,}"
    )


def _listed(values: Mapping[str, Any]) -> str:
    """Names and values in one line of bounded length, whatever a file says."""
    plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    text = ", ".join(f"{name} {value}" for name, value in plain.items())
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def _print_tensors(console: Console, tensors: Mapping[str, TensorInfo], *, every: bool) -> None:
    sizes = {name: math.prod(info.shape) for name, info in tensors.items()}
    dtypes = Counter(str(info.dtype).removeprefix("torch.") for info in tensors.values())
    kinds = ", ".join(f"{count} {dtype}" for dtype, count in dtypes.most_common())
    say(console, f"{len(tensors)} tensors, {sum(sizes.values()):,} numbers: {kinds}", indent=2, hang=2)
    names = list(tensors) if every else sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST]
    if not every and names:
        say(console, "the largest:", indent=2)
    for name in names:
        info = tensors[name]
        shape = " x ".join(map(str, info.shape)) or "one number"
        dtype = str(info.dtype).removeprefix("torch.")
        console.print(f"    {name}  {shape}  {dtype}", soft_wrap=True, markup=False)
