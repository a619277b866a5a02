"""Memory as a value: reset, rows of different age, reuse, gradients, and what it refuses."""

import pytest
import torch

from segue.config import changed
from segue.errors import DataError
from segue.model import Batch, LanguageModel, Memory
from tests.tiny import CAUSAL, MODELS, noisy, random_ids

WITH_MEMORY = {name: config for name, config in MODELS.items() if config.memory is not None}
XL = MODELS["transformer-xl-enwik8-base"]


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", WITH_MEMORY)
@torch.no_grad()
def test_rows_of_different_age_share_a_batch(name: str) -> None:
    """Row 0 goes on, row 1 starts a document: each as if it were alone."""
    model = noisy(WITH_MEMORY[name])
    before, now = random_ids(2, 5, seed=1), random_ids(2, 5, seed=2)
    memory = model(Batch(ids_BQ=before)).memory
    mixed = model(Batch(ids_BQ=now, starts_B=torch.tensor([False, True])), memory)
    old = model(Batch(ids_BQ=now[:1]), model(Batch(ids_BQ=before[:1])).memory)
    new = model(Batch(ids_BQ=now[1:]))
    close(mixed.output.hidden_BQD, torch.cat([old.output.hidden_BQD, new.output.hidden_BQD]))
    for b, alone in enumerate((old, new)):
        assert torch.equal(mixed.memory.valid_BM[b], alone.memory.valid_BM[0])
        valid = mixed.memory.valid_BM[b]
        close(mixed.memory.hidden_LBMD[:, b, valid], alone.memory.hidden_LBMD[:, 0, valid])
        assert mixed.memory.position_B[b] == alone.memory.position_B[0]


@torch.no_grad()
def test_initial_memory_empty_or_zeros() -> None:
    """Zeros are attended to (a sink for the softmax); empty is as if there were nothing."""
    batch = Batch(ids_BQ=random_ids(2, 4))
    empty, zeros = noisy(XL), noisy(changed(XL, memory={"initial": "zeros"}))
    nothing = noisy(changed(XL, memory=None))
    close(empty(batch).output.hidden_BQD, nothing(batch).output.hidden_BQD)
    close(empty(batch, empty.new_memory(2)).output.hidden_BQD, nothing(batch).output.hidden_BQD)
    close(zeros(batch).output.hidden_BQD, zeros(batch, zeros.new_memory(2)).output.hidden_BQD)
    assert (zeros(batch).output.hidden_BQD - empty(batch).output.hidden_BQD).abs().max() > 1e-3
    after = zeros(batch).memory.reset(torch.tensor([True, False]), valid=True)
    assert after.valid_BM.all()
    assert after.hidden_LBMD[:, 0].abs().max() == 0 < after.hidden_LBMD[:, 1].abs().max()
    assert nothing.new_memory(2) is None


@torch.no_grad()
def test_reuse_keeps_the_first_positions() -> None:
    """Memory 4, reuse 3 of 5: after two segments one old position and three new ones."""
    model = noisy(changed(XL, memory={"length": 4, "reuse_length": 3}))
    first = model(Batch(ids_BQ=random_ids(1, 5, seed=1)))
    second = model(Batch(ids_BQ=random_ids(1, 5, seed=2)), first.memory)
    assert first.memory.valid_BM.tolist() == [[False, True, True, True]]
    assert second.memory.position_B.tolist() == [6]
    close(second.memory.hidden_LBMD[:, :, :1], first.memory.hidden_LBMD[:, :, 3:])
    close(second.memory.hidden_LBMD[0, :, 1:], second.output.layers[0][:, :3])


def gradient_by_segment(model: LanguageModel, segments: int) -> list[list[bool]]:
    """For the loss of each segment: which segments' tokens (all different) get a gradient."""
    reached = []
    for last in range(segments):
        memory = None
        model.zero_grad()
        for s in range(last + 1):
            ids_BQ = torch.tensor([[2 * s, 2 * s + 1]])
            result = model(Batch(ids_BQ=ids_BQ), memory)
            memory = result.memory
        result.output.hidden_BQD.square().sum().backward()
        gradient_V = model.trunk.vocabulary.tables[0].grad.abs().sum(dim=1)
        reached.append([bool(gradient_V[2 * s : 2 * s + 2].sum() > 0) for s in range(last + 1)])
    return reached


def test_gradients_stop_at_memory_or_flow_through_it() -> None:
    """Detached: only the segment itself. Through k segments: runs of k + 1 segments, as documented."""
    assert gradient_by_segment(noisy(XL), 3) == [[True], [False, True], [False, False, True]]
    one = noisy(changed(XL, memory={"backprop_segments": 1}))
    assert gradient_by_segment(one, 4) == [
        [True],
        [True, True],
        [False, False, True],
        [False, False, True, True],
    ]
    two = noisy(changed(XL, memory={"backprop_segments": 2}))
    assert gradient_by_segment(two, 4)[2:] == [[True, True, True], [False, False, False, True]]


def test_gradient_through_memory_equals_that_of_one_segment() -> None:
    """Law 1 for gradients: with memory in the graph, two segments are one."""
    model = noisy(changed(XL, memory={"length": 6, "backprop_segments": 1}))
    ids = random_ids(2, 7)
    first = model(Batch(ids_BQ=ids[:, :3], targets=ids[:, 1:4]))
    second = model(Batch(ids_BQ=ids[:, 3:6], targets=ids[:, 4:7]), first.memory)
    (first.loss / 2 + second.loss / 2).backward()
    apart = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    model(Batch(ids_BQ=ids[:, :6], targets=ids[:, 1:7])).loss.backward()
    for name, parameter in model.named_parameters():
        close(apart[name], parameter.grad)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_memory_is_never_changed_in_place(name: str) -> None:
    model = noisy(changed(CAUSAL[name], memory={"length": 6}))
    memory = model(Batch(ids_BQ=random_ids(2, 5))).memory
    before = memory.hidden_LBMD.clone(), memory.valid_BM.clone(), memory.position_B.clone()
    model(Batch(ids_BQ=random_ids(2, 5, seed=1), starts_B=torch.tensor([True, False])), memory)
    assert torch.equal(before[0], memory.hidden_LBMD)
    assert torch.equal(before[1], memory.valid_BM)
    assert torch.equal(before[2], memory.position_B)


def test_dropout_noise_is_in_the_memory_of_training() -> None:
    """As in the original: memory is what the layers read, not a cleaner copy."""
    model = noisy(changed(XL, dropout=0.5)).train()
    torch.manual_seed(0)
    result = model(Batch(ids_BQ=random_ids(1, 4)))
    assert torch.equal(result.memory.hidden_LBMD[0, :, -4:], result.output.layers[0])
    assert (result.output.layers[0] == 0).any()


def test_memory_moves_and_changes_dtype() -> None:
    memory = noisy(XL)(Batch(ids_BQ=random_ids(2, 4))).memory.to(torch.float32)
    assert memory.hidden_LBMD.dtype == torch.float32
    assert memory.valid_BM.dtype == torch.bool
    assert memory.position_B.dtype == torch.long
    assert memory.rows == 2


def test_a_memory_that_does_not_fit_is_refused() -> None:
    model = noisy(XL)
    batch = Batch(ids_BQ=random_ids(3, 4))
    memory = model(Batch(ids_BQ=random_ids(2, 4))).memory
    with pytest.raises(DataError, match=r"got 2 and 3.*memory\.select"):
        model(batch, memory)
    with pytest.raises(DataError, match="without memory"):
        noisy(changed(XL, memory=None))(batch, model.new_memory(3))
    with pytest.raises(DataError, match="same model"):
        noisy(changed(XL, width=14))(batch, model.new_memory(3))


def test_padding_between_memory_and_tokens_is_refused() -> None:
    model = noisy(XL)
    memory = model(Batch(ids_BQ=random_ids(2, 4))).memory
    real_BQ = torch.tensor([[True, True], [False, True]])
    with pytest.raises(DataError, match=r"padding must be on the right.*row 1"):
        model(Batch(ids_BQ=random_ids(2, 2), real_BQ=real_BQ), memory)
    model(Batch(ids_BQ=random_ids(2, 2), real_BQ=real_BQ), model.new_memory(2))  # nothing is remembered: fine
    model(Batch(ids_BQ=random_ids(2, 2), real_BQ=real_BQ, starts_B=torch.tensor([False, True])), memory)
    with pytest.raises(DataError, match="padding must be on the right"):  # zeros are something to attend to
        noisy(changed(XL, memory={"initial": "zeros"}))(Batch(ids_BQ=random_ids(2, 2), real_BQ=real_BQ))


def test_learned_positions_end_somewhere() -> None:
    model = noisy(changed(XL, positions={"kind": "absolute", "encoding": "learned", "max_length": 6}))
    memory = model(Batch(ids_BQ=random_ids(1, 4))).memory
    with pytest.raises(DataError, match="6 positions; got 8"):
        model(Batch(ids_BQ=random_ids(1, 4)), memory)
    model(Batch(ids_BQ=random_ids(1, 2)), memory)


def test_select_repeats_rows() -> None:
    memory = noisy(XL)(Batch(ids_BQ=random_ids(2, 4))).memory
    assert isinstance(memory, Memory)
    beams = memory.select([1, 1, 0])
    assert torch.equal(beams.hidden_LBMD[:, 0], memory.hidden_LBMD[:, 1])
    assert torch.equal(beams.hidden_LBMD[:, 2], memory.hidden_LBMD[:, 0])
