"""XLNet, BERT and GPT of transformers 5: encoders, memory, two streams, losses, gradients, every head of XLNet.

Where transformers computes something else on purpose or by mistake, the test says so and compares what is left.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from segue.checkpoint.convert import convert
from segue.checkpoint.families import xlnet_transformers
from segue.checkpoint.folder import load, save
from segue.model import Batch, LanguageModel, Memory, Trunk
from segue.model.answers import BeamAnswerer, SimpleAnswerer, Spans
from segue.model.heads import SequenceClassifier, SequenceScorer, Summary, TokenTagger
from segue.model.language_model import order_batch
from segue.model.masks import permutation_mask
from segue.model.named import xlnet as named_xlnet
from tests.parity.weights import (
    bert_config,
    bert_state,
    close,
    close_gradients,
    filled,
    gpt_config,
    gpt_state,
    noisy,
    only,
    sinusoids_in_double,
    xlnet_config,
    xlnet_state,
)
from tests.text.samples import released_model

transformers = pytest.importorskip("transformers", minversion="5")

pytestmark = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])

VOCABULARY, ROWS, LENGTH = 64, 4, 10
SMALL = {"num_layers": 3, "width": 24, "num_heads": 3, "inner_width": 40}
LEFT_PADDED = torch.arange(LENGTH) >= torch.tensor([[0], [1], [4], [3]])
RIGHT_PADDED = LEFT_PADDED.flip(1)


def ids(rows: int = ROWS, length: int = LENGTH, *, below: int = VOCABULARY, seed: int = 1) -> Tensor:
    return torch.randint(below, (rows, length), generator=torch.Generator().manual_seed(seed))


def labels(values: Tensor, mask: Tensor) -> Tensor:
    """As transformers wants them: -100 where they do not count."""
    return values.masked_fill(~mask, -100)


# ------------------------------------------------------------------------------------------ XLNet: encoder


def xlnet(kind: str, dtype: torch.dtype, **choices: object) -> nn.Module:
    """A tiny XLNet of this class, full of noise. Its memory is used only where a test passes it on."""
    settings = {"vocab_size": VOCABULARY, "n_layer": 3, "d_model": 24, "n_head": 3, "d_inner": 40}
    model = noisy(getattr(transformers, kind)(transformers.XLNetConfig(**(settings | choices))), dtype)
    if dtype == torch.float64:
        (model if kind == "XLNetModel" else model.transformer).positional_embedding = sinusoids_in_double
    return model


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


# -------------------------------------------------------------------------------------------- XLNet: heads


def head_state(other: nn.Module) -> dict[str, Tensor]:
    """The weights of a model with whatever head transformers' config and tensors say it has."""
    settings = other.config.to_dict() | {"architectures": [type(other).__name__]}
    return xlnet_state(other.state_dict(), xlnet_transformers.head(settings, other.state_dict()))


def head_inputs(dtype: torch.dtype, *, padded: bool = True) -> tuple[Batch, dict[str, Tensor | None]]:
    batch = Batch(ids_BQ=ids(), segments_BQ=ids(below=4, seed=2), real_BQ=LEFT_PADDED if padded else None)
    mask = LEFT_PADDED.to(dtype) if padded else None
    return batch, {"input_ids": batch.ids_BQ, "attention_mask": mask, "token_type_ids": batch.segments_BQ}


def sequence_labels(task: str, dtype: torch.dtype) -> Tensor:
    return {
        "single": torch.tensor([2, 0, 3, 3]),
        "multiple": ids(ROWS, 4, below=2, seed=3).to(dtype),
        "regression": torch.tensor([0.3, -1.2, 0.8, 2.0], dtype=dtype),
    }[task]


@pytest.mark.parametrize("task", ["single", "multiple", "regression"])
@torch.no_grad()
def test_xlnet_sequence_classification(task: str, dtype: torch.dtype) -> None:
    """summary_type "last" is the last position, so padding must be on the left, as in the original; segue's is
    the last real token wherever the padding is."""
    num_labels = 1 if task == "regression" else 4
    other = xlnet("XLNetForSequenceClassification", dtype, num_labels=num_labels)
    assert other.config.summary_type == "last"
    head = SequenceClassifier(xlnet_config(other.config), num_labels=num_labels, task=task)
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype)
    gold = sequence_labels(task, dtype)
    want, got = other(**inputs, labels=gold), head(batch, labels=gold)
    close(got.logits, want.logits, dtype)
    close(got.loss, want.loss, dtype)


@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize("kind", ["first", "last", "mean"])
@torch.no_grad()
def test_xlnet_summaries(kind: str, projected: bool, dtype: torch.dtype) -> None:
    """Without padding, of which transformers' first and mean know nothing. Without a projection, transformers
    still applies its activation, unless that is left out too; it has no "attention"."""
    choices = {} if projected else {"summary_use_proj": False, "summary_activation": ""}
    other = xlnet("XLNetForSequenceClassification", dtype, num_labels=4, summary_type=kind, **choices)
    config = xlnet_config(other.config)
    head = SequenceClassifier(config, num_labels=4, summary=kind, projected=projected)
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype, padded=False)
    close(head(batch).logits, other(**inputs).logits, dtype)


@torch.no_grad()
def test_xlnet_token_classification(dtype: torch.dtype) -> None:
    other = xlnet("XLNetForTokenClassification", dtype, num_labels=5)
    head = TokenTagger(xlnet_config(other.config), num_tags=5)
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype)
    tags_BQ, tagged_BQ = ids(below=5, seed=3), LEFT_PADDED & (ids(below=3, seed=4) > 0)
    want = other(**inputs, labels=labels(tags_BQ, tagged_BQ))
    got = head(batch, tags_BQ=tags_BQ, tagged_BQ=tagged_BQ)
    close(got.logits, want.logits, dtype)
    close(got.loss, want.loss, dtype)
    # Left out, segue counts the real tokens; transformers would count padding, unless its labels are -100.
    close(head(batch, tags_BQ=tags_BQ).loss, other(**inputs, labels=labels(tags_BQ, LEFT_PADDED)).loss, dtype)


@torch.no_grad()
def test_xlnet_multiple_choice(dtype: torch.dtype) -> None:
    other = xlnet("XLNetForMultipleChoice", dtype)
    head = SequenceScorer(xlnet_config(other.config), loss="choice")
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype)
    questions = {name: value.view(2, 2, LENGTH) for name, value in inputs.items()}
    gold = torch.tensor([1, 0])
    want, got = other(**questions, labels=gold), head(batch, group=2, labels=gold)
    close(got.logits, want.logits, dtype)
    close(got.loss, want.loss, dtype)


@torch.no_grad()
def test_xlnet_simple_answers(dtype: torch.dtype) -> None:
    other = xlnet("XLNetForQuestionAnsweringSimple", dtype)
    head = SimpleAnswerer(xlnet_config(other.config))
    filled(head, head_state(other))
    batch, inputs = head_inputs(dtype)
    spans = Spans(start_B=torch.tensor([1, 4, 6, 5]), end_B=torch.tensor([3, 4, 8, 9]))
    want = other(**inputs, start_positions=spans.start_B, end_positions=spans.end_B)
    got = head(batch, spans=spans)
    close(got.start_logits_BQ, want.start_logits, dtype)
    close(got.end_logits_BQ, want.end_logits, dtype)
    close(got.loss, want.loss, dtype)


def beam_models(dtype: torch.dtype) -> tuple[nn.Module, BeamAnswerer]:
    other = xlnet("XLNetForQuestionAnswering", dtype, start_n_top=3, end_n_top=2)
    head = BeamAnswerer(xlnet_config(other.config), num_starts=3, num_ends=2)
    return other, filled(head, head_state(other))


def beam_masks(dtype: torch.dtype) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """CLS is the last token; answers may not lie in the padding or in the question, the last tokens but CLS."""
    cls_B = torch.full((ROWS,), LENGTH - 1)
    allowed_BQ = LEFT_PADDED & ((torch.arange(LENGTH) < LENGTH - 2) | (torch.arange(LENGTH) == LENGTH - 1))
    ours = {"cls_B": cls_B, "allowed_BQ": allowed_BQ}
    return ours, {"cls_index": cls_B, "p_mask": (~allowed_BQ).to(dtype)}


@torch.no_grad()
def test_xlnet_answer_beams(dtype: torch.dtype) -> None:
    """What transformers calls log-probabilities are probabilities, and it flattens the ends of all starts with
    the starts inside: [ends, starts]."""
    other, head = beam_models(dtype)
    batch, inputs = head_inputs(dtype)
    ours, masks = beam_masks(dtype)
    want, got = other(**inputs, **masks), head(batch, **ours)
    assert torch.equal(got.start_index_BA, want.start_top_index)
    assert torch.equal(got.end_index_BAZ, want.end_top_index.view(ROWS, 2, 3).transpose(1, 2))
    close(got.start_log_probability_BA, want.start_top_log_probs.log(), dtype)
    close(got.end_log_probability_BAZ, want.end_top_log_probs.view(ROWS, 2, 3).transpose(1, 2).log(), dtype)
    close(got.impossible_B, want.cls_logits, dtype)


@torch.no_grad()
def test_xlnet_answer_losses(dtype: torch.dtype) -> None:
    """Start and end are the same. For answerability, transformers looks at the gold start in training and at the
    expected one in inference; the original and segue look at the expected one in both."""
    other, head = beam_models(dtype)
    batch, inputs = head_inputs(dtype)
    ours, masks = beam_masks(dtype)
    last = LENGTH - 1
    start_B, end_B = torch.tensor([1, 4, last, 5]), torch.tensor([3, 4, last, 7])
    impossible_B = start_B == last
    gold = {"start_positions": start_B, "end_positions": end_B}
    spans_only = other(**inputs, **masks, **gold).loss
    close(head(batch, **ours, spans=Spans(start_B=start_B, end_B=end_B)).loss, spans_only, dtype)

    inferred = other(**inputs, **masks).cls_logits
    impossible = F.binary_cross_entropy_with_logits(inferred, impossible_B.to(dtype))
    got = head(batch, **ours, spans=Spans(start_B=start_B, end_B=end_B, impossible_B=impossible_B))
    close(got.impossible_B, inferred, dtype)
    close(got.loss, spans_only + 0.5 * impossible, dtype)
    trained = other(**inputs, **masks, **gold, is_impossible=impossible_B.to(dtype)).loss
    assert not torch.isclose(got.loss, trained, atol=1e-3)  # if equal one day, compare the losses directly


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


# --------------------------------------------------------------------------------------------------- BERT


def bert(kind: str, dtype: torch.dtype, **choices: object) -> nn.Module:
    settings = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=16,
        pad_token_id=None,  # or token 0 gets no gradient
        **choices,
    )
    return noisy(getattr(transformers, kind)(settings), dtype)


def bert_inputs(dtype: torch.dtype) -> tuple[Batch, dict[str, Tensor]]:
    """Padding on the right, where it does not move BERT's positions."""
    batch = Batch(ids_BQ=ids(), segments_BQ=ids(below=2, seed=2), real_BQ=RIGHT_PADDED)
    return batch, {
        "input_ids": batch.ids_BQ,
        "attention_mask": RIGHT_PADDED.to(dtype),
        "token_type_ids": batch.segments_BQ,
    }


@torch.no_grad()
def test_bert_encoder(dtype: torch.dtype) -> None:
    """Every layer at every real token, and the pooled first one. At padding the two differ: segue lets a padded
    position see itself."""
    other = bert("BertModel", dtype)
    config, state = bert_config(other.config), bert_state(other.state_dict())
    trunk = filled(Trunk(config), only(state, "trunk."))
    pooler = filled(Summary(config, kind="first", projected=True), only(state, "summary."))
    assert len(state) == len(trunk.state_dict()) + len(pooler.state_dict())
    batch, inputs = bert_inputs(dtype)
    want, got = other(**inputs, output_hidden_states=True), trunk(batch)
    close(got.hidden_BQD[RIGHT_PADDED], want.last_hidden_state[RIGHT_PADDED], dtype)
    for layer_BQD, want_BQD in zip(got.layers, want.hidden_states, strict=True):
        close(layer_BQD[RIGHT_PADDED], want_BQD[RIGHT_PADDED], dtype)
    close(pooler(got.hidden_BQD, batch.real_BQ), want.pooler_output, dtype)
    plain, want_plain = trunk(Batch(ids_BQ=batch.ids_BQ)), other(batch.ids_BQ)  # no types: all of type 0
    close(plain.hidden_BQD, want_plain.last_hidden_state, dtype)


def test_bert_masked_language_model(dtype: torch.dtype) -> None:
    """Logits, loss and the gradient of every parameter; predicting everywhere, or only where it counts."""
    other = bert("BertForMaskedLM", dtype)
    model = filled(LanguageModel(bert_config(other.config)), bert_state(other.state_dict()))
    batch, inputs = bert_inputs(dtype)
    predicted_BP = torch.tensor([[0, 3], [1, 2], [4, 0], [2, 3]])
    counts_BQ = torch.zeros(ROWS, LENGTH, dtype=torch.bool).scatter(1, predicted_BP, True)
    targets_BQ = ids(seed=3)
    want = other(**inputs, labels=labels(targets_BQ, counts_BQ))
    want.loss.backward()
    everywhere = model(replace(batch, targets=targets_BQ, target_mask=counts_BQ))
    close(model.logits(everywhere.output.hidden_BQD)[RIGHT_PADDED], want.logits[RIGHT_PADDED], dtype)
    close(everywhere.loss, want.loss, dtype)
    targets_BP = targets_BQ.gather(1, predicted_BP)
    there = model(replace(batch, targets=targets_BP, predicted_BP=predicted_BP))
    close(there.loss, want.loss, dtype)
    there.loss.backward()
    close_gradients(model, other, bert_state, dtype)


@torch.no_grad()
def test_bert_sequence_classification(dtype: torch.dtype) -> None:
    other = bert("BertForSequenceClassification", dtype, num_labels=4)
    head = SequenceClassifier(bert_config(other.config), num_labels=4, summary="first")
    filled(head, bert_state(other.state_dict()))
    batch, inputs = bert_inputs(dtype)
    gold = sequence_labels("single", dtype)
    want, got = other(**inputs, labels=gold), head(batch, labels=gold)
    close(got.logits, want.logits, dtype)
    close(got.loss, want.loss, dtype)


# ---------------------------------------------------------------------------------------------------- GPT


def gpt_models(kind: str, dtype: torch.dtype) -> tuple[nn.Module, LanguageModel]:
    """`kind`: OpenAIGPT or GPT2."""
    settings = {"vocab_size": VOCABULARY, "n_positions": 16, "n_embd": 24, "n_layer": 3, "n_head": 3}
    if kind == "GPT2":  # GPT's inner width is always four times its width
        settings |= {"n_inner": 40, "bos_token_id": 0, "eos_token_id": 0}
    config = getattr(transformers, f"{kind}Config")(**settings)
    other = noisy(getattr(transformers, f"{kind}LMHeadModel")(config), dtype)
    state = gpt_state(other.state_dict()) | {"softmax.token_biases.0": torch.zeros(VOCABULARY, dtype=dtype)}
    return other, filled(LanguageModel(gpt_config(config)), state)


@pytest.mark.parametrize("kind", ["OpenAIGPT", "GPT2"])
def test_gpt(kind: str, dtype: torch.dtype) -> None:
    """Logits, loss and the gradient of every parameter. transformers shifts the labels itself, and takes its loss
    in float32 whatever the dtype: in float64 the loss is taken here, from its logits."""
    other, model = gpt_models(kind, dtype)
    ids_BQ = ids()
    want = other(ids_BQ, labels=ids_BQ)
    own = F.cross_entropy(want.logits[:, :-1].transpose(1, 2), ids_BQ[:, 1:])
    want_loss = want.loss if dtype == torch.float32 else own
    want_loss.backward()
    inside_BQ = (torch.arange(LENGTH) < LENGTH - 1).expand(ROWS, -1)
    got = model(Batch(ids_BQ=ids_BQ, targets=ids_BQ.roll(-1, dims=1), target_mask=inside_BQ))
    close(model.logits(got.output.hidden_BQD), want.logits, dtype)
    close(got.loss, want_loss, dtype)
    got.loss.backward()
    close_gradients(model, other, gpt_state, dtype)


@pytest.mark.parametrize("kind", ["OpenAIGPT", "GPT2"])
@pytest.mark.parametrize("real_BQ", [LEFT_PADDED, RIGHT_PADDED], ids=["left", "right"])
@torch.no_grad()
def test_gpt_padding(kind: str, real_BQ: Tensor, dtype: torch.dtype) -> None:
    """At real tokens. segue counts positions from the first of them; transformers does if it is told to."""
    other, model = gpt_models(kind, dtype)
    position_BQ = (real_BQ.long().cumsum(dim=1) - 1).clamp(min=0)
    want = other(ids(), attention_mask=real_BQ.to(dtype), position_ids=position_BQ)
    got = model(Batch(ids_BQ=ids(), real_BQ=real_BQ))
    close(model.logits(got.output.hidden_BQD)[real_BQ], want.logits[real_BQ], dtype)
