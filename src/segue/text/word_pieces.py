"""WordPiece tokenisers, as in BERT, run by the `tokenizers` library.

In: a text. Out: the ids and offsets of transformers. White space is dropped, Han characters are words of their own,
case and accents are folded if the settings say so, and a word that cannot be composed of pieces is `[UNK]`; so `decode`
gives the normalised text. One deliberate difference from transformers: a text that spells a special token, such as
`[SEP]`, is encoded as its characters.

The library gets a description that was checked here, never a file.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.errors import CheckpointError
from segue.text import folder as folders
from segue.text.library import LONGEST_WORD, UnlikeError, guarded, open_library, tokens_by_id, words_of
from segue.text.pieces import check_ids
from segue.text.tokenizer import Encoding, Unfinished
from segue.text.unicode import is_unspaced, without_surrogates

SPECIAL = {"[UNK]": "unk", "[CLS]": "cls", "[SEP]": "sep", "[PAD]": "pad", "[MASK]": "mask"}
"""Names of special tokens in BERT's vocabulary and in this project."""
PREFIX = "##"
SETTINGS = ("lowercase", "strip_accents", "handle_chinese_chars", "clean_text")
_LONGEST = 100
"""Maximum number of characters of a word; a longer one is unknown."""
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_SPACE = re.compile("[ \t\n\r]")


class WordPieceTokenizer:
    """Word pieces of a `tokenizer.json`, or of a `vocab.txt`."""

    def __init__(self, data: bytes, *, source: str = "tokenizer.json") -> None:
        """`data` is a `tokenizer.json`; `source` is its name in errors, such as its path."""
        self._source = source
        try:
            values = json.loads(data.decode("utf-8"))
            self.settings = _settings(values)
            model = values["model"]
            longest = model.get("max_input_chars_per_word", _LONGEST)
            if model["type"] != "WordPiece" or model.get("continuing_subword_prefix", PREFIX) != PREFIX:
                raise UnlikeError(f"a model that is not BERT's: {str(model['type'])[:40]}")
            if model["unk_token"] != "[UNK]" or longest != _LONGEST:
                raise UnlikeError(f"the unknown token {str(model['unk_token'])[:40]!r}, words of {str(longest)[:9]}")
            self._tokens, control = tokens_by_id(model["vocab"], values["added_tokens"])
            self._control = control | (set(SPECIAL) & set(self._tokens))
            if "[UNK]" not in self._tokens:
                raise UnlikeError("no token [UNK]")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            reason = str(error) if isinstance(error, UnlikeError) else f"another form ({type(error).__name__}: {error})"
            raise CheckpointError(
                f"{source} must be a WordPiece tokeniser as transformers writes it for a BERT; got {reason[:200]}. "
                "Save it again with transformers 5, or give its vocab.txt."
            ) from None
        self._data = json.dumps(describe(self._tokens, self.settings, self._control), ensure_ascii=False).encode()
        # No text produces a token with brackets around a number: brackets are words of their own.
        hidden = {token: f"[[{index}]]" for index, token in enumerate(self._tokens) if token in self._control}
        inner = describe([hidden.get(token, token) for token in self._tokens], self.settings, ())
        inner["model"]["unk_token"] = hidden["[UNK]"]
        self._engine = open_library(inner, source)
        places = {token: index for index, token in enumerate(self._tokens)}
        self._specials = {name: places[token] for token, name in SPECIAL.items() if token in places}

    @property
    def lower(self) -> bool:
        """True if case is folded."""
        return self.settings["lowercase"] is True

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self._tokens)

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens in the vocabulary."""
        return self._specials

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text."""
        return np.array(self._encoded(text).ids, dtype=np.int64)

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets. White space, and characters that normalisation drops, are in no span."""
        found = self._encoded(text)
        spans = np.array(found.offsets, dtype=np.int64).reshape(-1, 2)
        ids = np.array(found.ids, dtype=np.int64)
        return Encoding(ids=ids, starts=spans[:, 0].copy(), ends=spans[:, 1].copy())

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return the ids up to the last word, including it if white space follows or if it is a Han character. Only the
        beginning of a word that is too long is kept: it is unknown, however it continues."""
        text = before.text + without_surrogates(text)
        found = self._encoded(text)
        words, spans = words_of(found)
        ids = np.array(found.ids, dtype=np.int64)
        if not spans or self._is_over(text, spans[-1]):
            return ids, Unfinished()
        start, end = spans[-1]
        kept = text[start : start + LONGEST_WORD]
        if end - start <= LONGEST_WORD or self.encode(kept).tolist() != [self._specials["unk"]]:
            kept = text[start:]
        return ids[words < len(spans) - 1], Unfinished(text=kept)

    def _is_over(self, text: str, word: tuple[int, int]) -> bool:
        """Return True if later text cannot change the last word."""
        start, end = word
        alone = self.settings["handle_chinese_chars"] is True and _HAN.fullmatch(text[start:end]) is not None
        return alone or _SPACE.search(text, end) is not None

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the normalised text of ids, with spaces between words except in scripts without; special tokens have
        no text."""
        text = ""
        for index in check_ids(ids, size=self.size).tolist():
            token = self._tokens[index]
            if token in self._control:
                continue
            goes_on = token.startswith(PREFIX) and token != PREFIX
            piece = token.removeprefix(PREFIX) if goes_on else token
            if text and not goes_on and not is_unspaced(text[-1]) and not is_unspaced(piece[0]):
                text += " "
            text += piece
        return text

    def token(self, index: int) -> str:
        """Return the piece, with `##` if it continues a word."""
        check_ids([index], size=self.size)
        return self._tokens[index]

    def word_starts(self) -> NDArray[np.bool_]:
        """Return True for pieces without `##`."""
        return np.array([not token.startswith(PREFIX) for token in self._tokens], dtype=np.bool_)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`, the header of this project, and `fast.json`, the file of transformers."""
        folders.write(folder, self._saved())

    def fingerprint(self) -> str:
        """Return a hash of everything that determines the ids."""
        return self._saved().fingerprint()

    def _saved(self) -> folders.SavedTokenizer:
        return folders.SavedTokenizer(kind="word_pieces", settings={}, data=self._data)

    def _encoded(self, text: str) -> Any:
        return guarded(self._source, lambda: self._engine.encode(without_surrogates(text), add_special_tokens=False))


def word_pieces(tokens: Sequence[str], settings: Mapping[str, bool | None], *, source: str) -> WordPieceTokenizer:
    """Return the tokeniser of a vocabulary in the order of its ids; `settings` are those of `SETTINGS`."""
    special = [token for token in tokens if token in SPECIAL]
    return WordPieceTokenizer(json.dumps(describe(tokens, settings, special)).encode(), source=source)


def _settings(values: Mapping[str, Any]) -> dict[str, bool | None]:
    """Return the normalisation settings; raise UnlikeError unless normalisation and word splitting are BERT's."""
    normalizer = values["normalizer"]
    if normalizer["type"] != "BertNormalizer":
        raise UnlikeError(f"other normalisation: {str(normalizer['type'])[:40]}")
    if values["pre_tokenizer"] != {"type": "BertPreTokenizer"}:
        raise UnlikeError(f"another pre-tokenizer: {str(values['pre_tokenizer'])[:60]}")
    found = {name: normalizer[name] for name in SETTINGS}
    if any(
        value not in (True, False) and not (name == "strip_accents" and value is None) for name, value in found.items()
    ):
        raise UnlikeError(f"normalisation with {str(found)[:100]}")
    return found


def describe(
    tokens: Sequence[str], settings: Mapping[str, bool | None], control: Sequence[str] | frozenset[str]
) -> dict[str, Any]:
    """Return a `tokenizer.json` as transformers writes it for a BERT."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    places = {token: index for index, token in enumerate(tokens)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": token} | flags for token, i in places.items() if token in control],
        "normalizer": {"type": "BertNormalizer"} | {name: settings[name] for name in SETTINGS},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _template(places),
        "decoder": {"type": "WordPiece", "prefix": PREFIX, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": PREFIX,
            "max_input_chars_per_word": _LONGEST,
            "vocab": places,
        },
    }


def _template(places: Mapping[str, int]) -> dict[str, Any] | None:
    """Return the template with which transformers adds special tokens to texts; segue adds them itself."""
    if "[CLS]" not in places or "[SEP]" not in places:
        return None

    def mark(token: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [mark("[CLS]", 0), text("A", 0), mark("[SEP]", 0)]
    marks = {token: {"id": token, "ids": [places[token]], "tokens": [token]} for token in ("[CLS]", "[SEP]")}
    pair = [*single, text("B", 1), mark("[SEP]", 1)]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": marks}
