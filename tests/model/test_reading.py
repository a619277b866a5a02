"""Documents of any length: equal to reading each alone, to its end, whatever stands beside it."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from segue.config import changed
from segue.errors import DataError
from segue.model import Batch
from segue.model.heads import Pool, SequenceClassifier, SequenceScorer, Summary, TokenTagger
from segue.model.reading import TokenDocument, read_documents
from segue.model.trunk import Trunk
from tests.tiny import MODELS, VOCABULARY, noisy

LENGTHS = [5, 1, 13, 8, 4, 9, 12]


def document(length: int, seed: int = 0) -> TokenDocument:
    random = np.random.default_rng([length, seed])
    return TokenDocument(ids=random.integers(0, VOCABULARY, length), segments=random.integers(0, 2, length))


def trunks() -> Iterator[tuple[str, Trunk]]:
    for name in ("transformer-xl-wt103-base", "xlnet-base", "bert-base", "gpt", "rotary", "permutation-shaw"):
        config = MODELS[name]
        if config.memory is not None:
            config = changed(config, memory={"reuse_length": None})
        yield name, noisy(config).double().eval().trunk
    zeros = changed(MODELS["transformer-xl-wt103-base"], memory={"length": 6, "initial": "zeros"})
    yield "zeros", noisy(zeros).double().eval().trunk


@pytest.mark.parametrize(("name", "trunk"), [pytest.param(n, t, id=n) for n, t in trunks()])
def test_a_row_does_not_depend_on_the_others(name: str, trunk: Trunk) -> None:
    documents = [document(length) for length in LENGTHS]
    together = read_documents(trunk, documents, segment_length=4)
    hidden_BTD, real_BT = together.tokens()
    assert real_BT.sum(dim=1).tolist() == LENGTHS
    for row, one in enumerate(documents):
        alone, _ = read_documents(trunk, [one], segment_length=4).tokens()
        torch.testing.assert_close(hidden_BTD[row, : len(one)], alone[0], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["transformer-xl-wt103-base", "xlnet-base"])
def test_segments_are_cut_from_the_end_and_carry_memory(name: str) -> None:
    """As a person would do it with the trunk alone: 13 tokens in segments of 1, 4, 4 and 4."""
    config = changed(MODELS[name], memory={"length": 6, "reuse_length": None})
    trunk = noisy(config).double().eval().trunk
    one = document(13)
    memory, expected = None, []
    for start, stop in ((0, 1), (1, 5), (5, 9), (9, 13)):
        segments = None if config.segments is None else torch.from_numpy(one.segments[None, start:stop])
        output = trunk(Batch(ids_BQ=torch.from_numpy(one.ids[None, start:stop]), segments_BQ=segments), memory)
        memory = output.memory
        expected.append(output.hidden_BQD[0])
    found, _ = read_documents(trunk, [one], segment_length=4).tokens()
    torch.testing.assert_close(found[0], torch.cat(expected), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["bert-base", "xlnet-base"])
def test_windows_overlap_without_memory(name: str) -> None:
    """13 tokens in windows of 4 that repeat 2: each token has the states of the window where it is new."""
    trunk = noisy(changed(MODELS[name], memory=None)).double().eval().trunk
    one, other = document(13), document(3)
    expected = []
    for start, stop, new in ((0, 3, 0), (1, 5, 2), (3, 7, 2), (5, 9, 2), (7, 11, 2), (9, 13, 2)):
        segments = None if trunk.config.segments is None else torch.from_numpy(one.segments[None, start:stop])
        batch = Batch(ids_BQ=torch.from_numpy(one.ids[None, start:stop]), segments_BQ=segments)
        expected.append(trunk(batch).hidden_BQD[0, new:])
    reading = read_documents(trunk, [other, one], segment_length=4, overlap=2)
    found, real = reading.tokens()
    torch.testing.assert_close(found[1], torch.cat(expected), atol=1e-10, rtol=1e-10)
    assert real.sum(dim=1).tolist() == [3, 13]
    vectors, there = reading.summaries(lambda hidden, real: hidden.sum(dim=1))
    assert there.sum(dim=1).tolist() == [1, 6]
    torch.testing.assert_close(vectors[1, -1], reading.hidden[-1][0].sum(dim=0))


def test_a_causal_reader_with_enough_memory_reads_as_if_there_were_no_segments() -> None:
    config = changed(MODELS["transformer-xl-wt103-base"], memory={"length": 40})
    trunk = noisy(config).double().eval().trunk
    documents = [document(length) for length in LENGTHS]
    pieces, _ = read_documents(trunk, documents, segment_length=3).tokens()
    whole, _ = read_documents(trunk, documents, segment_length=50).tokens()
    for row, one in enumerate(documents):
        torch.testing.assert_close(pieces[row, : len(one)], whole[row, : len(one)], atol=1e-9, rtol=1e-9)


def test_gradients_reach_the_last_segments_only() -> None:
    config = changed(MODELS["transformer-xl-wt103-base"], memory={"length": 40, "backprop_segments": 1})
    trunk = noisy(config).double().train().trunk
    one = TokenDocument(ids=np.arange(12) % VOCABULARY, segments=np.zeros(12, dtype=np.int64))
    reading = read_documents(trunk, [one], segment_length=4, gradient_segments=2)
    reading.hidden[-1].sum().backward()
    table = trunk.vocabulary.get_parameter("tables.0").grad
    assert table is not None
    moved = set(table.abs().sum(dim=1).nonzero().flatten().tolist())
    assert moved == {number for number in range(4, 12) if number < table.shape[0]}


def test_segments_and_padding_are_counted() -> None:
    trunk = noisy(MODELS["xlnet-base"]).double().eval().trunk
    reading = read_documents(trunk, [document(6), document(3)], segment_length=4)
    assert [tuple(hidden.shape[:2]) for hidden in reading.hidden] == [(1, 2), (2, 4)]
    assert (reading.tokens_read, reading.positions_computed) == (9, 10)


def test_pools_of_segments() -> None:
    config = MODELS["xlnet-base"]
    segments_BND = torch.randn(2, 3, config.width, dtype=torch.double)
    there_BN = torch.tensor([[True, True, True], [False, True, True]])
    by_hand = {
        "last": [segments_BND[0, 2], segments_BND[1, 2]],
        "mean": [segments_BND[0].mean(0), segments_BND[1, 1:].mean(0)],
        "max": [segments_BND[0].amax(0), segments_BND[1, 1:].amax(0)],
    }
    for kind, expected in by_hand.items():
        pool = Pool(config, kind=kind)  # type: ignore[arg-type]
        torch.testing.assert_close(pool(segments_BND, there_BN), torch.stack(expected))
    attention = Pool(config, kind="attention").double()
    torch.nn.init.normal_(attention.query_D)
    weights = (segments_BND[1, 1:] @ attention.query_D).softmax(0)
    torch.testing.assert_close(attention(segments_BND, there_BN)[1], weights @ segments_BND[1, 1:])
    for kind in ("last", "mean", "max", "attention"):
        one = Pool(config, kind=kind).double()  # type: ignore[arg-type]
        torch.testing.assert_close(one(segments_BND[:, :1], there_BN[:1, :1].expand(2, 1)), segments_BND[:, 0])


def test_heads_on_one_segment_give_what_they_give_on_a_batch() -> None:
    config = changed(MODELS["xlnet-base"], memory={"reuse_length": None})
    one = document(7)
    batch = Batch(ids_BQ=torch.from_numpy(one.ids[None]), segments_BQ=torch.from_numpy(one.segments[None]))
    torch.manual_seed(0)
    classifier = SequenceClassifier(config, num_labels=3).double().eval()
    torch.testing.assert_close(
        classifier.logits(read_documents(classifier.trunk, [one], segment_length=8)), classifier(batch).logits
    )
    tagger = TokenTagger(config, num_tags=4).double().eval()
    torch.testing.assert_close(
        tagger.logits(read_documents(tagger.trunk, [one], segment_length=8)), tagger(batch).logits
    )
    scorer = SequenceScorer(config, loss="choice").double().eval()
    torch.testing.assert_close(
        scorer.logits(read_documents(scorer.trunk, [one], segment_length=8)), scorer(batch, group=1).logits[0]
    )


def test_summaries_of_padded_segments_are_those_of_each_row_alone() -> None:
    trunk = noisy(MODELS["xlnet-base"]).double().eval().trunk
    summary = Summary(MODELS["xlnet-base"], kind="last", projected=False).double().eval()
    documents = [document(length) for length in LENGTHS]
    vectors, there = read_documents(trunk, documents, segment_length=4).summaries(summary)
    for row, one in enumerate(documents):
        alone, _ = read_documents(trunk, [one], segment_length=4).summaries(summary)
        torch.testing.assert_close(vectors[row, -alone.shape[1] :], alone[0], atol=1e-10, rtol=1e-10)
        assert int(there[row].sum()) == alone.shape[1]


def test_empty_documents_are_refused() -> None:
    trunk = noisy(MODELS["xlnet-base"]).eval().trunk
    for wrong in ([], [document(3), document(0)]):
        with pytest.raises(DataError, match="at least one token"):
            read_documents(trunk, wrong, segment_length=4)
