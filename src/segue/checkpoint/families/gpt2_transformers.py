"""GPT-2 of transformers: `config.json` with model_type "gpt2", the language model and its heads.

Its linear layers are Conv1D, with kernels [in, out], and query, key and value beside each other in one of them.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from segue.checkpoint.families.absolute import (
    activation,
    activation_name,
    check_can_hold,
    check_settings,
    classifier,
    has_absolute_positions,
    label_settings,
    positions,
)
from segue.checkpoint.families.family import Family, Opened, ReadingPlan, check_model_type
from segue.checkpoint.families.rules import TRANSPOSED, Copy, Explained, NameTable, Rule, Zero, rule, split, then
from segue.checkpoint.families.xlnet_transformers import labels_of
from segue.checkpoint.head_config import HeadConfig, head_config
from segue.config import ModelConfig
from segue.errors import CheckpointError

NAME = "GPT-2 of transformers"
BASE = "GPT2Model"
ARCHITECTURES = {
    None: "GPT2LMHeadModel",
    "sequence_classifier": "GPT2ForSequenceClassification",
    "token_tagger": "GPT2ForTokenClassification",
    "simple_answerer": "GPT2ForQuestionAnswering",
}
_NORMS = {"ln_1": "attention_norm", "ln_2": "feed_forward_norm"}
_KERNELS = {"attn.c_proj": "attention.out", "mlp.c_fc": "feed_forward.widen", "mlp.c_proj": "feed_forward.narrow"}
_PARTS = ("query", "key", "value")
_ONLY: dict[str, object] = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}

# --------------------------------------------------------------------------------------------------- names


def table(config: ModelConfig, head: HeadConfig | None = None, *, base: bool = False) -> NameTable:
    """Return the name table. `base`: names without `transformer.`, as in GPT2Model and in the releases of OpenAI."""
    prefix = "" if base else "transformer."
    rules = [
        rule(f"{prefix}wte.weight", "trunk.vocabulary.tables.0"),
        rule(f"{prefix}wpe.weight", "trunk.reader.absolute.table.weight"),
        *_pairs(f"{prefix}ln_f", "trunk.reader.final_norm"),
    ]
    for layer in range(config.num_layers):
        rules += _layer(f"{prefix}h.{layer}.", f"trunk.reader.layers.{layer}.")
    copies: list[Copy] = []
    zeros: list[Zero] = []
    if head is not None:
        head_rules, zeros = _head(head)
        rules += head_rules
    else:
        zeros.append(Zero("softmax.token_biases.0", "the softmax has no biases"))
        if config.vocabulary.tie_weights:
            copies.append(Copy("lm_head.weight", f"{prefix}wte.weight", written=False))
        else:
            rules.append(rule("lm_head.weight", "softmax.tables.0"))
    masks = Explained(r"(transformer\.)?h\.\d+\.attn\.(masked_)?bias", "a mask, which is computed")
    return NameTable(family=NAME, rules=rules, copies=copies, zeros=zeros, explained=[masks])


def _pairs(theirs: str, ours: str) -> list[Rule]:
    return [rule(f"{theirs}.{which}", f"{ours}.{which}") for which in ("weight", "bias")]


def _layer(theirs: str, ours: str) -> Iterable[Rule]:
    for name, own in _NORMS.items():
        yield from _pairs(f"{theirs}{name}", f"{ours}{own}")
    weights, biases = ([f"{ours}attention.{part}.{which}" for part in _PARTS] for which in ("weight", "bias"))
    yield rule(f"{theirs}attn.c_attn.weight", weights, then(TRANSPOSED, split(3)))
    yield rule(f"{theirs}attn.c_attn.bias", biases, split(3))
    for name, own in _KERNELS.items():
        yield rule(f"{theirs}{name}.weight", f"{ours}{own}.weight", TRANSPOSED)
        yield rule(f"{theirs}{name}.bias", f"{ours}{own}.bias")


def _head(head: HeadConfig) -> tuple[list[Rule], list[Zero]]:
    match head.kind:
        case "sequence_classifier" if not head.projected and head.summary == "last":
            return [rule("score.weight", "classifier.weight")], [Zero("classifier.bias", "the classes have no bias")]
        case "token_tagger":
            return _pairs("classifier", "classifier"), []
        case "simple_answerer":
            return _pairs("qa_outputs", "bounds"), []
    raise CheckpointError(
        f"the head of {NAME} must be a token_tagger, a simple_answerer, or a sequence_classifier of the last token "
        f'without a projection; got {head.kind}, summary "{head.summary}". Keep it as segue.'
    )


# ------------------------------------------------------------------------------------------------ settings


def values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `[model]` table of a `config.json`, with the defaults of transformers for missing keys."""
    check_settings(settings, _ONLY)
    width, dropout = settings.get("n_embd", 768), settings.get("resid_pdrop", 0.1)
    bare = (settings.get("architectures") or [None])[0] == BASE  # GPT2Model has no separate output weights
    return {
        "objective": "causal",
        "vocabulary": {
            "size": settings.get("vocab_size", 50257),
            "tie_weights": settings.get("tie_word_embeddings", True) or bare,
        },
        "positions": positions(settings.get("n_positions", 1024)),
        "num_layers": settings.get("n_layer", 12),
        "width": width,
        "num_heads": settings.get("n_head", 12),
        "inner_width": settings.get("n_inner") or 4 * width,
        "activation": activation(settings.get("activation_function", "gelu_new")),
        "attention_bias": True,
        "norm_first": True,
        "final_norm": True,
        "norm_epsilon": settings.get("layer_norm_epsilon", 1e-5),
        "dropout": float(dropout),
        "attention_dropout": float(settings.get("attn_pdrop", 0.1)),
        "init_std": settings.get("initializer_range", 0.02),
    }


def notes(settings: Mapping[str, Any]) -> list[str]:
    """Return notes on settings that differ in segue."""
    embeddings, layers = settings.get("embd_pdrop", 0.1), settings.get("resid_pdrop", 0.1)
    if embeddings == layers:
        return []
    return [f"embd_pdrop: segue has one rate of dropout, resid_pdrop, {layers}; embeddings had {embeddings}."]


def settings(config: ModelConfig, head: HeadConfig | None = None) -> dict[str, Any]:
    """Return the `config.json` of a model; raise CheckpointError if transformers cannot express it."""
    result: dict[str, Any] = {
        "architectures": [ARCHITECTURES.get(None if head is None else head.kind)],
        "model_type": "gpt2",
        "vocab_size": config.vocabulary.size,
        "n_positions": check_can_hold(config, NAME),
        "n_embd": config.width,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.inner_width,
        "activation_function": activation_name(config),
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
        "layer_norm_epsilon": config.norm_epsilon,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.vocabulary.tie_weights,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return result | ({} if head is None else label_settings(head, NAME))


def head(settings: Mapping[str, Any], names: Collection[str]) -> HeadConfig | None:
    """Return the head of a checkpoint with these tensors; None for a language model or a bare trunk."""
    if "score.weight" in names:
        return head_config({"summary": "last", "projected": False} | classifier(settings))
    if "classifier.weight" in names:
        return head_config({"kind": "token_tagger"} | labels_of(settings))
    if "qa_outputs.weight" in names:
        return head_config({"kind": "simple_answerer"})
    return None


# -------------------------------------------------------------------------------------------------- family

_BASE_TABLE, _BASE_KERNEL = "wte.weight", "h.0.attn.c_attn.weight"


def recognises(names: Collection[str], settings: Mapping[str, Any]) -> bool:
    """Return True if the tensors and settings are those of GPT-2. DialoGPT and the like have the same names and the
    same computation."""
    known = any(f"{prefix}{_BASE_TABLE}" in names and f"{prefix}{_BASE_KERNEL}" in names for prefix in _PREFIXES)
    return known and settings.get("model_type", "gpt2") == "gpt2"


_PREFIXES = ("", "transformer.")


def plan(found: Opened) -> ReadingPlan:
    """Return the reading plan of a checkpoint, from its `config.json`."""
    check_model_type(found.settings, "gpt2")
    return ReadingPlan(
        values=values(found.settings),
        table=partial(table, base=_BASE_TABLE in found.source.tensors),
        head=head(found.settings, found.source.tensors),
        notes=notes(found.settings),
    )


FAMILY = Family(
    name=NAME,
    target="hf",
    suits=lambda config: has_absolute_positions(config) and config.objective == "causal",
    recognises=recognises,
    plan=plan,
    values=values,
    settings=settings,
    table=lambda config, head, scope: table(config, head),
    only_xl_positions=False,
)
