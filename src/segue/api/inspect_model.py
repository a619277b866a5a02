"""Descriptions of models, runs, sessions, exports and checkpoints of other libraries, without loading weights."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from segue.api.inspect import Inspection
from segue.checkpoint.detect import Detected, detect, read_settings
from segue.checkpoint.differences import read_trunk
from segue.checkpoint.files import locate
from segue.checkpoint.find import local_folder
from segue.checkpoint.folder import CONFIG, TASK, TRUNK, read_config, read_toml
from segue.checkpoint.heads import read_head
from segue.checkpoint.packaged import packaged_model
from segue.config import ModelConfig
from segue.train.metrics import newest_losses
from segue.train.stages import recorded_origin
from segue.train.state import NUMBERS, TRAINING

_SHOWN = 300
"""Maximum number of characters of settings to show."""


def inspect_model(path: Path) -> Inspection:
    """Describe a path or a model name."""
    packaged = None if path.exists() else packaged_model(str(path))
    place = path if packaged is None else packaged.folder
    trunk = read_trunk(place).name if (place / TRUNK).is_file() else None
    found = detect(place if trunk is None else local_folder(path))
    family = None if found.family is None else found.family.name
    if (found.path / TASK).is_file():
        family = "fine-tuned" + ("" if trunk is None else f", kept as differences to {trunk}")
    return Inspection(
        path=found.path,
        kind=found.kind,
        family=family,
        facts=list(_settings(found)),
        settings=found.settings,
        tensors=None if found.source is None else found.source.tensors,
    )


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
    """Yield the progress of a run with a saved state, and the model it started from."""
    if not (folder / TRAINING / NUMBERS).is_file():
        return
    numbers = read_settings(folder / TRAINING / NUMBERS)
    planned = read_toml(folder / CONFIG).get("train", {}).get("steps")
    yield _listed({"step": f"{numbers.get('step')} of {planned}", "tokens": numbers.get("tokens")})
    origin = recorded_origin(folder)
    if origin is not None:
        yield f"started from {origin.described()}"


def _task(folder: Path) -> Iterator[str]:
    """Yield the task of a fine-tuned model."""
    if (folder / TASK).is_file():
        yield f"task: {_listed({'': read_toml(folder / TASK).get('task')}).strip()}"


def _in_short(config: ModelConfig) -> str:
    memory = "no memory" if config.memory is None else f"memory of {config.memory.length}"
    return (
        f"{config.objective}, {config.positions.kind} positions, {memory}: {config.num_layers} layers of "
        f"{config.width}, {config.num_heads} heads, vocabulary of {config.vocabulary.size:,}"
    )


def _listed(values: Mapping[str, Any]) -> str:
    """Return names and values on one line of bounded length, whatever the file contains."""
    plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    text = ", ".join(f"{name} {value}" for name, value in plain.items())
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
