"""XLNet of transformers: `config.json` with model_type "xlnet", the base model, the language model and every head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from segue.checkpoint.families.family import Family, Opened, ReadingPlan, check_model_type, indifferent
from segue.checkpoint.families.rules import (
    SAME,
    VECTOR,
    Computed,
    Copy,
    NameTable,
    Rule,
    heads_apart,
    heads_last,
    repeated,
    rule,
)
from segue.checkpoint.files import shortened
from segue.checkpoint.head_config import MOST_LABELS, HeadConfig, head_config
from segue.config import ModelConfig, XLPositions
from segue.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

NAME = "XLNet of transformers"
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
"""In transformers, gelu is the exact function; in the TensorFlow release, its tanh approximation."""
ARCHITECTURES = {
    None: "XLNetLMHeadModel",
    "sequence_classifier": "XLNetForSequenceClassification",
    "token_tagger": "XLNetForTokenClassification",
    "sequence_scorer": "XLNetForMultipleChoice",
    "simple_answerer": "XLNetForQuestionAnsweringSimple",
    "beam_answerer": "XLNetForQuestionAnswering",
}
BASE = "XLNetModel"

_LAYER = {
    "rel_attn.layer_norm.weight": "attention_norm.weight",
    "rel_attn.layer_norm.bias": "attention_norm.bias",
    "rel_attn.seg_embed": "attention.segment_2HE",
    "ff.layer_1.weight": "feed_forward.widen.weight",
    "ff.layer_1.bias": "feed_forward.widen.bias",
    "ff.layer_2.weight": "feed_forward.narrow.weight",
    "ff.layer_2.bias": "feed_forward.narrow.bias",
    "ff.layer_norm.weight": "feed_forward_norm.weight",
    "ff.layer_norm.bias": "feed_forward_norm.bias",
}
_KERNELS = {
    "rel_attn.q": "attention.query.weight",
    "rel_attn.k": "attention.key.weight",
    "rel_attn.v": "attention.value.weight",
    "rel_attn.r": "attention.relative.projection.weight",
}
_BIASES = {"r_w_bias": "content_HE", "r_r_bias": "position_HE", "r_s_bias": "segment_HE"}
_SUMMARY = {"sequence_summary.summary": "summary.dense"}
_HEADS = {
    "sequence_classifier": {"logits_proj": "classifier"},
    "token_tagger": {"classifier": "classifier"},
    "sequence_scorer": {"logits_proj": "scorer"},
    "simple_answerer": {"qa_outputs": "bounds"},
    "beam_answerer": {
        "start_logits.dense": "start",
        "end_logits.dense_0": "end_dense",
        "end_logits.LayerNorm": "end_norm",
        "end_logits.dense_1": "end",
        "answer_class.dense_0": "impossible_dense",
    },
}

# --------------------------------------------------------------------------------------------------- names


def table(config: ModelConfig, head: HeadConfig | None = None, *, base: bool = False) -> NameTable:
    """Return the name table. `base`: names of the model without any head, which has no output bias either."""
    prefix = "" if base else "transformer."
    computed = []
    rules = [rule(f"{prefix}word_embedding.weight", "trunk.vocabulary.tables.0")]
    if config.objective == "permutation":
        rules.append(rule(f"{prefix}mask_emb", "trunk.reader.mask_embedding_D", VECTOR))
    else:
        why = "zeros: of the query stream, which a model that reads in one direction does not have"
        computed.append(Computed(f"{prefix}mask_emb", partial(_zeros, config.width), why))
    rules += _biases(config, prefix)
    for layer in range(config.num_layers):
        rules += _layer(config, f"{prefix}layer.{layer}.", f"trunk.reader.layers.{layer}.")
    copies = []
    if head is not None:
        rules += _head(head)
    else:
        why = "the model without a head has no output bias" if base else ""
        rules.append(rule("lm_loss.bias", "softmax.token_biases.0", absent=why))
        if config.vocabulary.tie_weights:
            copies.append(Copy("lm_loss.weight", f"{prefix}word_embedding.weight", written=False))
        else:
            rules.append(rule("lm_loss.weight", "softmax.tables.0"))
    return NameTable(family=NAME, rules=rules, copies=copies, computed=computed)


def _biases(config: ModelConfig, prefix: str) -> Iterable[Rule]:
    layers = range(config.num_layers)
    for theirs, ours in _BIASES.items():
        names = [f"{prefix}layer.{i}.rel_attn.{theirs}" for i in layers]
        if isinstance(config.positions, XLPositions) and config.positions.shared_biases:
            yield rule(names, f"trunk.reader.biases.0.{ours}", repeated(config.num_layers))
        else:
            yield from (rule(name, f"trunk.reader.biases.{i}.{ours}") for i, name in enumerate(names))


def _layer(config: ModelConfig, theirs: str, ours: str) -> Iterable[Rule]:
    kernel = heads_apart(config.num_heads)
    yield from (rule(theirs + name, ours + own, kernel) for name, own in _KERNELS.items())
    yield rule(f"{theirs}rel_attn.o", f"{ours}attention.out.weight", heads_last(config.num_heads))
    yield from (rule(theirs + name, ours + own, SAME) for name, own in _LAYER.items())


def _head(head: HeadConfig) -> Iterable[Rule]:
    parts = dict(_HEADS[head.kind])
    if head.kind in ("sequence_classifier", "sequence_scorer") and head.projected:
        parts |= _SUMMARY
    for theirs, ours in parts.items():
        yield from (rule(f"{theirs}.{which}", f"{ours}.{which}") for which in ("weight", "bias"))
    if head.kind == "beam_answerer":
        yield rule("answer_class.dense_1.weight", "impossible.weight")


# ------------------------------------------------------------------------------------------------ settings


def values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `[model]` table of a `config.json`, with the defaults of transformers for missing keys."""
    activation = settings.get("ff_activation", "gelu")
    if activation not in ACTIVATIONS:
        raise CheckpointError(
            f"ff_activation must be one of {', '.join(ACTIVATIONS)}; got {activation!r}. segue has no such model."
        )
    attention = settings.get("attn_type", "bi")
    if attention not in ("bi", "uni"):
        raise CheckpointError(f'attn_type must be "bi" or "uni"; got {attention!r}. Correct the config.')
    clamp, memory = settings.get("clamp_len", -1), settings.get("mem_len", 512)
    reuse, dropout = settings.get("reuse_len"), settings.get("dropout", 0.1)
    width, heads = settings.get("d_model", 1024), settings.get("n_head", 16)
    result: dict[str, Any] = {
        "objective": {"bi": "permutation", "uni": "causal"}[attention],
        "vocabulary": {
            "size": settings.get("vocab_size", settings.get("n_token", 32000)),
            "tie_weights": settings.get("tie_word_embeddings", True),
        },
        "positions": {"kind": "xl", "shared_biases": False},
        "segments": "relative",
        "num_layers": settings.get("n_layer", 24),
        "width": width,
        "num_heads": heads,
        "head_width": settings.get("d_head") or width // heads,
        "inner_width": settings.get("d_inner", 4096),
        "activation": ACTIVATIONS[activation],
        "norm_epsilon": settings.get("layer_norm_eps", 1e-12),
        "dropout": float(dropout),
        "attention_dropout": float(dropout),
        "init_std": settings.get("initializer_range", 0.02),
    }
    if clamp > 0:
        result["positions"]["clamp_distance"] = clamp
    if memory:
        result["memory"] = {"length": memory} | ({"reuse_length": reuse} if reuse else {})
    return result


def notes(settings: Mapping[str, Any]) -> list[str]:
    """Return notes on settings that differ in segue."""
    found = []
    if settings.get("bi_data"):
        found.append("bi_data: transformers reads the second half of the rows backwards; here each batch says which.")
    if settings.get("same_length"):
        found.append("same_length: it has no effect in XLNet.")
    if settings.get("summary_type", "last") != "last":
        found.append("summary_type: transformers takes padding for text; here the summary leaves it out.")
    return found


def settings(config: ModelConfig, head: HeadConfig | None = None) -> dict[str, Any]:
    """Return the `config.json` of a model; raise CheckpointError if transformers cannot express it."""
    if config.num_heads * config.resolved_head_width != config.width:
        raise CheckpointError(
            f"model.num_heads * model.head_width must be model.width for {NAME}; got {config.num_heads} * "
            f"{config.resolved_head_width} and {config.width}.",
            remedy='Keep it as segue, or write it with to="tf".',
            option="Keep it as segue, or write it with --to tf.",
        )
    clamp = config.positions.clamp_distance if isinstance(config.positions, XLPositions) else None
    activations = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    memory = config.memory
    result: dict[str, Any] = {
        "architectures": [ARCHITECTURES[None if head is None else head.kind]],
        "model_type": "xlnet",
        "vocab_size": config.vocabulary.size,
        "d_model": config.width,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "d_head": config.resolved_head_width,
        "d_inner": config.inner_width,
        "ff_activation": activations[config.activation],
        "untie_r": True,
        "attn_type": "uni" if config.objective == "causal" else "bi",
        "initializer_range": config.init_std,
        "layer_norm_eps": config.norm_epsilon,
        "dropout": config.dropout,
        "mem_len": None if memory is None else memory.length,
        "reuse_len": None if memory is None else memory.reuse_length,
        "use_mems_eval": memory is not None,
        "use_mems_train": False,
        "bi_data": False,
        "clamp_len": -1 if clamp is None else clamp,
        "same_length": False,
        "tie_word_embeddings": config.vocabulary.tie_weights,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 5,
    }
    return result | ({} if head is None else _head_settings(head, config.dropout))


def _head_settings(head: HeadConfig, dropout: float) -> dict[str, Any]:
    count = {"sequence_scorer": 1, "simple_answerer": 2, "beam_answerer": 2}.get(head.kind, head.num_labels)
    labels = head.labels or tuple(f"LABEL_{i}" for i in range(count))
    result: dict[str, Any] = {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
    if head.kind in ("sequence_classifier", "sequence_scorer"):
        if head.summary == "attention":
            raise CheckpointError(
                f'head.summary must be "first", "last" or "mean" for {NAME}; got "attention".',
                remedy='Keep it as segue, or write it with to="tf".',
                option="Keep it as segue, or write it with --to tf.",
            )
        result |= {
            "summary_type": head.summary,
            "summary_use_proj": head.projected,
            "summary_activation": "tanh" if head.projected else "",
            "summary_last_dropout": dropout,
        }
    if head.kind == "sequence_classifier":
        if head.task == "single" and head.num_labels == 1:
            raise CheckpointError(
                f'head.num_labels must be 2 or more for {NAME} where head.task is "single"; got 1. Keep it as segue.'
            )
        tasks = {"single": "single_label", "multiple": "multi_label"}
        task = "regression" if head.task == "regression" else f"{tasks[head.task]}_classification"
        result["problem_type"] = task
    if head.kind == "beam_answerer":
        result |= {"start_n_top": head.num_starts, "end_n_top": head.num_ends}
    return result


def head(settings: Mapping[str, Any], names: Iterable[str]) -> HeadConfig | None:
    """Return the head of a checkpoint with these tensors; None for a language model or a bare trunk."""
    starts = {name.split(".")[0] for name in names}
    architecture = next(iter(settings.get("architectures") or []), None)
    labels = labels_of(settings)
    if "start_logits" in starts:
        tops = {"num_starts": settings.get("start_n_top", 5), "num_ends": settings.get("end_n_top", 5)}
        return head_config({"kind": "beam_answerer"} | tops)
    if "qa_outputs" in starts:
        return head_config({"kind": "simple_answerer"})
    if "classifier" in starts:
        return head_config({"kind": "token_tagger"} | labels)
    if "logits_proj" not in starts:
        return None
    summary = _summary(settings)
    if architecture == ARCHITECTURES["sequence_scorer"]:
        return head_config({"kind": "sequence_scorer"} | summary)
    task = {"regression": "regression", "multi_label_classification": "multiple"}.get(
        settings.get("problem_type") or "", "regression" if labels["num_labels"] == 1 else "single"
    )
    return head_config({"kind": "sequence_classifier", "task": task} | labels | summary)


def _summary(settings: Mapping[str, Any]) -> dict[str, Any]:
    kind, projected = settings.get("summary_type", "last"), settings.get("summary_use_proj", True)
    activation = settings.get("summary_activation", "tanh")
    if kind not in ("first", "last", "mean") or (activation or None) != ("tanh" if projected else None):
        raise CheckpointError(
            'a summary must be "first", "last" or "mean", with tanh after its projection and nothing without; got '
            f"summary_type {kind!r}, summary_use_proj {projected}, summary_activation {activation!r}. "
            "segue has no such head."
        )
    return {"summary": kind, "projected": projected}


def labels_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of classes in a `config.json` of transformers, and their names unless they are defaults."""
    count = settings.get("num_labels") or 2
    if count > MOST_LABELS:
        raise CheckpointError(
            f"num_labels must be at most {MOST_LABELS:,}; got {shortened(count)}. Correct the config."
        )
    named = settings.get("id2label") or {str(i): f"LABEL_{i}" for i in range(count)}
    labels = [named[key] for key in sorted(named, key=int)]
    own = labels != [f"LABEL_{i}" for i in range(len(labels))]
    return {"num_labels": len(labels), "labels": labels if own else []}


# -------------------------------------------------------------------------------------------------- family

_BASE_TABLE, _TABLE = "word_embedding.weight", "transformer.word_embedding.weight"


def plan(found: Opened) -> ReadingPlan:
    """Return the reading plan of a checkpoint, from its `config.json`."""
    check_model_type(found.settings, "xlnet")
    return ReadingPlan(
        values=values(found.settings),
        table=partial(table, base=_BASE_TABLE in found.source.tensors),
        head=head(found.settings, found.source.tensors),
        notes=notes(found.settings),
    )


FAMILY = Family(
    name=NAME,
    target="hf",
    suits=lambda config: config.segments == "relative",
    recognises=lambda names, settings: _BASE_TABLE in names or _TABLE in names,
    plan=plan,
    values=values,
    settings=settings,
    table=lambda config, head, scope: table(config, head),
    indifferent=lambda config: indifferent(config) | {"positions.shared_biases"},
)


def _zeros(width: int) -> Tensor:
    import torch

    return torch.zeros(1, 1, width)
