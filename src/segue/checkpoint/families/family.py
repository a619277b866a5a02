"""The Family: everything that segue knows about one foreign checkpoint format, in one value.

In: tensor names, settings and a source of tensors, or a config. Out: a `ReadingPlan` to read a checkpoint, or the
settings and the table of names to write one (`writing`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from segue.checkpoint.families.bins import projected
from segue.checkpoint.families.rules import NameTable
from segue.checkpoint.files import shortened
from segue.checkpoint.head_config import HeadConfig
from segue.config import ModelConfig
from segue.errors import CheckpointError

if TYPE_CHECKING:
    from segue.checkpoint.source import TensorSource

Target: TypeAlias = Literal["segue", "hf", "tf", "original"]
"""Output formats of `segue convert --to`."""
SETTINGS, XLNET_SETTINGS = "config.json", "xlnet_config.json"


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A checkpoint before any weight is read."""

    source: TensorSource
    settings: Mapping[str, Any]
    """The config stored beside the weights; empty if there is none."""
    attributes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Attributes of a pickled module and its parts."""
    head: str | None = None
    """The head chosen by the user among several."""


@dataclass(frozen=True, kw_only=True)
class ReadingPlan:
    """The model description found in a checkpoint."""

    values: dict[str, Any]
    """Keys of the `[model]` table."""
    table: Callable[[ModelConfig, HeadConfig | None], NameTable]
    """Returns the tensor names for the config made from these values and the user's overrides."""
    head: HeadConfig | None = None
    scope: str = "task"
    """Name of a fine-tuned task, if it is part of the tensor names."""
    unknown: Sequence[str] = ()
    """Settings of `[model]` that the user must give, because the checkpoint does not show them."""
    notes: Sequence[str] = ()
    guesses: Mapping[str, str] = field(default_factory=dict)
    """Notes on settings that were guessed, by name: `model.memory.length`, for example."""


def indifferent(config: ModelConfig) -> set[str]:
    """Return the settings of `[model]` that make no difference in any family, given the shape of the model."""
    words, bins = config.vocabulary, range(len(config.vocabulary.cutoffs) + 1)
    found = {"vocabulary.cluster_order"}  # the tables reverse the clusters where needed
    if not any(projected(config, i) for i in bins):
        found |= {"vocabulary.tie_projections", "vocabulary.project_first_bin"}
    if words.shrink == 1:
        found.add("vocabulary.project_first_bin")
    if len(bins) == 1 and words.tie_projections != "all":
        found.add("vocabulary.tie_projections")
    return found


def as_json(settings: Mapping[str, Any]) -> str:
    """Return the text of a JSON settings file."""
    return json.dumps(settings, indent=1) + "\n"


@dataclass(frozen=True, kw_only=True)
class Family:
    """A foreign checkpoint format: how to recognise, read and write it, and its limits."""

    name: str
    """Name in reports and errors."""
    target: Target
    """Value of `to` that selects this format."""
    suits: Callable[[ModelConfig], bool]
    """Returns True if a model of this config is written in this family rather than in another."""
    recognises: Callable[[Collection[str], Mapping[str, Any]], bool]
    """Returns True if a checkpoint with these tensors and settings is of this family."""
    plan: Callable[[Opened], ReadingPlan]
    """Returns the description of the model. May raise KeyError and the like if the checkpoint is malformed."""
    values: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Returns the `[model]` table for the family's settings."""
    settings: Callable[[ModelConfig, HeadConfig | None], dict[str, Any]]
    """Returns the family's settings for a config; raises CheckpointError with the reason if there are none."""
    table: Callable[[ModelConfig, HeadConfig | None, str], NameTable]
    """Returns the name table, given the name of a fine-tuned task; raises CheckpointError if there is none."""
    settings_file: str = SETTINGS
    settings_text: Callable[[Mapping[str, Any]], str] = as_json
    has_heads: bool = True
    """Whether the format can hold models with a head."""
    several_heads: bool = False
    """Whether one checkpoint may hold several heads, of which the user chooses one."""
    only_xl_positions: bool = True
    """Whether the format supports only the relative positions of Transformer-XL."""
    indifferent: Callable[[ModelConfig], set[str]] = indifferent
    """Returns the settings of `[model]` that make no difference to the written files."""


def check_model_type(settings: Mapping[str, Any], model_type: str) -> None:
    """Raise CheckpointError unless there is a `config.json` of transformers with the model type of the tensors."""
    if "model_type" not in settings:
        raise CheckpointError(
            "weights of transformers must have their config.json beside them; got none. Copy it there."
        )
    if settings["model_type"] != model_type:
        raise CheckpointError(
            f'model_type in config.json must be "{model_type}", as the tensors are; got '
            f"{shortened(repr(settings['model_type']))}. Use the config of these weights."
        )
