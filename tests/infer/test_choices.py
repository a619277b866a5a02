"""Constrained choices: every path leads to exactly one of the texts, and only to them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.errors import DataError
from segue.infer.choices import Choices
from segue.infer.sampling import Sampler, SamplingSettings
from segue.text.symbols import ByteTokenizer
from tests.examples import examples
from tests.text.samples import characters, unigram, words

TEXTS = ["the keeper", "the ship", "海浪", "海", "no"]


def every_path(choices: Choices) -> dict[tuple[int, ...], int]:
    """All that can be written, by trying every token that is allowed."""
    found, waiting = {}, [()]
    while waiting:
        prefix: tuple[int, ...] = waiting.pop()
        allowed = choices.allowed(prefix)
        if not allowed:
            found[prefix] = choices.ids.index(prefix if prefix in choices.ids else prefix[:-1])
        waiting += [(*prefix, index) for index in allowed]
    return found


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.text(st.sampled_from("ab海"), min_size=1, max_size=4), min_size=1, max_size=8, unique=True))
def test_every_path_is_one_of_the_texts(texts: list[str]) -> None:
    tokenizer = ByteTokenizer()
    end = tokenizer.specials["eod"]
    found = every_path(Choices(tokenizer, texts, end=end))
    assert sorted(found.values()) == list(range(len(texts)))
    for ids, number in found.items():
        assert tokenizer.decode(ids) == texts[number]
        longer = [text for text in texts if text.startswith(texts[number]) and text != texts[number]]
        assert (ids[-1] == end) == bool(longer)


def test_chinese_and_english_pieces() -> None:
    tokenizer = unigram()
    choices = Choices(tokenizer, TEXTS, end=tokenizer.specials["eod"])
    assert {tokenizer.decode(ids) for ids in every_path(choices)} == set(TEXTS)
    assert choices.allowed(()) == tuple(sorted({ids[0] for ids in choices.ids}))


def test_a_sampler_writes_only_choices() -> None:
    tokenizer = unigram()
    choices = Choices(tokenizer, TEXTS, end=tokenizer.specials["eod"])
    sampler = Sampler(SamplingSettings(temperature=5.0), vocabulary_size=tokenizer.size)
    noise = torch.Generator().manual_seed(0)
    written = set()
    for _ in range(100):
        ids: list[int] = []
        while allowed := choices.allowed(ids):
            ids.append(sampler.choose(torch.randn(tokenizer.size, generator=noise), ids, allowed=allowed).token)
        written.add(tokenizer.decode(ids))
    assert written == set(TEXTS)


def test_bad_choices_are_refused() -> None:
    tokenizer = ByteTokenizer()
    with pytest.raises(DataError, match="got an empty list"):
        Choices(tokenizer, [])
    with pytest.raises(DataError, match="Put it into a list"):
        Choices(tokenizer, "yes")
    with pytest.raises(DataError, match="got '', which has none"):
        Choices(tokenizer, ["yes", ""])
    with pytest.raises(DataError, match="got 'yes' and 'yes'"):
        Choices(tokenizer, ["yes", "no", "yes"])
    with pytest.raises(DataError, match="got 'no' and 'nothing'"):
        Choices(tokenizer, ["nothing", "no"])
    with pytest.raises(DataError, match="an unknown part"):
        Choices(characters(), ["龘"])
    with pytest.raises(DataError, match=r"got 'the  ship' and 'the ship', which have the same ids"):
        Choices(words(), ["the  ship", "the ship"])
    with pytest.raises(DataError, match="which is in 'no'"):
        Choices(tokenizer, ["no"], end=ord("o"))
    with pytest.raises(DataError, match=r"the beginning of a choice; got the ids \[120\]"):
        Choices(tokenizer, ["yes", "no"]).allowed([ord("x")])
