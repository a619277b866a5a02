"""The name tables: there and back through each of them, for every variant, and what they refuse."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from segue.checkpoint.families import (
    transformer_xl_original,
    transformer_xl_tensorflow,
    transformer_xl_transformers,
    xlnet_tensorflow,
    xlnet_transformers,
)
from segue.checkpoint.families.mapping import to_ours, to_theirs
from segue.checkpoint.families.rules import NameTable
from segue.checkpoint.heads import HeadConfig, build, head_config
from segue.config import ModelConfig, changed, model_config
from segue.errors import CheckpointError
from tests.originals import FIXTURES, Held, arrays, tensors

PYTORCH = sorted(path.name for path in (FIXTURES / "transformer_xl_pytorch").iterdir())
TENSORFLOW = sorted(path.name for path in (FIXTURES / "transformer_xl_tf").iterdir())
XLNET = sorted(path.name for path in (FIXTURES / "xlnet").iterdir())
SMALL = {"num_layers": 3, "width": 24, "num_heads": 3, "head_width": 8, "inner_width": 40}
TXL = {"vocabulary": {"size": 64, "scale": True}, "memory": {"length": 8}} | SMALL
BINS = {"size": 64, "scale": True, "cutoffs": [20, 40]}
VARIANTS = {
    "one_bin": {},
    "bins": {"vocabulary": BINS},
    "untied_softmax": {"vocabulary": BINS | {"tie_weights": False}},
    "narrow": {"vocabulary": BINS | {"width": 16}},
    "narrow_apart": {"vocabulary": BINS | {"width": 16, "tie_projections": "none"}},
    "shrinking": {"vocabulary": BINS | {"shrink": 2}},
    "shrinking_tied": {"vocabulary": BINS | {"shrink": 2, "tie_projections": "all"}},
    "reversed_clusters": {"vocabulary": BINS | {"shrink": 2, "cluster_order": "reversed"}},
    "one_bias_a_layer": {"positions": {"kind": "xl", "shared_biases": False}},
    "norm_first": {"norm_first": True},
    "learned_relative": {"positions": {"kind": "learned_relative", "max_distance": 13}},
    "absolute": {"positions": {"kind": "absolute", "count_from": "end"}, "memory": None},
    "per_layer": {"positions": {"kind": "per_layer", "max_length": 6}, "memory": None},
}
XLNET_CONFIG = model_config(
    objective="permutation",
    vocabulary={"size": 64},
    positions={"kind": "xl", "shared_biases": False},
    segments="relative",
    activation="gelu_tanh",
    norm_epsilon=1e-12,
    **SMALL,
)
HEADS = {
    "language_model": None,
    "classifier": {"kind": "sequence_classifier", "num_labels": 3, "labels": ["a", "b", "c"]},
    "several": {"kind": "sequence_classifier", "num_labels": 3, "task": "multiple", "summary": "mean"},
    "regression": {"kind": "sequence_classifier", "num_labels": 1, "task": "regression", "projected": False},
    "tagger": {"kind": "token_tagger", "num_labels": 5},
    "scorer": {"kind": "sequence_scorer"},
    "simple": {"kind": "simple_answerer"},
    "beams": {"kind": "beam_answerer", "num_starts": 3, "num_ends": 2},
}


def head_of(name: str) -> HeadConfig | None:
    values = HEADS[name]
    return None if values is None else head_config(values)


def variant(name: str) -> ModelConfig:
    values = {key: value for key, value in (TXL | VARIANTS[name]).items() if value is not None}
    return model_config(**values)


def shapes(config: ModelConfig, head: HeadConfig | None = None) -> dict[str, Tensor]:
    with torch.device("meta"):
        return dict(build(config, head).state_dict())


def noise(like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(tuple(value.shape), generator=generator) for name, value in like.items()}


def there_and_back(table: NameTable, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our noise under their names, read back equal; every name on either side is used. Returns theirs."""
    ours = noise(like)
    for zero in table.zeros:
        ours[zero.ours].zero_()
    theirs = to_theirs(table, ours).tensors
    result = to_ours(table, Held(theirs), like)
    assert result.tensors.keys() == ours.keys()
    assert all(torch.equal(result.tensors[name], ours[name]) for name in ours)
    named = {name for row in (*result.rows, *result.explained) for name in row.theirs}
    assert named == set(theirs)
    return theirs


def same(config: ModelConfig, module: Any, head: HeadConfig | None = None) -> None:
    """The settings say the same when they come back."""
    settings = module.settings(config) if head is None else module.settings(config, head)
    assert model_config(**module.values(settings)) == config


@pytest.mark.parametrize("name", PYTORCH)
def test_original_transformer_xl(name: str) -> None:
    folder = FIXTURES / "transformer_xl_pytorch" / name
    settings = json.loads((folder / "config.json").read_text())["model"]
    config = model_config(**transformer_xl_original.values(settings))
    theirs = tensors(arrays(folder / "state.npz"))
    table = transformer_xl_original.table(config)
    ours = to_ours(table, Held(theirs), shapes(config))
    back = to_theirs(table, ours.tensors).tensors
    assert back.keys() == theirs.keys()
    for key, value in back.items():
        torch.testing.assert_close(value, theirs[key], rtol=0, atol=1e-7 if key.endswith("inv_freq") else 0)
    found, unknown = transformer_xl_original.settings_of_file(Held(theirs), {})
    known = set(settings) - {"dropout", "mem_len", "tgt_len", "ext_len", "clamp_len", "same_length", "pre_lnorm"}
    skipped = {"tie_projs"} | ({"n_head", "d_head"} if "num_heads" in unknown else set())
    skipped |= {"cutoffs"} if "vocabulary.cutoffs" in unknown else set()
    assert {key: found[key] for key in known - skipped} == {key: settings[key] for key in known - skipped}


@pytest.mark.parametrize("name", TENSORFLOW)
def test_tensorflow_transformer_xl(name: str) -> None:
    folder = FIXTURES / "transformer_xl_tf" / name
    stored = json.loads((folder / "config.json").read_text())
    config = model_config(**transformer_xl_tensorflow.values(stored["model"] | stored["runs"]["eval_like"]))
    same(config, transformer_xl_tensorflow)
    theirs = tensors(arrays(folder / "model.npz"))
    table = transformer_xl_tensorflow.table(config)
    ours = to_ours(table, Held(theirs), shapes(config))
    back = to_theirs(table, ours.tensors).tensors
    assert back.keys() | {"global_step"} == theirs.keys()
    assert all(torch.equal(value, theirs[key]) for key, value in back.items())
    found = transformer_xl_tensorflow.settings_of_shapes(Held(theirs).tensors)
    if not found["cutoffs"]:
        found["proj_share_all_but_first"] = stored["model"]["proj_share_all_but_first"]  # nothing to share
    assert found == stored["model"]


@pytest.mark.parametrize("name", XLNET)
def test_tensorflow_xlnet(name: str) -> None:
    folder = FIXTURES / "xlnet" / name
    settings = json.loads((folder / "xlnet_config.json").read_text())
    config = model_config(**xlnet_tensorflow.values(settings))
    assert xlnet_tensorflow.settings(config) == settings
    theirs = tensors(arrays(folder / "model.npz"))
    table = xlnet_tensorflow.table(config)
    back = to_theirs(table, to_ours(table, Held(theirs), shapes(config)).tensors).tensors
    assert back.keys() | {"global_step"} == theirs.keys()
    assert all(torch.equal(value, theirs[key]) for key, value in back.items())
    shown = xlnet_tensorflow.settings_of_shapes(Held(theirs).tensors)
    assert shown | {"ff_activation": settings["ff_activation"]} == settings


@pytest.mark.parametrize("name", XLNET)
def test_fine_tuned_tensorflow_xlnet(name: str) -> None:
    """Each head in turn: its tensors are mapped, those of the others and of the optimizer explained."""
    theirs = tensors(arrays(FIXTURES / "xlnet" / name / "finetuned.npz"))
    theirs["model/transformer/r_w_bias/adam_m"] = theirs["model/transformer/r_w_bias"]
    theirs["beta1_power"] = torch.tensor(0.9)
    heads = xlnet_tensorflow.heads(Held(theirs).tensors)
    assert {name: head.kind for name, head in heads.items()} == {
        "mnli_matched": "sequence_classifier",
        "sts-b": "sequence_classifier",
        "choice": "sequence_scorer",
        "answers": "beam_answerer",
    }
    settings = json.loads((FIXTURES / "xlnet" / name / "xlnet_config.json").read_text())
    config = model_config(**xlnet_tensorflow.values(settings))
    used = set()
    for scope, head in heads.items():
        for chosen in (head, head.model_copy(update={"summary": "last"})):
            table = xlnet_tensorflow.table(config, chosen, scope=scope)
            result = to_ours(table, Held(theirs), shapes(config, chosen))
            mapped = {name for row in result.rows for name in row.theirs}
            explained = {name for row in result.explained for name in row.theirs}
            assert mapped | explained == set(theirs)
            assert not mapped & explained
            assert not result.tensors["trunk.reader.mask_embedding_D"].any()
            used |= mapped
    assert {name for name in theirs if name not in used} == {
        "global_step",
        "beta1_power",
        "model/transformer/r_w_bias/adam_m",
    }


@pytest.mark.parametrize("name", VARIANTS)
def test_transformer_xl_variants(name: str) -> None:
    """Through every table that can express them."""
    config = variant(name)
    positions = config.positions.kind
    if name != "one_bias_a_layer":
        there_and_back(transformer_xl_original.table(config), shapes(config))
    if positions == "xl":
        theirs = there_and_back(transformer_xl_transformers.table(config), shapes(config))
        for copy in transformer_xl_transformers.table(config).copies:
            assert torch.equal(theirs[copy.theirs], theirs[copy.of])
        if config.vocabulary.cluster_order == "forward":
            zeros = changed(config, memory={"initial": "zeros"}, vocabulary={"width": config.vocabulary.width or 24})
            same(zeros, transformer_xl_transformers)
    if positions == "xl" and name not in ("untied_softmax", "norm_first"):
        there_and_back(transformer_xl_tensorflow.table(config), shapes(config))


def test_cluster_order_is_that_of_the_format() -> None:
    """The last cluster comes first in the original PyTorch code, and last in the others."""
    forward, backward = variant("shrinking"), variant("reversed_clusters")
    ours = noise(shapes(forward))
    rows = ours["softmax.cluster_weight"]
    tables = transformer_xl_tensorflow.table, transformer_xl_transformers.table
    for table, name in zip(
        tables, ("transformer/adaptive_softmax/cutoff_0/cluster_W", "crit.cluster_weight"), strict=True
    ):
        assert torch.equal(to_theirs(table(forward), ours).tensors[name], rows)
        assert torch.equal(to_theirs(table(backward), ours).tensors[name], rows.flip(0))
    original = transformer_xl_original.table
    assert torch.equal(to_theirs(original(forward), ours).tensors["crit.cluster_weight"], rows.flip(0))
    assert torch.equal(to_theirs(original(backward), ours).tensors["crit.cluster_weight"], rows)


@pytest.mark.parametrize("name", HEADS)
def test_transformers_xlnet(name: str) -> None:
    head = head_of(name)
    theirs = there_and_back(xlnet_transformers.table(XLNET_CONFIG, head), shapes(XLNET_CONFIG, head))
    settings = xlnet_transformers.settings(XLNET_CONFIG, head)
    config = model_config(**xlnet_transformers.values(settings))
    assert changed(config, attention_dropout=0.0) == XLNET_CONFIG
    assert xlnet_transformers.head(json.loads(json.dumps(settings)), theirs) == head


@pytest.mark.parametrize("name", ["language_model", "classifier", "regression", "scorer", "beams"])
@pytest.mark.parametrize("shared", [True, False])
def test_tensorflow_xlnet_with_heads(name: str, shared: bool) -> None:
    head = head_of(name)
    config = changed(XLNET_CONFIG, positions={"shared_biases": shared})
    if head is not None and "labels" in head.model_fields_set:
        head = head.model_copy(update={"summary": "attention"})
    there_and_back(xlnet_tensorflow.table(config, head, scope="mnli"), shapes(config, head))


def test_transformers_variants_of_xlnet() -> None:
    shared = changed(XLNET_CONFIG, positions={"shared_biases": True})
    theirs = there_and_back(xlnet_transformers.table(shared), shapes(shared))
    theirs["transformer.layer.1.rel_attn.r_w_bias"] = theirs["transformer.layer.1.rel_attn.r_w_bias"] + 1
    with pytest.raises(CheckpointError, match="shared_biases"):
        to_ours(xlnet_transformers.table(shared), Held(theirs), shapes(shared))
    for config in (changed(XLNET_CONFIG, objective="causal"), changed(XLNET_CONFIG, vocabulary={"tie_weights": False})):
        there_and_back(xlnet_transformers.table(config), shapes(config))
        there_and_back(xlnet_transformers.table(config, base=True), shapes(config))


def test_transformers_classifier_on_transformer_xl() -> None:
    config = variant("shrinking")
    values = {"kind": "sequence_classifier", "num_labels": 4, "projected": False}
    head = head_config(values)
    table = transformer_xl_transformers.table(config, head)
    theirs = there_and_back(table, shapes(config, head))
    settings = transformer_xl_transformers.settings(config, head)
    assert transformer_xl_transformers.head(settings, theirs) == head
    with pytest.raises(CheckpointError, match=r"classifier\.bias must be zero"):
        to_theirs(table, noise(shapes(config, head)))


def test_what_is_missing_left_over_or_wrong_is_named() -> None:
    table, like = xlnet_transformers.table(XLNET_CONFIG), shapes(XLNET_CONFIG)
    theirs = to_theirs(table, noise(like)).tensors

    def read(changes: Mapping[str, Tensor | None]) -> None:
        held = {name: value for name, value in (theirs | changes).items() if value is not None}
        to_ours(table, Held(held), like)

    read({"lm_loss.weight": theirs["transformer.word_embedding.weight"]})
    with pytest.raises(CheckpointError, match=r"must hold transformer\.layer\.1\.rel_attn\.q"):
        read({"transformer.layer.1.rel_attn.q": None})
    with pytest.raises(CheckpointError, match=r"extra\.weight, which have none"):
        read({"extra.weight": torch.zeros(1)})
    with pytest.raises(CheckpointError, match=r"lm_loss\.bias must have the shape \[64\] of the config; got \[63\]"):
        read({"lm_loss.bias": torch.zeros(63)})
    with pytest.raises(CheckpointError, match=r"lm_loss\.bias must hold float64, .*; got int8"):
        read({"lm_loss.bias": torch.zeros(64, dtype=torch.int8)})
    with pytest.raises(CheckpointError, match=r"lm_loss\.weight must be equal to transformer\.word_embedding"):
        read({"lm_loss.weight": torch.zeros(64, 24)})


@pytest.mark.parametrize(
    ("module", "settings", "message"),
    [
        (xlnet_transformers, {"ff_activation": "silu"}, "ff_activation must be one of"),
        (xlnet_transformers, {"attn_type": "tri"}, "attn_type must be"),
        (transformer_xl_transformers, {"attn_type": 1}, "attn_type must be 0"),
    ],
)
def test_settings_that_segue_does_not_have(module: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        module.values(settings)
