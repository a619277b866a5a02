"""Saving and loading of tokenisers of any kind: a folder with `tokenizer.json` and at most one data file."""

from pathlib import Path

from segue.errors import CheckpointError
from segue.text import folder as folders
from segue.text.byte_pairs import BytePairTokenizer
from segue.text.fast import FastTokenizer
from segue.text.pieces import PieceTokenizer
from segue.text.released import ReleasedPieces
from segue.text.symbols import bytes_from_saved, characters_from_saved, listed_bytes_from_saved
from segue.text.tokenizer import Tokenizer
from segue.text.word_pieces import WordPieceTokenizer
from segue.text.words import words_from_saved


def save_tokenizer(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Write the files of a tokeniser into a folder, which is created if it does not exist."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{path} must be a folder that can be created; got {error.strerror or error}. Choose another path."
        ) from None
    tokenizer.save(path)


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Load the tokeniser of a folder; raise CheckpointError if files are changed, missing or of another format."""
    saved = folders.read(Path(folder))
    match saved.kind:
        case "pieces":
            folders.take_settings(saved, {})
            return PieceTokenizer(saved.data, source=str(Path(folder) / folders.PIECES_FILE))
        case "released":
            settings = folders.take_settings(saved, {"lower": bool, "keep_accents": bool})
            return ReleasedPieces(
                saved.data,
                lower=settings["lower"] is True,
                keep_accents=settings["keep_accents"] is True,
                source=str(Path(folder) / folders.PIECES_FILE),
            )
        case "fast":
            folders.take_settings(saved, {})
            return FastTokenizer(saved.data, source=str(Path(folder) / folders.FAST_FILE))
        case "byte_pairs":
            folders.take_settings(saved, {})
            return BytePairTokenizer(saved.data, source=str(Path(folder) / folders.FAST_FILE))
        case "word_pieces":
            folders.take_settings(saved, {})
            return WordPieceTokenizer(saved.data, source=str(Path(folder) / folders.FAST_FILE))
        case "words":
            return words_from_saved(saved)
        case "characters":
            return characters_from_saved(saved)
        case "listed_bytes":
            return listed_bytes_from_saved(saved)
        case _:
            return bytes_from_saved(saved)
