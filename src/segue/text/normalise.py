"""The pre-processing of the XLNet release, with a map to the original characters.

In: a text. Out: the text that the released SentencePiece model reads; with a map, also the original characters
[starts[n], ends[n]) of its character n. White space is collapsed, doubled quotes become one character, accents are
dropped after compatibility decomposition unless they are kept, and case is folded if requested.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# White space; quotes in pairs, from the left; runs of other ASCII; single characters of anything else.
_PART = re.compile(r"\s+|``|''|[\x00-\x08\x0e-\x1b!-&(-_a-\x7f]+|.", re.DOTALL)
_QUOTES = ("``", "''")


@dataclass(frozen=True, kw_only=True)
class NormalisedText:
    """A normalised text, and the span of original characters for each of its characters."""

    text: str
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def normalise(text: str, *, lower: bool, keep_accents: bool) -> str:
    """Return the text as the released models expect it."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    if not keep_accents:
        text = _without_accents(text)
    return text.lower() if lower else text


def normalise_with_map(text: str, *, lower: bool, keep_accents: bool) -> NormalisedText:
    """Return the normalised text with the original span of each character.

    Decomposition goes character by character here. That gives the same text: across characters it only reorders
    combining marks, and these are dropped.
    """
    characters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for start, end, part in _parts(text):
        if not keep_accents:
            part = _without_accents(part)
        characters.append(part)
        if end - start == len(part) > 1:  # a run of ASCII, one to one
            starts.extend(range(start, end))
            ends.extend(range(start + 1, end + 1))
        else:
            starts.extend([start] * len(part))
            ends.extend([end] * len(part))
    return _mapped("".join(characters), starts, ends, lower=lower)


def _parts(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the text with white space and quotes replaced: runs of ASCII, and other characters one by one."""
    for found in _PART.finditer(text):
        part = found.group()
        if not part.isspace():
            yield found.start(), found.end(), '"' if part in _QUOTES else part
        elif found.start() > 0 and found.end() < len(text):
            yield found.start(), found.end(), " "


def _without_accents(text: str) -> str:
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKD", text)
    marks = "".join(character for character in set(text) if unicodedata.combining(character))
    return re.sub(f"[{marks}]+", "", text) if marks else text


def _mapped(text: str, starts: list[int], ends: list[int], *, lower: bool) -> NormalisedText:
    widths = np.array([len(c.lower()) for c in text] if lower else [], dtype=np.int64)
    first, last = np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)
    if lower:
        # The whole text is folded at once, because a final sigma depends on what follows; its width does not.
        text, first, last = text.lower(), np.repeat(first, widths), np.repeat(last, widths)
    return NormalisedText(text=text, starts=first, ends=last)
