"""XLNet of transformers 5: encoder, memory, two streams, losses, gradients, conversion.

Where transformers computes something else on purpose or by mistake, the test says so and compares what is left.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.checkpoint.convert import convert
from segue.checkpoint.folder import load, save
from segue.model import Batch, LanguageModel, Memory, Trunk
from segue.model.language_model import order_batch
from segue.model.masks import permutation_mask
from segue.model.named import xlnet as named_xlnet
from tests.parity.transformers5 import LEFT_PADDED, LENGTH, ROWS, ids, labels, xlnet
from tests.parity.weights import (
    close,
    close_gradients,
    filled,
    noisy,
    only,
    xlnet_config,
    xlnet_state,
)
from tests.text.samples import released_model

transformers = pytest.importorskip("transformers", minversion="5")
pytestmark = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])

SMALL = {"num_layers": 3, "width": 24, "num_heads": 3, "inner_width": 40}

# ------------------------------------------------------------------------------------------ XLNet: encoder


def xlnet_trunk(other: nn.Module, *, memory: bool = False) -> Trunk:
    state = only(xlnet_state(other.state_dict()), "trunk.")
    if other.config.attn_type == "uni":  # a model of one stream; transformers keeps the vector all the same
        del state["reader.mask_embedding_D"]
    return filled(Trunk(xlnet_config(other.config, memory=memory)), state)


def second_half() -> Tensor:
    """The rows that transformers reads backwards with bi_data."""
    return torch.arange(ROWS) >= ROWS // 2


def close_memory(memory: Memory, mems: tuple[Tensor, ...], dtype: torch.dtype) -> None:
    """Theirs, time first, begins empty and grows; ours has its full length from the start, the rest not valid.
    Both hold the inputs of the layers, cached before the layer runs."""
    mems_LBMD = torch.stack(mems).transpose(1, 2)
    length = mems_LBMD.shape[2]
    assert memory.valid_BM.sum(dim=1).eq(length).all()
    assert memory.valid_BM[:, -length:].all()
    close(memory.hidden_LBMD[:, :, -length:], mems_LBMD, dtype)


@pytest.mark.parametrize("both", [False, True], ids=["forward", "bi_data"])
@pytest.mark.parametrize("clamp", [-1, 4], ids=["", "clamped"])
@pytest.mark.parametrize("activation", ["gelu", "relu", "gelu_new"])
@torch.no_grad()
def test_xlnet_encoder(activation: str, clamp: int, both: bool, dtype: torch.dtype) -> None:
    """Every layer, at padding too: there both let a token see itself and the real ones."""
    other = xlnet("XLNetModel", dtype, ff_activation=activation, clamp_len=clamp, bi_data=both)
    trunk = xlnet_trunk(other)
    ids_BQ, segments_BQ = ids(), ids(below=4, seed=2)
    reversed_B = second_half() if both else None
    for real_BQ in (None, LEFT_PADDED):
        for segments in (None, segments_BQ):
            want = other(
                ids_BQ,
                attention_mask=None if real_BQ is None else real_BQ.to(dtype),
                token_type_ids=segments,
                output_hidden_states=True,
            )
            got = trunk(Batch(ids_BQ=ids_BQ, real_BQ=real_BQ, segments_BQ=segments, reversed_B=reversed_B))
            close(got.hidden_BQD, want.last_hidden_state, dtype)
            for layer_BQD, want_BQD in zip(got.layers, want.hidden_states, strict=True):
                close(layer_BQD, want_BQD, dtype)


def read_three_segments(other: nn.Module, dtype: torch.dtype) -> None:
    """Compares states and memories. Memory fills in the first segments and drops its oldest positions in the last.

    Without padding: transformers lets everyone see what padding left in the memory, and segue does not.
    """
    trunk = xlnet_trunk(other, memory=True)
    mems, memory = None, None
    for part in range(3):
        ids_BQ, segments_BQ = ids(seed=part), ids(below=3, seed=10 + part)
        want = other(ids_BQ, token_type_ids=segments_BQ, mems=mems, use_mems=True)
        reversed_B = second_half() if other.config.bi_data else None
        got = trunk(Batch(ids_BQ=ids_BQ, segments_BQ=segments_BQ, reversed_B=reversed_B), memory)
        mems, memory = want.mems, got.memory
        close(got.hidden_BQD, want.last_hidden_state, dtype)
        close_memory(memory, mems, dtype)
    assert len(mems[0]) == other.config.mem_len


@pytest.mark.parametrize("both", [False, True], ids=["forward", "bi_data"])
@pytest.mark.parametrize("reuse", [None, 6])
@pytest.mark.parametrize("clamp", [-1, 4], ids=["", "clamped"])
@torch.no_grad()
def test_xlnet_memory(clamp: int, reuse: int | None, both: bool, dtype: torch.dtype) -> None:
    other = xlnet("XLNetModel", dtype, mem_len=13, reuse_len=reuse, clamp_len=clamp, bi_data=both)
    read_three_segments(other, dtype)


@pytest.mark.parametrize("clamp", [-1, 4], ids=["", "clamped"])
@torch.no_grad()
def test_xlnet_in_one_direction(clamp: int, dtype: torch.dtype) -> None:
    """attn_type "uni" is Transformer-XL with XLNet's segments."""
    read_three_segments(xlnet("XLNetModel", dtype, attn_type="uni", mem_len=13, clamp_len=clamp), dtype)


# ----------------------------------------------------------------------------------- XLNet: language model


def xlnet_models(dtype: torch.dtype, **choices: object) -> tuple[nn.Module, LanguageModel]:
    other = xlnet("XLNetLMHeadModel", dtype, **choices)
    config = xlnet_config(other.config, memory="mem_len" in choices)
    return other, filled(LanguageModel(config), xlnet_state(other.state_dict()))


def permutation_batch(*, seed: int, padded: bool) -> Batch:
    """The second half of each row predicted in a random order, all but the last counting; the first half is
    context, in every row at least one real token of it, so that everyone sees something."""
    generator = torch.Generator().manual_seed(seed)
    half = LENGTH // 2
    predicted_BP = torch.rand(ROWS, half, generator=generator).argsort(dim=1) + half
    target_BQ = (torch.arange(LENGTH) >= half).expand(ROWS, -1)
    rank_BQ = torch.rand(ROWS, LENGTH, generator=generator).argsort(dim=1).masked_fill(~target_BQ, -1)
    ids_BQ = ids(seed=seed)
    return Batch(
        ids_BQ=ids_BQ,
        real_BQ=LEFT_PADDED if padded else None,
        segments_BQ=ids(below=3, seed=seed + 100),
        visible_BQQ=permutation_mask(rank_BQ, target_BQ),
        predicted_BP=predicted_BP,
        targets=ids_BQ.gather(1, predicted_BP),
        target_mask=(torch.arange(half) < half - 1).expand(ROWS, -1),
    )


def as_theirs(batch: Batch, dtype: torch.dtype) -> dict[str, Tensor | None]:
    """The same batch for transformers, whose perm_mask says who may *not* see whom."""
    return {
        "input_ids": batch.ids_BQ,
        "attention_mask": None if batch.real_BQ is None else batch.real_BQ.to(dtype),
        "token_type_ids": batch.segments_BQ,
        "perm_mask": (~batch.visible_BQQ).to(dtype),
        "target_mapping": F.one_hot(batch.predicted_BP, batch.ids_BQ.shape[1]).to(dtype),
        "labels": batch.targets if batch.target_mask is None else labels(batch.targets, batch.target_mask),
    }


@torch.no_grad()
def test_xlnet_plain_logits(dtype: torch.dtype) -> None:
    """Without a target mapping the content stream, which has seen every token, is asked: logits and loss."""
    other, model = xlnet_models(dtype)
    ids_BQ, targets_BQ, counts_BQ = ids(), ids(seed=3), ids(below=2, seed=4) > 0
    want = other(ids_BQ, attention_mask=LEFT_PADDED.to(dtype), labels=labels(targets_BQ, counts_BQ))
    got = model(Batch(ids_BQ=ids_BQ, real_BQ=LEFT_PADDED, targets=targets_BQ, target_mask=counts_BQ))
    close(model.logits(got.output.hidden_BQD), want.logits, dtype)
    close(got.loss, want.loss, dtype)


@pytest.mark.parametrize("both", [False, True], ids=["forward", "bi_data"])
@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
@torch.no_grad()
def test_xlnet_two_streams(padded: bool, both: bool, dtype: torch.dtype) -> None:
    """Logits and losses over two segments, the second with a memory (where padding would matter: without)."""
    other, model = xlnet_models(dtype, mem_len=13, reuse_len=6, bi_data=both)
    mems, memory = None, None
    for seed in (5,) if padded else (5, 6):
        batch = permutation_batch(seed=seed, padded=padded)
        batch = replace(batch, reversed_B=second_half() if both else None)
        want = other(**as_theirs(batch, dtype), mems=mems, use_mems=True)
        got = model(batch, memory)
        mems, memory = want.mems, got.memory
        close(model.logits(got.output.predicted_BPD), want.logits, dtype)
        close(got.loss, want.loss, dtype)
        if not padded:
            close_memory(memory, mems, dtype)


@pytest.mark.parametrize("padded", [False, True], ids=["", "padded"])
def test_xlnet_gradients(padded: bool, dtype: torch.dtype) -> None:
    """Gradients of the permutation loss, for every parameter: none has another gradient, none goes without."""
    other, model = xlnet_models(dtype)
    batch = permutation_batch(seed=7, padded=padded)
    other(**as_theirs(batch, dtype)).loss.backward()
    model(batch).loss.backward()
    names = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert names == set(xlnet_state(dict(other.named_parameters())))
    close_gradients(model, other, xlnet_state, dtype)


@torch.no_grad()
def test_xlnet_scores_in_any_order(dtype: torch.dtype) -> None:
    """Every token of a row predicted once, from those before it in a random order.

    The first of the order sees nothing. transformers subtracts a large number from all of its scores, which
    leaves it a uniform view of the whole row, itself included; segue gives it nothing. With a memory all see
    something, and all are equal.
    """
    other, model = xlnet_models(dtype, mem_len=13)
    mems, memory = None, None
    for seed in (8, 9):
        order_BQ = torch.rand(ROWS, LENGTH, generator=torch.Generator().manual_seed(seed)).argsort(dim=1)
        batch = order_batch(ids(seed=seed), order_BQ)
        want = other(**as_theirs(batch, dtype), mems=mems, use_mems=True)
        got = model(batch, memory)
        want_nll = F.cross_entropy(want.logits.transpose(1, 2), batch.ids_BQ, reduction="none")
        compared_BQ = torch.ones_like(batch.ids_BQ, dtype=torch.bool)
        if memory is None:
            compared_BQ.scatter_(1, order_BQ[:, :1], False)
            assert not torch.isclose(got.nll[~compared_BQ], want_nll[~compared_BQ], atol=1e-3).any()
        close(model.logits(got.output.predicted_BPD)[compared_BQ], want.logits[compared_BQ], dtype)
        close(got.nll[compared_BQ], want_nll[compared_BQ], dtype)
        if memory is not None:
            close(got.loss, want.loss, dtype)
        mems, memory = want.mems, got.memory


# -------------------------------------------------------------------------------------- XLNet: conversion


KINDS = {
    "XLNetModel": {},
    "XLNetLMHeadModel": {"clamp_len": 4, "mem_len": 13, "reuse_len": 6, "bi_data": True},
    "XLNetForSequenceClassification": {"num_labels": 3, "summary_type": "mean"},
    "XLNetForTokenClassification": {"num_labels": 5},
    "XLNetForMultipleChoice": {},
    "XLNetForQuestionAnswering": {"start_n_top": 3, "end_n_top": 2},
    "XLNetForQuestionAnsweringSimple": {},
}


@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@pytest.mark.parametrize("kind", KINDS)
def test_xlnet_conversion(kind: str, activation: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """A folder of transformers becomes a segue model and a folder of transformers again. Each conversion compares
    logits itself; the second one with what transformers loads from the folder."""
    theirs, ours, back = tmp_path / "theirs", tmp_path / "ours", tmp_path / "back"
    other = xlnet(kind, torch.float32, ff_activation=activation, **KINDS[kind]).to(dtype)
    other.save_pretrained(theirs)
    report, again = convert(theirs, ours), convert(ours, back, to="hf")
    assert report.comparison.largest <= 1e-5
    assert again.comparison.largest <= 1e-5
    base = {"XLNetModel": "XLNetLMHeadModel"}.get(kind, kind)
    result, info = getattr(transformers, base).from_pretrained(back, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    state = result.state_dict()
    for name, value in other.state_dict().items():
        name = name if kind != "XLNetModel" else f"transformer.{name}"
        assert torch.equal(state[name], value.to(state[name].dtype)), name


def test_xlnet_conversion_on_real_text(dtype: torch.dtype, tmp_path: Path) -> None:
    """From a TensorFlow checkpoint with its pieces: two sentences go through the tokeniser."""
    source = tmp_path / "tf"
    model = LanguageModel(named_xlnet(vocabulary_size=1000, **SMALL)).to(dtype)
    save(noisy(model, dtype), tmp_path / "model")
    convert(tmp_path / "model", source, to="tf", compare=False)
    (source / "spiece.model").write_bytes(released_model())
    report = convert(source, tmp_path / "ours", overrides=["model.memory.length=16"])
    assert report.comparison.inputs == "an English and a Chinese sentence"
    again = convert(tmp_path / "ours", tmp_path / "hf", to="hf")
    for comparison in (report.comparison, again.comparison):
        assert comparison.tokens > 40
        assert comparison.largest <= 1e-5 * max(1.0, comparison.highest)
    assert load(tmp_path / "ours").trunk.vocabulary.tables[0].dtype == dtype
    assert transformers.AutoConfig.from_pretrained(tmp_path / "hf").ff_activation == "gelu_new"
