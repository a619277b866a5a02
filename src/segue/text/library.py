"""The optional `tokenizers` library: opening it, translating its errors, and its words for incremental encoding.

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
"""Maximum size of a `tokenizer.json` in bytes: more than a million pieces."""
LONGEST_WORD = 8192
"""Maximum number of characters of a word in incremental encoding; a longer one is split."""
_LONGEST_PIECE = 1024


class MissingLibraryError(CheckpointError):
    """Raised when the `tokenizers` library is not installed."""


class UnlikeError(ValueError):
    """Raised for a file that transformers does not write for a tokeniser of this kind."""


def open_library(description: Mapping[str, Any], source: str) -> Any:
    """Return the library's tokeniser for a checked description; `source` is the name of the file in errors."""
    try:
        library = import_module("tokenizers")
    except ImportError:
        raise MissingLibraryError(
            f"{source} is read by the tokenizers library, which is not installed. Install it: pip install tokenizers."
        ) from None
    return guarded(source, lambda: library.Tokenizer.from_str(json.dumps(description)))


def guarded(source: str, call: Callable[[], Any]) -> Any:
    """Call the library; raise its failures as an error that names the file."""
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
    """Return a piece of a vocabulary that was read from a file; raise UnlikeError if it is invalid."""
    if type(value) is not str or not 0 < len(value) <= _LONGEST_PIECE or without_surrogates(value) != value:
        raise UnlikeError(f"a token that is not a text of 1 to {_LONGEST_PIECE} characters: {str(value)[:40]!r}")
    return value


def tokens_by_id(vocabulary: object, added: object) -> tuple[list[str], frozenset[str]]:
    """Return the tokens of a vocabulary in the order of their ids, which must be 0, 1, ...; and the special ones among
    them. Added tokens must be special: others would be searched in a text before it is split into words."""
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
    """Return the word index of each token of the library's encoding, and the start and end of each word."""
    words = np.array(found.word_ids, dtype=np.int64)
    _, first, counts = np.unique(words, return_index=True, return_counts=True)
    last = first + counts - 1
    return words, [(found.offsets[a][0], found.offsets[b][1]) for a, b in zip(first, last, strict=True)]
