"""Models in a foreign family: tensor names, settings, and the check that the model stays the same.

In: a family, a config and a head. Out: a `WrittenModel`, with notes on settings that differ; or an error with the
reason why the family cannot hold the model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from segue.checkpoint.families import family_for
from segue.checkpoint.families.family import Family
from segue.checkpoint.families.rules import NameTable
from segue.checkpoint.head_config import HeadConfig
from segue.config import ModelConfig, XLPositions, model_config
from segue.errors import CheckpointError

_TRAINING = {"dropout", "attention_dropout", "init_std", "projection_init_std", "positions.bias_init"}
"""Settings that change no weights and no output."""
_NOTED = {"norm_epsilon", "attention_span", "positions.clamp_distance"}
"""Settings that may differ in the written model: a note says so."""


@dataclass(frozen=True, kw_only=True)
class WrittenModel:
    """A model in the form of a foreign family."""

    table: NameTable
    settings: dict[str, Any]
    text: str
    """Text of the settings file."""
    notes: list[str]


def written(family: Family, config: ModelConfig, head: HeadConfig | None, *, scope: str = "task") -> WrittenModel:
    """Return the model in the form of a family; raise CheckpointError if the family would change the model."""
    notes = _check(family, config, head)
    settings = family.settings(config, head)
    return WrittenModel(
        table=family.table(config, head, scope), settings=settings, text=family.settings_text(settings), notes=notes
    )


def only_for_segue(config: ModelConfig) -> str | None:
    """Return the reason why a Transformer-XL or XLNet of this config cannot be written for transformers; None if it
    can, and for models of other kinds."""
    if not isinstance(config.positions, XLPositions) or config.objective == "masked":
        return None
    try:
        _check(family_for(config, "hf"), config, None)
    except CheckpointError as error:
        return str(error)
    return None


def _check(family: Family, config: ModelConfig, head: HeadConfig | None) -> list[str]:
    """Return notes on settings that differ but change no weights; raise CheckpointError if the model would change. The
    settings are translated to the family and back, and must stay the same."""
    _check_head(family, head)
    if family.only_xl_positions and not isinstance(config.positions, XLPositions):
        raise CheckpointError(
            f'model.positions.kind must be "xl" for {family.name}; got "{config.positions.kind}". Keep it as segue.'
        )
    if not family.only_xl_positions:
        family.table(config, head, "task")  # raises for kinds of positions that the family does not have
    there = _flat(model_config(**family.values(family.settings(config, None))))
    here = _flat(config)
    different = {name for name in here | there if here.get(name) != there.get(name)}
    different -= _TRAINING | family.indifferent(config)
    noted = {name for name in different if name in _NOTED or name.startswith("memory")}
    if wrong := sorted(different - noted):
        found = "; ".join(f"model.{name} must be {there.get(name)!r}, got {here.get(name)!r}" for name in wrong)
        raise CheckpointError(f"{family.name} cannot express this model: {found}. Keep it as segue.")
    notes = [f"model.{name}: {here.get(name)!r} here, {there.get(name)!r} there." for name in sorted(noted)]
    if head is not None and head.pool != "last":
        notes.append(f"head.pool: {head.pool!r} here; others read one segment of a text.")
    return notes


def _check_head(family: Family, head: HeadConfig | None) -> None:
    if head is None:
        return
    if not family.has_heads:
        raise CheckpointError(f"{family.name} has no heads; got a {head.kind}. Write it as segue or as hf.")
    if head.pool == "attention":
        raise CheckpointError(
            f'head.pool must be "last", "mean" or "max" for {family.name}; got "attention", whose weights have no '
            "place there. Keep it as segue."
        )


def _flat(config: ModelConfig) -> dict[str, Any]:
    """Return the values by dotted name, with defaults that depend on other settings filled in."""
    values = config.model_dump()
    values["head_width"] = config.resolved_head_width
    values["vocabulary"]["width"] = config.vocabulary.width or config.width
    return dict(_pairs(values))


def _pairs(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        found += (
            _pairs(value, f"{name}.") if isinstance(value, Mapping) else [(name, value)] if value is not None else []
        )
    return found
