"""BERT of transformers: `config.json` with model_type "bert", the masked language model, the bare model and the heads.

The pooler is the dense layer of a head's summary; the language model has none. Next-sentence prediction has no place
here: a BertForPreTraining becomes its masked language model.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

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
from segue.checkpoint.families.rules import Computed, Copy, Explained, NameTable, Rule, Zero, rule
from segue.checkpoint.families.xlnet_transformers import labels_of
from segue.checkpoint.head_config import HeadConfig, head_config
from segue.config import ModelConfig
from segue.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

NAME = "BERT of transformers"
BASE = "BertModel"
ARCHITECTURES = {
    None: "BertForMaskedLM",
    "sequence_classifier": "BertForSequenceClassification",
    "token_tagger": "BertForTokenClassification",
    "sequence_scorer": "BertForMultipleChoice",
    "simple_answerer": "BertForQuestionAnswering",
}
_LAYER = {
    "attention.self.query": "attention.query",
    "attention.self.key": "attention.key",
    "attention.self.value": "attention.value",
    "attention.output.dense": "attention.out",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "feed_forward.widen",
    "output.dense": "feed_forward.narrow",
    "output.LayerNorm": "feed_forward_norm",
}
_TRANSFORM = {
    "cls.predictions.transform.dense": "transform.dense",
    "cls.predictions.transform.LayerNorm": "transform.norm",
}
_HEADS = {
    "sequence_classifier": {"bert.pooler.dense": "summary.dense", "classifier": "classifier"},
    "token_tagger": {"classifier": "classifier"},
    "sequence_scorer": {"bert.pooler.dense": "summary.dense", "classifier": "scorer"},
    "simple_answerer": {"qa_outputs": "bounds"},
}
_OLD_NORM = {"weight": "gamma", "bias": "beta"}
"""Names of the LayerNorm parameters in the first releases."""
_ONLY: dict[str, object] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}

# --------------------------------------------------------------------------------------------------- names


def table(
    config: ModelConfig, head: HeadConfig | None = None, *, base: bool = False, names: Collection[str] = ()
) -> NameTable:
    """Return the name table. `base`: names without `bert.`, as in BertModel. `names`: tensor names of a file, which may
    be the older ones."""
    prefix = "" if base else "bert."

    def pairs(theirs: str, ours: str) -> list[Rule]:
        old = f"{theirs}.gamma" in names
        return [rule(f"{theirs}.{_OLD_NORM[x] if old else x}", f"{ours}.{x}") for x in ("weight", "bias")]

    words = f"{prefix}embeddings.word_embeddings.weight"
    rules = [
        rule(words, "trunk.vocabulary.tables.0"),
        rule(f"{prefix}embeddings.position_embeddings.weight", "trunk.reader.absolute.table.weight"),
        rule(f"{prefix}embeddings.token_type_embeddings.weight", "trunk.reader.segment_embedding.weight"),
        *pairs(f"{prefix}embeddings.LayerNorm", "trunk.reader.embedding_norm"),
    ]
    for layer in range(config.num_layers):
        for theirs, ours in _LAYER.items():
            rules += pairs(f"{prefix}encoder.layer.{layer}.{theirs}", f"trunk.reader.layers.{layer}.{ours}")
    copies: list[Copy] = []
    zeros: list[Zero] = []
    computed: list[Computed] = []
    explained = [Explained(r"(bert\.)?embeddings\.position_ids", "positions, which are counted")]
    if head is not None:
        _check_head(head)
        for theirs, ours in _HEADS[head.kind].items():
            rules += pairs(theirs, ours)
        pooled = "summary.dense" in _HEADS[head.kind].values()
    else:
        pooled = False
        explained.append(Explained(r"cls\.seq_relationship\.(weight|bias)", "of next-sentence prediction"))
        for theirs, ours in (_TRANSFORM if config.vocabulary.transform else {}).items():
            rules += pairs(theirs, ours)
        if not config.vocabulary.transform:
            zeros.append(Zero("softmax.token_biases.0", "the model without a head has no output biases"))
        elif config.vocabulary.tie_weights:
            rules.append(rule("cls.predictions.bias", "softmax.token_biases.0"))
            copies.append(Copy("cls.predictions.decoder.bias", "cls.predictions.bias", written=False))
            copies.append(Copy("cls.predictions.decoder.weight", words, written=False))
        else:
            rules.append(rule("cls.predictions.decoder.weight", "softmax.tables.0"))
            rules.append(rule("cls.predictions.decoder.bias", "softmax.token_biases.0"))
            why = "zeros: not used where the output weights are not tied"
            computed.append(Computed("cls.predictions.bias", lambda: _zeros(config.vocabulary.size), why))
    if not pooled:
        explained.append(
            Explained(r"(bert\.)?pooler\.dense\.(weight|bias)", "the pooler, which is part of a head here")
        )
    return NameTable(family=NAME, rules=rules, copies=copies, computed=computed, zeros=zeros, explained=explained)


def _check_head(head: HeadConfig) -> None:
    summed = head.kind in ("sequence_classifier", "sequence_scorer")
    if head.kind not in _HEADS or (summed and (head.summary != "first" or not head.projected)):
        raise CheckpointError(
            f"the head of {NAME} must be a token_tagger, a simple_answerer, or a sequence_classifier or "
            f'sequence_scorer of the first token with a projection; got {head.kind}, summary "{head.summary}"'
            f"{'' if head.projected else ', not projected'}. Keep it as segue."
        )


# ------------------------------------------------------------------------------------------------ settings


def values(settings: Mapping[str, Any], *, output: bool | None = None) -> dict[str, Any]:
    """Return the `[model]` table of a `config.json`, with the defaults of transformers for missing keys. `output`:
    whether the checkpoint has the layers before the softmax. Default: as its architecture says."""
    check_settings(settings, _ONLY)
    if output is None:
        output = (settings.get("architectures") or [None])[0] != BASE
    return {
        "objective": "masked",
        "vocabulary": {
            "size": settings.get("vocab_size", 30522),
            "transform": output,
            "tie_weights": settings.get("tie_word_embeddings", True) or not output,
        },
        "positions": positions(settings.get("max_position_embeddings", 512)),
        "segments": "absolute",
        "num_segments": settings.get("type_vocab_size", 2),
        "num_layers": settings.get("num_hidden_layers", 12),
        "width": settings.get("hidden_size", 768),
        "num_heads": settings.get("num_attention_heads", 12),
        "inner_width": settings.get("intermediate_size", 3072),
        "activation": activation(settings.get("hidden_act", "gelu")),
        "attention_bias": True,
        "embedding_norm": True,
        "norm_epsilon": settings.get("layer_norm_eps", 1e-12),
        "dropout": float(settings.get("hidden_dropout_prob", 0.1)),
        "attention_dropout": float(settings.get("attention_probs_dropout_prob", 0.1)),
        "init_std": settings.get("initializer_range", 0.02),
    }


def settings(config: ModelConfig, head: HeadConfig | None = None) -> dict[str, Any]:
    """Return the `config.json` of a model; raise CheckpointError if transformers cannot express it."""
    bare = head is None and not config.vocabulary.transform
    result: dict[str, Any] = {
        "architectures": [BASE if bare else ARCHITECTURES.get(None if head is None else head.kind)],
        "model_type": "bert",
        "vocab_size": config.vocabulary.size,
        "max_position_embeddings": check_can_hold(config, NAME),
        "type_vocab_size": config.num_segments,
        "hidden_size": config.width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.inner_width,
        "hidden_act": activation_name(config),
        "layer_norm_eps": config.norm_epsilon,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.vocabulary.tie_weights,
        "pad_token_id": None,
    }
    return result | ({} if head is None else label_settings(head, NAME))


def head(settings: Mapping[str, Any], names: Collection[str]) -> HeadConfig | None:
    """Return the head of a checkpoint with these tensors; None for a language model or a bare trunk."""
    architecture = next(iter(settings.get("architectures") or []), None)
    pooled = {"summary": "first", "projected": True}
    if "qa_outputs.weight" in names:
        return head_config({"kind": "simple_answerer"})
    if "classifier.weight" not in names:
        return None
    if architecture == ARCHITECTURES["sequence_scorer"]:
        return head_config({"kind": "sequence_scorer"} | pooled)
    if architecture == ARCHITECTURES["token_tagger"] or "bert.pooler.dense.weight" not in names:
        return head_config({"kind": "token_tagger"} | labels_of(settings))
    return head_config(pooled | classifier(settings))


# -------------------------------------------------------------------------------------------------- family

_BASE_TABLE, _BASE_QUERY = "embeddings.word_embeddings.weight", "encoder.layer.0.attention.self.query.weight"
_PREFIXES = ("", "bert.")


def recognises(names: Collection[str], settings: Mapping[str, Any]) -> bool:
    """Return True if the tensors and settings are those of BERT. Other models share the tensor names but compute
    differently, so `model_type` is checked, too."""
    known = any(f"{prefix}{_BASE_TABLE}" in names and f"{prefix}{_BASE_QUERY}" in names for prefix in _PREFIXES)
    return known and settings.get("model_type", "bert") == "bert"


def notes(settings: Mapping[str, Any], names: Collection[str], *, output: bool) -> Iterable[str]:
    """Yield notes on parts of a checkpoint that segue has no place for, or that it lacks."""
    if not output:
        yield "no layers before the softmax: the bare model reads text, but was not trained to predict masked tokens."
    if "cls.seq_relationship.weight" in names:
        yield "next-sentence prediction is left out: segue has no such head."
    dropout = settings.get("classifier_dropout")
    if dropout is not None and dropout != settings.get("hidden_dropout_prob", 0.1):
        yield f"classifier_dropout: segue has one rate of dropout; the head had {dropout}."


def plan(found: Opened) -> ReadingPlan:
    """Return the reading plan of a checkpoint, from its `config.json`."""
    check_model_type(found.settings, "bert")
    names = found.source.tensors
    chosen = head(found.settings, names)
    output = chosen is not None or "cls.predictions.transform.dense.weight" in names
    return ReadingPlan(
        values=values(found.settings, output=output),
        table=partial(table, base=_BASE_TABLE in names, names=frozenset(names)),
        head=chosen,
        notes=list(notes(found.settings, names, output=output)),
    )


def written_table(config: ModelConfig, head: HeadConfig | None, scope: str) -> NameTable:
    """Return the name table to write: that of BertModel if there is neither a head nor an output layer."""
    return table(config, head, base=head is None and not config.vocabulary.transform)


FAMILY = Family(
    name=NAME,
    target="hf",
    suits=lambda config: has_absolute_positions(config) and config.objective == "masked",
    recognises=recognises,
    plan=plan,
    values=values,
    settings=settings,
    table=written_table,
    only_xl_positions=False,
)


def _zeros(size: int) -> "Tensor":
    import torch  # imported here, because listing models does without torch

    return torch.zeros(size)
