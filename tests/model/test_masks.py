"""Who may see whom, against the definitions."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.model.masks import (
    causal_mask,
    mask_without,
    order_to_rank,
    permutation_mask,
    segment_masks,
    stream_mask,
)
from tests import oracles
from tests.examples import examples

quick = settings(max_examples=examples(60), deadline=None, derandomize=True)


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


@quick
@given(data=st.data(), length=st.integers(1, 5), past=st.integers(0, 4), bidirectional=st.booleans())
def test_segment_masks(data: st.DataObject, length: int, past: int, bidirectional: bool) -> None:
    def booleans(count: int) -> list[bool]:
        return data.draw(st.lists(st.booleans(), min_size=count, max_size=count))

    valid, real, visible = booleans(past), booleans(length), [booleans(length) for _ in range(length)]
    span = None if bidirectional else data.draw(st.none() | st.integers(1, 5))
    predicted = data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=3))
    content_BQK, query_BPK = segment_masks(
        torch.tensor([valid], dtype=torch.bool),
        torch.tensor([real]),
        bidirectional=bidirectional,
        span=span,
        visible_BQQ=torch.tensor([visible]),
        predicted_BP=torch.tensor([predicted]),
    )

    def sees(i: int, k: int) -> bool:
        distance = past + i - k
        near = bidirectional or (distance >= 0 and (span is None or distance < span))
        return near and (valid[k] if k < past else real[k - past] and visible[i][k - past])

    for i in range(length):
        expected = [sees(i, k) or k == past + i for k in range(past + length)]
        assert content_BQK[0, i].tolist() == expected
    assert query_BPK is not None
    for place, i in enumerate(predicted):
        assert query_BPK[0, place].tolist() == [sees(i, k) and k != past + i for k in range(past + length)]


def test_without_memory_or_predictions_a_segment_has_one_mask() -> None:
    real_BQ = torch.tensor([[True, True, False]])
    content_BQK, query_BPK = segment_masks(None, real_BQ, bidirectional=True, span=None)
    assert query_BPK is None
    assert content_BQK.long().tolist() == [[[1, 1, 0], [1, 1, 0], [1, 1, 1]]]


def test_stream_mask() -> None:
    valid_BK = torch.tensor([[False, True, True, True, True], [True] * 5])
    mask_BQK = stream_mask(valid_BK, num_queries=2, span=3)
    assert mask_BQK.long().tolist() == [[[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]], [[0, 1, 1, 1, 0], [0, 0, 1, 1, 1]]]
    assert torch.equal(stream_mask(valid_BK, num_queries=1, span=5), valid_BK[:, None])
    real_BQ = torch.tensor([[False, True], [True, True]])
    valid_BK[0, 1:4] = False
    assert stream_mask(valid_BK, num_queries=2, span=3, real_BQ=real_BQ)[0].long().tolist() == [
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1],
    ]


def test_mask_without_one_token() -> None:
    visible_BQQ = mask_without(torch.tensor([2, 0]), length=3)
    assert visible_BQQ.long().tolist() == [[[1, 1, 0]] * 3, [[0, 1, 1]] * 3]
