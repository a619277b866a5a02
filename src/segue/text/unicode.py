"""Properties of characters: lone surrogates, scripts without spaces, and characters that begin a word."""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

REPLACEMENT = "\ufffd"
_SURROGATES = re.compile("[\ud800-\udfff]")

# Scripts written without spaces, where every character may begin a word: CJK symbols, kana, bopomofo, the Han blocks,
# compatibility and full-width forms, and the supplementary planes of Han. Hangul is not here: Korean has spaces.
_UNSPACED = (
    (0x2E80, 0x2FDF),
    (0x3000, 0x312F),
    (0x31A0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF01, 0xFF0F),
    (0xFF1A, 0xFF20),
    (0xFF3B, 0xFF40),
    (0xFF5B, 0xFF9F),
    (0x20000, 0x3FFFF),
)


def without_surrogates(text: str) -> str:
    """Replace each lone surrogate by U+FFFD, since UTF-8 has no form for it. Length and offsets stay."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATES.sub(REPLACEMENT, text)
    return text


@lru_cache(maxsize=2**16)
def is_unspaced(character: str) -> bool:
    """Return True if the character belongs to a script that is written without spaces, such as Chinese."""
    code = ord(character)
    return any(first <= code <= last for first, last in _UNSPACED)


def is_chinese(text: str) -> bool:
    """Return True if a text is mostly in a script without spaces; a character of it counts as much as two letters."""
    unspaced = sum(is_unspaced(one) for one in text if one.isalpha())
    letters = sum(one.isalpha() for one in text)
    return 3 * unspaced > letters


def begins_word(character: str) -> bool:
    """Return True if a single character begins a word as far as it alone can tell.

    A space begins the word after it, as U+2581 does in SentencePiece; punctuation, symbols and characters of scripts
    without spaces are words of their own; letters, digits and marks of other scripts continue a word.
    """
    if is_unspaced(character):
        return True
    # Combining marks are neither letters nor digits, but they belong to the character before them.
    return not (character.isalnum() or character == REPLACEMENT or _is_mark(character))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M") or character == "\u200d"


def stretches(line: str, *, length: int) -> Iterator[str]:
    """Yield the line in parts of at most twice `length` characters, split before a space if there is one in time."""
    start = 0
    while len(line) - start > 2 * length:
        cut = line.find(" ", start + length, start + 2 * length)
        if cut < 0:
            cut = start + 2 * length
        yield line[start:cut]
        start = cut
    yield line[start:]
