"""Transformer-XL of the original PyTorch code: a whole `model.pt` or a state dict, attention types 0 to 3.

Its settings are the arguments of its constructor, `MemTransformerLM`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from segue.checkpoint.families.bins import own_projections, projected
from segue.checkpoint.families.family import Family, Opened, ReadingPlan
from segue.checkpoint.families.rules import (
    FLIPPED,
    SAME,
    Change,
    Computed,
    Copy,
    NameTable,
    Rule,
    by_layer,
    heads_last,
    rule,
    split,
    then,
)
from segue.config import (
    AbsolutePositions,
    LearnedRelativePositions,
    ModelConfig,
    PerLayerPositions,
    XLPositions,
)
from segue.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

    from segue.checkpoint.source import TensorInfo, TensorSource

NAME = "Transformer-XL in the original PyTorch code"
EPSILON = 1e-5
_LAYER = {
    "dec_attn.o_net.weight": "attention.out.weight",
    "dec_attn.layer_norm.weight": "attention_norm.weight",
    "dec_attn.layer_norm.bias": "attention_norm.bias",
    "pos_ff.CoreNet.0.weight": "feed_forward.widen.weight",
    "pos_ff.CoreNet.0.bias": "feed_forward.widen.bias",
    "pos_ff.CoreNet.3.weight": "feed_forward.narrow.weight",
    "pos_ff.CoreNet.3.bias": "feed_forward.narrow.bias",
    "pos_ff.layer_norm.weight": "feed_forward_norm.weight",
    "pos_ff.layer_norm.bias": "feed_forward_norm.bias",
}
_TYPES: dict[type, int] = {
    XLPositions: 0,
    LearnedRelativePositions: 1,
    AbsolutePositions: 2,
    PerLayerPositions: 3,
}

# --------------------------------------------------------------------------------------------------- names


def table(config: ModelConfig) -> NameTable:
    """Return the name table of a state dict."""
    kind = _TYPES.get(type(config.positions))
    if kind is None:
        raise CheckpointError(
            f'model.positions.kind must be "xl", "learned_relative", "absolute" or "per_layer" for {NAME}; got '
            f'"{config.positions.kind}". Another format has no such positions either.'
        )
    order = SAME if config.vocabulary.cluster_order == "reversed" else FLIPPED
    rules, copies = vocabulary_rules(config, embed="word_emb.", softmax="crit.", order=order, written=True)
    rules += _position_rules(config, kind)
    for i in range(config.num_layers):
        rules += layer_rules(f"layers.{i}.", f"trunk.reader.layers.{i}.", kind=kind)
    computed = [frequencies("pos_emb.inv_freq", config.width)] if kind in (0, 2) else []
    return NameTable(family=NAME, rules=rules, copies=copies, computed=computed)


def layer_rules(theirs: str, ours: str, *, kind: int) -> list[Rule]:
    """Return the rules of a layer of attention type `kind`; transformers uses the names of type 0."""
    query, key, value = (f"{ours}attention.{part}.weight" for part in ("query", "key", "value"))
    if kind in (0, 1):
        rules = [rule(f"{theirs}dec_attn.qkv_net.weight", (query, key, value), split(3))]
    else:
        rules = [
            rule(f"{theirs}dec_attn.q_net.weight", query),
            rule(f"{theirs}dec_attn.kv_net.weight", (key, value), split(2)),
        ]
    if kind == 0:
        rules.append(rule(f"{theirs}dec_attn.r_net.weight", f"{ours}attention.relative.projection.weight"))
    return rules + [rule(theirs + name, ours + own) for name, own in _LAYER.items()]


def _position_rules(config: ModelConfig, kind: int) -> list[Rule]:
    layers, heads = range(config.num_layers), heads_last(config.num_heads)
    if kind == 0:
        biases = {"r_w_bias": "content_HE", "r_r_bias": "position_HE"}
        return [rule(theirs, f"trunk.reader.biases.0.{ours}") for theirs, ours in biases.items()]
    if kind == 1:  # the last row is distance 0
        relative = [f"trunk.reader.layers.{i}.attention.relative." for i in layers]
        return [
            rule("r_w_bias", [f"trunk.reader.biases.{i}.content_HE" for i in layers], by_layer()),
            rule("r_emb", [f"{name}key.weight" for name in relative], then(then(by_layer(), heads), FLIPPED)),
            rule("r_bias", [f"{name}bias.weight" for name in relative], then(by_layer(), FLIPPED)),
        ]
    if kind == 3:
        return [rule("r_emb", [f"trunk.reader.per_layer.{i}.table.weight" for i in layers], then(by_layer(), heads))]
    return []


def vocabulary_rules(
    config: ModelConfig, *, embed: str, softmax: str, order: Change, written: bool, absent: str = ""
) -> tuple[list[Rule], list[Copy]]:
    """Return the rules of embeddings and softmax, for this code and for transformers. `order`: change of the clusters;
    `written`: whether the format repeats tied tensors; `absent`: why a file may lack the softmax."""
    words = config.vocabulary
    bins = len(words.cutoffs) + 1
    tables = range(bins if words.shrink > 1 else 1)
    rules, copies = [], []
    for i in tables:
        rules.append(rule(f"{embed}emb_layers.{i}.weight", f"trunk.vocabulary.tables.{i}"))
        if projected(config, i):
            rules.append(rule(f"{embed}emb_projs.{i}", f"trunk.vocabulary.projections.{i}"))
        rules.append(rule(f"{softmax}out_layers.{i}.bias", f"softmax.token_biases.{i}", absent=absent))
        if words.tie_weights:
            copies.append(Copy(f"{softmax}out_layers.{i}.weight", f"{embed}emb_layers.{i}.weight", written))
        else:
            rules.append(rule(f"{softmax}out_layers.{i}.weight", f"softmax.tables.{i}", absent=absent))
    for i in range(bins):
        if projected(config, i) and i < own_projections(config):
            rules.append(rule(f"{softmax}out_projs.{i}", f"softmax.projections.{i}", absent=absent))
        elif projected(config, i):
            source = f"{embed}emb_projs.{i if words.shrink > 1 else 0}"
            copies.append(Copy(f"{softmax}out_projs.{i}", source, written))
    if words.cutoffs:
        clusters = ("cluster_weight", "cluster_bias")
        rules += [rule(f"{softmax}{name}", f"softmax.{name}", order, absent=absent) for name in clusters]
    return rules, copies


def frequencies(name: str, width: int) -> Computed:
    """Return the buffer of sinusoid frequencies."""

    def make() -> Tensor:
        import torch

        return 1 / (10000 ** (torch.arange(0.0, width, 2.0) / width))

    return Computed(name, make, "the frequencies of the sinusoids, computed from the width")


# ------------------------------------------------------------------------------------------------ settings


def values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `[model]` table for the constructor's arguments."""
    kind, memory, clamp = settings["attn_type"], settings["mem_len"], settings.get("clamp_len", -1)
    length, tied = settings["tgt_len"] + settings.get("ext_len", 0), settings["tie_projs"] or [False]
    if kind not in (0, 1, 2, 3):
        raise CheckpointError(f"attn_type must be 0, 1, 2 or 3; got {kind!r}. Correct the settings.")
    if kind in (2, 3) and settings["pre_lnorm"]:
        raise CheckpointError(
            f"attn_type {kind} goes without pre_lnorm; got both. The original code then normalises keys and values "
            "but not queries, and segue has no such model."
        )
    positions: dict[str, Any] = [
        {"kind": "xl", "shared_biases": True},
        {"kind": "learned_relative", "max_distance": length + memory - 1},
        {"kind": "absolute", "encoding": "sinusoidal", "count_from": "end"},
        {"kind": "per_layer", "max_length": length},
    ][kind]
    if kind == 0 and clamp > 0:
        positions["clamp_distance"] = clamp
    result: dict[str, Any] = {
        "vocabulary": {
            "size": settings["n_token"],
            "width": settings["d_embed"] or settings["d_model"],
            "scale": True,
            "cutoffs": list(settings["cutoffs"]),
            "shrink": settings["div_val"],
            "tie_weights": settings["tie_weight"],
            "tie_projections": "all" if all(tied) else ("all_but_first" if all(tied[1:]) else "none"),
            "cluster_order": "reversed",
        },
        "positions": positions,
        "num_layers": settings["n_layer"],
        "width": settings["d_model"],
        "num_heads": settings["n_head"],
        "head_width": settings["d_head"],
        "inner_width": settings["d_inner"],
        "norm_first": settings["pre_lnorm"],
        "norm_epsilon": EPSILON,
        "dropout": settings["dropout"],
        "attention_dropout": settings["dropatt"],
    }
    if memory and kind in (0, 1):
        result["memory"] = {"length": memory}
        if settings.get("same_length"):
            result["attention_span"] = memory
    return result


def notes(settings: Mapping[str, Any]) -> list[str]:
    """Return notes on constructor arguments that have no place in segue."""
    found = []
    if settings.get("ext_len"):
        found.append(
            f"ext_len: there, segments overlap by {settings['ext_len']} tokens. Set model.memory.reuse_length="
            f"{settings['tgt_len']} to read such segments as there; without it, none are read twice."
        )
    if settings["attn_type"] in (2, 3) and settings["mem_len"]:
        found.append("mem_len: with absolute positions the original adds them to its memory again and again; left out.")
    if settings["attn_type"] == 1 and settings.get("clamp_len", -1) > 0:
        found.append("clamp_len: here the longest learned distance is model.positions.max_distance; left out.")
    return found


def settings(config: ModelConfig) -> dict[str, Any]:
    """Return the constructor's arguments for a config; raise CheckpointError if it cannot express it."""
    words, positions, memory = config.vocabulary, config.positions, config.memory
    mem_len = 0 if memory is None else memory.length
    length, clamp = 128, -1
    match positions:
        case LearnedRelativePositions(max_distance=longest):
            length = longest + 1 - mem_len
        case PerLayerPositions(max_length=longest):
            length = longest
        case XLPositions(clamp_distance=int(distance)):
            clamp = distance
    bins = len(words.cutoffs) + 1
    return {
        "n_token": words.size,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "d_model": config.width,
        "d_head": config.resolved_head_width,
        "d_inner": config.inner_width,
        "dropout": config.dropout,
        "dropatt": config.attention_dropout,
        "tie_weight": words.tie_weights,
        "d_embed": words.width or config.width,
        "div_val": words.shrink,
        "tie_projs": [i >= own_projections(config) for i in range(bins)],
        "pre_lnorm": config.norm_first,
        "tgt_len": length,
        "ext_len": 0,
        "mem_len": mem_len,
        "cutoffs": list(words.cutoffs),
        "same_length": memory is not None and config.attention_span == memory.length,
        "attn_type": _TYPES[type(positions)],
        "clamp_len": clamp,
    }


def settings_of_file(
    source: TensorSource, attributes: Mapping[str, Mapping[str, object]]
) -> tuple[dict[str, Any], list[str]]:
    """Return the constructor's arguments, inferred from shapes, tied tensors and the module's attributes if there are
    any, and the settings of `[model]` that cannot be inferred."""
    found = _settings_of_shapes(source.tensors) | _settings_of_module(attributes)
    found |= {"tie_weight": _tied_tables(source), "tie_projs": _tied_projections(source)}
    unknown = []
    if found["n_head"] is None:
        unknown.append("num_heads")
        found |= {"n_head": 1, "d_head": source.tensors["layers.0.dec_attn.o_net.weight"].shape[1]}
    if found["cutoffs"] is None:
        unknown.append("vocabulary.cutoffs")
        found["cutoffs"] = []
    if found["mem_len"] is None:
        unknown += ["memory.length"] if found["attn_type"] in (0, 1) else []
        found["mem_len"] = 0
    return found, unknown


def _settings_of_module(attributes: Mapping[str, Mapping[str, object]]) -> dict[str, Any]:
    """Return the arguments found in the attributes of a pickled module; empty for a state dict."""
    root, layer = attributes.get("", {}), attributes.get("layers.0.dec_attn", {})
    if "n_layer" not in root:
        return {}
    names = ("n_head", "d_head", "tgt_len", "ext_len", "mem_len", "same_length", "clamp_len", "attn_type")
    found = {name: root[name] for name in names if name in root}
    cutoffs = attributes.get("crit", {}).get("cutoffs")
    if isinstance(cutoffs, list):
        found["cutoffs"] = cutoffs[:-1]  # the list ends with the vocabulary size
    for name, place, key in (("dropout", "drop", "p"), ("dropatt", "layers.0.dec_attn.dropatt", "p")):
        found |= {name: attributes[place][key]} if key in attributes.get(place, {}) else {}
    return found | {"pre_lnorm": layer.get("pre_lnorm", False)}


def _settings_of_shapes(infos: Mapping[str, TensorInfo]) -> dict[str, Any]:
    layers = {name.split(".")[1] for name in infos if name.startswith("layers.")}
    inner = infos["layers.0.pos_ff.CoreNet.0.weight"].shape
    bins = sorted(name for name in infos if name.startswith("word_emb.emb_layers."))
    tables = [infos[f"word_emb.emb_layers.{i}.weight"].shape for i in range(len(bins))]
    clusters = infos["crit.cluster_bias"].shape[0] if "crit.cluster_bias" in infos else 0
    result: dict[str, Any] = {
        "n_token": sum(shape[0] for shape in tables),
        "n_layer": len(layers),
        "d_model": inner[1],
        "d_inner": inner[0],
        "d_embed": tables[0][1],
        "div_val": tables[0][1] // max(tables[1][1], 1) if len(tables) > 1 else 1,
        "cutoffs": None if clusters and len(tables) == 1 else list(accumulate(shape[0] for shape in tables))[:-1],
        "pre_lnorm": False,
        "dropout": 0.1,
        "dropatt": 0.0,
        "mem_len": None,
        "tgt_len": 1,
        "n_head": None,
        "d_head": None,
    }
    if "r_r_bias" in infos:
        heads: Sequence[int] = infos["r_r_bias"].shape
        result |= {"attn_type": 0, "n_head": heads[0], "d_head": heads[1]}
    elif "r_bias" in infos:
        _, longest, *heads = infos["r_emb"].shape
        result |= {"attn_type": 1, "n_head": heads[0], "d_head": heads[1], "tgt_len": longest}
    elif "r_emb" in infos:
        _, longest, *heads = infos["r_emb"].shape
        result |= {"attn_type": 3, "n_head": heads[0], "d_head": heads[1], "tgt_len": longest}
    else:
        result["attn_type"] = 2
    return result


def _tied_tables(source: TensorSource) -> bool:
    return _equal(source, "crit.out_layers.0.weight", "word_emb.emb_layers.0.weight")


def _tied_projections(source: TensorSource) -> list[bool]:
    """Return for each bin of the softmax whether it repeats a projection of the embeddings."""
    names = source.tensors
    result = []
    for i in range(sum(name.startswith("crit.out_projs.") for name in names)):
        own = f"word_emb.emb_projs.{i}"
        embed = own if own in names and names[own] == names.get(f"crit.out_projs.{i}") else "word_emb.emb_projs.0"
        result.append(_equal(source, f"crit.out_projs.{i}", embed))
    return result


def _equal(source: TensorSource, one: str, other: str) -> bool:
    infos = source.tensors
    if one not in infos or other not in infos:
        return True
    same = infos[one].shape == infos[other].shape
    return same and source.read(one).equal(source.read(other))


# -------------------------------------------------------------------------------------------------- family


def plan(found: Opened) -> ReadingPlan:
    """Return the reading plan of a checkpoint, from settings, a pickled module's attributes, or shapes alone."""
    written, unknown = dict(found.settings), list[str]()
    if "n_layer" not in written:
        written, unknown = settings_of_file(found.source, found.attributes)
    bare = "n_layer" not in found.settings and "n_layer" not in found.attributes.get("", {})
    return ReadingPlan(
        values=values(written),
        table=lambda config, _: table(config),
        unknown=unknown,
        notes=notes(written),
        guesses={"model.norm_first": "false; a state dict does not show it"} if bare else {},
    )


FAMILY = Family(
    name=NAME,
    target="original",
    suits=lambda config: config.segments != "relative",
    recognises=lambda names, settings: (
        "word_emb.emb_layers.0.weight" in names and any(name.startswith("crit.") for name in names)
    ),
    plan=plan,
    values=values,
    settings=lambda config, head: settings(config),
    table=lambda config, head, scope: table(config),
    has_heads=False,
    only_xl_positions=False,
)
