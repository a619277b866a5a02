"""Batched generation: sessions that write side by side write what each writes alone."""

import itertools

import pytest

from segue.errors import DataError
from segue.infer.batched import write_batched
from segue.infer.sampling import SamplingSettings
from tests.infer.test_session import CONFIGS, TEXT, session


@pytest.mark.parametrize("name", CONFIGS)
def test_a_batch_writes_what_each_session_writes_alone(name: str) -> None:
    first = session(name)
    texts = ["a", "bcd efg 中文字", "天地" * 9, "h"]
    alone, group = [first.fork() for _ in texts], [first.fork() for _ in texts]
    sampling = [SamplingSettings(seed=seed, temperature=1.5) for seed in range(len(texts))]
    expected, found = {}, {number: [] for number in range(len(texts))}
    for number, text in enumerate(texts):
        expected[number] = list(alone[number].write(text, max_tokens=25, sampling=sampling[number]))
        group[number].feed(text)
    for number, written in write_batched(group, max_tokens=25, sampling=sampling):
        found[number].append(written)
    for number in range(len(texts)):
        assert [one.id for one in found[number]] == [one.id for one in expected[number]]
        values = [one.log_probability for one in expected[number]]
        assert [one.log_probability for one in found[number]] == pytest.approx(values, abs=1e-9)
        after = alone[number].score("abc").log_probability
        assert group[number].score("abc").log_probability == pytest.approx(after, abs=1e-9)


def test_a_batch_left_early() -> None:
    first = session("xl")
    first.feed(TEXT)
    group, alone = [first.fork(), first.fork()], first.fork()
    list(itertools.islice(write_batched(group, sampling=SamplingSettings(greedy=True)), 6))
    list(itertools.islice(alone.write(sampling=SamplingSettings(greedy=True)), 3))
    expected = alone.score("ab").log_probability
    assert [one.score("ab").log_probability for one in group] == pytest.approx([expected] * 2, abs=1e-9)


def test_sessions_that_cannot_form_a_batch() -> None:
    one = session("xl")
    with pytest.raises(DataError, match="at least one"):
        write_batched([])
    with pytest.raises(DataError, match="Fork it"):
        write_batched([one, one])
    with pytest.raises(DataError, match="share their weights"):
        write_batched([one, session("xl")])
    with pytest.raises(DataError, match="one per session"):
        write_batched([one], sampling=[])


def test_forks_share_weights() -> None:
    one, other = session("xl"), session("xl")
    assert one.shares_weights_with(one.fork())
    assert one.fork().shares_weights_with(one.fork())
    assert not one.shares_weights_with(other)
