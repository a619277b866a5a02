"""A stream read in any pieces gives what the model gives for one token at a time with its memory (law 3)."""

import functools
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from segue.config import changed
from segue.errors import ConfigError, DataError
from segue.model import Batch, LanguageModel
from segue.model.cache import Cache
from segue.model.streaming import Streamer
from tests.tiny import MODELS, noisy, random_ids

STREAMED = {
    name: config
    for name, config in MODELS.items()
    if config.objective != "masked"
    and config.directions == "forward"
    and getattr(config.positions, "count_from", "start") == "start"
}
LENGTH, MEMORY = 23, 6


def streamer(name: str) -> Streamer:
    config = STREAMED[name]
    if config.memory is None:
        return Streamer(noisy(config), memory_length=LENGTH)
    return Streamer(noisy(changed(config, memory={"reuse_length": None})), memory_length=config.memory.length)


def one_by_one(model: LanguageModel, ids_BQ: Tensor) -> Tensor:
    """Logits of what follows each token, from the trunk and its memory of layer inputs alone."""
    memory, found = None, []
    for n in range(ids_BQ.shape[1]):
        now_BQ = ids_BQ[:, : n + 1] if model.config.memory is None else ids_BQ[:, n : n + 1]
        if model.config.objective == "permutation":
            predicted_BPD = model.trunk(with_place(now_BQ), memory).predicted_BPD
            assert predicted_BPD is not None
            found.append(model.logits(predicted_BPD[:, -1]))
        output = model.trunk(Batch(ids_BQ=now_BQ), memory)
        if model.config.objective == "causal":
            found.append(model.logits(output.hidden_BQD[:, -1]))
        memory = output.memory
    return torch.stack(found, dim=1)


@functools.lru_cache
@torch.no_grad()
def expected_of(name: str) -> Tensor:
    """What every way of reading the same two rows with this model gives."""
    return one_by_one(streamer(name).model, random_ids(2, LENGTH))


def with_place(ids_BQ: Tensor) -> Batch:
    rows, count = ids_BQ.shape
    lower_QQ = torch.ones(count + 1, count + 1).tril(-1).bool()
    return Batch(
        ids_BQ=torch.cat([ids_BQ, torch.zeros_like(ids_BQ[:, :1])], dim=1),
        visible_BQQ=lower_QQ.expand(rows, -1, -1),
        predicted_BP=torch.full((rows, 1), count),
    )


def in_pieces(reader: Streamer, cache: Cache, ids_BQ: Tensor, cuts: list[int]) -> Tensor:
    found = []
    for start, stop in pairwise([0, *cuts, ids_BQ.shape[1]]):
        if start < stop:
            found.append(reader.logits(reader.read(ids_BQ[:, start:stop], cache, places=stop - start)))
    return torch.cat(found, dim=1)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", STREAMED)
def test_any_pieces_equal_one_token_at_a_time(name: str) -> None:
    reader, ids, expected = streamer(name), random_ids(2, LENGTH), expected_of(name)
    for cuts in ([], [1, 2, 3, 9, 20], list(range(1, LENGTH))):
        found = in_pieces(reader, reader.new_cache(2), ids, cuts)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [name for name, config in STREAMED.items() if config.memory is not None])
def test_a_stream_goes_on_from_a_memory(name: str) -> None:
    """What the trunk has read, token by token here, need not be read again."""
    reader, ids, read = streamer(name), random_ids(2, LENGTH), 9
    memory = None
    for n in range(read):
        memory = reader.model.trunk(Batch(ids_BQ=ids[:, n : n + 1]), memory).memory
    assert memory is not None
    found = in_pieces(reader, reader.cache_of(memory), ids[:, read:], [1, 2, 8])
    torch.testing.assert_close(found, expected_of(name)[:, read:], rtol=0, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(STREAMED)), st.lists(st.integers(1, LENGTH - 1), unique=True).map(sorted))
def test_any_cut_gives_the_same(name: str, cuts: list[int]) -> None:
    reader, ids = streamer(name), random_ids(1, LENGTH, seed=len(cuts))
    whole = in_pieces(reader, reader.new_cache(), ids, [])
    torch.testing.assert_close(in_pieces(reader, reader.new_cache(), ids, cuts), whole, rtol=0, atol=1e-9)


def test_the_buffer_neither_grows_nor_forgets() -> None:
    """Long after the buffer was full for the first time, the numbers are those of the definition."""
    reader = streamer("transformer-xl-enwik8-base")
    ids = random_ids(1, 700)
    cache = reader.new_cache()
    shape = cache.key_LBHCE.shape
    found = [reader.logits(reader.read(ids[:, n : n + 1], cache)) for n in range(700)]
    assert cache.key_LBHCE.shape == shape
    assert cache.position_B.tolist() == [700]
    memory = None
    for start in range(0, 700, 1):
        output = reader.model.trunk(Batch(ids_BQ=ids[:, start : start + 1]), memory)
        memory = output.memory
    expected = reader.model.logits(output.hidden_BQD)
    torch.testing.assert_close(found[-1], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "xlnet-base", "rotary", "absolute", "pre-norm"])
def test_rows_of_different_age_and_length(name: str) -> None:
    """Rows that read different numbers of tokens, joined, selected and read on, are what each would be alone."""
    reader = streamer(name)
    texts = [random_ids(1, length, seed=length) for length in (3, 9, 14)]
    alone = [reader.new_cache() for _ in texts]
    for text, cache in zip(texts, alone, strict=True):
        reader.read(text, cache)
    joined = Cache.join(alone)
    lengths = [5, 1, 2]
    more = [random_ids(1, length, seed=40 + length) for length in lengths]
    ids_BQ = torch.zeros(3, 5, dtype=torch.long)
    real_BQ = torch.zeros(3, 5, dtype=torch.bool)
    for row, (text, length) in enumerate(zip(more, lengths, strict=True)):
        ids_BQ[row, 5 - length :], real_BQ[row, 5 - length :] = text, True
    together = reader.read(ids_BQ, joined, real_BQ=real_BQ)
    apart = torch.cat([reader.read(text, cache) for text, cache in zip(more, alone, strict=True)])
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-9)
    order = [2, 0, 0]
    chosen, last = joined.select(order), random_ids(3, 4, seed=9)
    together = reader.read(last, chosen)
    copies = [alone[number].select([0]) for number in order]
    apart = torch.cat([reader.read(last[row : row + 1], copies[row]) for row in range(3)])
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-9)
    assert chosen.position_B.tolist() == [14 + 2 + 4, 3 + 5 + 4, 3 + 5 + 4]


def test_copies_do_not_touch_each_other() -> None:
    reader = streamer("transformer-xl-enwik8-base")
    cache = reader.new_cache()
    reader.read(random_ids(1, 9), cache)
    copy = cache.select([0])
    reader.read(random_ids(1, 9, seed=1), copy)
    new = reader.new_cache()
    reader.read(random_ids(1, 9), new)
    last = random_ids(1, 2, seed=2)
    assert torch.equal(reader.read(last, cache), reader.read(last, new))


def test_a_saved_cache_goes_on() -> None:
    reader = streamer("xlnet-base")
    cache, other = reader.new_cache(), reader.new_cache()
    reader.read(random_ids(1, 17), cache)
    other.restore({name: tensor.clone() for name, tensor in cache.tensors().items()})
    last = random_ids(1, 3, seed=2)
    assert torch.equal(reader.read(last, cache), reader.read(last, other))


@pytest.mark.parametrize("name", STREAMED)
def test_vectors_are_read_in_place_of_ids(name: str) -> None:
    reader = streamer(name)
    ids_BQ = random_ids(2, 6)
    by_ids, by_vectors = reader.new_cache(2), reader.new_cache(2)
    for start, stop in pairwise((0, 4, 5, 6)):
        now_BQ = ids_BQ[:, start:stop]
        expected = reader.read(now_BQ, by_ids)
        vectors_BQD = reader.model.trunk.vocabulary(now_BQ)
        assert torch.equal(reader.read(torch.zeros_like(now_BQ), by_vectors, embedded_BQD=vectors_BQD), expected)


def test_a_shorter_attention_span_is_kept() -> None:
    config = changed(STREAMED["transformer-xl-enwik8-base"], attention_span=4)
    reader, ids = Streamer(noisy(config), memory_length=MEMORY), random_ids(1, LENGTH)
    found = in_pieces(reader, reader.new_cache(), ids, [2, 11])
    torch.testing.assert_close(found, one_by_one(reader.model, ids), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["bert-base", "transformer-xl-enwik8-base"])
def test_what_cannot_be_streamed(name: str) -> None:
    config = MODELS[name] if name == "bert-base" else changed(MODELS[name], memory=None, directions="both")
    with pytest.raises(ConfigError, match="a stream needs"):
        Streamer(noisy(config), memory_length=4)


def test_caches_of_different_models_are_not_joined() -> None:
    first = streamer("transformer-xl-enwik8-base").new_cache()
    other = Streamer(noisy(STREAMED["transformer-xl-enwik8-base"]), memory_length=3).new_cache()
    with pytest.raises(DataError, match="one model and memory length"):
        Cache.join([first, other])
