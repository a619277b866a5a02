"""Transformer-XL of the TensorFlow code and its releases (wt103, enwik8, text8, lm1b).

There is no config file: the shapes show the sizes, and `FLAGS` are the names of all settings in that code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from segue.checkpoint.families.bins import own_projections, projected
from segue.checkpoint.families.family import Family, Opened, ReadingPlan, indifferent
from segue.checkpoint.families.rules import (
    FLIPPED,
    SAME,
    TRANSPOSED,
    NameTable,
    Rule,
    by_layer,
    joined,
    rule,
    split,
    then,
)
from segue.checkpoint.families.xlnet_tensorflow import OPTIMIZER, layer_rules
from segue.config import ModelConfig, XLPositions
from segue.errors import CheckpointError
from segue.model.named import named_models

if TYPE_CHECKING:
    from segue.checkpoint.source import TensorInfo

NAME = "Transformer-XL in TensorFlow"
EPSILON = 1e-12
FLAGS = (
    "n_token",
    "n_layer",
    "d_model",
    "d_embed",
    "n_head",
    "d_head",
    "d_inner",
    "cutoffs",
    "div_val",
    "untie_r",
    "proj_share_all_but_first",
    "proj_same_dim",
    "mem_len",
    "clamp_len",
    "same_length",
)
_EMBED, _SOFTMAX = "transformer/adaptive_embed/", "transformer/adaptive_softmax/"

# --------------------------------------------------------------------------------------------------- names


def table(config: ModelConfig) -> NameTable:
    """Return the name table of a model's variables."""
    positions = config.positions
    assert isinstance(positions, XLPositions)
    count = 1 if positions.shared_biases else config.num_layers
    rules = _vocabulary(config) + _softmax(config)
    for theirs, ours in (("r_w_bias", "content_HE"), ("r_r_bias", "position_HE")):
        names = [f"trunk.reader.biases.{i}.{ours}" for i in range(count)]
        rules.append(rule(f"transformer/{theirs}", names, by_layer(shared=positions.shared_biases)))
    for i in range(config.num_layers):
        theirs, ours = f"transformer/layer_{i}/", f"trunk.reader.layers.{i}."
        parts = [f"{ours}attention.{part}.weight" for part in ("query", "key", "value")]
        rules += [
            rule(f"{theirs}rel_attn/qkv/kernel", parts, then(TRANSPOSED, split(3))),
            rule(f"{theirs}rel_attn/o/kernel", f"{ours}attention.out.weight", TRANSPOSED),
            rule(f"{theirs}rel_attn/r/kernel", f"{ours}attention.relative.projection.weight", TRANSPOSED),
            *layer_rules(theirs, ours),
        ]
    return NameTable(family=NAME, rules=rules, explained=OPTIMIZER)


def _vocabulary(config: ModelConfig) -> list[Rule]:
    words = config.vocabulary
    bins = [""] if words.shrink == 1 else [f"cutoff_{i}/" for i in range(len(words.cutoffs) + 1)]
    rules = [rule(f"{_EMBED}{name}lookup_table", f"trunk.vocabulary.tables.{i}") for i, name in enumerate(bins)]
    return rules + [
        rule(f"{_EMBED}{name}proj_W", f"trunk.vocabulary.projections.{i}", TRANSPOSED)
        for i, name in enumerate(bins)
        if projected(config, i)
    ]


def _softmax(config: ModelConfig) -> list[Rule]:
    words = config.vocabulary
    if not words.cutoffs:
        return [rule(f"{_SOFTMAX}bias", "softmax.token_biases.0")]
    count = len(words.cutoffs) + 1
    biases, own = [f"{_SOFTMAX}cutoff_{i}/b" for i in range(count)], range(own_projections(config))
    order = FLIPPED if words.cluster_order == "reversed" else SAME
    rules = [
        rule(f"{_SOFTMAX}cutoff_0/cluster_W", "softmax.cluster_weight", order),
        rule(f"{_SOFTMAX}cutoff_0/cluster_b", "softmax.cluster_bias", order),
        *(
            rule(f"{_SOFTMAX}cutoff_{i}/proj", f"softmax.projections.{i}", TRANSPOSED)
            for i in own
            if projected(config, i)
        ),
    ]
    if words.shrink == 1:  # one table for all bins has one bias for all bins
        sizes = [stop - start for start, stop in pairwise([0, *words.cutoffs, words.size])]
        return [*rules, rule(biases, "softmax.token_biases.0", joined(sizes))]
    return rules + [rule(bias, f"softmax.token_biases.{i}") for i, bias in enumerate(biases)]


# ------------------------------------------------------------------------------------------------ settings


def values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `[model]` table for the flags. Initial memory and norms are those of the TensorFlow code."""
    shared = settings["proj_share_all_but_first"]
    cutoffs, memory, clamp = settings["cutoffs"], settings.get("mem_len"), settings.get("clamp_len", -1)
    tied = ("all_but_first" if shared else "none") if cutoffs else "all"
    result: dict[str, Any] = {
        "vocabulary": {
            "size": settings["n_token"],
            "width": settings["d_embed"],
            "scale": True,
            "cutoffs": list(cutoffs),
            "shrink": settings["div_val"],
            "project_first_bin": settings["proj_same_dim"],
            "tie_projections": tied,
            "cluster_order": "forward",
        },
        "positions": {"kind": "xl", "shared_biases": not settings["untie_r"]},
        "num_layers": settings["n_layer"],
        "width": settings["d_model"],
        "num_heads": settings["n_head"],
        "head_width": settings["d_head"],
        "inner_width": settings["d_inner"],
        "norm_epsilon": EPSILON,
    }
    if clamp > 0:
        result["positions"]["clamp_distance"] = clamp
    if memory:
        result["memory"] = {"length": memory, "initial": "zeros"}
        if settings.get("same_length"):  # the TensorFlow code lets a token see the memory and itself
            result["attention_span"] = memory + 1
    return result


def settings(config: ModelConfig) -> dict[str, Any]:
    """Return the flags for a config."""
    words, positions, memory = config.vocabulary, config.positions, config.memory
    assert isinstance(positions, XLPositions)
    same = memory is not None and config.attention_span == memory.length + 1
    return {
        "n_token": words.size,
        "n_layer": config.num_layers,
        "d_model": config.width,
        "d_embed": words.width or config.width,
        "n_head": config.num_heads,
        "d_head": config.resolved_head_width,
        "d_inner": config.inner_width,
        "cutoffs": list(words.cutoffs),
        "div_val": words.shrink,
        "untie_r": not positions.shared_biases,
        "proj_share_all_but_first": words.tie_projections != "none",
        "proj_same_dim": words.project_first_bin,
        "mem_len": 0 if memory is None else memory.length,
        "clamp_len": positions.clamp_distance or -1,
        "same_length": same,
    }


def settings_of_shapes(infos: Mapping[str, TensorInfo]) -> dict[str, Any]:
    """Return the flags inferred from names and shapes: all except the lengths."""
    inner = infos["transformer/layer_0/ff/layer_1/kernel"].shape
    bias = infos["transformer/r_w_bias"].shape
    layers = {found[1] for name in infos if (found := re.match(r"transformer/layer_(\d+)/", name))}
    sizes = _series(infos, f"{_SOFTMAX}cutoff_{{}}/b", axis=0)
    widths = _series(infos, f"{_EMBED}cutoff_{{}}/lookup_table", axis=1)
    if widths:
        first, shrink = widths[0], widths[0] // max(widths[1], 1) if len(widths) > 1 else 1
    else:
        first, shrink = infos[f"{_EMBED}lookup_table"].shape[1], 1
    own = [i for i in range(len(sizes)) if f"{_SOFTMAX}cutoff_{i}/proj" in infos]
    return {
        "n_token": sum(sizes) if sizes else infos[f"{_EMBED}lookup_table"].shape[0],
        "n_layer": len(layers),
        "d_model": inner[0],
        "d_embed": first,
        "n_head": bias[-2],
        "d_head": bias[-1],
        "d_inner": inner[1],
        "cutoffs": list(accumulate(sizes))[:-1],
        "div_val": shrink,
        "untie_r": len(bias) == 3,
        "proj_share_all_but_first": not any(i > 0 for i in own),
        "proj_same_dim": first != inner[0] or f"{_EMBED}cutoff_0/proj_W" in infos or shrink == 1,
    }


def _series(infos: Mapping[str, TensorInfo], pattern: str, *, axis: int) -> list[int]:
    """Return the size along `axis` of each of the variables 0, 1, 2, ..."""
    sizes: list[int] = []
    while (info := infos.get(pattern.format(len(sizes)))) is not None:
        if len(info.shape) <= axis:
            raise CheckpointError(
                f"{pattern.format(len(sizes))} must have more than {axis} dimensions; got {list(info.shape)}. "
                "Use another copy."
            )
        sizes.append(info.shape[axis])
    return sizes


# -------------------------------------------------------------------------------------------------- family


def plan(found: Opened) -> ReadingPlan:
    """Return the reading plan of a checkpoint, from its shapes, with the memory length of the release that has them."""
    result = values(settings_of_shapes(found.source.tensors))
    name, memory = _released(result)
    result["memory"] = {"initial": "zeros"} | ({} if memory is None else {"length": memory})
    return ReadingPlan(
        values=result,
        table=lambda config, _: table(config),
        unknown=["memory.length"] if memory is None else [],
        guesses={} if name is None else {"model.memory.length": f"{memory}, as in {name}, which has the same shapes"},
    )


def _released(values: Mapping[str, Any]) -> tuple[str | None, int | None]:
    """Return the name and the memory length of a released model of the same sizes; None if there is none."""
    sizes = ("num_layers", "width", "num_heads", "head_width", "inner_width")
    for name, model in named_models().items():
        config = model.config
        same = all(getattr(config, size) == values[size] for size in sizes)
        if same and config.vocabulary.size == values["vocabulary"]["size"] and config.memory is not None:
            return name, config.memory.length
    return None, None


def _flags(settings: Mapping[str, Any]) -> str:
    """Return the settings as command-line flags of the TensorFlow code."""
    lists = {name: ",".join(map(str, value)) for name, value in settings.items() if isinstance(value, list)}
    return "".join(f"--{name}={lists.get(name, settings[name])}\n" for name in FLAGS)


def _indifferent(config: ModelConfig) -> set[str]:
    """Return the settings that make no difference. Without cutoffs this code ties all projections, so there
    `tie_projections` counts."""
    tied = not config.vocabulary.cutoffs and projected(config, 0)
    return indifferent(config) - ({"vocabulary.tie_projections"} if tied else set())


FAMILY = Family(
    name=NAME,
    target="tf",
    suits=lambda config: config.segments != "relative",
    recognises=lambda names, settings: any(name.startswith(_EMBED) for name in names),
    plan=plan,
    values=values,
    settings=lambda config, head: settings(config),
    table=lambda config, head, scope: table(config),
    settings_file="flags.txt",
    settings_text=_flags,
    has_heads=False,
    indifferent=_indifferent,
)
