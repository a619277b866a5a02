"""The `tokenizers` library, which is optional: how it is opened, what its failures become, and text in parts.

In: a description that was checked (`fast_file`, `byte_pairs`, `word_pieces`), never a file. Out: its tokeniser.
"""

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.config.schema import LARGEST_VOCABULARY
from segue.errors import CheckpointError
from segue.text.unicode import without_surrogates

LARGEST = 1 << 26
"""Bytes of a `tokenizer.json`: more than a million pieces."""
LONGEST_WORD = 8192
"""Characters; a longer word is cut when a text comes in parts."""
_LONGEST_PIECE = 1024


class MissingLibraryError(CheckpointError):
    """The `tokenizers` library is not installed."""


class UnlikeError(ValueError):
    """What transformers does not write for a tokeniser of this kind."""


def open_library(description: Mapping[str, Any], source: str) -> Any:
    """The library's tokeniser for a description that was checked; `source` is what errors call the file."""
    try:
        library = import_module("tokenizers")
    except ImportError:
        raise MissingLibraryError(
            f"{source} is read by the tokenizers library, which is not installed. Install it: pip install tokenizers."
        ) from None
    return guarded(source, lambda: library.Tokenizer.from_str(json.dumps(description)))


def guarded(source: str, call: Callable[[], Any]) -> Any:
    """What the library makes of a file that it cannot use, as an error that names the file."""
    try:
        return call()
    except Exception as error:
        raise _unusable(source, error) from None
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how the library reports a failure of its own
            raise
        raise _unusable(source, error) from None


def _unusable(source: str, error: BaseException) -> CheckpointError:
    return CheckpointError(
        f"{source} must be usable by the tokenizers library; it said: {str(error)[:200]}. Copy the file again."
    )


def piece_text(value: object) -> str:
    """A piece of a vocabulary that came out of a file."""
    if type(value) is not str or not 0 < len(value) <= _LONGEST_PIECE or without_surrogates(value) != value:
        raise UnlikeError(f"a token that is not a text of 1 to {_LONGEST_PIECE} characters: {str(value)[:40]!r}")
    return value


def tokens_by_id(vocabulary: object, added: object) -> tuple[list[str], frozenset[str]]:
    """The tokens of a vocabulary in the order of their ids, which must be 0, 1, ...; and the special ones among them.
    Tokens that were added to it must be special: others would be looked for in a text before it is cut into words."""
    if type(vocabulary) is not dict or not 0 < len(vocabulary) <= LARGEST_VOCABULARY:
        raise UnlikeError(f"no table of at most {LARGEST_VOCABULARY:,} tokens")
    if any(type(index) is not int for index in vocabulary.values()):
        raise UnlikeError("an id that is not a number")
    places = {piece_text(token): index for token, index in vocabulary.items()}
    special = set()
    for token in added if isinstance(added, list) else []:
        content, index = piece_text(token["content"]), token["id"]
        if token["special"] is not True:
            raise UnlikeError(f"the token {content!r}, which was added and is not special")
        if type(index) is not int or places.setdefault(content, index) != index:
            raise UnlikeError(f"the token {content!r} with the id {str(index)[:40]}")
        special.add(content)
    tokens = sorted(places, key=lambda token: places[token])
    if [places[token] for token in tokens] != list(range(len(tokens))):
        raise UnlikeError("ids with gaps, or one id twice")
    return tokens, frozenset(special)


def words_of(found: Any) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
    """For each token of the library's encoding the number of its word; and where each word begins and ends."""
    words = np.array(found.word_ids, dtype=np.int64)
    _, first, counts = np.unique(words, return_index=True, return_counts=True)
    last = first + counts - 1
    return words, [(found.offsets[a][0], found.offsets[b][1]) for a, b in zip(first, last, strict=True)]
