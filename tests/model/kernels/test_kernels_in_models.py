"""Whole models give the same results with every kernel."""

from types import ModuleType

import pytest
import torch

from segue.model import Batch, LanguageModel
from segue.model.kernels import banded, definition
from segue.model.masks import order_to_rank, permutation_mask
from tests.model.kernels.cases import each_kernel
from tests.tiny import MODELS, random_ids


def permutation_batch(rows: int, length: int) -> Batch:
    ids_BQ = random_ids(rows, length)
    order_BQ = torch.stack([torch.randperm(length, generator=torch.Generator().manual_seed(i)) for i in range(rows)])
    rank_BQ = order_to_rank(order_BQ)
    predicted_BP = order_BQ[:, -length // 3 :].sort().values
    target_BQ = torch.zeros_like(ids_BQ, dtype=torch.bool).scatter(1, predicted_BP, True)
    return Batch(
        ids_BQ=ids_BQ,
        targets=ids_BQ.gather(1, predicted_BP),
        predicted_BP=predicted_BP,
        visible_BQQ=permutation_mask(rank_BQ.masked_fill(~target_BQ, -1), target_BQ),
        segments_BQ=(torch.arange(length) > length // 2).long().expand(rows, -1),
    )


def losses(model: LanguageModel, batch: Batch, *, autocast: bool) -> list[float]:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    result = []
    for _ in range(12):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = model(batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


@pytest.mark.parametrize("name", ["xlnet-base", "transformer-xl-enwik8-base"])
def test_banded_trains_a_model_under_autocast(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("segue.model.attention.attend", banded.attend)
    if name == "xlnet-base":
        batch = permutation_batch(2, 12)
    else:
        batch = Batch(ids_BQ=random_ids(2, 12), targets=random_ids(2, 12, seed=1))
    runs = {}
    for autocast in (False, True):
        torch.manual_seed(1)
        runs[autocast] = losses(LanguageModel(MODELS[name]).train(), batch, autocast=autocast)
    assert runs[True][-1] < runs[True][0] - 0.3
    torch.testing.assert_close(runs[True], runs[False], rtol=0.02, atol=0)


@each_kernel
@pytest.mark.parametrize("name", ["xlnet-base", "transformer-xl-enwik8-base"])
def test_models_are_the_same_with_every_kernel(kernel: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = (
        permutation_batch(2, 12) if name == "xlnet-base" else Batch(ids_BQ=random_ids(2, 12), targets=random_ids(2, 12))
    )
    torch.manual_seed(1)
    model = LanguageModel(MODELS[name]).double()
    grads = []
    for attend in (kernel.attend, definition.attend):
        monkeypatch.setattr("segue.model.attention.attend", attend)
        model.zero_grad()
        model(batch).loss.backward()
        grads.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    for parameter in grads[0]:
        torch.testing.assert_close(grads[0][parameter], grads[1][parameter], rtol=0, atol=1e-10)
