"""What a model becomes in the formats of others: whose names it gets, its settings there, and whether it is the same.

In: a config and a head. Out: the name table, the files with settings, and notes on what is otherwise there; or an error
where the model would be another one.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from segue.checkpoint.detect import SETTINGS, XLNET_SETTINGS, Family
from segue.checkpoint.heads import HeadConfig
from segue.checkpoint.names import (
    transformer_xl_original,
    transformer_xl_tensorflow,
    transformer_xl_transformers,
    xlnet_tensorflow,
    xlnet_transformers,
)
from segue.checkpoint.names.rules import Table
from segue.config import ModelConfig, XLPositions, model_config
from segue.errors import CheckpointError

Target: TypeAlias = Literal["segue", "hf", "tf", "original"]
FLAGS = "flags.txt"
MODULES: dict[Family, Any] = {
    "xlnet_transformers": xlnet_transformers,
    "transformer_xl_transformers": transformer_xl_transformers,
    "xlnet_tensorflow": xlnet_tensorflow,
    "transformer_xl_tensorflow": transformer_xl_tensorflow,
    "transformer_xl_original": transformer_xl_original,
}
_TRAINING = {"dropout", "attention_dropout", "init_std", "projection_init_std"}
_NOTED = {"norm_epsilon", "attention_span", "positions.clamp_distance"}


def family_for(config: ModelConfig, to: Target) -> Family:
    """Whose names a model gets."""
    xlnet = config.segments == "relative"
    match to:
        case "hf":
            return "xlnet_transformers" if xlnet else "transformer_xl_transformers"
        case "tf":
            return "xlnet_tensorflow" if xlnet else "transformer_xl_tensorflow"
        case _:
            return "transformer_xl_original"


def expressible(family: Family, config: ModelConfig, head: HeadConfig | None) -> list[str]:
    """Notes on settings that are others there but change no weights. Raises where the model would be another one: the
    settings are translated there and back, and must come back."""
    module = MODULES[family]
    if head is not None and family in ("transformer_xl_tensorflow", "transformer_xl_original"):
        raise CheckpointError(f"{module.FAMILY} has no heads; got a {head.kind}. Write it as segue or as hf.")
    if head is not None and head.pool == "attention":
        raise CheckpointError(
            f'head.pool must be "last", "mean" or "max" for {module.FAMILY}; got "attention", whose weights have no '
            "place there. Keep it as segue."
        )
    if family != "transformer_xl_original" and not isinstance(config.positions, XLPositions):
        raise CheckpointError(
            f'model.positions.kind must be "xl" for {module.FAMILY}; got "{config.positions.kind}". Keep it as segue.'
        )
    if family == "transformer_xl_original":
        module.table(config)  # which knows the kinds of positions
    there = _flat(model_config(**module.values(module.settings(config))))
    here = _flat(config)
    handled = {"vocabulary.cluster_order"} | _handled(family, config)
    different = {name for name in here | there if here.get(name) != there.get(name)} - _TRAINING - handled
    noted = {name for name in different if name in _NOTED or name.startswith("memory")}
    if wrong := sorted(different - noted):
        found = "; ".join(f"model.{name} must be {there.get(name)!r}, got {here.get(name)!r}" for name in wrong)
        raise CheckpointError(f"{module.FAMILY} cannot express this model: {found}. Keep it as segue.")
    notes = [f"model.{name}: {here.get(name)!r} here, {there.get(name)!r} there." for name in sorted(noted)]
    if head is not None and head.pool != "last":
        notes.append(f"head.pool: {head.pool!r} here; others read one segment of a text.")
    return notes


def only_for_segue(config: ModelConfig) -> str | None:
    """Why a Transformer-XL or an XLNet of this config cannot be written for transformers; None if it can be, and for
    models of other kinds, of which nobody would expect it."""
    if not isinstance(config.positions, XLPositions) or config.objective == "masked":
        return None
    try:
        expressible(family_for(config, "hf"), config, None)
    except CheckpointError as error:
        return str(error)
    return None


def _handled(family: Family, config: ModelConfig) -> set[str]:
    """Settings that make no difference, because the table or the shape of the model takes care of them."""
    found = set()
    words, bins = config.vocabulary, range(len(config.vocabulary.cutoffs) + 1)
    if family == "xlnet_transformers":
        found.add("positions.shared_biases")
    if not any(transformer_xl_tensorflow.projected(config, i) for i in bins):
        found |= {"vocabulary.tie_projections", "vocabulary.project_first_bin"}
    if words.shrink == 1:
        found.add("vocabulary.project_first_bin")
    if len(bins) == 1 and words.tie_projections != "all" and family != "transformer_xl_tensorflow":
        found.add("vocabulary.tie_projections")
    return found


def _flat(config: ModelConfig) -> dict[str, Any]:
    """Dotted names and values, with the defaults that depend on others filled in."""
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


def written_as(
    family: Family, config: ModelConfig, head: HeadConfig | None, scope: str
) -> tuple[Table, dict[str, str], str]:
    """The table, the files with settings, and what to call it."""
    match family:
        case "xlnet_transformers":
            settings = {SETTINGS: xlnet_transformers.settings(config, head)}
            return xlnet_transformers.table(config, head), _json(settings), xlnet_transformers.FAMILY
        case "transformer_xl_transformers":
            settings = {SETTINGS: transformer_xl_transformers.settings(config, head)}
            return transformer_xl_transformers.table(config, head), _json(settings), transformer_xl_transformers.FAMILY
        case "xlnet_tensorflow":
            settings = {XLNET_SETTINGS: xlnet_tensorflow.settings(config)}
            return xlnet_tensorflow.table(config, head, scope=scope), _json(settings), xlnet_tensorflow.FAMILY
        case "transformer_xl_tensorflow":
            flags = transformer_xl_tensorflow.settings(config)
            lines = {FLAGS: "".join(f"--{name}={_flag(flags[name])}\n" for name in transformer_xl_tensorflow.FLAGS)}
            return transformer_xl_tensorflow.table(config), lines, transformer_xl_tensorflow.FAMILY
        case "transformer_xl_original":
            settings = {SETTINGS: transformer_xl_original.settings(config)}
            return transformer_xl_original.table(config), _json(settings), transformer_xl_original.FAMILY


def _json(files: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(values, indent=1) + "\n" for name, values in files.items()}


def _flag(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
