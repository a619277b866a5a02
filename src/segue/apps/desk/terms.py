"""Terms of a text: words, word pairs and subwords; characters and character pairs in scripts without spaces.

In: a text. Out: the frequency of each term. Case and full-width forms are normalised. Long numbers, slots, e-mail
addresses and links are replaced by a placeholder of their kind, so that two order numbers look alike.
"""

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import pairwise

from segue.text.unicode import is_unspaced

PIECES = (3, 4, 5)
"""Lengths of subwords, in words whose ends are marked."""
RUNS = (1, 2)
"""Lengths of character n-grams in scripts without spaces. With trigrams too, the mean reciprocal rank on LCQMC falls
from 0.89 to 0.83."""
LONGEST = 4000
"""Maximum number of characters read of a text."""
KEPT = 2**14
"""Number of words whose parts are kept, because most words occur again."""
_KINDS = (
    (re.compile(r"(?<!\S)\S+@\S+\.\w+"), " anaddress "),
    (re.compile(r"https?://\S+|www\.\S+"), " alink "),
    (re.compile(r"\{\w+\}|\d[\d\-./,]{3,}"), " anumber "),
)
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")


def normal(text: str) -> str:
    """Normalise a text: NFKC, lower case, placeholders."""
    text = unicodedata.normalize("NFKC", text[:LONGEST]).lower()
    for pattern, kind in _KINDS:
        text = pattern.sub(kind, text)
    return text


def words_of(text: str) -> list[str]:
    """Return the words of a text; a run of characters in a script without spaces is one word."""
    return [part for word in _WORD.findall(normal(text)) for part in _by_script(word)]


def terms_of(text: str) -> Counter[str]:
    """Return the frequencies of all terms. Subwords begin with a mark, so that they cannot be confused with words."""
    words = words_of(text)
    spaced = [word for word in words if not is_unspaced(word[0])]
    found = Counter(spaced)
    found.update([f"{first} {second}" for first, second in pairwise(spaced)])
    for word in words:
        found.update(_pieces(word))
    return found


@lru_cache(maxsize=KEPT)
def _by_script(word: str) -> tuple[str, ...]:
    """Split a word where a script with spaces meets one without."""
    found, start = [], 0
    for place in range(1, len(word) + 1):
        if place == len(word) or is_unspaced(word[place]) != is_unspaced(word[start]):
            found.append(word[start:place])
            start = place
    return tuple(found)


@lru_cache(maxsize=KEPT)
def _pieces(word: str) -> tuple[str, ...]:
    """Return the subwords of a word, or the character n-grams of a run of characters."""
    if is_unspaced(word[0]):
        return tuple(word[start : start + n] for n in RUNS for start in range(len(word) - n + 1))
    marked = f"<{word}>"
    lengths = [n for n in PIECES if n < len(marked)]
    return tuple(f"~{marked[start : start + n]}" for n in lengths for start in range(len(marked) - n + 1))
