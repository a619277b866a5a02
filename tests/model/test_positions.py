"""Distances, sinusoids and the relative shift, against their definitions."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.model.positions import distance_columns, distances, relative_shift, relative_unshift, sinusoid
from tests import oracles
from tests.examples import examples

quick = settings(max_examples=examples(60), deadline=None, derandomize=True)


@quick
@given(queries=st.integers(1, 7), memory=st.integers(0, 7), bidirectional=st.booleans())
def test_shift_brings_each_distance_to_its_key(queries: int, memory: int, bidirectional: bool) -> None:
    keys = memory + queries
    distance_R = distances(num_queries=queries, num_keys=keys, bidirectional=bidirectional)
    shifted_QK = relative_shift(distance_R.expand(1, 1, queries, -1), num_keys=keys)[0, 0]
    for i in range(queries):
        for j in range(keys):
            if bidirectional or j <= memory + i:
                assert shifted_QK[i, j] == memory + i - j


@quick
@given(queries=st.integers(1, 6), memory=st.integers(0, 6), bidirectional=st.booleans(), seed=st.integers(0, 99))
def test_unshift_is_the_transpose_of_shift(queries: int, memory: int, bidirectional: bool, seed: int) -> None:
    """sum(shift(x) * y) = sum(x * unshift(y)), where y is zero for keys out of reach."""
    keys = memory + queries
    count = len(distances(num_queries=queries, num_keys=keys, bidirectional=bidirectional))
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 1, queries, count, generator=generator, dtype=torch.float64)
    y = torch.randn(2, 1, queries, keys, generator=generator, dtype=torch.float64)
    if not bidirectional:
        y = y.tril(memory)
    left = (relative_shift(x, num_keys=keys) * y).sum()
    right = (x * relative_unshift(y, num_distances=count)).sum()
    torch.testing.assert_close(left, right)


@quick
@given(queries=st.integers(1, 6), memory=st.integers(0, 6), seed=st.integers(0, 99))
def test_gathered_columns_are_the_shifted_ones(queries: int, memory: int, seed: int) -> None:
    keys = memory + queries
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 1, queries, keys + queries, generator=generator)
    at_BQ = torch.randint(0, queries, (1, 4), generator=generator)
    column_BQK = distance_columns(at_BQ, segment_length=queries, num_keys=keys)
    gathered = x[:, :, at_BQ[0]].gather(-1, column_BQK[:, None])
    assert torch.equal(gathered, relative_shift(x, num_keys=keys)[:, :, at_BQ[0]])


def test_the_causal_form_leaves_numbers_of_the_next_row_to_be_masked() -> None:
    """Q = 3, M = 2: correct where a key is not to the right of the query, not elsewhere."""
    distance_R = distances(num_queries=3, num_keys=5, bidirectional=False)
    shifted = relative_shift(distance_R.expand(1, 1, 3, -1), num_keys=5)[0, 0]
    assert shifted.tolist() == [[2, 1, 0, 5, 4], [3, 2, 1, 0, 5], [4, 3, 2, 1, 0]]


@quick
@given(position=st.integers(-50, 5000), half=st.integers(1, 8))
def test_sinusoids(position: int, half: int) -> None:
    got = sinusoid(torch.tensor(position), width=2 * half, dtype=torch.float64)
    torch.testing.assert_close(
        got, torch.tensor(oracles.sinusoid(position, 2 * half), dtype=torch.float64), rtol=0, atol=1e-9
    )


def test_low_precision_sinusoids_are_rounded_once() -> None:
    """Computed in float32 and then cast: a bfloat16 angle of 1000 would be off by whole turns."""
    got = sinusoid(torch.tensor(1003), width=8, dtype=torch.bfloat16)
    exact = sinusoid(torch.tensor(1003), width=8, dtype=torch.float64)
    assert (got.double() - exact).abs().max() < 0.01
