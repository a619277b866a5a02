"""Corrupted tokens for the masked objective (Devlin et al. 2018): some tokens are predicted, and most of these masked.

In: a segment, a mask of the tokens that may be chosen, and a generator. Out: the segment as the model sees it, and the
chosen positions; their targets are the original tokens.

Whole words: a word is a piece that begins one and the pieces that follow it up to the next such piece; the pieces
before the first one in a segment are the rest of a word and count as one. Chinese has no borders between words, and
SentencePiece marks only what follows a space. But its Chinese pieces are characters and frequent words, found by its
own statistics: there a piece is the word. So a run of more than `longest_word` pieces without a border is treated as
such text, and each of its pieces as a word. Words from a dictionary, as in BERT-wwm, need text with spaces between
words and a tokeniser trained on it; then the first rule applies.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.config import MaskingConfig


@dataclass(frozen=True, kw_only=True)
class Replacements:
    """Possible replacements of a token."""

    mask: int
    ordinary: NDArray[np.int64]
    """All ids that are not special; a random token is drawn uniformly from them."""


def group_words(starts_Q: NDArray[np.bool_], *, longest_word: int, reverse: bool) -> NDArray[np.int64]:
    """Return the index of the word of each position, from 0."""
    starts_Q = starts_Q[::-1] if reverse else starts_Q
    begins_Q = starts_Q.copy()
    begins_Q[:1] = True
    word_Q = np.cumsum(begins_Q) - 1
    # Runs that are too long are not words: there, every piece begins one.
    begins_Q |= (np.bincount(word_Q) > longest_word)[word_Q]
    word_Q = np.cumsum(begins_Q) - 1
    return word_Q[::-1] if reverse else word_Q


def choose(
    allowed_Q: NDArray[np.bool_], *, goal: int, word_Q: NDArray[np.int64] | None, generator: np.random.Generator
) -> NDArray[np.int64]:
    """Return at most `goal` of the allowed positions, ascending: any of them, or whole words as long as they fit."""
    places = np.flatnonzero(allowed_Q)
    if word_Q is None:
        return np.sort(generator.permutation(places)[:goal])
    words, sizes = np.unique(word_Q[places], return_counts=True)
    order = generator.permutation(len(words))
    taken = np.zeros(int(word_Q.max()) + 1, dtype=np.bool_)
    room = goal
    for word, size in zip(words[order].tolist(), sizes[order].tolist(), strict=True):
        if size <= room:
            taken[word] = True
            room -= size
        if room == 0:
            break
    return places[taken[word_Q[places]]]


def corrupt(
    ids_Q: NDArray[np.int64],
    *,
    allowed_Q: NDArray[np.bool_],
    starts_Q: NDArray[np.bool_],
    goal: int,
    reverse: bool,
    settings: MaskingConfig,
    replacements: Replacements,
    generator: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the segment as the model sees it, and the positions to predict, ascending.

    Each chosen token becomes the mask with probability `masked`, a random token with probability `random`, and stays
    unchanged otherwise, with or without whole words.
    """
    words = group_words(starts_Q, longest_word=settings.longest_word, reverse=reverse) if settings.whole_words else None
    chosen_P = choose(allowed_Q, goal=goal, word_Q=words, generator=generator)
    fate_P = generator.random(len(chosen_P))
    other_P = generator.choice(replacements.ordinary, size=len(chosen_P))
    seen_P = np.where(fate_P < settings.masked + settings.random, other_P, ids_Q[chosen_P])
    seen_Q = ids_Q.copy()
    seen_Q[chosen_P] = np.where(fate_P < settings.masked, replacements.mask, seen_P)
    return seen_Q, chosen_P
