"""Folders that segue writes for transformers, over odd shapes: each is refused with its reason, or it loads with no key
missing or left over and computes the same over three segments, its memory passed on.

Runs in both environments: XLNet in transformers 5 and 4.37, Transformer-XL in 4.37 alone.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from segue.checkpoint.convert import ConversionReport, convert
from segue.checkpoint.folder import load, save
from segue.checkpoint.heads import build, head_config, save_head
from segue.config import model_config
from segue.errors import CheckpointError
from segue.model import Batch, LanguageModel
from tests.parity.weights import noisy

transformers = pytest.importorskip("transformers")
only_four = pytest.mark.skipif(not hasattr(transformers, "TransfoXLLMHeadModel"), reason="transformers 5 has none")
pytestmark = pytest.mark.filterwarnings("ignore:The output of TransfoXL will be updated:DeprecationWarning")

SIZES = {"num_layers": 2, "width": 12, "num_heads": 3, "head_width": 4, "inner_width": 10}
WORDS = {"size": 64}
CUTOFFS = WORDS | {"cutoffs": [20, 40]}
XLNET: dict[str, Any] = {
    "objective": "permutation",
    "vocabulary": WORDS,
    "positions": {"kind": "xl", "shared_biases": False},
    "segments": "relative",
    "activation": "gelu_tanh",
    "norm_epsilon": 1e-12,
} | SIZES
XLNET_SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({}, ""),
    "wide_heads": ({"head_width": 5}, "num_heads * model.head_width must be model.width"),
    "narrow_heads": ({"head_width": 2}, "num_heads * model.head_width must be model.width"),
    "heads_that_do_not_divide": ({"num_heads": 5, "head_width": 2}, "got 5 * 2 and 12"),
    "one_head": ({"num_heads": 1, "head_width": 12}, ""),
    "heads_of_one": ({"num_heads": 12, "head_width": 1}, ""),
    "head_width_left_out": ({"head_width": None}, ""),
    "inner_of_one": ({"inner_width": 1}, ""),
    "wide_inner": ({"inner_width": 50}, ""),
    "one_layer": ({"num_layers": 1}, ""),
    "relu": ({"activation": "relu"}, ""),
    "gelu": ({"activation": "gelu"}, ""),
    "shared_biases": ({"positions": {"kind": "xl", "shared_biases": True}}, ""),
    "clamped": ({"positions": {"kind": "xl", "shared_biases": False, "clamp_distance": 3}}, ""),
    "clamped_at_one": ({"positions": {"kind": "xl", "shared_biases": False, "clamp_distance": 1}}, ""),
    "rotary": ({"positions": {"kind": "rotary"}}, 'positions.kind must be "xl"'),
    "epsilon": ({"norm_epsilon": 1e-3}, ""),
    "norm_first": ({"norm_first": True}, "model.norm_first must be False"),
    "final_norm": ({"final_norm": True}, "model.final_norm must be False"),
    "embedding_norm": ({"embedding_norm": True}, "model.embedding_norm must be False"),
    "attention_bias": ({"attention_bias": True}, "model.attention_bias must be False"),
    "memory": ({"memory": {"length": 5}}, ""),
    "memory_of_one": ({"memory": {"length": 1}}, ""),
    "long_memory": ({"memory": {"length": 50}}, ""),
    "memory_of_zeros": ({"memory": {"length": 5, "initial": "zeros"}}, ""),
    "memory_reused": ({"memory": {"length": 5, "reuse_length": 3}}, ""),
    "memory_reused_whole": ({"memory": {"length": 5, "reuse_length": 50}}, ""),
    "memory_with_gradient": ({"memory": {"length": 5, "backprop_segments": 2}}, ""),
    "one_direction": ({"objective": "causal"}, ""),
    "one_direction_with_memory": ({"objective": "causal", "memory": {"length": 5}}, ""),
    "same_length": ({"objective": "causal", "memory": {"length": 5}, "attention_span": 5}, ""),
    "masked": ({"objective": "masked"}, "model.objective must be 'permutation'"),
    "both_directions": ({"objective": "causal", "directions": "both"}, "model.directions must be 'forward'"),
    "narrow_embeddings": ({"vocabulary": WORDS | {"width": 6}}, "model.vocabulary.width must be 12"),
    "cutoffs": ({"vocabulary": CUTOFFS}, "model.vocabulary.cutoffs must be ()"),
    "shrinking_bins": ({"vocabulary": CUTOFFS | {"shrink": 2}}, "model.vocabulary.shrink must be 1"),
    "untied": ({"vocabulary": WORDS | {"tie_weights": False}}, ""),
    "scaled": ({"vocabulary": WORDS | {"scale": True}}, "model.vocabulary.scale must be False"),
    "transformed": ({"vocabulary": WORDS | {"transform": True}}, "model.vocabulary.transform must be False"),
    "few_words": ({"vocabulary": {"size": 3}}, ""),
    "no_segments": ({"segments": None}, "cannot express this model"),
    "three_segments": ({"num_segments": 3}, "model.num_segments must be 2"),
}
XL: dict[str, Any] = {"vocabulary": WORDS | {"scale": True}, "memory": {"length": 5, "initial": "zeros"}} | SIZES
BINS = CUTOFFS | {"scale": True}
NARROW = BINS | {"width": 6}
XL_SHAPES: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({}, ""),
    "wide_heads": ({"head_width": 5}, ""),
    "narrow_heads": ({"head_width": 2}, ""),
    "heads_that_do_not_divide": ({"num_heads": 5, "head_width": 3}, ""),
    "inner_of_one": ({"inner_width": 1}, ""),
    "one_layer": ({"num_layers": 1}, ""),
    "gelu": ({"activation": "gelu"}, "model.activation must be 'relu'"),
    "a_bias_a_layer": ({"positions": {"kind": "xl", "shared_biases": False}}, ""),
    "clamped": ({"positions": {"kind": "xl", "clamp_distance": 3}}, ""),
    "clamped_at_one": ({"positions": {"kind": "xl", "clamp_distance": 1}}, ""),
    "shaw": ({"positions": {"kind": "shaw"}}, 'positions.kind must be "xl"'),
    "epsilon": ({"norm_epsilon": 1e-3}, ""),
    "norm_first": ({"norm_first": True}, ""),
    "final_norm": ({"norm_first": True, "final_norm": True}, "model.final_norm must be False"),
    "no_memory": ({"memory": None}, ""),
    "memory_of_one": ({"memory": {"length": 1, "initial": "zeros"}}, ""),
    "empty_memory": ({"memory": {"length": 5}}, ""),
    "memory_reused": ({"memory": {"length": 5, "reuse_length": 3}}, ""),
    "memory_with_gradient": ({"memory": {"length": 5, "initial": "zeros", "backprop_segments": 2}}, ""),
    "same_length": ({"attention_span": 5}, ""),
    "same_length_of_one": ({"memory": {"length": 1, "initial": "zeros"}, "attention_span": 1}, ""),
    "another_span": ({"attention_span": 6}, ""),
    "span_without_memory": ({"memory": None, "attention_span": 4}, ""),
    "not_scaled": ({"vocabulary": WORDS}, "model.vocabulary.scale must be True"),
    "narrow_embeddings": ({"vocabulary": WORDS | {"scale": True, "width": 6}}, ""),
    "narrow_tied": ({"vocabulary": WORDS | {"scale": True, "width": 6, "tie_projections": "all"}}, ""),
    "narrow_apart": ({"vocabulary": WORDS | {"scale": True, "width": 6, "tie_projections": "none"}}, ""),
    "wide_embeddings": ({"vocabulary": WORDS | {"scale": True, "width": 20}}, ""),
    "untied": ({"vocabulary": WORDS | {"scale": True, "tie_weights": False}}, ""),
    "bins": ({"vocabulary": BINS}, ""),
    "bins_at_the_ends": ({"vocabulary": BINS | {"cutoffs": [1, 63]}}, ""),
    "bins_tied": ({"vocabulary": BINS | {"tie_projections": "all"}}, ""),
    "bins_apart": ({"vocabulary": BINS | {"tie_projections": "none"}}, ""),
    "bins_untied": ({"vocabulary": BINS | {"tie_weights": False}}, ""),
    "bins_narrow": ({"vocabulary": NARROW}, ""),
    "bins_narrow_tied": ({"vocabulary": NARROW | {"tie_projections": "all"}}, ""),
    "bins_narrow_apart": ({"vocabulary": NARROW | {"tie_projections": "none"}}, ""),
    "shrinking": ({"vocabulary": BINS | {"shrink": 2}}, ""),
    "shrinking_by_three": ({"vocabulary": BINS | {"shrink": 3}}, ""),
    "shrinking_tied": ({"vocabulary": BINS | {"shrink": 2, "tie_projections": "all"}}, ""),
    "shrinking_apart": ({"vocabulary": BINS | {"shrink": 2, "tie_projections": "none"}}, ""),
    "shrinking_untied": ({"vocabulary": BINS | {"shrink": 2, "tie_weights": False}}, ""),
    "shrinking_narrow": ({"vocabulary": NARROW | {"shrink": 2}}, ""),
    "shrinking_wide": ({"vocabulary": BINS | {"shrink": 2, "width": 24}}, ""),
    "first_not_projected": ({"vocabulary": BINS | {"shrink": 2, "project_first_bin": False}}, "project_first_bin"),
    "reversed_clusters": ({"vocabulary": BINS | {"shrink": 2, "cluster_order": "reversed"}}, ""),
    "auxiliary": ({"auxiliary": {"targets": 2}}, "model.auxiliary.targets must be None"),
}
CLASSES = {"kind": "sequence_classifier"}
XLNET_HEADS: dict[str, tuple[dict[str, Any], str]] = {
    "classes": (CLASSES | {"num_labels": 3, "labels": ["a", "b", "c"]}, ""),
    "labels_alike": (CLASSES | {"num_labels": 3, "labels": ["a", "a", "c"]}, ""),
    "one_class": (CLASSES | {"num_labels": 1}, "head.num_labels must be 2 or more"),
    "first": (CLASSES | {"num_labels": 3, "summary": "first"}, ""),
    "attention": (CLASSES | {"summary": "attention"}, 'head.summary must be "first"'),
    "several": (CLASSES | {"num_labels": 3, "task": "multiple", "summary": "mean"}, ""),
    "several_of_one": (CLASSES | {"num_labels": 1, "task": "multiple"}, ""),
    "regression": (CLASSES | {"num_labels": 1, "task": "regression", "projected": False}, ""),
    "mean_of_segments": (CLASSES | {"pool": "mean"}, ""),
    "attention_to_segments": (CLASSES | {"pool": "attention"}, 'head.pool must be "last"'),
    "tags": ({"kind": "token_tagger", "num_labels": 5}, ""),
    "one_tag": ({"kind": "token_tagger", "num_labels": 1}, ""),
    "scorer": ({"kind": "sequence_scorer"}, ""),
    "pairwise": ({"kind": "sequence_scorer", "loss": "pairwise", "summary": "first", "projected": False}, ""),
    "simple": ({"kind": "simple_answerer"}, ""),
    "beams": ({"kind": "beam_answerer", "num_starts": 3, "num_ends": 2}, ""),
}
PLAIN = CLASSES | {"projected": False}
XL_HEADS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "classes": (PLAIN | {"num_labels": 3, "labels": ["a", "b", "c"]}, {}, ""),
    "several": (PLAIN | {"num_labels": 3, "task": "multiple"}, {"vocabulary": BINS}, ""),
    "regression": (PLAIN | {"num_labels": 1, "task": "regression"}, {"vocabulary": BINS | {"shrink": 2}}, ""),
    "narrow": (PLAIN, {"vocabulary": NARROW}, "model.vocabulary.width must be model.width for a head"),
    "narrow_shrinking": (PLAIN, {"vocabulary": NARROW | {"shrink": 2}}, "model.vocabulary.width must be model.width"),
    "projected": (CLASSES, {}, "without a projection"),
    "first": (PLAIN | {"summary": "first"}, {}, "of the last token"),
    "tags": ({"kind": "token_tagger"}, {}, "transformers has no other"),
    "simple": ({"kind": "simple_answerer"}, {}, "transformers has no other"),
}


def saved(values: dict[str, Any], head: dict[str, Any] | None, folder: Path, *, zero: str = "") -> None:
    """A model of noise, with zeros where the other library has no place for numbers."""
    config = model_config(**{name: value for name, value in values.items() if value is not None})
    chosen = None if head is None else head_config(head)
    model = noisy(build(config, chosen), torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name == zero:  # a head of another kind has none
                parameter.zero_()
    if chosen is None:
        assert isinstance(model, LanguageModel)
        save(model, folder)
    else:
        save_head(model, chosen, folder)


def written(folder: Path, refusal: str) -> tuple[ConversionReport, nn.Module] | None:
    """The report and the model as transformers loads it; None where segue refused, and wrote nothing."""
    out = folder.parent / "theirs"
    if refusal:
        with pytest.raises(CheckpointError, match=re.escape(refusal)):
            convert(folder, out, to="hf")
        assert not out.exists()
        return None
    report = convert(folder, out, to="hf")
    assert report.comparison is not None, report.not_compared
    assert report.comparison.largest <= 1e-5
    kind = json.loads((out / "config.json").read_text())["architectures"][0]
    model, info = getattr(transformers, kind).from_pretrained(out, output_loading_info=True)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    return report, model.eval()


@torch.no_grad()
def three_segments(folder: Path, report: ConversionReport, other: Any) -> None:
    """Equal logits, or log-probabilities of Transformer-XL. Where notes say that lengths are others there, what was
    written is read back first, and then it is these lengths that are compared."""
    if report.notes:
        convert(folder.parent / "theirs", folder.parent / "again", compare=False)
        folder = folder.parent / "again"
    model = load(folder).eval()
    ids = torch.randint(model.config.vocabulary.size, (2, 21), generator=torch.Generator().manual_seed(1))
    mems = memory = None
    for start, stop in ((0, 6), (6, 17), (17, 21)):
        part = ids[:, start:stop]
        want = other(part, mems=mems)
        got = model(Batch(ids_BQ=part), memory)
        mems, memory = want.mems, got.memory
        logits = model.logits(got.output.hidden_BQD)
        if "prediction_scores" in want:
            torch.testing.assert_close(logits.log_softmax(-1), want.prediction_scores, rtol=0, atol=1e-5)
        else:
            torch.testing.assert_close(logits, want.logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", XLNET_SHAPES)
def test_xlnet_shapes(name: str, tmp_path: Path) -> None:
    changes, refusal = XLNET_SHAPES[name]
    saved(XLNET | changes, None, tmp_path / "ours")
    if (result := written(tmp_path / "ours", refusal)) is not None:
        three_segments(tmp_path / "ours", *result)


@pytest.mark.parametrize("name", XLNET_HEADS)
def test_xlnet_heads(name: str, tmp_path: Path) -> None:
    head, refusal = XLNET_HEADS[name]
    saved(XLNET, head, tmp_path / "ours")
    written(tmp_path / "ours", refusal)


@only_four
@pytest.mark.parametrize("name", XL_SHAPES)
def test_transformer_xl_shapes(name: str, tmp_path: Path) -> None:
    changes, refusal = XL_SHAPES[name]
    saved(XL | changes, None, tmp_path / "ours")
    if (result := written(tmp_path / "ours", refusal)) is not None:
        three_segments(tmp_path / "ours", *result)


@only_four
@pytest.mark.parametrize("name", XL_HEADS)
def test_transformer_xl_heads(name: str, tmp_path: Path) -> None:
    head, changes, refusal = XL_HEADS[name]
    saved(XL | changes, head, tmp_path / "ours", zero="classifier.bias")
    written(tmp_path / "ours", refusal)


@only_four
def test_a_head_with_a_bias_has_no_place_in_transformer_xl(tmp_path: Path) -> None:
    saved(XL, PLAIN, tmp_path / "ours")
    written(tmp_path / "ours", "classifier.bias must be zero")
