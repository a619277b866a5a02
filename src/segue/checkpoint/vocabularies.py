"""Tokenisers that come with others' checkpoints, read and written in their files.

In: a folder or a file with `spiece.model`, `vocab.txt`, or a pickled vocabulary of Transformer-XL. Out: a Tokenizer;
and back, `spiece.model` or `vocab.txt`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from segue.checkpoint.pickles import Record
from segue.checkpoint.torch_files import read_object
from segue.errors import CheckpointError
from segue.text.files import save_tokenizer
from segue.text.folder import MAX_DATA, PIECES_FILE, VOCABULARY_FILE, read_limited
from segue.text.pieces import PieceTokenizer
from segue.text.released import ReleasedPieces, read_pieces
from segue.text.tokenizer import Tokenizer
from segue.text.words import EOS, WordTokenizer

WORDS = "vocab.txt"
PICKLED = ("vocab.bin", "vocab.pkl", "cache.pkl", "cache.pt")
_SETTINGS = "tokenizer_config.json"


def find_tokenizer(place: Path, *, size: int, settings: Mapping[str, object]) -> Tokenizer | None:
    """The tokeniser of a folder, or of one of its files; None if there is none. `size` is that of the model, which may
    be larger. `settings` are those of `tokenizer_config.json`."""
    names = (PIECES_FILE, WORDS, *PICKLED)
    path = place if place.is_file() else next((place / name for name in names if (place / name).is_file()), None)
    if path is None:
        return None
    tokenizer = _read(path, settings)
    if tokenizer.size > size:
        raise CheckpointError(
            f"{path} must have at most the {size} ids of the model; got {tokenizer.size}. It belongs to another model."
        )
    return tokenizer


def _read(path: Path, settings: Mapping[str, object]) -> Tokenizer:
    if path.suffix == ".model":
        lower, accents = settings.get("do_lower_case") is True, settings.get("keep_accents") is True
        return read_pieces(path, lower=lower, keep_accents=accents)
    if path.suffix == ".txt":
        try:
            words = read_limited(path, limit=MAX_DATA).decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{path} must be UTF-8, a word a line; got {error}. Convert it.") from None
        return _words([word.removesuffix("\r") for word in (words[:-1] if words[-1] == "" else words)], lower=False)
    return _pickled(path)


def _pickled(path: Path) -> WordTokenizer:
    """A vocabulary by the original code or by transformers, alone or in a pickled corpus."""
    value = read_object(path)
    for _ in range(3):
        values = value.state if isinstance(value, Record) else value
        if isinstance(values, dict) and isinstance(words := values.get("idx2sym"), list):
            if not all(isinstance(word, str) for word in words):
                break
            return _words(words, lower=values.get("lower_case") is True)
        value = values.get("vocab") if isinstance(values, dict) else None
    raise CheckpointError(
        f"{path} must hold a vocabulary, a list of words named idx2sym; got none. Write them to {WORDS}, one a line."
    )


def _words(words: list[str], *, lower: bool) -> WordTokenizer:
    ends = words[:1] == [EOS]  # then a newline is a token
    return WordTokenizer(words[1:] if ends else words, specials=(), lower=lower, add_eos=ends)


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> str | None:
    """Writes the file that others read; returns what to know about it."""
    with TemporaryDirectory() as work:
        save_tokenizer(tokenizer, work)
        if (Path(work) / PIECES_FILE).is_file():
            (folder / PIECES_FILE).write_bytes((Path(work) / PIECES_FILE).read_bytes())
        elif (Path(work) / VOCABULARY_FILE).is_file() and isinstance(tokenizer, WordTokenizer):
            words = [tokenizer.token(i) for i in range(tokenizer.size)]
            (folder / WORDS).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        else:
            return "the tokeniser has no form that others read; it was left out."
        saved = json.loads((Path(work) / "tokenizer.json").read_text(encoding="utf-8"))["settings"]
    if isinstance(tokenizer, ReleasedPieces):
        settings = {
            "tokenizer_class": "XLNetTokenizer",
            "do_lower_case": saved["lower"],
            "keep_accents": saved["keep_accents"],
        }
        (folder / _SETTINGS).write_text(json.dumps(settings, indent=1), encoding="utf-8")
    if isinstance(tokenizer, PieceTokenizer):
        return "the tokeniser was trained without normalisation; other libraries normalise, and find other pieces."
    return None
