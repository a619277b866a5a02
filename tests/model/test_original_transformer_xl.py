"""Transformer-XL against the original PyTorch and TensorFlow code: losses, states, memories, training."""

import json

import pytest
import torch

from segue.config import changed
from segue.model import Batch, LanguageModel, Memory
from segue.model.kernels import Dropout
from tests.originals import FIXTURES, TOLERANCE, arrays, build, expected, load_pytorch, load_tensorflow, pytorch_state

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
PYTORCH = [
    "C1_softmax_tied",
    "C2_adaptive_div2",
    "C3_pre_lnorm",
    "C4_same_length_clamp",
    "C5_attn_type1",
    "C6_attn_type2",
    "C6_attn_type3",
    "C7_adaptive_div1",
    "C8_projected_div1",
]
TENSORFLOW = ["D1_wt103_like", "D2_enwik8_like", "D3_lm1b_like", "D4_wt103_base_like"]


def close(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> None:
    torch.testing.assert_close(got, want.to(got.dtype), rtol=0, atol=TOLERANCE[dtype])


def read_segments(model: LanguageModel, want: dict[str, torch.Tensor], dtype: torch.dtype) -> int:
    """Runs all segments with memory carried over and compares everything; returns how many there were."""
    memory: Memory | None = None
    count = sum(name.startswith("data_") for name in want)
    for key in range(1, count + 1):
        batch = Batch(ids_BQ=want[f"data_{key}"].T.long(), targets=want[f"target_{key}"].T.long())
        with torch.no_grad():
            result = model(batch, memory)
        memory = result.memory
        close(result.output.hidden_BQD, want[f"hidden_{key}"].transpose(0, 1), dtype)
        close(result.nll, want[f"nll_{key}"].T, dtype)
        if memory is not None:
            mems_LBMD = want[f"mems_{key}"][: memory.hidden_LBMD.shape[0]].transpose(1, 2)
            length = mems_LBMD.shape[2]
            assert memory.valid_BM.sum(dim=1).eq(length).all()
            close(memory.hidden_LBMD[:, :, -length:], mems_LBMD, dtype)
    return count


@DTYPES
@pytest.mark.parametrize("name", PYTORCH)
def test_pytorch_segments(name: str, dtype: torch.dtype) -> None:
    model, settings = load_pytorch(name, dtype)
    want = expected(FIXTURES / "transformer_xl_pytorch" / name, "expected", dtype)
    assert read_segments(model, want, dtype) == settings["run"]["n_seg"]


@DTYPES
@pytest.mark.parametrize("run", ["both", "same_length", "clamp"])
def test_pytorch_evaluation_settings(run: str, dtype: torch.dtype) -> None:
    """Evaluation with other lengths: the same weights under adjusted settings."""
    model, settings = load_pytorch("C4_same_length_clamp", dtype)
    lengths = settings["eval_runs"][run]
    model = model.adjusted(
        memory={"length": lengths["mem_len"]},
        positions={"clamp_distance": lengths["clamp_len"] if lengths["clamp_len"] > 0 else None},
        attention_span=lengths["mem_len"] if lengths["same_length"] else None,
    )
    want = expected(FIXTURES / "transformer_xl_pytorch/C4_same_length_clamp", f"expected_{run}", dtype)
    assert read_segments(model, want, dtype) == lengths["n_seg"]


@DTYPES
@pytest.mark.parametrize("run", ["clamp", "longer"])
def test_pytorch_learned_relative_evaluation(run: str, dtype: torch.dtype) -> None:
    """Its clamp_len keeps that many rows of the table; keys beyond the table share its last row."""
    model, settings = load_pytorch("C5_attn_type1", dtype)
    lengths = settings["eval_runs"][run]
    rows = lengths["clamp_len"] if lengths["clamp_len"] > 0 else model.config.positions.max_distance + 1
    config = changed(
        model.config,
        memory={"length": lengths["mem_len"]},
        positions={"max_distance": rows - 1},
        attention_span=lengths["mem_len"] if lengths["same_length"] else None,
    )
    state = pytorch_state(arrays(FIXTURES / "transformer_xl_pytorch/C5_attn_type1/state.npz"))
    state = {name: value[:rows] if "relative" in name else value for name, value in state.items()}
    want = expected(FIXTURES / "transformer_xl_pytorch/C5_attn_type1", f"expected_{run}", dtype)
    assert read_segments(build(config, state, dtype), want, dtype) == lengths["n_seg"]


@DTYPES
def test_pytorch_extended_context(dtype: torch.dtype) -> None:
    """ext_len: a segment begins with tokens that were read before, so memory leaves them out: our reuse length.

    The first segment has no such tokens, and all of it is remembered: with a reuse length of tgt_len, segment 2 sees
    ext_len tokens twice here as there (docs/differences.md).
    """
    model, settings = load_pytorch("C9_ext_len", dtype)
    want = expected(FIXTURES / "transformer_xl_pytorch/C9_ext_len", "expected", dtype)
    fresh = settings["model"]["tgt_len"]
    reader = model.adjusted(memory={"reuse_length": fresh})
    memory = None
    for key in range(1, settings["run"]["n_seg"] + 1):
        batch = Batch(ids_BQ=want[f"data_{key}"].T.long())
        with torch.no_grad():
            result = reader(batch, memory)
            nll = reader.nll(result.output.hidden_BQD[:, -fresh:], want[f"target_{key}"].T.long())
        close(nll, want[f"nll_{key}"].T, dtype)
        memory, mems_LBMD = result.memory, want[f"mems_{key}"][:-1].transpose(1, 2)
        kept = mems_LBMD.shape[2]
        assert memory.valid_BM.sum(dim=1).eq(kept).all()
        close(memory.hidden_LBMD[:, :, -kept:], mems_LBMD, dtype)


@DTYPES
@pytest.mark.parametrize("run", ["train_like", "eval_like"])
@pytest.mark.parametrize("name", TENSORFLOW)
def test_tensorflow_segments(name: str, run: str, dtype: torch.dtype) -> None:
    model = load_tensorflow(name, run, dtype)
    folder = FIXTURES / "transformer_xl_tf" / name
    settings = json.loads((folder / "config.json").read_text())["runs"][run]
    assert read_segments(model, expected(folder, f"expected_{run}", dtype), dtype) == settings["n_seg"]


@DTYPES
@pytest.mark.parametrize("name", ["C1_softmax_tied", "C2_adaptive_div2"])
def test_pytorch_training_trajectory(name: str, dtype: torch.dtype) -> None:
    """20 steps of Adam with clipping and memory: losses, gradient norms, first gradient, final weights."""
    folder = FIXTURES / "transformer_xl_pytorch" / name
    model, _ = load_pytorch(name, dtype)
    want = expected(folder, "train", dtype)
    recipe = json.loads((folder / "train.json").read_text())
    model.train()
    for module in model.modules():
        if isinstance(module, Dropout):
            module.probability = 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe["lr"], betas=tuple(recipe["betas"]), eps=recipe["eps"])
    memory = None
    losses, norms = [], []
    for step in range(recipe["steps"]):
        batch = Batch(ids_BQ=want["data"][step].T.long(), targets=want["target"][step].T.long())
        result = model(batch, memory)
        memory = result.memory
        optimizer.zero_grad(set_to_none=True)
        result.loss.backward()
        if step == 0:
            gradients = {n.removeprefix("grad0/"): v.numpy() for n, v in want.items() if n.startswith("grad0/")}
            for parameter, gradient in pytorch_state(gradients).items():
                close(model.get_parameter(parameter).grad, gradient, dtype)
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip"]))
        optimizer.step()
        losses.append(result.loss.detach())
    close(torch.stack(losses), want["loss"], dtype)
    close(torch.stack(norms), want["grad_norm"], dtype)
    if dtype == torch.float64:  # Adam enlarges the noise of near-zero gradients: compare weights where it is small
        final = {n.removeprefix("final/"): v.numpy() for n, v in want.items() if n.startswith("final/")}
        for parameter, value in pytorch_state(final).items():
            close(model.get_parameter(parameter), value, dtype)
        length = want["final_mems"].shape[1]
        close(memory.hidden_LBMD[:, :, -length:], want["final_mems"][:-1].transpose(1, 2), dtype)
