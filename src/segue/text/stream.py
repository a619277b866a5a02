"""Incremental encoding of text that arrives in parts, and incremental decoding of ids.

In: parts of a text, of any size; or ids, a few at a time. Out: the ids, or the text, that later input cannot change:
never half a character or half a piece. The concatenated output is `encode` of the whole text, or `decode` of all ids.
Each kind of tokeniser decides which ids are final (`encode_part`).
"""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from segue.errors import DataError
from segue.text.tokenizer import Tokenizer, Unfinished
from segue.text.unicode import REPLACEMENT

# A character has at most four bytes, so at most three of them wait for the last.
_MAX_WAITING = 3
_TAIL, _FULL = 12, 36


class StreamEncoder:
    """Encodes one text that arrives in parts. However it is split, the ids are those of the whole text.

    `feed` returns the ids that no later text can change, and holds the rest back; `finish` returns the rest and ends
    the text. So "ab" gives the same ids as "a" and then "b", but perhaps not in the same call: "light" waits, because
    "house" may follow. What is held back, by the kind of tokeniser:

    - bytes and characters: nothing.
    - words: the last word, until white space follows.
    - pieces trained here: the characters at the end that a piece of the vocabulary might join with what follows. A
      space joins with the word after it, so "the ship" gives the ids of "the" and holds back " ship"; Chinese text is
      released wherever the vocabulary has no piece in which those two characters are adjacent; a newline never waits.
    - released pieces: the last word, until white space follows, or until two Han characters come that the vocabulary
      does not join. One rule differs from `encode`: a word of more than 8,192 characters, such as Chinese without any
      white space for so long, is split after each 8,192, as if there were a space.
    - byte pairs of GPT-2: the last two words; one of more than 8,192 characters is split there.
    - word pieces of BERT: the last word, until white space follows; a Han character does not wait.
    - a `tokenizer.json` of an XLNet of transformers: as released pieces, but Han characters wait for one more. If an
      added token contains white space, everything waits for the end of the text.

    Memory and the time for a part do not grow with the text: a few thousand characters are held back, 4,096 for pieces
    trained here and about 12,000 for released ones, and encoded again with each part that makes more of them final. Two
    sorts of released models, neither of them XLNet's, are slower: a model that does not put a mark before its first
    word and drop other spaces there cannot be read in parts, so its text is held back as a whole; a model with pieces
    that continue after a space gives ids only when 4,096 characters are complete.

    `state` is the whole state, which can be saved or passed to another encoder: a frozen value of a text and two
    numbers.
    """

    def __init__(self, tokenizer: Tokenizer, *, state: Unfinished | None = None) -> None:
        self._tokenizer = tokenizer
        self._state = Unfinished() if state is None else _checked(state, tokenizer)

    @property
    def state(self) -> Unfinished:
        """State of the text."""
        return self._state

    @property
    def waiting(self) -> str:
        """Text without ids so far. Lone surrogates are U+FFFD in it; a released model collapses white space."""
        return self._state.text[self._state.read :]

    def feed(self, text: str) -> NDArray[np.int64]:
        """Return the ids that this part makes final; there may be none. A part that is refused changes nothing."""
        ids, self._state = self._tokenizer.encode_part(text, self._state)
        return ids

    def finish(self) -> NDArray[np.int64]:
        """Return the ids of the text held back: the text ends here, and a new one may begin."""
        ids = self._tokenizer.encode(self._state.text)[self._state.given :]
        self._state = Unfinished()
        return ids


class StreamDecoder:
    """Decodes one stream of ids. Only the last few are kept, because a space may depend on the previous token.

    `after` are ids whose text is known already, such as those of a prompt: a released model or a word tokeniser omits
    the space before the first word of a text, but not before the first word that continues one.
    """

    def __init__(self, tokenizer: Tokenizer, *, after: Sequence[int] | NDArray[np.int64] = ()) -> None:
        self._tokenizer = tokenizer
        self._silent = {index for name, index in tokenizer.specials.items() if not tokenizer.decode([index])}
        self._ids: list[int] = self._heard(after)
        text = tokenizer.decode(self._ids)
        self._given = len(text)
        self._forget(text)

    def feed(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the text that these ids make final; it may be empty."""
        self._ids += self._heard(ids)
        text = self._tokenizer.decode(self._ids)
        waiting = len(text) - len(text.rstrip(REPLACEMENT))
        certain = len(text) - min(waiting, _MAX_WAITING)
        given = min(self._given, len(text))  # fewer now, if the ids before ended within a character
        new, self._given = text[given:certain], max(given, certain)
        self._forget(text)
        return new

    def finish(self) -> str:
        """Return the text held back, as it is; afterwards a new stream may begin."""
        rest = self._tokenizer.decode(self._ids)[self._given :]
        self._ids, self._given = [], 0
        return rest

    def _heard(self, ids: Sequence[int] | NDArray[np.int64]) -> list[int]:
        return [index for index in np.asarray(ids, dtype=np.int64).reshape(-1).tolist() if index not in self._silent]

    def _forget(self, text: str) -> None:
        if len(self._ids) <= _FULL:
            return
        tail = self._ids[-_TAIL:]
        if not self._tokenizer.decode(tail).strip():
            # White space alone may decode to less than it does inside a text, so something visible stays before it.
            visible = (index for index in reversed(self._ids) if self._tokenizer.decode([index]).strip())
            tail = [*itertools.islice(visible, 1), *tail]
        # The bytes of an incomplete character are all in the tail: what waits there is everything that waits.
        waiting = len(text) - self._given
        self._ids, self._given = tail, len(self._tokenizer.decode(tail)) - waiting


def _checked(state: Unfinished, tokenizer: Tokenizer) -> Unfinished:
    """Return the state; raise DataError if it does not fit this tokeniser, since it may come from a file."""
    fits = 0 <= state.read <= len(state.text) and state.given == len(tokenizer.encode(state.text[: state.read]))
    if not fits:
        raise DataError(
            f"the state of a text that comes in parts must be one of the same tokeniser; got {state.read} characters "
            f"of {len(state.text)} for {state.given} ids. Begin the text again."
        )
    return state
