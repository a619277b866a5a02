"""BERT and GPT-2 of transformers 5: folders that it saves are read, and folders that segue writes are loaded there,
with equal logits, hidden states and losses, over odd shapes; what has no place there is refused with the reason."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import segue
from segue.checkpoint.convert import convert
from segue.checkpoint.detect import detect
from segue.checkpoint.folder import load
from segue.checkpoint.foreign import read_foreign
from segue.errors import CheckpointError
from segue.model import Batch
from tests.parity.test_written_folders import CLASSES, SIZES, WORDS, saved, written
from tests.parity.weights import noisy

transformers = pytest.importorskip("transformers", minversion="5")

LEARNED = {"kind": "absolute", "encoding": "learned", "max_length": 24}
BERT: dict[str, Any] = {
    "objective": "masked",
    "vocabulary": WORDS | {"transform": True},
    "positions": LEARNED,
    "segments": "absolute",
    "activation": "gelu",
    "attention_bias": True,
    "embedding_norm": True,
    "norm_epsilon": 1e-12,
} | SIZES
GPT2: dict[str, Any] = {
    "objective": "causal",
    "vocabulary": WORDS,
    "positions": LEARNED,
    "activation": "gelu_tanh",
    "attention_bias": True,
    "norm_first": True,
    "final_norm": True,
} | SIZES
POSITIONS = 'model.positions must be of kind "absolute"'
SHARED: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({}, ""),
    "one_layer": ({"num_layers": 1}, ""),
    "one_head": ({"num_heads": 1, "head_width": 12}, ""),
    "heads_of_one": ({"num_heads": 12, "head_width": 1}, ""),
    "head_width_left_out": ({"head_width": None}, ""),
    "wide_heads": ({"head_width": 5}, "model.num_heads * model.head_width must be model.width"),
    "inner_of_one": ({"inner_width": 1}, ""),
    "relu": ({"activation": "relu"}, ""),
    "gelu": ({"activation": "gelu"}, ""),
    "gelu_tanh": ({"activation": "gelu_tanh"}, ""),
    "epsilon": ({"norm_epsilon": 1e-3}, ""),
    "one_position": ({"positions": LEARNED | {"max_length": 21}}, ""),
    "from_the_end": ({"positions": LEARNED | {"count_from": "end"}}, POSITIONS),
    "sinusoids": ({"positions": {"kind": "absolute"}}, POSITIONS),
    "memory": ({"memory": {"length": 5}}, "model.memory must be left out"),
    "narrow_embeddings": ({"vocabulary": WORDS | {"transform": True, "width": 6}}, "model.vocabulary."),
    "scaled": ({"vocabulary": WORDS | {"transform": True, "scale": True}}, "model.vocabulary.scale must be False"),
    "no_attention_bias": ({"attention_bias": False}, "model.attention_bias must be True"),
}
BERT_SHAPES = SHARED | {
    "untied": ({"vocabulary": WORDS | {"transform": True, "tie_weights": False}}, ""),
    "norm_first": ({"norm_first": True}, "model.norm_first must be False"),
    "one_segment": ({"num_segments": 1}, ""),
    "five_segments": ({"num_segments": 5}, ""),
    "no_segments": ({"segments": None}, "model.segments must be 'absolute'"),
    "not_transformed": ({"vocabulary": WORDS}, "softmax.token_biases.0 must be zero"),
}
GPT2_SHAPES = SHARED | {
    "untied": ({"vocabulary": WORDS | {"tie_weights": False}}, ""),
    "norm_last": ({"norm_first": False}, "model.norm_first must be True"),
    "no_final_norm": ({"final_norm": False}, "model.final_norm must be True"),
    "span": ({"attention_span": 5}, "model.attention_span must be left out"),
    "segments": ({"segments": "absolute"}, "model.segments must be None"),
    "transformed": ({"vocabulary": WORDS | {"transform": True}}, "model.vocabulary.transform must be False"),
    "both_directions": ({"directions": "both"}, "model.directions must be 'forward'"),
    "auxiliary": ({"auxiliary": {"targets": 2}}, "model.auxiliary.targets must be None"),
}
GPT2_SHAPES["narrow_embeddings"] = ({"vocabulary": WORDS | {"width": 6}}, "model.vocabulary.width must be 12")
GPT2_SHAPES["scaled"] = ({"vocabulary": WORDS | {"scale": True}}, "model.vocabulary.scale must be False")
FIRST = CLASSES | {"summary": "first"}
PLAIN = CLASSES | {"projected": False}
BERT_HEADS: dict[str, tuple[dict[str, Any], str]] = {
    "classes": (FIRST | {"num_labels": 3, "labels": ["a", "b", "c"]}, ""),
    "several": (FIRST | {"num_labels": 3, "task": "multiple"}, ""),
    "regression": (FIRST | {"num_labels": 1, "task": "regression"}, ""),
    "one_class": (FIRST | {"num_labels": 1}, "head.num_labels must be 2 or more"),
    "last": (CLASSES, "of the first token with a projection"),
    "mean": (CLASSES | {"summary": "mean"}, "of the first token with a projection"),
    "not_projected": (FIRST | {"projected": False}, "of the first token with a projection"),
    "tags": ({"kind": "token_tagger", "num_labels": 5}, ""),
    "scorer": ({"kind": "sequence_scorer", "summary": "first"}, ""),
    "simple": ({"kind": "simple_answerer"}, ""),
    "beams": ({"kind": "beam_answerer"}, "must be a token_tagger"),
}
GPT2_HEADS: dict[str, tuple[dict[str, Any], str]] = {
    "classes": (PLAIN | {"num_labels": 3, "labels": ["a", "b", "c"]}, ""),
    "regression": (PLAIN | {"num_labels": 1, "task": "regression"}, ""),
    "projected": (CLASSES, "of the last token without a projection"),
    "tags": ({"kind": "token_tagger", "num_labels": 5}, ""),
    "simple": ({"kind": "simple_answerer"}, ""),
    "scorer": ({"kind": "sequence_scorer"}, "must be a token_tagger"),
}


def random_ids(size: int, rows: int, length: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(size, (rows, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def compare(model: nn.Module, other: Any, *, rows: int = 3, length: int = 21) -> None:
    """Logits, every layer's hidden states and the loss, with padding on the right and segments where there are."""
    config = model.eval().config
    masked = config.objective == "masked"
    ids = random_ids(config.vocabulary.size, rows, length)
    real = torch.arange(length) < torch.tensor([[length], [max(1, length - 4)], [1]])[:rows]
    segments = random_ids(config.num_segments, rows, length, seed=2) if masked else None
    targets = random_ids(config.vocabulary.size, rows, length, seed=3)
    counted = real if masked else real & real.roll(-1, dims=1) & (torch.arange(length) < length - 1)
    own_targets = targets if masked else ids.roll(-1, dims=1)
    batch = Batch(ids_BQ=ids, real_BQ=real, segments_BQ=segments, targets=own_targets, target_mask=counted)
    got = model(batch)
    inputs = {"input_ids": ids, "attention_mask": real.float()} | (
        {} if segments is None else {"token_type_ids": segments}
    )
    want = other(**inputs, output_hidden_states=True)
    states = [*got.output.layers[:-1], got.output.hidden_BQD]
    for ours, theirs in zip(states, want.hidden_states, strict=True):
        torch.testing.assert_close(ours[real], theirs[real], rtol=0, atol=1e-5)
    if "logits" in want or "prediction_logits" in want:
        logits = want.logits if "logits" in want else want.prediction_logits
        torch.testing.assert_close(model.logits(got.output.hidden_BQD)[real], logits[real], rtol=0, atol=1e-5)
        loss = F.cross_entropy(logits[counted], own_targets[counted]) if counted.any() else logits.new_zeros(())
        torch.testing.assert_close(got.loss, loss, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", BERT_SHAPES)
def test_bert_shapes(name: str, tmp_path: Path) -> None:
    changes, refusal = BERT_SHAPES[name]
    saved(BERT | changes, None, tmp_path / "ours")
    if (result := written(tmp_path / "ours", refusal)) is not None:
        compare(load(tmp_path / "ours"), result[1])


@pytest.mark.parametrize("name", GPT2_SHAPES)
def test_gpt2_shapes(name: str, tmp_path: Path) -> None:
    changes, refusal = GPT2_SHAPES[name]
    saved(GPT2 | changes, None, tmp_path / "ours", zero="softmax.token_biases.0")
    if (result := written(tmp_path / "ours", refusal)) is not None:
        compare(load(tmp_path / "ours"), result[1])


def test_a_softmax_with_biases_has_no_place_in_gpt2(tmp_path: Path) -> None:
    saved(GPT2, None, tmp_path / "ours")
    written(tmp_path / "ours", "softmax.token_biases.0 must be zero")


@pytest.mark.parametrize("name", BERT_HEADS)
def test_bert_heads(name: str, tmp_path: Path) -> None:
    head, refusal = BERT_HEADS[name]
    saved(BERT, head, tmp_path / "ours")
    written(tmp_path / "ours", refusal)


@pytest.mark.parametrize("name", GPT2_HEADS)
def test_gpt2_heads(name: str, tmp_path: Path) -> None:
    head, refusal = GPT2_HEADS[name]
    saved(GPT2, head, tmp_path / "ours", zero="classifier.bias" if head["kind"] == "sequence_classifier" else "")
    written(tmp_path / "ours", refusal)


@pytest.mark.parametrize("kind", ["other", "gpt", "bert"])
def test_other_targets_have_neither(kind: str, tmp_path: Path) -> None:
    values = {"gpt": GPT2, "bert": BERT, "other": BERT | {"positions": {"kind": "rotary"}}}[kind]
    saved(values, None, tmp_path / "ours")
    with pytest.raises(CheckpointError, match=r"positions\.kind must be"):
        convert(tmp_path / "ours", tmp_path / "theirs", to="tf")


# ------------------------------------------------------------------------------------- what transformers saves

READ = {
    "BertModel": {},
    "BertForMaskedLM": {},
    "BertForPreTraining": {},
    "BertForSequenceClassification": {"num_labels": 3},
    "BertForTokenClassification": {"num_labels": 5},
    "BertForMultipleChoice": {},
    "BertForQuestionAnswering": {},
    "GPT2Model": {},
    "GPT2LMHeadModel": {},
    "GPT2ForSequenceClassification": {"num_labels": 3},
    "GPT2ForTokenClassification": {"num_labels": 5},
    "GPT2ForQuestionAnswering": {},
}
LANGUAGE_MODELS = ("BertModel", "BertForMaskedLM", "BertForPreTraining", "GPT2Model", "GPT2LMHeadModel")


def theirs(kind: str, **choices: object) -> Any:
    """A small model of this class, full of noise."""
    if kind.startswith("Bert"):
        sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10}
        config = transformers.BertConfig(**({"vocab_size": 64, "max_position_embeddings": 24} | sizes | choices))
    else:
        sizes = {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_inner": 10, "bos_token_id": None, "eos_token_id": None}
        config = transformers.GPT2Config(**({"vocab_size": 64, "n_positions": 24} | sizes | choices))
    return noisy(getattr(transformers, kind)(config), torch.float32)


@pytest.mark.parametrize("kind", READ)
def test_what_transformers_saves_is_read_and_written_back(kind: str, tmp_path: Path) -> None:
    other = theirs(kind, **READ[kind])
    other.save_pretrained(tmp_path / "theirs")
    detected = detect(tmp_path / "theirs")
    assert detected.family is not None
    assert detected.family.name.startswith(kind[:4].upper()[:3])
    report = convert(tmp_path / "theirs", tmp_path / "ours")
    assert report.comparison is not None, report.not_compared
    assert report.comparison.largest <= 1e-5
    again = convert(tmp_path / "ours", tmp_path / "back", to="hf")
    assert again.comparison is not None, again.not_compared
    assert again.comparison.largest <= 1e-5
    before, after = load_file(tmp_path / "theirs/model.safetensors"), load_file(tmp_path / "back/model.safetensors")
    gone = {"pooler.dense.weight", "pooler.dense.bias"} if kind == "BertModel" else set()
    if kind == "BertForPreTraining":
        gone = {f"{part}.{x}" for part in ("bert.pooler.dense", "cls.seq_relationship") for x in ("weight", "bias")}
    if kind == "GPT2Model":
        before = {f"transformer.{name}": value for name, value in before.items()}
    assert set(before) - set(after) == gone
    assert set(after) <= set(before)
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    if kind in LANGUAGE_MODELS:
        compare(segue.load(tmp_path / "ours"), other)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_random_shapes_are_read_as_there(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Random sizes, activations, epsilons, ties, lengths and numbers of segments; in float64, because a norm over two
    numbers that are nearly equal, with an epsilon of 1e-12, turns rounding into differences of 1e-5."""
    small = st.integers(1, 3)
    heads, length = data.draw(small), data.draw(st.integers(1, 24))
    width, layers, inner = heads * data.draw(st.integers(1, 5)), data.draw(small), data.draw(st.integers(1, 17))
    act = data.draw(st.sampled_from(["relu", "gelu", "gelu_new", "gelu_pytorch_tanh"]))
    epsilon, tied = data.draw(st.sampled_from([1e-12, 1e-5, 1e-2])), data.draw(st.booleans())
    size = data.draw(st.integers(2, 70))
    if data.draw(st.booleans()):
        other = theirs(
            data.draw(st.sampled_from(["BertModel", "BertForMaskedLM", "BertForPreTraining"])),
            vocab_size=size,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=inner,
            hidden_act=act,
            layer_norm_eps=epsilon,
            type_vocab_size=data.draw(small),
            max_position_embeddings=length,
            tie_word_embeddings=tied,
            pad_token_id=None,
        )
    else:
        other = theirs(
            data.draw(st.sampled_from(["GPT2Model", "GPT2LMHeadModel"])),
            vocab_size=size,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            n_inner=data.draw(st.sampled_from([None, inner])),
            activation_function=act,
            layer_norm_epsilon=epsilon,
            n_positions=length,
            tie_word_embeddings=tied,
        )
    folder = tmp_path_factory.mktemp("shape")
    other.save_pretrained(folder)
    model = read_foreign(folder).model
    assert isinstance(model, segue.LanguageModel)
    compare(model.double(), other.double(), rows=data.draw(small), length=length)


def renamed(folder: Path, change: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def test_the_names_of_the_first_releases(tmp_path: Path) -> None:
    """LayerNorm with gamma and beta (BERT); no prefix, and masks among the weights (GPT-2)."""
    bert, gpt = theirs("BertForPreTraining"), theirs("GPT2LMHeadModel")
    bert.save_pretrained(tmp_path / "bert")
    gpt.save_pretrained(tmp_path / "gpt2")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    masks = {"h.0.attn.bias": torch.ones(1, 1, 24, 24), "h.1.attn.masked_bias": torch.tensor(-1e4)}
    renamed(
        tmp_path / "bert", lambda found: {re.sub("|".join(old), lambda m: old[m[0]], k): v for k, v in found.items()}
    )
    renamed(tmp_path / "gpt2", lambda found: {k.removeprefix("transformer."): v for k, v in found.items()} | masks)
    for name, other in (("bert", bert), ("gpt2", gpt)):
        report = convert(tmp_path / name, tmp_path / f"{name}-ours")
        assert report.comparison is not None, report.not_compared
        compare(segue.load(tmp_path / f"{name}-ours"), other)


REFUSED = [
    ("BertForMaskedLM", {"hidden_act": "silu"}, "the activation must be one of"),
    ("BertForMaskedLM", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ("BertForMaskedLM", {"is_decoder": True}, "is_decoder"),
    ("BertForMaskedLM", {"model_type": "roberta"}, "must hold the tensors of"),
    ("GPT2LMHeadModel", {"activation_function": "silu"}, "the activation must be one of"),
    ("GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ("GPT2LMHeadModel", {"scale_attn_weights": False}, "scale_attn_weights"),
    ("GPT2LMHeadModel", {"add_cross_attention": True}, "add_cross_attention"),
    ("GPT2LMHeadModel", {"n_layer": 3}, "must hold"),
    ("GPT2LMHeadModel", {"n_positions": 25}, "must have the shape"),
]


@pytest.mark.parametrize(("kind", "change", "reason"), REFUSED)
def test_what_segue_does_not_compute_is_refused(kind: str, change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    theirs(kind).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(CheckpointError, match=reason):
        read_foreign(tmp_path)
