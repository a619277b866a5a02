"""Masking: shares, whole words, and what is never chosen."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.config import MaskingConfig
from segue.data.corrupt import Replacements, choose, corrupt, group_words
from tests.examples import examples

MASK = 3
REPLACEMENTS = Replacements(mask=MASK, ordinary=np.arange(5, 1000))


def corrupted(ids: np.ndarray, seed: int = 0, goal: int = 77, **other: object) -> tuple[np.ndarray, np.ndarray]:
    return corrupt(
        ids,
        allowed_Q=ids >= 5,
        starts_Q=ids % 3 == 0,
        goal=goal,
        reverse=False,
        settings=MaskingConfig(**other),
        replacements=REPLACEMENTS,
        generator=np.random.default_rng(seed),
    )


def test_shares_are_those_of_the_settings() -> None:
    generator = np.random.default_rng(1)
    fates = np.zeros(3)
    chosen_Q = np.zeros(512)
    for seed in range(300):
        ids = generator.integers(0, 1000, size=512)
        seen, chosen = corrupted(ids, seed)
        assert len(chosen) == 77
        assert (np.diff(chosen) > 0).all()
        assert (ids[chosen] >= 5).all(), "a special token was chosen"
        others = np.setdiff1d(np.arange(512), chosen)
        assert np.array_equal(seen[others], ids[others])
        masked, same = seen[chosen] == MASK, seen[chosen] == ids[chosen]
        assert (seen[chosen][~masked] >= 5).all(), "a special token was put in"
        fates += [masked.sum(), (~masked & ~same).sum(), same.sum()]
        chosen_Q[chosen] += 1
    total = fates.sum()
    for share, expected in zip(fates / total, (0.8, 0.1, 0.1), strict=True):
        assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / total)
    rate = 77 / 512
    assert np.abs(chosen_Q / 300 - rate).max() < 5 * np.sqrt(rate / 300)


def test_extreme_shares() -> None:
    ids = np.arange(5, 105)
    seen, chosen = corrupted(ids, masked=1.0, random=0.0)
    assert (seen[chosen] == MASK).all()
    seen, chosen = corrupted(ids, masked=0.0, random=0.0)
    assert np.array_equal(seen, ids)
    assert len(chosen) == 77
    seen, chosen = corrupted(np.zeros(8, dtype=np.int64))
    assert len(chosen) == 0


@settings(max_examples=examples(80), deadline=None, derandomize=True)
@given(
    starts=st.lists(st.booleans(), min_size=1, max_size=60), goal=st.integers(1, 30), longest=st.integers(1, 9),
    reverse=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_whole_words(starts: list[bool], goal: int, longest: int, reverse: bool, seed: int) -> None:
    starts_Q = np.array(starts)
    word_Q = group_words(starts_Q, longest_word=longest, reverse=reverse)
    text, words = (starts[::-1], word_Q[::-1]) if reverse else (starts, word_Q)
    # The definition, with a loop: runs up to the next start, and runs that are too long piece by piece.
    runs: list[list[int]] = []
    for q, start in enumerate(text):
        if start or not runs:
            runs.append([])
        runs[-1].append(q)
    expected = [word for run in runs for word in ([run] if len(run) <= longest else [[q] for q in run])]
    assert [np.flatnonzero(words == n).tolist() for n in range(words.max() + 1)] == expected
    allowed_Q = np.random.default_rng(seed).random(len(starts)) < 0.8
    chosen = choose(allowed_Q, goal=goal, word_Q=word_Q, generator=np.random.default_rng(seed))
    assert len(chosen) <= goal
    left = goal - len(chosen)
    for number in range(word_Q.max() + 1):
        pieces = set(np.flatnonzero((word_Q == number) & allowed_Q).tolist())
        assert pieces <= set(chosen.tolist()) or not pieces & set(chosen.tolist())
        if pieces and not pieces & set(chosen.tolist()):
            assert len(pieces) > left, "a word that fits was left out"


def test_chinese_pieces_are_words() -> None:
    """A border after every twenty pieces only: nothing is hidden in runs, and the goal is met."""
    ids = np.arange(100, 400)
    starts_Q = np.arange(300) % 20 == 0
    seen, chosen = corrupt(
        ids,
        allowed_Q=np.ones(300, dtype=bool),
        starts_Q=starts_Q,
        goal=45,
        reverse=False,
        settings=MaskingConfig(whole_words=True),
        replacements=REPLACEMENTS,
        generator=np.random.default_rng(0),
    )
    assert len(chosen) == 45
    assert np.array_equal(np.delete(seen, chosen), np.delete(ids, chosen))
    assert len(np.unique(chosen // 20)) > 10
