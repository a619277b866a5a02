"""Tokenisers from a `tokenizer.json` as transformers 5 writes it for an XLNet, run by the `tokenizers` library.

In: a text. Out: the ids and offsets of transformers with that file. They differ from those of the original XLNet code,
which `released` gives: docs/differences.md. One deliberate difference from transformers: a text that spells a special
token, such as `<sep>`, is encoded as its characters.

The library gets a description that was checked first: see `fast_file`.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.text import folder as folders
from segue.text.fast_file import describe
from segue.text.library import LARGEST, LONGEST_WORD, guarded, open_library
from segue.text.pieces import LAYOUT, SPACE_MARK, check_ids, xlnet_start_piece
from segue.text.tokenizer import Encoding, Unfinished
from segue.text.unicode import without_surrogates

_WORD = re.compile(r"\S+")
# Characters that never combine with the preceding one in a normalisation or grapheme: ASCII, letters of the usual
# alphabets, Han, kana, Hangul, full-width forms.
_PLAIN = (
    "!-~\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02af\u0388-\u03ce\u0400-\u0481\u048a-\u04ff\u0531-\u0556\u0561-\u0587"
    "\u05d0-\u05ea\u0621-\u063a\u0641-\u064a\u0904-\u0939\u0e01-\u0e30"
    "\u3001-\u3002\u3041-\u3094\u30a1-\u30fa\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff5e"
)
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]{3}")
_NONE = np.zeros(0, dtype=np.int64)


class FastTokenizer:
    """Sub-word pieces of a `tokenizer.json`."""

    def __init__(self, data: bytes, *, source: str = "tokenizer.json") -> None:
        """`source` is the name of the file in errors, such as its path."""
        self._data, self._source = data, source
        described = describe(data, source=source)
        self._tokens, self.lower, self._unk = described.tokens, described.lower, described.unk
        self._special = np.array([token in described.control for token in self._tokens], dtype=np.bool_)
        self._special[self._unk] = True
        ids = {token: index for index, token in enumerate(self._tokens)}
        named = {piece[1:-1]: ids[piece] for piece in LAYOUT if piece in ids and piece not in ("<s>", "</s>")}
        self._specials = named | {"unk": self._unk}
        self._engine = open_library(described.for_library(), source)
        # The library gives added tokens that are not in the model new ids, because special tokens are left out there.
        self._ids = np.arange(len(self._tokens), dtype=np.int64)
        for token in described.added:
            self._ids[self._engine.token_to_id(token["content"])] = token["id"]
        texts = [token for token, special in zip(self._tokens, self._special, strict=True) if not special]
        self._known = frozenset(texts)
        self._pairs = frozenset(text[i : i + 2] for text in texts for i in range(len(text) - 1))
        spaces = "".join(space for space in " \n\t\r\u3000" if self._normalised(f"a{space}b").split() == ["a", "b"])
        whole = all(_WORD.fullmatch(self._normalised(token["content"])) for token in described.added)
        # Where a word begins: after white space for certain if a plain character follows; in any case if the text is
        # too long.
        self._last_word = re.compile(f"(?s:.*)[{spaces}](?=[{_PLAIN}])") if spaces and whole else None
        self._last_space = re.compile(f"(?s:.*)[{spaces}]") if spaces and whole else None

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self._tokens)

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens that the file has under the names of the XLNet release."""
        return self._specials

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text."""
        ids: NDArray[np.int64] = self._ids[np.array(self._encoded(text).ids, dtype=np.int64)]
        return ids

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets. The mark at the start of a word has the span of the word's first
        character."""
        found = self._encoded(text)
        spans = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
        ids: NDArray[np.int64] = self._ids[np.array(found.ids, dtype=np.int64)]
        return Encoding(ids=ids, starts=spans[:, 0].copy(), ends=spans[:, 1].copy())

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return the ids up to the last word, or to the last two Han characters that are adjacent in no piece.

        The text held back begins at a word and is encoded from there each time, so that sums of scores are rounded in
        the same way. A word that is too long is split as if there were a space.
        """
        new, checked = _NONE, max(len(before.text) - 1, 1)
        text = before.text + without_surrogates(text)
        if self._last_word is None or self._last_space is None:  # tokens with white space: all depends on later text
            return new, Unfinished(text=text)
        if len(text) > LONGEST_WORD:
            text = _WORD.sub(_cut_word, text)
        if found := self._last_word.match(text) or (len(text) > LONGEST_WORD and self._last_space.match(text)):
            new = self.encode(text[: found.end()])[before.given :]
            text, before, checked = text[found.end() :], Unfinished(), 1
        read = self._last_apart(text, begin=max(checked, before.read + 1))
        if read <= before.read:
            return new, Unfinished(text=text, read=before.read, given=before.given)
        ids = self.encode(text[:read])
        return np.concatenate([new, ids[before.given :]]), Unfinished(text=text, read=read, given=len(ids))

    def _last_apart(self, text: str, *, begin: int) -> int:
        """Return the last position from `begin` on where the ids before it do not depend on later text; 0 if there is
        none."""
        places = range(len(text) - 2, begin - 1, -1)
        return next((place for place in places if self._is_apart(text[place - 1 : place + 2])), 0)

    def _is_apart(self, three: str) -> bool:
        """Return True if a text may be split after the first of three characters."""
        return (
            _HAN.fullmatch(three) is not None
            and three[:2] not in self._pairs
            # Adjacent unknown characters become one id.
            and any(character in self._known for character in three[:2])
            and self._normalised(three) == three
        )

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the normalised text of ids; special and unknown tokens have no text."""
        array = check_ids(ids, size=self.size)
        text = "".join(self._tokens[index] for index in array[~self._special[array]].tolist())
        return text.replace(SPACE_MARK, " ").removeprefix(" ")

    def token(self, index: int) -> str:
        """Return the piece, with U+2581 for a space."""
        check_ids([index], size=self.size)
        return self._tokens[index]

    def word_starts(self) -> NDArray[np.bool_]:
        """Return the rule of the XLNet code: pieces that begin with U+2581 or `<`, and ASCII punctuation."""
        return np.array([xlnet_start_piece(token) for token in self._tokens], dtype=np.bool_)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`, the header of this project, and the file from which the tokeniser was read."""
        folders.write(folder, self._saved())

    def fingerprint(self) -> str:
        """Return a hash of the file."""
        return self._saved().fingerprint()

    def _saved(self) -> folders.SavedTokenizer:
        return folders.SavedTokenizer(kind="fast", settings={}, data=self._data)

    def _encoded(self, text: str) -> Any:
        return guarded(self._source, lambda: self._engine.encode(without_surrogates(text), add_special_tokens=False))

    def _normalised(self, text: str) -> str:
        return str(guarded(self._source, lambda: self._engine.normalizer.normalize_str(text)))


def read_fast(path: str | Path) -> FastTokenizer:
    """Read the tokeniser of a `tokenizer.json` of transformers."""
    return FastTokenizer(folders.read_limited(Path(path), limit=LARGEST), source=str(path))


def _cut_word(found: re.Match[str]) -> str:
    """Return a word with a space after every `LONGEST_WORD` characters."""
    word = found.group()
    return " ".join(word[start : start + LONGEST_WORD] for start in range(0, len(word), LONGEST_WORD))
