"""XLNet of the TensorFlow release: `xlnet_config.json`, pretrained variables, and those that fine-tuning adds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from segue.checkpoint.families.family import XLNET_SETTINGS, Family, Opened, ReadingPlan
from segue.checkpoint.families.rules import (
    SAME,
    TRANSPOSED,
    VECTOR,
    Change,
    Explained,
    NameTable,
    Rule,
    by_layer,
    heads_apart,
    heads_last,
    rule,
)
from segue.checkpoint.head_config import HeadConfig, head_config
from segue.config import ModelConfig, XLPositions
from segue.errors import CheckpointError

if TYPE_CHECKING:
    from segue.checkpoint.source import TensorInfo

NAME = "XLNet in TensorFlow"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu_tanh"}
"""In the release, gelu means the tanh approximation."""
EPSILON = 1e-12

OPTIMIZER = (
    Explained(r".*/(adam_[mv]|Adam(_1)?)", "a moment of the optimizer"),
    Explained(r"(.*/)?beta[12]_power", "a number of the optimizer"),
    Explained(r"global_step", "the step of the training"),
)
_TRUNK = "model/transformer/"
_LAYER = {
    "rel_attn/LayerNorm/gamma": ("attention_norm.weight", SAME),
    "rel_attn/LayerNorm/beta": ("attention_norm.bias", SAME),
    "ff/LayerNorm/gamma": ("feed_forward_norm.weight", SAME),
    "ff/LayerNorm/beta": ("feed_forward_norm.bias", SAME),
    "ff/layer_1/kernel": ("feed_forward.widen.weight", TRANSPOSED),
    "ff/layer_1/bias": ("feed_forward.widen.bias", SAME),
    "ff/layer_2/kernel": ("feed_forward.narrow.weight", TRANSPOSED),
    "ff/layer_2/bias": ("feed_forward.narrow.bias", SAME),
}
"""Norms and feed-forward of a layer; Transformer-XL in TensorFlow has the same names."""
_KERNELS = {"q": "query", "k": "key", "v": "value", "r": "relative.projection"}
_BIASES = {"r_w_bias": "content_HE", "r_r_bias": "position_HE", "r_s_bias": "segment_HE"}
_SUMMARY = "model/sequnece_summary/"  # sic: the spelling of the release
_BEAMS = {
    "start_logits/dense": "start",
    "end_logits/dense_0": "end_dense",
    "end_logits/dense_1": "end",
    "answer_class/dense_0": "impossible_dense",
}
_NO_MEMORY = "none, because the file does not say; the pretraining had 384, with model.memory.reuse_length 256"
_ATTENTION = "attention, because the file has weights for it; a file of several heads may have them for another"
_LAST = "last, the default of the XLNet code, because the file does not say"
_HEAD = r"(model/(classification|regression)_.*/logit|logits/dense|start_logits|end_logits|answer_class)/.*"

# --------------------------------------------------------------------------------------------------- names


def table(config: ModelConfig, head: HeadConfig | None = None, *, scope: str = "") -> NameTable:
    """Return the name table. `scope`: name of a fine-tuned task, part of the names of its head."""
    fine_tuned = "fine-tuning does not keep it, because it is not used there"
    layers = range(config.num_layers)
    rules = [
        rule(f"{_TRUNK}word_embedding/lookup_table", "trunk.vocabulary.tables.0"),
        rule(f"{_TRUNK}mask_emb/mask_emb", "trunk.reader.mask_embedding_D", VECTOR, absent=fine_tuned),
        rule(f"{_TRUNK}seg_embed", [f"trunk.reader.layers.{i}.attention.segment_2HE" for i in layers], by_layer()),
    ]
    if head is None:
        rules.append(rule("model/lm_loss/bias", "softmax.token_biases.0", absent=fine_tuned))
        if not config.vocabulary.tie_weights:
            rules.append(rule("model/lm_loss/weight", "softmax.tables.0"))
    shared = isinstance(config.positions, XLPositions) and config.positions.shared_biases
    for theirs, ours in _BIASES.items():
        names = [f"trunk.reader.biases.{i}.{ours}" for i in (range(1) if shared else layers)]
        rules.append(rule(f"{_TRUNK}{theirs}", names, by_layer(shared=shared)))
    for i in layers:
        theirs, ours = f"{_TRUNK}layer_{i}/", f"trunk.reader.layers.{i}."
        rules += layer_rules(theirs, ours)
        rules += _attention(f"{theirs}rel_attn/", f"{ours}attention.", _KERNELS, config.num_heads)
    rules += _head_rules(config, head, scope)
    explained = [*OPTIMIZER]
    used = {name for r in rules for name in r.theirs}
    if head is None or head.kind not in ("sequence_classifier", "sequence_scorer"):
        explained.append(Explained(rf"{_SUMMARY}.*", "of a head that was not asked for"))
    elif not any(name.startswith(f"{_SUMMARY}abs_attn") for name in used):
        why = 'of the summary "attention", which this head does not use'
        explained.append(Explained(rf"{_SUMMARY}(abs_attn/.*|summary_bias)", why))
    explained.append(Explained(_HEAD, "of a head that was not asked for"))
    return NameTable(family=NAME, rules=rules, explained=explained)


def layer_rules(theirs: str, ours: str) -> Iterable[Rule]:
    """Return the rules of norms and feed-forward of a layer."""
    return [rule(theirs + name, ours + own, change) for name, (own, change) in _LAYER.items()]


def _attention(theirs: str, ours: str, kernels: Mapping[str, str], num_heads: int) -> Iterable[Rule]:
    kernel = heads_apart(num_heads)
    yield from (rule(f"{theirs}{name}/kernel", f"{ours}{own}.weight", kernel) for name, own in kernels.items())
    yield rule(f"{theirs}o/kernel", f"{ours}out.weight", heads_last(num_heads))


def _dense(theirs: str, ours: str, *, bias: bool = True) -> Iterable[Rule]:
    parts: list[tuple[str, str, Change]] = [("kernel", "weight", TRANSPOSED)]
    parts += [("bias", "bias", SAME)] if bias else []
    return [rule(f"{theirs}/{name}", f"{ours}.{own}", change) for name, own, change in parts]


def _head_rules(config: ModelConfig, head: HeadConfig | None, scope: str) -> Iterable[Rule]:
    if head is None:
        return
    if head.kind in ("sequence_classifier", "sequence_scorer"):
        if head.projected:
            yield from _dense(f"{_SUMMARY}summary", "summary.dense")
        if head.summary == "attention":
            kernels = {name: own for name, own in _KERNELS.items() if name != "r"}
            yield from _attention(f"{_SUMMARY}abs_attn/", "summary.", kernels, config.num_heads)
            yield rule(f"{_SUMMARY}summary_bias", "summary.query_D")
            yield rule(f"{_SUMMARY}abs_attn/LayerNorm/gamma", "summary.norm.weight")
            yield rule(f"{_SUMMARY}abs_attn/LayerNorm/beta", "summary.norm.bias")
    match head.kind:
        case "sequence_classifier":
            kind = "regression" if head.task == "regression" else "classification"
            yield from _dense(f"model/{kind}_{scope}/logit", "classifier")
        case "sequence_scorer":
            yield from _dense("logits/dense", "scorer")
        case "beam_answerer":
            for theirs, ours in _BEAMS.items():
                yield from _dense(theirs, ours)
            yield rule("end_logits/LayerNorm/gamma", "end_norm.weight")
            yield rule("end_logits/LayerNorm/beta", "end_norm.bias")
            yield from _dense("answer_class/dense_1", "impossible", bias=False)
        case _:
            raise CheckpointError(
                f"a head must be one that {NAME} has; got {head.kind}.",
                remedy='Keep it as segue, or write it with to="hf".',
                option="Keep it as segue, or write it with --to hf.",
            )


# ------------------------------------------------------------------------------------------------ settings


def values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `[model]` table for an `xlnet_config.json`, which has no memory and no dropout settings."""
    activation = settings["ff_activation"]
    if activation not in ACTIVATIONS:
        raise CheckpointError(f"ff_activation must be relu or gelu; got {activation!r}. segue has no such model.")
    return {
        "objective": "permutation",
        "vocabulary": {"size": settings["n_token"]},
        "positions": {"kind": "xl", "shared_biases": not settings["untie_r"]},
        "segments": "relative",
        "num_layers": settings["n_layer"],
        "width": settings["d_model"],
        "num_heads": settings["n_head"],
        "head_width": settings["d_head"],
        "inner_width": settings["d_inner"],
        "activation": ACTIVATIONS[activation],
        "norm_epsilon": EPSILON,
        "attention_dropout": 0.1,
    }


def settings(config: ModelConfig) -> dict[str, Any]:
    """Return the `xlnet_config.json` of a model."""
    positions = config.positions
    assert isinstance(positions, XLPositions)
    activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    return {
        "d_head": config.resolved_head_width,
        "d_inner": config.inner_width,
        "d_model": config.width,
        "ff_activation": activations.get(config.activation, "gelu"),
        "n_head": config.num_heads,
        "n_layer": config.num_layers,
        "n_token": config.vocabulary.size,
        "untie_r": not positions.shared_biases,
    }


def settings_of_shapes(infos: Mapping[str, TensorInfo]) -> dict[str, Any]:
    """Return the settings inferred from shapes: all except the activation."""
    table = infos[f"{_TRUNK}word_embedding/lookup_table"].shape
    kernel, bias = infos[f"{_TRUNK}layer_0/rel_attn/q/kernel"].shape, infos[f"{_TRUNK}r_w_bias"].shape
    return {
        "d_head": kernel[2],
        "d_inner": infos[f"{_TRUNK}layer_0/ff/layer_1/kernel"].shape[1],
        "d_model": kernel[0],
        "n_head": kernel[1],
        "n_layer": infos[f"{_TRUNK}seg_embed"].shape[0],
        "n_token": table[0],
        "untie_r": len(bias) == 3,
    }


def heads(infos: Mapping[str, TensorInfo]) -> dict[str, HeadConfig]:
    """Return the fine-tuned heads in a checkpoint, by task name."""
    summary = {
        "projected": f"{_SUMMARY}summary/kernel" in infos,
        "summary": "attention" if f"{_SUMMARY}summary_bias" in infos else "last",
    }
    found: dict[str, HeadConfig] = {}
    for name, info in infos.items():
        if task := re.fullmatch(r"model/(classification|regression)_(.+)/logit/kernel", name):
            regression = task[1] == "regression"
            values = {"task": "regression" if regression else "single", "num_labels": info.shape[-1]}
            found[task[2]] = head_config({"kind": "sequence_classifier"} | values | summary)
    if "logits/dense/kernel" in infos:
        found["choice"] = head_config({"kind": "sequence_scorer"} | summary)
    if "start_logits/dense/kernel" in infos:
        found["answers"] = head_config({"kind": "beam_answerer"})
    return found


# -------------------------------------------------------------------------------------------------- family


def plan(found: Opened) -> ReadingPlan:
    """Return the reading plan of a checkpoint, with or without its `xlnet_config.json`."""
    unknown, written = list[str](), found.settings
    if not written:
        written = {"ff_activation": "gelu"} | settings_of_shapes(found.source.tensors)
        unknown.append("activation")
    known = heads(found.source.tensors)
    if found.head is None and len(known) > 1:
        raise CheckpointError(
            f"of several heads, one must be chosen; got {', '.join(known)}.",
            remedy=f"Pass head={next(iter(known))!r}, for example, to segue.checkpoint.convert.convert.",
            option=f"With segue convert, add --head {next(iter(known))}, for example.",
        )
    if found.head is not None and found.head not in (*known, "none"):
        raise CheckpointError(
            f"the head must be one of {', '.join([*known, 'none'])}; got {found.head!r}. Use one of these."
        )
    scope = next(iter(known), "task") if found.head is None else found.head
    chosen = known.get(scope)
    return ReadingPlan(
        values=values(written),
        table=partial(table, scope=scope),
        head=chosen,
        scope=scope if scope in known else "task",
        unknown=unknown,
        guesses={"model.memory.length": _NO_MEMORY} | _summary_guess(chosen),
    )


def _summary_guess(head: HeadConfig | None) -> dict[str, str]:
    """Return a note on the guessed summary of a head. A file shows the summary only by the weights of attention, and
    these may belong to another head."""
    if head is None or head.kind not in ("sequence_classifier", "sequence_scorer"):
        return {}
    return {"head.summary": _ATTENTION if head.summary == "attention" else _LAST}


FAMILY = Family(
    name=NAME,
    target="tf",
    suits=lambda config: config.segments == "relative",
    recognises=lambda names, settings: f"{_TRUNK}word_embedding/lookup_table" in names,
    plan=plan,
    values=values,
    settings=lambda config, head: settings(config),
    table=lambda config, head, scope: table(config, head, scope=scope),
    settings_file=XLNET_SETTINGS,
    several_heads=True,
)
