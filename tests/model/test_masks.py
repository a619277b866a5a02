"""Who may see whom, against the definitions."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.model.masks import causal_mask, order_to_rank, permutation_mask
from tests import oracles

quick = settings(max_examples=60, deadline=None, derandomize=True)


@quick
@given(queries=st.integers(1, 6), memory=st.integers(0, 8), span=st.none() | st.integers(1, 9))
def test_causal_mask(queries: int, memory: int, span: int | None) -> None:
    mask_QK = causal_mask(num_queries=queries, num_keys=memory + queries, span=span)
    for i in range(queries):
        seen = [j for j in range(memory + queries) if mask_QK[i, j]]
        available = list(range(memory + i + 1))
        assert seen == (available if span is None else available[-span:])


@quick
@given(data=st.data(), length=st.integers(1, 8))
def test_permutation_mask(data: st.DataObject, length: int) -> None:
    order = data.draw(st.permutations(range(length)))
    roles = data.draw(st.lists(st.sampled_from(["context", "target", "functional"]), min_size=length, max_size=length))
    context = {q for q in range(length) if roles[q] == "context"}
    targets = {q for q in range(length) if roles[q] == "target"}
    rank = [-1 if q in context else order.index(q) for q in range(length)]
    is_target = torch.tensor([[q in targets for q in range(length)]])
    visible_BQQ = permutation_mask(torch.tensor([rank]), is_target)
    sees = oracles.permutation_sees(order, context, targets)
    for i in range(length):
        for j in range(length):
            assert bool(visible_BQQ[0, i, j]) == sees(i, j), (order, roles, i, j)


def test_order_and_rank_are_inverse() -> None:
    order_BQ = torch.tensor([[2, 0, 3, 1]])
    rank_BQ = order_to_rank(order_BQ)
    assert rank_BQ.tolist() == [[1, 3, 0, 2]]
    assert rank_BQ.gather(1, order_BQ).tolist() == [[0, 1, 2, 3]]
