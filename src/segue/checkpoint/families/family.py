"""What a family of checkpoints is: all that segue knows about one format of others, in one value.

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
"""What `segue convert --to` writes."""
SETTINGS, XLNET_SETTINGS = "config.json", "xlnet_config.json"


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A checkpoint before a weight is read."""

    source: TensorSource
    settings: Mapping[str, Any]
    """The config as it is written beside the weights; empty if there is none."""
    attributes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """The attributes of a pickled module and its parts."""
    head: str | None = None
    """The head that the user chose among several."""


@dataclass(frozen=True, kw_only=True)
class ReadingPlan:
    """What a checkpoint says of its model."""

    values: dict[str, Any]
    """Keys of the `[model]` table."""
    table: Callable[[ModelConfig, HeadConfig | None], NameTable]
    """The names of its tensors, for the config that comes of these values and what the user adds."""
    head: HeadConfig | None = None
    scope: str = "task"
    """The name of a fine-tuned task, where tensor names have it."""
    unknown: Sequence[str] = ()
    """Settings of `[model]` that the user must give, because the checkpoint does not show them."""
    notes: Sequence[str] = ()
    guesses: Mapping[str, str] = field(default_factory=dict)
    """Notes on settings that were taken without being told: `model.memory.length`, for example."""


def indifferent(config: ModelConfig) -> set[str]:
    """Settings of `[model]` that make no difference in any family, because of the shape of the model."""
    words, bins = config.vocabulary, range(len(config.vocabulary.cutoffs) + 1)
    found = {"vocabulary.cluster_order"}  # the tables turn clusters around
    if not any(projected(config, i) for i in bins):
        found |= {"vocabulary.tie_projections", "vocabulary.project_first_bin"}
    if words.shrink == 1:
        found.add("vocabulary.project_first_bin")
    if len(bins) == 1 and words.tie_projections != "all":
        found.add("vocabulary.tie_projections")
    return found


def as_json(settings: Mapping[str, Any]) -> str:
    """The text of a settings file in JSON."""
    return json.dumps(settings, indent=1) + "\n"


@dataclass(frozen=True, kw_only=True)
class Family:
    """One format of checkpoints: how to recognise, read and write it, and what it cannot hold."""

    name: str
    """What reports and errors call it."""
    target: Target
    """What the user asks for to have it written."""
    suits: Callable[[ModelConfig], bool]
    """Whether a model of this config is of its kind, and so is written in it rather than in another."""
    recognises: Callable[[Collection[str], Mapping[str, Any]], bool]
    """Whether a checkpoint with these tensors and settings is of this family."""
    plan: Callable[[Opened], ReadingPlan]
    """What such a checkpoint says of its model. May raise a KeyError and the like where it says nonsense."""
    values: Callable[[Mapping[str, Any]], dict[str, Any]]
    """The `[model]` table that the family's settings mean."""
    settings: Callable[[ModelConfig, HeadConfig | None], dict[str, Any]]
    """The family's settings for a config; CheckpointError with the reason where it has none."""
    table: Callable[[ModelConfig, HeadConfig | None, str], NameTable]
    """The tensor names in both directions, with the name of a fine-tuned task; CheckpointError where it has none."""
    settings_file: str = SETTINGS
    settings_text: Callable[[Mapping[str, Any]], str] = as_json
    has_heads: bool = True
    """Whether it holds models with a head."""
    several_heads: bool = False
    """Whether one checkpoint may hold several heads, so that the user chooses."""
    only_xl_positions: bool = True
    """Whether relative positions as in Transformer-XL are the only ones it has."""
    indifferent: Callable[[ModelConfig], set[str]] = indifferent
    """Settings of `[model]` that make no difference to what is written."""


def check_model_type(settings: Mapping[str, Any], model_type: str) -> None:
    """Raises unless a `config.json` of transformers is there and belongs to the tensors."""
    if "model_type" not in settings:
        raise CheckpointError(
            "weights of transformers must have their config.json beside them; got none. Copy it there."
        )
    if settings["model_type"] != model_type:
        raise CheckpointError(
            f'model_type in config.json must be "{model_type}", as the tensors are; got '
            f"{shortened(repr(settings['model_type']))}. Use the config of these weights."
        )
