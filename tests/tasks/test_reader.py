"""Documents of a batch are read in groups of about the same length: little padding, and the numbers of one reading."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from segue.checkpoint.folder import load
from segue.config import ReadConfig
from segue.model import LanguageModel
from segue.model.reading import DocumentStates, GroupedStates, TokenDocument, read_documents
from segue.tasks.reader import FREE, PADDING, TOGETHER, Reader, length_groups


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=120))
def test_groups_have_little_padding(lengths: list[int]) -> None:
    groups = length_groups(lengths)
    assert sorted(n for group in groups for n in group) == list(range(len(lengths)))
    for group in groups:
        own = [lengths[n] for n in group]
        positions = max(own) * len(own)
        assert len(group) <= TOGETHER
        assert positions - sum(own) < max(PADDING * positions, FREE + 1)


def test_documents_of_one_length_are_read_at_once() -> None:
    assert length_groups([50, 49, 50, 48]) == [[0, 1, 2, 3]]
    assert length_groups([3, 9, 1]) == [[0, 1, 2]]  # a few positions are cheaper than another reading
    assert length_groups([500, 100]) == [[0], [1]]


@pytest.mark.parametrize("objective", ["permutation", "causal", "masked"])
def test_groups_give_the_numbers_of_one_reading(model_of_each_objective: dict[str, Path], objective: str) -> None:
    model = load(model_of_each_objective[objective])
    assert isinstance(model, LanguageModel)
    trunk = model.double().eval().trunk
    random = np.random.default_rng(0)
    documents = [
        TokenDocument(ids=random.integers(5, 300, length), segments=np.zeros(length, dtype=np.int64))
        for length in (90, 3, 41, 200, 40, 16, 17)
    ]
    reader = Reader(ReadConfig(), segment_length=16)
    with torch.no_grad():
        found = reader.every_token(trunk, documents)
        whole = read_documents(trunk, documents, segment_length=16)
        assert isinstance(found, GroupedStates)
        assert isinstance(whole, DocumentStates)
        means = [one.summaries(lambda hidden, real: (hidden * real[:, :, None]).sum(1)) for one in (found, whole)]
        tokens = [one.tokens() for one in (found, whole)]
    assert reader.tokens == sum(map(len, documents))
    assert reader.positions < 1.1 * reader.tokens < whole.positions_computed
    for (ours, mask), (expected, expected_mask) in (means, tokens):
        assert torch.equal(mask, expected_mask)
        torch.testing.assert_close(ours[mask], expected[mask], rtol=0, atol=1e-10)
