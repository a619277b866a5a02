"""XLNet against the original TensorFlow code: encoder, memory, both streams, gradients, heads."""

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.model import Batch
from segue.model.answers import BeamAnswerer, Spans
from segue.model.heads import SequenceClassifier, SequenceScorer, Summary
from tests.originals import FIXTURES, TOLERANCE, arrays, expected, load_xlnet, xlnet_config, xlnet_state

pytestmark = [
    pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"]),
    pytest.mark.parametrize("name", ["A1_gelu_untied", "A2_relu_tied"]),
]


def close(got: Tensor, want: Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(got, want.to(got.dtype), rtol=0, atol=TOLERANCE[dtype])


def values(name: str, dtype: torch.dtype) -> dict[str, Tensor]:
    return expected(FIXTURES / "xlnet" / name, "expected", dtype)


def second_half_reversed(rows: int) -> Tensor:
    return torch.arange(rows) >= rows // 2


def encoder_batch(want: dict[str, Tensor], *, plain: bool = False, both: bool = False) -> Batch:
    ids_BQ = want["enc.input_ids"].T.long()
    return Batch(
        ids_BQ=ids_BQ,
        real_BQ=None if plain else want["enc.input_mask"].T == 0,
        segments_BQ=None if plain else want["enc.seg_ids"].T.long(),
        reversed_B=second_half_reversed(len(ids_BQ)) if both else None,
    )


@torch.no_grad()
def test_encoder(name: str, dtype: torch.dtype) -> None:
    want = values(name, dtype)
    model = load_xlnet(name, dtype)
    output = model(encoder_batch(want)).output
    close(output.hidden_BQD, want["enc.output"].transpose(0, 1), dtype)
    close(torch.stack(output.layers[:-1]), want["enc.layer_inputs"].transpose(1, 2), dtype)
    plain = model(encoder_batch(want, plain=True)).output
    # No segment ids means no segment term in the original; ours too.
    close(plain.hidden_BQD, want["enc_plain.output"].transpose(0, 1), dtype)
    both = model(encoder_batch(want, both=True)).output
    close(both.hidden_BQD, want["enc_bi.output"].transpose(0, 1), dtype)


@torch.no_grad()
def test_clamped_distances(name: str, dtype: torch.dtype) -> None:
    want = values(name, dtype)
    model = load_xlnet(name, dtype, positions={"clamp_distance": int(want["clamp.clamp_len"])})
    for key, both in (("clamp.enc.output", False), ("clamp.enc_bi.output", True)):
        output = model(encoder_batch(want, both=both)).output
        close(output.hidden_BQD, want[key].transpose(0, 1), dtype)


@pytest.mark.one_in(3)
@torch.no_grad()
@pytest.mark.parametrize("clamp", ["", "clamp."])
@pytest.mark.parametrize(("initial", "key"), [("empty", "empty"), ("zeros", "zero")])
def test_memory(name: str, dtype: torch.dtype, clamp: str, initial: str, key: str) -> None:
    want = values(name, dtype)
    settings = {
        "length": int(want["mem.mem_len"]),
        "reuse_length": int(want["mem.reuse_len"]),
        "initial": initial,
    }
    positions = {"clamp_distance": int(want["clamp.clamp_len"])} if clamp else {}
    model = load_xlnet(name, dtype, memory=settings, positions=positions)
    memory = None
    for part in (1, 2):
        batch = Batch(ids_BQ=want[f"mem.input_ids_{part}"].T.long(), segments_BQ=want[f"mem.seg_ids_{part}"].T.long())
        result = model(batch, memory)
        memory = result.memory
        close(result.output.hidden_BQD, want[f"{clamp}mem.{key}.output_{part}"].transpose(0, 1), dtype)
        mems_LBMD = want[f"{clamp}mem.{key}.new_mems_{part}"].transpose(1, 2)
        assert memory.valid_BM.sum(dim=1).eq(mems_LBMD.shape[2]).all()
        close(memory.hidden_LBMD[:, :, -mems_LBMD.shape[2] :], mems_LBMD, dtype)


def permutation_batch(want: dict[str, Tensor], part: int, *, both: bool) -> Batch:
    mapping_BPQ = want[f"plm.target_mapping_{part}"]
    ids_BQ = want[f"plm.input_k_{part}"].long()
    return Batch(
        ids_BQ=ids_BQ,
        segments_BQ=want[f"plm.seg_id_{part}"].long(),
        visible_BQQ=want[f"plm.perm_mask_{part}"] == 0,
        predicted_BP=mapping_BPQ.argmax(dim=2),
        targets=want[f"plm.target_{part}"].long(),
        target_mask=want[f"plm.target_mask_{part}"] == 1,
        reversed_B=second_half_reversed(len(ids_BQ)) if both else None,
    )


@pytest.mark.parametrize("direction", ["uni", "bi"])
def test_two_streams(name: str, dtype: torch.dtype, direction: str) -> None:
    """Query stream, losses and the gradient of every parameter. Padding slots count for nothing."""
    want = values(name, dtype)
    reuse = int(want["mem.reuse_len"])
    model = load_xlnet(name, dtype, memory={"length": 12, "reuse_length": reuse})
    batch = permutation_batch(want, 1, both=direction == "bi")
    result = model(batch)
    mask_BP = batch.target_mask
    assert 0 < mask_BP.sum() < mask_BP.numel()  # the fixture has padding slots
    close(result.output.predicted_BPD[mask_BP], want[f"plm.{direction}.output"].transpose(0, 1)[mask_BP], dtype)
    close(result.nll[mask_BP], want[f"plm.{direction}.lm_loss"].T[mask_BP], dtype)
    close(result.loss, want[f"plm.{direction}.total_loss"], dtype)
    close(result.memory.hidden_LBMD[:, :, -reuse:], want[f"plm.{direction}.new_mems"].transpose(1, 2), dtype)

    result.loss.backward()
    prefix = f"plm.{direction}.grad/"
    gradients = {n.removeprefix(prefix): v.numpy() for n, v in want.items() if n.startswith(prefix)}
    mapped = xlnet_state(gradients)
    assert mapped.keys() == dict(model.named_parameters()).keys()
    for parameter, gradient in mapped.items():
        close(model.get_parameter(parameter).grad, gradient, dtype)


@torch.no_grad()
@pytest.mark.parametrize("direction", ["uni", "bi"])
def test_two_streams_with_memory(name: str, dtype: torch.dtype, direction: str) -> None:
    want = values(name, dtype)
    settings = {"length": 12, "reuse_length": int(want["mem.reuse_len"]), "initial": "zeros"}
    model = load_xlnet(name, dtype, memory=settings)
    memory = None
    for part in (1, 2):
        batch = permutation_batch(want, part, both=direction == "bi")
        result = model(batch, memory)
        memory, key = result.memory, f"plm_mem.{direction}"
        mask_BP = batch.target_mask
        output_BPD = want[f"{key}.output_{part}"].transpose(0, 1)
        close(result.output.predicted_BPD[mask_BP], output_BPD[mask_BP], dtype)
        close(result.nll[mask_BP], want[f"{key}.lm_loss_{part}"].T[mask_BP], dtype)
        close(result.loss, want[f"{key}.total_loss_{part}"], dtype)
        close(memory.hidden_LBMD, want[f"{key}.new_mems_{part}"].transpose(1, 2), dtype)


@torch.no_grad()
@pytest.mark.parametrize("direction", ["uni", "bi"])
def test_two_streams_at_every_position(name: str, dtype: torch.dtype, direction: str) -> None:
    """The original without a target mapping computes the query stream everywhere; it counts at the targets."""
    want = values(name, dtype)
    ids_BQ = want["plm_full.input_k"].long()
    is_target_BQ = want["plm_full.input_q"] == 1
    batch = Batch(
        ids_BQ=ids_BQ,
        segments_BQ=want["plm_full.seg_id"].long(),
        visible_BQQ=want["plm_full.perm_mask"] == 0,
        predicted_BP=torch.arange(ids_BQ.shape[1]).expand_as(ids_BQ),
        targets=want["plm_full.target"].long(),
        target_mask=want["plm_full.target_mask"] == 1,
        reversed_B=second_half_reversed(len(ids_BQ)) if direction == "bi" else None,
    )
    result = load_xlnet(name, dtype)(batch)
    output_BQD = want[f"plm_full.{direction}.output"].transpose(0, 1)
    close(result.output.predicted_BPD[is_target_BQ], output_BQD[is_target_BQ], dtype)
    close(result.loss, want[f"plm_full.{direction}.total_loss"], dtype)


# --------------------------------------------------------------------------------------------------- heads


def fine_tuned(name: str) -> dict[str, np.ndarray]:
    return arrays(FIXTURES / "xlnet" / name / "finetuned.npz")


def fill(module: torch.nn.Module, name: str, dtype: torch.dtype, parts: dict[str, str]) -> torch.nn.Module:
    """Loads the trunk and the named parts of a head (segue's name -> the original's), transposing kernels."""
    variables = fine_tuned(name)
    state = {n.removeprefix("trunk."): v for n, v in xlnet_state(variables).items()}
    state = {f"trunk.{n}": v for n, v in state.items()} if hasattr(module, "trunk") else {}
    for ours, theirs in parts.items():
        value = torch.from_numpy(np.ascontiguousarray(variables[theirs]))
        if value.dim() == 3:  # an attention kernel with its heads apart
            value = value.flatten(1) if "/o/" in theirs else value.flatten(1).T
        elif theirs.endswith("kernel"):
            value = value.T
        state[ours] = value
    missing = module.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"trunk.reader.mask_embedding_D"}  # fine-tuning leaves it out
    return module.to(dtype).eval()


SUMMARY = {"dense.weight": "model/sequnece_summary/summary/kernel", "dense.bias": "model/sequnece_summary/summary/bias"}
ATTENTION = {
    "query_D": "model/sequnece_summary/summary_bias",
    "query.weight": "model/sequnece_summary/abs_attn/q/kernel",
    "key.weight": "model/sequnece_summary/abs_attn/k/kernel",
    "value.weight": "model/sequnece_summary/abs_attn/v/kernel",
    "out.weight": "model/sequnece_summary/abs_attn/o/kernel",
    "norm.weight": "model/sequnece_summary/abs_attn/LayerNorm/gamma",
    "norm.bias": "model/sequnece_summary/abs_attn/LayerNorm/beta",
}


@pytest.mark.one_in(3)
@torch.no_grad()
@pytest.mark.parametrize("projected", [True, False])
@pytest.mark.parametrize(
    ("kind", "key"), [("last", "last"), ("first", "first"), ("mean", "mean"), ("attention", "attn")]
)
def test_summaries(name: str, dtype: torch.dtype, kind: str, key: str, projected: bool) -> None:
    """The original's first, last and mean know nothing of padding: equal if ours are told nothing either."""
    want = values(name, dtype)
    config = xlnet_config(name)
    parts = (SUMMARY if projected else {}) | (ATTENTION if kind == "attention" else {})
    summary = fill(Summary(config, kind=kind, projected=projected), name, dtype, parts)
    hidden_BQD = want["enc.output"].to(dtype).transpose(0, 1)
    real_BQ = want["enc.input_mask"].T == 0 if kind == "attention" else None
    close(summary(hidden_BQD, real_BQ), want[f"pool.{key}" + ("" if projected else "_noproj")], dtype)


@torch.no_grad()
def test_classification_and_regression(name: str, dtype: torch.dtype) -> None:
    want = values(name, dtype)
    summary = {f"summary.{ours}": theirs for ours, theirs in SUMMARY.items()}
    config = xlnet_config(name)
    for key, task, scope in (
        ("cls", "single", "classification_mnli_matched"),
        ("reg", "regression", "regression_sts-b"),
    ):
        logit = {f"classifier.{p}": f"model/{scope}/logit/{q}" for p, q in (("weight", "kernel"), ("bias", "bias"))}
        head = SequenceClassifier(config, num_labels=3 if key == "cls" else 1, task=task)
        fill(head, name, dtype, summary | logit)
        labels = want[f"{key}.label_ids"]
        result = head(encoder_batch(want), labels=labels.long() if key == "cls" else labels)
        close(result.logits.squeeze(-1), want[f"{key}.logits"], dtype)
        close(result.loss, want[f"{key}.total_loss"], dtype)


@torch.no_grad()
def test_multiple_choice(name: str, dtype: torch.dtype) -> None:
    want = values(name, dtype)
    parts = {f"summary.{ours}": theirs for ours, theirs in SUMMARY.items()}
    parts |= {"scorer.weight": "logits/dense/kernel", "scorer.bias": "logits/dense/bias"}
    head = fill(SequenceScorer(xlnet_config(name), loss="choice"), name, dtype, parts)
    batch = Batch(
        ids_BQ=want["race.input_ids"].long().view(8, -1),
        segments_BQ=want["race.segment_ids"].long().view(8, -1),
        real_BQ=want["race.input_mask"].view(8, -1) == 0,
    )
    result = head(batch, group=4, labels=want["race.label_ids"].long())
    close(result.logits, want["race.logits"], dtype)
    close(result.loss, want["race.total_loss"], dtype)


@torch.no_grad()
def test_span_answers(name: str, dtype: torch.dtype) -> None:
    want = values(name, dtype)
    head = BeamAnswerer(xlnet_config(name), num_starts=int(want["qa.start_n_top"]), num_ends=int(want["qa.end_n_top"]))
    parts = {"end_norm.weight": "end_logits/LayerNorm/gamma", "end_norm.bias": "end_logits/LayerNorm/beta"}
    for ours, theirs in (
        ("start", "start_logits/dense"),
        ("end_dense", "end_logits/dense_0"),
        ("end", "end_logits/dense_1"),
        ("impossible_dense", "answer_class/dense_0"),
    ):
        parts |= {f"{ours}.weight": f"{theirs}/kernel", f"{ours}.bias": f"{theirs}/bias"}
    fill(head, name, dtype, parts | {"impossible.weight": "answer_class/dense_1/kernel"})
    batch = Batch(
        ids_BQ=want["qa.input_ids"].long(),
        segments_BQ=want["qa.segment_ids"].long(),
        real_BQ=want["qa.input_mask"] == 0,
    )
    allowed_BQ = want["qa.p_mask"] == 0
    cls_B = want["qa.cls_index"].long()
    spans = Spans(
        start_B=want["qa.start_positions"].long(),
        end_B=want["qa.end_positions"].long(),
        impossible_B=want["qa.is_impossible"] == 1,
    )
    train = head(batch, cls_B=cls_B, allowed_BQ=allowed_BQ, spans=spans)
    close(train.start_logits_BQ[allowed_BQ], want["qa.train.start_logits_masked"][allowed_BQ], dtype)
    close(train.end_logits[allowed_BQ], want["qa.train.end_logits_masked"][allowed_BQ], dtype)
    close(train.impossible_B, want["qa.train.cls_logits"], dtype)
    close(train.loss, want["qa.train.total_loss"], dtype)

    infer = head(batch, cls_B=cls_B, allowed_BQ=allowed_BQ)
    assert torch.equal(infer.start_index_BA, want["qa.infer.start_top_index"].long())
    assert torch.equal(infer.end_index_BAZ.flatten(1), want["qa.infer.end_top_index"].long())
    close(infer.start_log_probability_BA, want["qa.infer.start_top_log_probs"], dtype)
    close(infer.end_log_probability_BAZ.flatten(1), want["qa.infer.end_top_log_probs"], dtype)
    close(infer.impossible_B, want["qa.infer.cls_logits"], dtype)


def test_fixture_weights_cover_the_model(name: str, dtype: torch.dtype) -> None:
    """Every parameter is noise: none is zero or one by luck, so a forgotten one would show."""
    for parameter in load_xlnet(name, dtype).parameters():
        assert parameter.std() > 1e-3
