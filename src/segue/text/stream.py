"""Ids to text as they come, for generation that streams: never half a character.

In: ids, a few at a time. Out: the text that has become certain. All parts together are `decode` of all ids.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from segue.text.tokenizer import Tokenizer
from segue.text.unicode import REPLACEMENT

# What is not yet certain: a character has at most four bytes, so at most three of them wait for the last.
_MAX_WAITING = 3
_TAIL, _FULL, _LONGEST = 4, 32, 256


class StreamDecoder:
    """Decodes one stream of ids. Only the last few are kept, because a space may depend on the token before."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._silent = {index for name, index in tokenizer.specials.items() if not tokenizer.decode([index])}
        self._ids: list[int] = []
        self._given = 0

    def feed(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """The text that these ids make certain; it may be empty."""
        self._ids += [
            index for index in np.asarray(ids, dtype=np.int64).reshape(-1).tolist() if index not in self._silent
        ]
        text = self._tokenizer.decode(self._ids)
        waiting = len(text) - len(text.rstrip(REPLACEMENT))
        certain = len(text) - min(waiting, _MAX_WAITING)
        new = text[self._given : certain]
        self._given = max(self._given, certain)
        if not waiting and len(self._ids) > _FULL:
            self._forget()
        return new

    def finish(self) -> str:
        """The text that was still waiting, now as it is; afterwards a new stream may begin."""
        rest = self._tokenizer.decode(self._ids)[self._given :]
        self._ids, self._given = [], 0
        return rest

    def _forget(self) -> None:
        tail = self._ids[-_TAIL:]
        text = self._tokenizer.decode(tail)
        # A tail of white space alone may decode to less than it does inside a text.
        if text.strip() or len(self._ids) > _LONGEST:
            self._ids, self._given = tail, len(text)
