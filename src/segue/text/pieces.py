"""Lossless SentencePiece tokenisers trained here (`train.train_pieces`), unigram or BPE.

In: a text. Out: ids, and offsets in characters. What makes them lossless:
- Nothing is normalised: white space, full-width forms and accents stay. There is no implicit first space, so that
  `decode(encode(a) + encode(b)) == a + b`, which streaming needs.
- A character without a piece becomes the bytes of its UTF-8 form; all of them have the span of that character.
- U+2581, SentencePiece's own mark for a space, is always encoded as bytes if it occurs in the text; SentencePiece alone
  would read it as a space.
- A newline is always a token of its own, so the ids of a line do not depend on other lines.
- Lone surrogates have no UTF-8 form and are the one exception: each becomes U+FFFD, at the same offset.
Special tokens are control symbols with the ids of the XLNet release; no text produces them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentencepiece import SentencePieceProcessor

from segue.errors import CheckpointError, DataError
from segue.text import folder as folders
from segue.text.tokenizer import Encoding, Unfinished
from segue.text.unicode import begins_word, is_unspaced, without_surrogates

SPACE_MARK = "\u2581"
LAYOUT = ("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")
FIRST_BYTE_ID = len(LAYOUT) + 1  # after the newline
RESERVED = FIRST_BYTE_ID + 256  # ids that every vocabulary has: special tokens, the newline, the bytes
# XLNet's list of pieces that are words of their own. It has no quote, '=' or '>'.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
# Scores of the pieces of a line are summed in float32, so a line of millions of characters would be segmented badly. A
# long line is split: before the first space from `_STRETCH` on, or at `_LONGEST_STRETCH` if there is none.
_STRETCH, _LONGEST_STRETCH = 2048, 4096
_LINE = re.compile("[^\n]*\n{1,512}|[^\n]+")
_MARK_IDS = np.array([FIRST_BYTE_ID + byte for byte in SPACE_MARK.encode("utf-8")], dtype=np.int64)
_NONE = np.zeros(0, dtype=np.int64)


class PieceTokenizer:
    """Lossless sub-word pieces."""

    def __init__(self, model: bytes, *, source: str = "a SentencePiece model") -> None:
        """`source` is the name of the model in errors, such as the path of its file."""
        self._model = model
        with whole_model(source):
            self._processor = open_model(model, source=source)
            _check_layout(self._processor)
            self._widths = piece_widths(self._processor)
            self._pairs = frozenset(pair.replace(SPACE_MARK, " ") for pair in joined_pairs(self._processor))
            self._goes_on = frozenset(pair[0] for pair in self._pairs)
            self.word_starts()  # reads every piece

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self._widths)

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens, laid out as in the XLNet release; `unk` exists but is never produced."""
        return {piece[1:-1]: index for index, piece in enumerate(LAYOUT) if piece not in ("<s>", "</s>")}

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text."""
        text = without_surrogates(text)
        if SPACE_MARK not in text:
            return self._encode_lines(text)
        parts = [_MARK_IDS if part is None else self._encode_lines(part) for part in _between(text.split(SPACE_MARK))]
        return np.concatenate(parts)

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets, which follow from the widths of the pieces, because nothing is
        normalised."""
        ids = self.encode(text)
        starts, ends = spans(self._widths[ids])
        return Encoding(ids=ids, starts=starts, ends=ends)

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return the ids up to the last position that no piece can cross: between two characters that are adjacent in
        no piece, or after one that no piece continues.

        The text held back begins where `encode` itself begins to sum scores. It is encoded from there each time: with
        other sums before them, rounding might decide differently between two segmentations with the same score.
        """
        text = before.text + without_surrogates(text)
        line = max(text.rfind("\n"), text.rfind(SPACE_MARK)) + 1
        ended = len(text) - len(list(_stretches(text[line:]))[-1])
        new, checked = _NONE, max(len(before.text), 1)
        if ended:
            new = self.encode(text[:ended])[before.given :]
            text, before, checked = text[ended:], Unfinished(), 1
        read = self._last_safe(text, begin=checked)
        if read <= before.read:
            return new, Unfinished(text=text, read=before.read, given=before.given)
        ids = self.encode(text[:read])
        return np.concatenate([new, ids[before.given :]]), Unfinished(text=text, read=read, given=len(ids))

    def _last_safe(self, text: str, *, begin: int) -> int:
        """Return the last position from `begin` on that no piece can cross, whatever follows the text; 0 if there is
        none."""
        if text and text[-1] not in self._goes_on:
            return len(text)
        places = range(len(text) - 1, begin - 1, -1)
        return next((place for place in places if text[place - 1 : place + 1] not in self._pairs), 0)

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the text of ids; special tokens have no text, and bytes that are not UTF-8 become U+FFFD."""
        array = check_ids(ids, size=self.size)
        return str(self._processor.decode(array[array >= len(LAYOUT)].tolist()))

    def token(self, index: int) -> str:
        """Return the piece, with U+2581 for a space."""
        check_ids([index], size=self.size)
        return self._processor.id_to_piece(index)

    def word_starts(self) -> NDArray[np.bool_]:
        """Return XLNet's rule, extended by newlines, pieces that begin with a character of a script without spaces, and
        the first byte of a character that is not an ASCII letter or digit."""
        return np.array([self._begins_word(index) for index in range(self.size)], dtype=np.bool_)

    def _begins_word(self, index: int) -> bool:
        byte = index - FIRST_BYTE_ID
        if 0 <= byte < 256:
            return byte_begins_word(byte)
        piece = self._processor.id_to_piece(index)
        return xlnet_start_piece(piece) or piece == "\n" or is_unspaced(piece[0])

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `spiece.model`."""
        folders.write(folder, self._saved())

    def fingerprint(self) -> str:
        """Return a hash of the model."""
        return self._saved().fingerprint()

    def _saved(self) -> folders.SavedTokenizer:
        return folders.SavedTokenizer(kind="pieces", settings={}, data=self._model)

    def _encode_lines(self, text: str) -> NDArray[np.int64]:
        if len(text) <= _STRETCH and "\n" not in text:
            return np.asarray(self._processor.encode(text, return_type="numpy"), dtype=np.int64) if text else _NONE
        parts: list[str] = []
        for line in _LINE.findall(text):
            if len(line) <= _STRETCH:
                parts.append(line)
            else:
                body = line.rstrip("\n")
                parts.extend(_stretches(body))
                parts[-1] += line[len(body) :]
        arrays = self._processor.encode(parts, return_type="numpy", num_threads=1)
        return np.concatenate(arrays).astype(np.int64)


@contextmanager
def whole_model(source: str) -> Iterator[None]:
    """Raise SentencePiece's errors about unreadable pieces as CheckpointError with the name of the file."""
    try:
        yield
    except (RuntimeError, ValueError, IndexError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{source} must be a whole SentencePiece model; got pieces that cannot be read ({error}). "
            f"Copy the file again."
        ) from None


def open_model(model: bytes, *, source: str) -> SentencePieceProcessor:
    """Load a SentencePiece model from its bytes; raise CheckpointError if they are damaged."""
    processor = SentencePieceProcessor()
    try:
        loaded = bool(model) and processor.LoadFromSerializedProto(model)
    except (RuntimeError, ValueError, IndexError) as error:
        raise CheckpointError(
            f"{source} must be a whole SentencePiece model; got {len(model)} bytes that are not ({error}). "
            f"Copy the file again."
        ) from None
    if not loaded or processor.unk_id() < 0:
        raise CheckpointError(
            f"{source} must be a SentencePiece model with an unknown piece; got {len(model)} bytes without. "
            f"Copy the file again."
        )
    return processor


def piece_widths(processor: SentencePieceProcessor) -> NDArray[np.int64]:
    """Return the number of characters that each id advances: the length of its piece, one for the first byte of a
    character, zero for the bytes after it."""
    indices = list(range(processor.get_piece_size()))
    widths = [
        _byte_width(int(piece[1:-1], 16)) if is_byte else len(piece)
        for piece, is_byte in zip(processor.id_to_piece(indices), processor.is_byte(indices), strict=True)
    ]
    return np.array(widths, dtype=np.int64)


def joined_pairs(processor: SentencePieceProcessor) -> frozenset[str]:
    """Return every pair of characters that are adjacent in a piece that text can produce."""
    indices = list(range(processor.get_piece_size()))
    silent = zip(processor.is_control(indices), processor.is_byte(indices), processor.is_unknown(indices), strict=True)
    pieces = zip(processor.id_to_piece(indices), silent, strict=True)
    return frozenset(pair for piece, kinds in pieces if not any(kinds) for pair in _neighbours(piece))


def spans(widths: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return starts and ends of consecutive tokens; a token of width zero shares the last character before it."""
    ends = np.cumsum(widths, dtype=np.int64)
    return ends - np.maximum(widths, 1), ends


def check_ids(ids: Sequence[int] | NDArray[np.int64], *, size: int) -> NDArray[np.int64]:
    """Return the ids as an array; raise DataError if one is outside the vocabulary."""
    array = np.asarray(ids, dtype=np.int64).reshape(-1)
    wrong = array[(array < 0) | (array >= size)]
    if wrong.size:
        raise DataError(f"ids must be from 0 to {size - 1}; got {wrong[0]}. They belong to another tokeniser.")
    return array


def byte_begins_word(byte: int) -> bool:
    """Return True if a byte of UTF-8 begins a word: ASCII by its character, a first byte always, a later byte never."""
    return begins_word(chr(byte)) if byte < 0x80 else byte >= 0xC0


def xlnet_start_piece(piece: str) -> bool:
    """Return True for pieces that begin a word by the rule of the XLNet code."""
    return piece.startswith((SPACE_MARK, "<")) or piece in _PUNCTUATION


def _byte_width(byte: int) -> int:
    return 0 if 0x80 <= byte < 0xC0 else 1


def _neighbours(piece: str) -> Iterator[str]:
    return (piece[place : place + 2] for place in range(len(piece) - 1))


def _stretches(line: str) -> Iterator[str]:
    """Yield the line in parts. The end of a part depends on nothing that comes later, as incremental encoding needs.

    Pieces have a space only at their beginning, so a split before a space changes nothing.
    """
    start = 0
    while len(line) - start > _STRETCH:
        cut = line.find(" ", start + _STRETCH, start + _LONGEST_STRETCH)
        if cut < 0 and len(line) - start <= _LONGEST_STRETCH:
            break
        cut = start + _LONGEST_STRETCH if cut < 0 else cut
        yield line[start:cut]
        start = cut
    yield line[start:]


def _between(parts: list[str]) -> list[str | None]:
    """Return the parts with None between each two of them; empty parts are left out."""
    joined: list[str | None] = []
    for number, part in enumerate(parts):
        if number:
            joined.append(None)
        if part:
            joined.append(part)
    return joined


def _check_layout(processor: SentencePieceProcessor) -> None:
    fits = processor.get_piece_size() > RESERVED
    if fits:
        first = processor.id_to_piece(list(range(RESERVED)))
        expected = [*LAYOUT, "\n", *(f"<0x{byte:02X}>" for byte in range(256))]
        special = list(range(1, len(LAYOUT)))
        fits = (
            first == expected
            and all(processor.is_control(special))
            and processor.unk_id() == 0
            and processor.piece_to_id(SPACE_MARK) != 0
            and processor.Normalize(" \uff21  \u00e9e\u0301 ") == "\u2581\uff21\u2581\u2581\u00e9e\u0301\u2581"
        )
    if not fits:
        raise CheckpointError(
            "a model of kind pieces must be one that train_pieces made (lossless, with bytes and fixed special ids); "
            "got another SentencePiece model. Read released models with read_pieces."
        )
