"""Byte-level BPE tokenisers, as in GPT-2, run by the `tokenizers` library.

In: a text. Out: the ids and offsets of transformers. Encoding is lossless: every byte has a token. One deliberate
difference from transformers: a text that spells `<|endoftext|>` is encoded as its characters.

The library gets a description that was checked here, never a file.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.errors import CheckpointError
from segue.text import folder as folders
from segue.text.library import (
    LARGEST,
    LONGEST_WORD,
    UnlikeError,
    guarded,
    open_library,
    piece_text,
    tokens_by_id,
    words_of,
)
from segue.text.pieces import SPACE_MARK, check_ids
from segue.text.tokenizer import Encoding, Unfinished
from segue.text.unicode import begins_word, without_surrogates

END = "<|endoftext|>"
VOCABULARY, MERGES = "vocab.json", "merges.txt"
_WORDS = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_MODEL: dict[str, Any] = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": "",
    "end_of_word_suffix": "",
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
_NONE = np.zeros(0, dtype=np.int64)


def _letters() -> dict[str, int]:
    """Return the character that stands for each byte in a vocabulary: itself if it is printable, otherwise one from
    U+0100 on."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _letters()


class BytePairTokenizer:
    """Byte-level BPE of a `tokenizer.json`, or of a `vocab.json` with its `merges.txt`."""

    def __init__(self, data: bytes, *, source: str = "tokenizer.json") -> None:
        """`data` is a `tokenizer.json`; `source` is its name in errors, such as its path."""
        self._source = source
        try:
            values = json.loads(data.decode("utf-8"))
            _check_words(values)
            self._tokens, self._control = tokens_by_id(values["model"]["vocab"], values["added_tokens"])
            self._control |= {END} & set(self._tokens)
            merges = _merges(values["model"], self._control)
            self._texts = [None if token in self._control else _bytes(token) for token in self._tokens]
            if missing := {bytes([byte]) for byte in range(256)} - set(self._texts):
                raise UnlikeError(f"no token for the byte {min(missing)[0]}")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            reason = str(error) if isinstance(error, UnlikeError) else f"another form ({type(error).__name__}: {error})"
            raise CheckpointError(
                f"{source} must be a byte-level BPE tokeniser as transformers writes it for a GPT-2; got "
                f"{reason[:200]}. Save it again with transformers 5."
            ) from None
        self._data = json.dumps(_description(self._tokens, merges, self._control), ensure_ascii=False).encode()
        inner = _description([t for t in self._tokens if t not in self._control], merges, ())
        self._engine = open_library(inner, source)
        place = {token: index for index, token in enumerate(self._tokens)}
        self._ids = np.array([place[t] for t in self._tokens if t not in self._control], dtype=np.int64)
        self._specials = {"eod": place[END]} if END in place else {}

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self._tokens)

    @property
    def specials(self) -> Mapping[str, int]:
        """`eod`, which ends a document and begins a text."""
        return self._specials

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text."""
        return self._own(self._encoded(text).ids)

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets. A span includes the space before its word; the tokens of one character
        share its span."""
        found = self._encoded(text)
        spans = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
        return Encoding(ids=self._own(found.ids), starts=spans[:, 0].copy(), ends=spans[:, 1].copy())

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return the ids up to the last two words, which later text may change ("'" and "r" become "'re"). A word that
        is too long is split."""
        new, text = [_NONE], before.text + without_surrogates(text)
        while text:
            found = self._encoded(text)
            words, spans = words_of(found)
            long = next((start for start, end in spans if end - start > LONGEST_WORD), None)
            if long is not None:
                new.append(self.encode(text[: long + LONGEST_WORD]))
                text = text[long + LONGEST_WORD :]
                continue
            if len(spans) > 2:
                new.append(self._own(found.ids)[words < len(spans) - 2])
                text = text[spans[-2][0] :]
            break
        return np.concatenate(new), Unfinished(text=text)

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the text of ids; special tokens have no text, and bytes that are not UTF-8 become U+FFFD."""
        texts = (self._texts[index] for index in check_ids(ids, size=self.size).tolist())
        return b"".join(text for text in texts if text is not None).decode("utf-8", errors="replace")

    def token(self, index: int) -> str:
        """Return the text of a token, with U+2581 for a space; its form in the vocabulary if its bytes are not
        UTF-8."""
        check_ids([index], size=self.size)
        text = self._texts[index]
        try:
            return self._tokens[index] if text is None else text.decode("utf-8").replace(" ", SPACE_MARK)
        except UnicodeDecodeError:
            return self._tokens[index]

    def word_starts(self) -> NDArray[np.bool_]:
        """Return True for tokens that begin with a space, punctuation, or a character of a script without spaces."""
        shown = [self.token(index).replace(SPACE_MARK, " ") for index in range(self.size)]
        return np.array([begins_word(token[0]) for token in shown], dtype=np.bool_)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`, the header of this project, and `fast.json`, the file of transformers."""
        folders.write(folder, self._saved())

    def fingerprint(self) -> str:
        """Return a hash of everything that determines the ids."""
        return self._saved().fingerprint()

    def _saved(self) -> folders.SavedTokenizer:
        return folders.SavedTokenizer(kind="byte_pairs", settings={}, data=self._data)

    def _encoded(self, text: str) -> Any:
        return guarded(self._source, lambda: self._engine.encode(without_surrogates(text), add_special_tokens=False))

    def _own(self, ids: list[int]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._ids[np.array(ids, dtype=np.int64)]
        return found


def read_byte_pairs(folder: Path) -> BytePairTokenizer:
    """Read the tokeniser of a folder with `vocab.json` and `merges.txt`, the files of the first releases."""
    path = folder / VOCABULARY
    try:
        vocabulary = json.loads(folders.read_limited(path, limit=LARGEST).decode("utf-8"))
        lines = folders.read_limited(folder / MERGES, limit=LARGEST).decode("utf-8").split("\n")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} and {MERGES} must be JSON and text in UTF-8; got {error}. Copy them again."
        ) from None
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    special = [END] if isinstance(vocabulary, dict) and END in vocabulary else []
    values = {
        "normalizer": None,
        "pre_tokenizer": _WORDS,
        "added_tokens": [{"content": token, "id": vocabulary[token], "special": True} for token in special],
        "model": _MODEL | {"vocab": vocabulary, "merges": merges},
    }
    return BytePairTokenizer(json.dumps(values).encode(), source=str(path))


def _check_words(values: Mapping[str, Any]) -> None:
    """Raise UnlikeError unless text is split as in GPT-2."""
    words = values["pre_tokenizer"]
    if values.get("normalizer") is not None:
        raise UnlikeError(f"normalisation: {str(values['normalizer'])[:60]}")
    if words["type"] != "ByteLevel" or words.get("use_regex", True) is not True:
        raise UnlikeError(f"another pre-tokenizer: {str(words)[:60]}")
    if words["add_prefix_space"] is not False:
        raise UnlikeError("add_prefix_space, with which a text that comes in parts would get a space in each")


def _merges(model: Mapping[str, Any], control: frozenset[str]) -> list[list[str]]:
    """Return the merges, in order."""
    for name, value in _MODEL.items():
        if (model.get(name) or None) != (value or None):
            raise UnlikeError(f"a model with {name} {str(model.get(name))[:40]!r}")
    pairs = [pair.split(" ") if type(pair) is str else list(pair) for pair in model["merges"]]
    for pair in pairs:
        if len(pair) != 2 or piece_text(piece_text(pair[0]) + piece_text(pair[1])) in control:
            raise UnlikeError(f"the merge {str(pair)[:60]}")
    return pairs


def _bytes(token: str) -> bytes:
    """Return the bytes of a token of the vocabulary."""
    try:
        return bytes(_BYTES[letter] for letter in token)
    except KeyError:
        raise UnlikeError(f"the token {token[:40]!r}, which is not written in the letters of bytes") from None


def _description(
    tokens: Sequence[str], merges: list[list[str]], control: Sequence[str] | frozenset[str]
) -> dict[str, Any]:
    """Return a `tokenizer.json` as transformers writes it for a GPT-2."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": token} | flags for i, token in enumerate(tokens) if token in control],
        "normalizer": None,
        "pre_tokenizer": _WORDS,
        "post_processor": None,
        "decoder": _WORDS | {"add_prefix_space": True},
        "model": _MODEL | {"vocab": {token: index for index, token in enumerate(tokens)}, "merges": merges},
    }
