"""Beam search against the enumeration of all texts, and against a plain search that keeps one list."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from segue.errors import ConfigError
from segue.infer.beam import BeamSettings, Hypothesis, beam_search

END = 0
Prefix = tuple[int, ...]


class Table:
    """A model without structure: a random distribution for each row and prefix."""

    def __init__(self, *, rows: int, vocabulary: int, length: int, seed: int = 0, sharpness: float = 1.5) -> None:
        random = torch.Generator().manual_seed(seed)
        self.rows = rows
        words = range(1, vocabulary)
        self.log_probability = {
            (row, *prefix): (torch.randn(vocabulary, generator=random) * sharpness).log_softmax(dim=0)
            for row in range(rows)
            for size in range(length + 1)
            for prefix in itertools.product(words, repeat=size)
        }
        self.steps = 0

    def step(self, token_N: Tensor, state: list[Prefix]) -> tuple[Tensor, list[Prefix]]:
        self.steps += 1
        state = [(*prefix, token) for prefix, token in zip(state, token_N.tolist(), strict=True)]
        return torch.stack([self.log_probability[prefix] for prefix in state]), state

    def search(self, settings: BeamSettings, rows: list[int] | None = None) -> list[list[Hypothesis]]:
        state: list[Prefix] = [(row,) for row in (range(self.rows) if rows is None else rows)]
        return beam_search(
            torch.stack([self.log_probability[prefix] for prefix in state]),
            state,
            step=self.step,
            select=lambda state, rows_N: [state[n] for n in rows_N.tolist()],
            settings=settings,
        )

    def value(self, row: int, tokens: Prefix) -> float:
        """The log-probability of a whole text and its end."""
        whole = (row, *tokens)
        return sum(
            float(self.log_probability[whole[:n]][(*tokens, END)[n - 1]].double()) for n in range(1, len(whole) + 1)
        )


def every_text(*, vocabulary: int, length: int) -> list[Prefix]:
    return [text for n in range(length + 1) for text in itertools.product(range(1, vocabulary), repeat=n)]


def plain_search(table: Table, row: int, settings: BeamSettings) -> list[tuple[float, Prefix]]:
    """The same rule, written with lists."""
    live: list[tuple[float, Prefix]] = [(0.0, ())]
    ended: list[tuple[float, Prefix]] = []
    for length in range(settings.max_length + 1):
        if length == settings.max_length:
            ended += [(settings.score(table.value(row, text), length + 1), text) for _, text in live]
            break
        options = []
        for value, text in live:
            for token, more in enumerate(table.log_probability[(row, *text)].double().tolist()):
                options.append((value + more, text, token))
        options.sort(key=lambda option: -option[0])
        ended += [
            (settings.score(value, length + 1), text) for value, text, token in options[: settings.beam] if token == END
        ]
        live = [(value, (*text, token)) for value, text, token in options if token != END][: settings.beam]
        if len(ended) >= settings.beam:
            break
    return sorted(ended, reverse=True)[: settings.count]


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
def test_a_beam_as_wide_as_everything_finds_the_best_texts(penalty: float) -> None:
    vocabulary, length = 4, 4
    table = Table(rows=5, vocabulary=vocabulary, length=length)
    texts = every_text(vocabulary=vocabulary, length=length)
    settings = BeamSettings(
        end=END, beam=vocabulary**length, max_length=length, count=len(texts), length_penalty=penalty
    )
    for row, found in enumerate(table.search(settings)):
        expected = sorted(((settings.score(table.value(row, t), len(t) + 1), t) for t in texts), reverse=True)
        assert [one.tokens for one in found] == [text for _, text in expected]
        np.testing.assert_allclose([one.score for one in found], [score for score, _ in expected], rtol=1e-12)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("beam", [1, 2, 3, 7])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_narrow_beams_do_as_the_plain_search(beam: int, penalty: float) -> None:
    table = Table(rows=8, vocabulary=5, length=5, seed=1)
    for count in {1, beam}:
        settings = BeamSettings(end=END, beam=beam, max_length=5, count=count, length_penalty=penalty)
        for row, found in enumerate(table.search(settings)):
            expected = plain_search(table, row, settings)
            assert [one.tokens for one in found] == [text for _, text in expected]
            np.testing.assert_allclose([one.score for one in found], [score for score, _ in expected], rtol=1e-12)


def test_a_log_probability_is_that_of_the_whole_text_with_its_end() -> None:
    table = Table(rows=8, vocabulary=5, length=4, seed=2)
    settings = BeamSettings(end=END, beam=3, max_length=4, count=3, length_penalty=0.6)
    for row, found in enumerate(table.search(settings)):
        for one in found:
            assert one.log_probability == pytest.approx(table.value(row, one.tokens), rel=1e-12)
            assert one.mean_log_probability == pytest.approx(one.log_probability / (len(one.tokens) + 1))


def test_rows_do_not_depend_on_each_other() -> None:
    table = Table(rows=6, vocabulary=5, length=5, seed=3)
    settings = BeamSettings(end=END, beam=3, max_length=5, count=2)
    together = table.search(settings)
    assert together == [table.search(settings, rows=[row])[0] for row in range(6)]
    assert [table.search(settings, rows=[4, 1])[n] for n in (0, 1)] == [together[4], together[1]]


def test_a_search_stops_when_nothing_better_can_come() -> None:
    table = Table(rows=1, vocabulary=3, length=6, seed=4)
    table.log_probability[(0, 1)] = torch.tensor([0.999, 0.0005, 0.0005]).log()
    table.log_probability[(0,)] = torch.tensor([0.0005, 0.999, 0.0005]).log()
    found = table.search(BeamSettings(end=END, beam=4, max_length=6))
    assert found[0][0].tokens == (1,)
    assert table.steps == 1


def test_tokens_that_must_not_come_never_do() -> None:
    table = Table(rows=4, vocabulary=4, length=4, seed=5)
    for prefix, values in table.log_probability.items():
        values[2] = -torch.inf
        if len(prefix) == 1:
            values[END] = -torch.inf
    for found in table.search(BeamSettings(end=END, beam=64, max_length=4, count=64)):
        assert found
        assert all(2 not in one.tokens and one.tokens for one in found)
        assert len(found) == sum(2**n for n in range(1, 5))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_nothing_is_said_twice_if_it_must_not(size: int) -> None:
    vocabulary, length = 3, 6
    table = Table(rows=3, vocabulary=vocabulary, length=length, seed=6)
    settings = BeamSettings(end=END, beam=3**length, max_length=length, count=3**length, no_repeat=size)

    def repeats(text: Prefix) -> bool:
        grams = [text[n : n + size] for n in range(len(text) - size + 1)]
        return len(set(grams)) < len(grams)

    allowed = [text for text in every_text(vocabulary=vocabulary, length=length) if not repeats(text)]
    for row, found in enumerate(table.search(settings)):
        assert {one.tokens for one in found} == set(allowed)
        assert found[0].tokens == max(allowed, key=lambda text: table.value(row, text))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam": 0}, "beam must be at least 1"),
        ({"max_length": 0}, "max_length must be at least 1"),
        ({"count": 5}, "Use a beam of 5"),
        ({"length_penalty": -1.0}, "length_penalty must be from 0 to 10"),
        ({"no_repeat": 0}, "no_repeat must be at least 1"),
    ],
)
def test_settings_are_checked(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BeamSettings(**{"end": END, "beam": 4, "max_length": 3, **wrong})  # type: ignore[arg-type]
