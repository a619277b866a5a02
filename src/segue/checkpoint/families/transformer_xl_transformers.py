"""Transformer-XL of transformers up to 4.37: `config.json` with model_type "transfo-xl", and both of its heads.

It has the names of the original PyTorch code and the cluster order and initial memory of the TensorFlow code; its
biases have a place of their own.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from segue.checkpoint.families.bins import own_projections
from segue.checkpoint.families.family import Family, Opened, ReadingPlan, check_model_type
from segue.checkpoint.families.rules import FLIPPED, SAME, Copy, Explained, NameTable, Zero, rule
from segue.checkpoint.families.transformer_xl_original import frequencies, layer_rules, vocabulary_rules
from segue.checkpoint.families.xlnet_transformers import labels_of
from segue.checkpoint.head_config import HeadConfig, head_config
from segue.config import ModelConfig, XLPositions
from segue.errors import CheckpointError

NAME = "Transformer-XL of transformers"
ARCHITECTURES = {None: "TransfoXLLMHeadModel", "sequence_classifier": "TransfoXLForSequenceClassification"}
BASE = "TransfoXLModel"

# --------------------------------------------------------------------------------------------------- names


def table(config: ModelConfig, head: HeadConfig | None = None, *, base: bool = False) -> NameTable:
    """Return the name table. `base`: names of the model without any head, which has no softmax."""
    prefix = "" if base else "transformer."
    order = FLIPPED if config.vocabulary.cluster_order == "reversed" else SAME
    absent = "the model without a head has no softmax" if base else ""
    rules, copies = vocabulary_rules(
        config, embed=f"{prefix}word_emb.", softmax="crit.", order=order, written=True, absent=absent
    )
    zeros = []
    if head is not None:
        if head.kind != "sequence_classifier" or head.projected or head.summary != "last":
            raise CheckpointError(
                f"the head of {NAME} must be a sequence_classifier of the last token without a projection; got "
                f'{head.kind}, summary "{head.summary}". transformers has no other.'
            )
        rules = [r for r in rules if not r.ours[0].startswith("softmax.")]
        rules.append(rule("score.weight", "classifier.weight"))
        zeros.append(Zero("classifier.bias", "the classes have no bias"))
        copies = []
    for theirs, ours in (("r_w_bias", "content_HE"), ("r_r_bias", "position_HE")):
        names = [f"{prefix}layers.{i}.dec_attn.{theirs}" for i in range(config.num_layers)]
        if isinstance(config.positions, XLPositions) and config.positions.shared_biases:
            rules.append(rule(f"{prefix}{theirs}", f"trunk.reader.biases.0.{ours}"))
            copies += [Copy(name, f"{prefix}{theirs}", written=True) for name in names]
        else:
            rules += [rule(name, f"trunk.reader.biases.{i}.{ours}") for i, name in enumerate(names)]
    for i in range(config.num_layers):
        rules += layer_rules(f"{prefix}layers.{i}.", f"trunk.reader.layers.{i}.", kind=0)
    explained = [Explained(r"crit\..*", "of a softmax that this head does not use")] if head is not None else []
    return NameTable(
        family=NAME,
        rules=rules,
        copies=copies,
        computed=[frequencies(f"{prefix}pos_emb.inv_freq", config.width)],
        zeros=zeros,
        explained=explained,
    )


# ------------------------------------------------------------------------------------------------ settings


def values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `[model]` table of a `config.json`, with the defaults of transformers for missing keys.

    `same_length` is that of the original PyTorch code, the memory length with the token itself.
    """
    if settings.get("attn_type", 0) != 0:
        raise CheckpointError(
            f"attn_type must be 0, the only one that transformers has; got {settings['attn_type']!r}. "
            "Correct the config."
        )
    cutoffs = settings.get("cutoffs", [20000, 40000, 200000])
    shared = [False, *([settings.get("proj_share_all_but_first", True)] * len(cutoffs))]
    tied = settings.get("tie_projs") or shared
    memory, clamp = settings.get("mem_len", 1600), settings.get("clamp_len", 1000)
    width = settings.get("d_model", 1024)
    result: dict[str, Any] = {
        "vocabulary": {
            "size": settings.get("vocab_size", settings.get("n_token", 267735)),
            "width": settings.get("d_embed", 1024),
            "scale": True,
            "cutoffs": list(cutoffs),
            "shrink": settings.get("div_val", 4),
            "tie_weights": settings.get("tie_word_embeddings", settings.get("tie_weight", True)),
            "tie_projections": "all" if all(tied) else ("all_but_first" if all(tied[1:]) else "none"),
            "cluster_order": "forward",
        },
        "positions": {"kind": "xl", "shared_biases": not settings.get("untie_r", True)},
        "num_layers": settings.get("n_layer", 18),
        "width": width,
        "num_heads": settings.get("n_head", 16),
        "head_width": settings.get("d_head", 64),
        "inner_width": settings.get("d_inner", 4096),
        "norm_first": settings.get("pre_lnorm", False),
        "norm_epsilon": settings.get("layer_norm_epsilon", 1e-5),
        "dropout": float(settings.get("dropout", 0.1)),
        "attention_dropout": float(settings.get("dropatt", 0.0)),
        "init_std": settings.get("init_std", 0.02),
        "projection_init_std": settings.get("proj_init_std", 0.01),
    }
    if clamp > 0:
        result["positions"]["clamp_distance"] = clamp
    if memory:
        result["memory"] = {"length": memory, "initial": "zeros"}
        if settings.get("same_length", True):
            result["attention_span"] = memory
    return result


def settings(config: ModelConfig, head: HeadConfig | None = None) -> dict[str, Any]:
    """Return the `config.json` of a model; raise CheckpointError if transformers cannot express it."""
    words, memory = config.vocabulary, config.memory
    if head is not None and (words.width or config.width) != config.width:  # transformers takes one for the other
        raise CheckpointError(
            f"model.vocabulary.width must be model.width for a head of {NAME}; got {words.width} and {config.width}. "
            "Keep it as segue."
        )
    clamp = config.positions.clamp_distance if isinstance(config.positions, XLPositions) else None
    shared = isinstance(config.positions, XLPositions) and config.positions.shared_biases
    result: dict[str, Any] = {
        "architectures": [ARCHITECTURES.get(None if head is None else head.kind)],
        "model_type": "transfo-xl",
        "vocab_size": words.size,
        "cutoffs": list(words.cutoffs),
        "d_model": config.width,
        "d_embed": words.width or config.width,
        "n_head": config.num_heads,
        "d_head": config.resolved_head_width,
        "d_inner": config.inner_width,
        "div_val": words.shrink,
        "pre_lnorm": config.norm_first,
        "n_layer": config.num_layers,
        "mem_len": 0 if memory is None else memory.length,
        "clamp_len": -1 if clamp is None else clamp,
        "same_length": memory is not None and config.attention_span == memory.length,
        "proj_share_all_but_first": words.tie_projections != "none",
        "tie_projs": [i >= own_projections(config) for i in range(len(words.cutoffs) + 1)],
        "tie_word_embeddings": words.tie_weights,
        "attn_type": 0,
        "adaptive": bool(words.cutoffs),
        "dropout": config.dropout,
        "dropatt": config.attention_dropout,
        "untie_r": not shared,
        "init_std": config.init_std,
        "proj_init_std": config.projection_init_std,
        "layer_norm_epsilon": config.norm_epsilon,
        "eos_token_id": 0,
    }
    if head is not None:
        labels = head.labels or tuple(f"LABEL_{i}" for i in range(head.num_labels))
        tasks = {"single": "single_label_classification", "multiple": "multi_label_classification"}
        result |= {
            "id2label": {str(i): label for i, label in enumerate(labels)},
            "label2id": {label: i for i, label in enumerate(labels)},
            "problem_type": tasks.get(head.task, "regression"),
        }
    return result


def head(settings: Mapping[str, Any], names: Iterable[str]) -> HeadConfig | None:
    """Return the head of a checkpoint with these tensors; None for a language model or a bare trunk."""
    if "score.weight" not in names:
        return None
    labels = labels_of(settings)
    task = {"regression": "regression", "multi_label_classification": "multiple"}.get(
        settings.get("problem_type") or "", "regression" if labels["num_labels"] == 1 else "single"
    )
    return head_config({"kind": "sequence_classifier", "task": task, "summary": "last", "projected": False} | labels)


# -------------------------------------------------------------------------------------------------- family

_BASE_TABLE = "word_emb.emb_layers.0.weight"


def plan(found: Opened) -> ReadingPlan:
    """Return the reading plan of a checkpoint, from its `config.json`."""
    check_model_type(found.settings, "transfo-xl")
    return ReadingPlan(
        values=values(found.settings),
        table=partial(table, base=_BASE_TABLE in found.source.tensors),
        head=head(found.settings, found.source.tensors),
    )


FAMILY = Family(
    name=NAME,
    target="hf",
    suits=lambda config: config.segments != "relative",
    recognises=lambda names, settings: (
        f"transformer.{_BASE_TABLE}" in names or settings.get("model_type") == "transfo-xl"
    ),
    plan=plan,
    values=values,
    settings=settings,
    table=lambda config, head, scope: table(config, head),
)
