"""Tokenisers of foreign checkpoints, read and written in their own file formats.

In: a folder or a file with `spiece.model`, `vocab.txt`, a pickled vocabulary of Transformer-XL, the `tokenizer.json` of
an XLNet, a BERT or a GPT-2 of transformers 5, `vocab.json` with `merges.txt`, or a tokeniser of segue. Out: a
Tokenizer; and back, `spiece.model` with the `tokenizer.json` that transformers 5 makes of it, `tokenizer.json` alone,
or `vocab.txt`.

A `spiece.model` is applied as the original XLNet code does, a `tokenizer.json` without one as transformers does. A
`vocab.txt` with `[UNK]`, `[CLS]` and `[SEP]` is one of word pieces.

The vocabularies of Transformer-XL are symbols in the order of their ids. Those of WikiText and One Billion Word are
words. Those of enwik8 are byte values, and those of text8 letters with `_` for a space: the text was written like that,
separated by spaces, before symbols were counted. Neither has a symbol for a line break.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from segue.checkpoint.pickles import Name, PickledObject
from segue.checkpoint.torch_files import read_object
from segue.checkpoint.unigram import FILE as JSON
from segue.checkpoint.unigram import described
from segue.errors import CheckpointError, DataError
from segue.text.byte_pairs import MERGES, VOCABULARY, BytePairTokenizer, read_byte_pairs
from segue.text.fast import FastTokenizer, read_fast
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.folder import FAST_FILE, FORMAT, HEADER, MAX_DATA, MAX_HEADER, PIECES_FILE, read_limited
from segue.text.library import LARGEST, MissingLibraryError
from segue.text.pieces import PieceTokenizer
from segue.text.released import ReleasedPieces, read_pieces
from segue.text.symbols import CharacterTokenizer, ListedBytes
from segue.text.tokenizer import Tokenizer
from segue.text.word_pieces import WordPieceTokenizer, word_pieces
from segue.text.words import EOS, WordTokenizer

WORDS = "vocab.txt"
PICKLED = ("vocab.bin", "vocab.pkl", "cache.pkl", "cache.pt")
_SETTINGS = "tokenizer_config.json"
NAMES = (PIECES_FILE, JSON, WORDS, VOCABULARY, *PICKLED)
"""Names of vocabulary files, in order of preference."""
_KINDS = {
    ListedBytes: "its numbers are bytes, as in enwik8; line breaks have no id and are left out",
    CharacterTokenizer: "its symbols are characters, with _ for a space, as in text8",
}


@dataclass(frozen=True, kw_only=True)
class FoundTokenizer:
    """A tokeniser, the file that it was read from, and notes on it."""

    tokenizer: Tokenizer | None = None
    path: Path | None = None
    notes: tuple[str, ...] = ()


def find_tokenizer(place: Path, *, size: int | None, settings: Mapping[str, object]) -> FoundTokenizer:
    """Return the tokeniser of a folder, or of one of its files. `size` is that of the model, which may be larger.
    `settings` are those of `tokenizer_config.json`. A `tokenizer.json` in a folder that cannot be read exactly becomes
    a note."""
    path = place if place.is_file() else next((place / name for name in NAMES if (place / name).is_file()), None)
    if path is None:
        return FoundTokenizer()
    calls: set[Name] = set()
    try:
        tokenizer = _read(path, settings, calls)
    except DataError as error:
        raise CheckpointError(f"{path} must hold a vocabulary; {error}") from None
    except CheckpointError as error:
        if path == place or path.name != JSON or isinstance(error, MissingLibraryError):
            raise
        return FoundTokenizer(notes=(f"no tokeniser was read: {error}",))
    notes = [f"{path.name}: {note}." for kind, note in _KINDS.items() if isinstance(tokenizer, kind)]
    notes += [f"{path.name}: {note}" for note in notes_on_calls(calls)]
    if isinstance(tokenizer, WordPieceTokenizer) and path.name == WORDS and "do_lower_case" not in settings:
        notes.append(f"{path.name}: case is folded, because no {_SETTINGS} says otherwise.")
    if isinstance(tokenizer, FastTokenizer):
        notes.append(f"{path.name}: read as transformers 5 reads it; the original XLNet code finds other pieces.")
    return FoundTokenizer(tokenizer=tokenizer, path=path, notes=(*notes, *_sizes(path, tokenizer.size, size)))


def _sizes(path: Path, tokens: int, size: int | None) -> list[str]:
    """Return a note if the model has more ids than the tokeniser; raise CheckpointError if it has fewer."""
    if size is None or tokens == size:
        return []
    if tokens > size:
        raise CheckpointError(
            f"{path} must have at most the {size} ids of the model; got {tokens}. It belongs to another model."
        )
    return [f"{path.name}: {tokens:,} tokens for the {size:,} ids of the model; those from {tokens:,} on have no text."]


def notes_on_calls(calls: Iterable[Name]) -> list[str]:
    """Return a note on the functions that a pickle asks to call; none if there are none."""
    names = sorted(map(str, calls))
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    why = "nothing of it was run. Do not load this file with torch.load or pickle unless you trust its author."
    return [f"the pickle asks to call {shown}; {why}"] if names else []


def is_own(folder: Path) -> bool:
    """Return True if a folder holds a tokeniser of segue, which has files of the same names."""
    try:
        header = json.loads(read_limited(folder / HEADER, limit=MAX_HEADER))
    except (CheckpointError, ValueError, RecursionError):
        return False
    return isinstance(header, dict) and header.get("format") == FORMAT


def _read(path: Path, settings: Mapping[str, object], calls: set[Name]) -> Tokenizer:
    if path.name in (PIECES_FILE, JSON) and is_own(path.parent):
        return load_tokenizer(path.parent)
    if path.name == JSON:
        return _described(path, settings)
    if path.name in (VOCABULARY, MERGES):
        return read_byte_pairs(path.parent)
    if path.suffix == ".model":
        lower, accents = settings.get("do_lower_case") is True, settings.get("keep_accents") is True
        try:
            return read_pieces(path, lower=lower, keep_accents=accents)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from None
    if path.suffix == ".txt":
        try:
            words = read_limited(path, limit=MAX_DATA).decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{path} must be UTF-8, a word a line; got {error}. Convert it.") from None
        symbols = [word.removesuffix("\r") for word in (words[:-1] if words[-1] == "" else words)]
        if {"[UNK]", "[CLS]", "[SEP]"} <= set(symbols):
            return word_pieces(symbols, _normalisation(settings), source=str(path))
        return _symbols(symbols, lower=False)
    return _pickled(path, calls)


def _described(path: Path, settings: Mapping[str, object]) -> Tokenizer:
    """Return the tokeniser of a `tokenizer.json`, by the kind of its model."""
    data = read_limited(path, limit=LARGEST)
    try:
        kind = json.loads(data)["model"]["type"]
    except (ValueError, KeyError, TypeError, RecursionError):
        kind = None  # the reader for XLNet raises the error
    if kind == "BPE":
        return BytePairTokenizer(data, source=str(path))
    if kind == "WordPiece":
        tokenizer = WordPieceTokenizer(data, source=str(path))
        _check_settings(path, tokenizer.settings, settings)
        return tokenizer
    return _fast(path, settings)


_NORMALISATION = {
    "lowercase": ("do_lower_case", True),
    "strip_accents": ("strip_accents", None),
    "handle_chinese_chars": ("tokenize_chinese_chars", True),
}
"""Names of the word-piece settings in `tokenizer_config.json`, and their defaults in transformers."""


def _normalisation(settings: Mapping[str, object]) -> dict[str, bool | None]:
    """Return the word-piece settings of a `tokenizer_config.json`."""
    found: dict[str, bool | None] = {"clean_text": True}
    for ours, (theirs, default) in _NORMALISATION.items():
        value = settings.get(theirs, default)
        if value is not None and not isinstance(value, bool):
            raise CheckpointError(f"{theirs} in {_SETTINGS} must be true or false; got {value!r}. Correct it.")
        found[ours] = default if value is None else value
    return found


def _check_settings(path: Path, found: Mapping[str, bool | None], settings: Mapping[str, object]) -> None:
    """Raise CheckpointError if the settings contradict a `tokenizer.json`: transformers follows the settings."""
    for ours, (theirs, _) in _NORMALISATION.items():
        if theirs in settings and settings[theirs] is not found[ours]:
            raise CheckpointError(
                f"{path} must have {ours} as {theirs} beside it says; got {found[ours]} and {settings[theirs]} in "
                f"{_SETTINGS}. Correct the settings, or save the tokeniser again."
            )


def _fast(path: Path, settings: Mapping[str, object]) -> FastTokenizer:
    """Return the tokeniser of a `tokenizer.json`; its settings must agree: transformers follows the settings."""
    tokenizer = read_fast(path)
    lower = settings.get("do_lower_case") is True
    if lower != tokenizer.lower:
        raise CheckpointError(
            f"{path} must fold case if and only if do_lower_case is true beside it; got {str(lower).lower()} in "
            f"{_SETTINGS}. Correct the settings, or save the tokeniser again."
        )
    return tokenizer


def _pickled(path: Path, calls: set[Name]) -> Tokenizer:
    """Return a vocabulary pickled by the original code or by transformers, alone or in a pickled corpus."""
    value = read_object(path, calls=calls)
    for _ in range(3):
        values = value.state if isinstance(value, PickledObject) else value
        if isinstance(values, dict) and isinstance(words := values.get("idx2sym"), list):
            if not all(isinstance(word, str) for word in words):
                break
            return _symbols(words, lower=values.get("lower_case") is True)
        value = values.get("vocab") if isinstance(values, dict) else None
    raise CheckpointError(
        f"{path} must hold a vocabulary, a list of words named idx2sym; got none. Write them to {WORDS}, one a line."
    )


def _symbols(symbols: list[str], *, lower: bool) -> Tokenizer:
    """Return a tokeniser of bytes, characters or words, depending on the symbols."""
    if symbols and all(re.fullmatch("0|[1-9][0-9]{0,2}", symbol) and int(symbol) < 256 for symbol in symbols):
        return ListedBytes([int(symbol) for symbol in symbols])
    if "_" in symbols and all(len(symbol) == 1 and not symbol.isspace() for symbol in symbols):
        return CharacterTokenizer([" " if symbol == "_" else symbol for symbol in symbols], specials=())
    ends = symbols[:1] == [EOS]  # a newline is a token then
    return WordTokenizer(symbols[1:] if ends else symbols, specials=(), lower=lower, add_eos=ends)


def _written(tokenizer: Tokenizer) -> list[str] | None:
    """Return the symbols of a vocabulary in the form that `_symbols` reads; None if that is impossible."""
    if isinstance(tokenizer, ListedBytes):
        return [str(number) for number in tokenizer.numbers()]
    tokens = [tokenizer.token(i) for i in range(tokenizer.size)]
    if isinstance(tokenizer, WordTokenizer):
        return tokens
    if isinstance(tokenizer, CharacterTokenizer) and not tokenizer.specials and " " in tokens:
        symbols = ["_" if token == " " else token for token in tokens]
        return symbols if "_" not in tokens and not any(symbol.isspace() for symbol in symbols) else None
    return None


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> str | None:
    """Write the files that other libraries read; return a note on them, if any."""
    if isinstance(tokenizer, BytePairTokenizer):
        (folder / JSON).write_bytes(_saved_file(tokenizer, FAST_FILE))
        _write_settings_of(folder, {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False})
        return None
    if isinstance(tokenizer, WordPieceTokenizer):
        (folder / JSON).write_bytes(_saved_file(tokenizer, FAST_FILE))
        told: dict[str, object] = {theirs: tokenizer.settings[ours] for ours, (theirs, _) in _NORMALISATION.items()}
        _write_settings_of(folder, told | {"tokenizer_class": "BertTokenizer"})
        return None
    if isinstance(tokenizer, FastTokenizer):
        (folder / JSON).write_bytes(_saved_file(tokenizer, FAST_FILE))
        _write_settings(folder, lower=tokenizer.lower, keep_accents=False)
        return None
    if isinstance(tokenizer, ReleasedPieces):
        pieces = _saved_file(tokenizer, PIECES_FILE)
        (folder / PIECES_FILE).write_bytes(pieces)
        values = described(pieces, lower=tokenizer.lower)
        if values is not None:
            (folder / JSON).write_text(json.dumps(values, indent=2, ensure_ascii=False), encoding="utf-8")
        _write_settings(folder, lower=tokenizer.lower, keep_accents=tokenizer.keep_accents)
        return None
    if isinstance(tokenizer, PieceTokenizer):
        (folder / PIECES_FILE).write_bytes(_saved_file(tokenizer, PIECES_FILE))
        return "the tokeniser was trained without normalisation; other libraries normalise, and find other pieces."
    if (symbols := _written(tokenizer)) is None:
        return "the tokeniser has no form that others read; it was left out."
    (folder / WORDS).write_text("".join(f"{symbol}\n" for symbol in symbols), encoding="utf-8")
    return None


def _saved_file(tokenizer: Tokenizer, name: str) -> bytes:
    """Return a file of a saved tokeniser."""
    with TemporaryDirectory() as work:
        save_tokenizer(tokenizer, work)
        return (Path(work) / name).read_bytes()


def _write_settings(folder: Path, *, lower: bool, keep_accents: bool) -> None:
    told = {"tokenizer_class": "XLNetTokenizer", "do_lower_case": lower, "keep_accents": keep_accents}
    _write_settings_of(folder, told)


def _write_settings_of(folder: Path, settings: Mapping[str, object]) -> None:
    (folder / _SETTINGS).write_text(json.dumps(settings, indent=1), encoding="utf-8")
