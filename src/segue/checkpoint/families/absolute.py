"""Common parts of BERT and GPT-2 in transformers: learned absolute positions, no memory, activations, heads."""

from collections.abc import Mapping
from typing import Any

from segue.checkpoint.families.xlnet_transformers import ACTIVATIONS, labels_of
from segue.checkpoint.head_config import HeadConfig
from segue.config import AbsolutePositions, ModelConfig
from segue.errors import CheckpointError


def positions(length: int) -> dict[str, Any]:
    """Return the `[model.positions]` table for `length` learned positions."""
    return {"kind": "absolute", "encoding": "learned", "max_length": length}


def has_absolute_positions(config: ModelConfig) -> bool:
    """Return True if positions are added to the embeddings and segments do not enter the score."""
    return isinstance(config.positions, AbsolutePositions) and config.segments != "relative"


def check_can_hold(config: ModelConfig, name: str) -> int:
    """Return the number of positions of a model; raise CheckpointError if the family `name` cannot hold the model."""
    places = config.positions
    if not isinstance(places, AbsolutePositions) or places.encoding != "learned" or places.count_from != "start":
        raise CheckpointError(
            f'model.positions must be of kind "absolute", learned and counted from the start for {name}; got '
            f"{places.model_dump()}. Keep it as segue."
        )
    if config.memory is not None:
        raise CheckpointError(f"model.memory must be left out for {name}, which has none; got one. Keep it as segue.")
    if config.attention_span is not None:
        raise CheckpointError(
            f"model.attention_span must be left out for {name}; got {config.attention_span}. Keep it as segue."
        )
    if config.num_heads * config.resolved_head_width != config.width:
        raise CheckpointError(
            f"model.num_heads * model.head_width must be model.width for {name}; got {config.num_heads} * "
            f"{config.resolved_head_width} and {config.width}. Keep it as segue."
        )
    return places.max_length


def activation(name: object) -> str:
    """Return the activation for its name in a `config.json`."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise CheckpointError(
            f"the activation must be one of {', '.join(ACTIVATIONS)}; got {name!r}. segue has no such model."
        )
    return ACTIVATIONS[name]


def activation_name(config: ModelConfig) -> str:
    """Return the name of the model's activation in transformers."""
    return {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}[config.activation]


def check_settings(settings: Mapping[str, Any], expected: Mapping[str, object]) -> None:
    """Raise CheckpointError unless these settings have the only value that segue supports. Missing settings have it."""
    for name, value in expected.items():
        if settings.get(name, value) != value:
            raise CheckpointError(
                f"{name} in config.json must be {value!r}; got {settings[name]!r}. segue has no such model."
            )


def label_settings(head: HeadConfig, name: str) -> dict[str, Any]:
    """Return the settings of a `config.json` that name the classes and the task of a head."""
    count = {"sequence_scorer": 1, "simple_answerer": 2}.get(head.kind, head.num_labels)
    labels = head.labels or tuple(f"LABEL_{i}" for i in range(count))
    result: dict[str, Any] = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    if head.kind == "sequence_classifier":
        if head.task == "single" and head.num_labels == 1:
            raise CheckpointError(
                f'head.num_labels must be 2 or more for {name} where head.task is "single"; got 1. Keep it as segue.'
            )
        tasks = {"single": "single_label_classification", "multiple": "multi_label_classification"}
        result["problem_type"] = tasks.get(head.task, "regression")
    return result


def classifier(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the classes and the task of a sequence_classifier from a `config.json`."""
    labels = labels_of(settings)
    tasks = {"regression": "regression", "multi_label_classification": "multiple"}
    task = tasks.get(settings.get("problem_type") or "", "regression" if labels["num_labels"] == 1 else "single")
    return {"kind": "sequence_classifier", "task": task} | labels
