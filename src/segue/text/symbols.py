"""Character and byte tokenisers.

In: a text. Out: an id for each character, or for each byte of its UTF-8 form, and offsets in characters. Bytes are
lossless, unless some are left out of their list; characters outside the vocabulary become the unknown id and are lost.
Lone surrogates become U+FFFD in all of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segue.errors import CheckpointError, DataError
from segue.text import folder as folders
from segue.text.pieces import byte_begins_word, check_ids, spans
from segue.text.tokenizer import SPECIALS, Encoding, Unfinished, special_ids
from segue.text.unicode import begins_word, without_surrogates

_CODES = 0x110000


class CharacterTokenizer:
    """A vocabulary of characters, special tokens first."""

    def __init__(self, characters: Sequence[str], *, specials: Sequence[str] = SPECIALS) -> None:
        self._characters, self._special_names = tuple(characters), tuple(specials)
        self._specials = special_ids(specials)
        wrong = [c for c in self._characters if len(c) != 1 or c != without_surrogates(c)]
        if wrong or len(set(self._characters)) != len(self._characters):
            raise DataError(
                f"a vocabulary of characters must have different single characters; got {wrong[:1]} or one twice. "
                f"Remove it."
            )
        self._table = np.full(_CODES, self._specials.get("unk", -1), dtype=np.int32)
        codes = [ord(c) for c in self._characters]
        self._table[codes] = np.arange(len(codes)) + len(self._specials)
        self._codes = np.array(codes, dtype="<u4")

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self._specials) + len(self._characters)

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens."""
        return self._specials

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text."""
        codes = np.frombuffer(without_surrogates(text).encode("utf-32-le"), dtype="<u4")
        ids: NDArray[np.int64] = self._table[codes].astype(np.int64)
        if "unk" not in self._specials and ids.size and ids.min() < 0:
            unknown = chr(int(codes[int(ids.argmin())]))
            raise DataError(
                f"every character must be in a vocabulary that has no unknown token; got {unknown!r}. "
                f"Collect the characters again, with unk among the specials."
            )
        return ids

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets; token n is character n."""
        ids = self.encode(text)
        places = np.arange(len(ids), dtype=np.int64)
        return Encoding(ids=ids, starts=places, ends=places + 1)

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return all ids of the part: no character depends on what follows."""
        return self.encode(text), before

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the text of ids; special and unknown tokens have no text."""
        array = check_ids(ids, size=self.size) - len(self._specials)
        return self._codes[array[array >= 0]].tobytes().decode("utf-32-le")

    def token(self, index: int) -> str:
        """Return the character, or the name of the special token."""
        check_ids([index], size=self.size)
        special = len(self._specials)
        return f"<{self._special_names[index]}>" if index < special else self._characters[index - special]

    def word_starts(self) -> NDArray[np.bool_]:
        """Return True for special tokens, white space, punctuation, symbols and characters of scripts without spaces.

        Whether a letter follows a space cannot be known from its id alone: the space begins the word, as U+2581 does.
        """
        return np.array([True] * len(self._specials) + [begins_word(c) for c in self._characters], dtype=np.bool_)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `vocabulary.txt`: one character per line, U+ and its number if it is invisible."""
        folders.write(folder, self._saved())

    def fingerprint(self) -> str:
        """Return a hash of the characters and the settings."""
        return self._saved().fingerprint()

    def _saved(self) -> folders.SavedTokenizer:
        lines = [c if c.isprintable() and c != " " else f"U+{ord(c):04X}" for c in self._characters]
        data = "".join(f"{line}\n" for line in lines).encode("utf-8")
        return folders.SavedTokenizer(kind="characters", settings={"specials": list(self._special_names)}, data=data)


class ByteTokenizer:
    """The 256 bytes of UTF-8, each its own id, and special tokens after them."""

    def __init__(self, *, specials: Sequence[str] = SPECIALS[1:]) -> None:
        self._special_names = tuple(specials)
        self._specials = {name: 256 + index for name, index in special_ids(specials).items()}

    @property
    def size(self) -> int:
        """Number of ids."""
        return 256 + len(self._specials)

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens, from 256 on; there is no unknown token."""
        return self._specials

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the bytes of a text."""
        return np.frombuffer(without_surrogates(text).encode("utf-8"), dtype=np.uint8).astype(np.int64)

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets; all bytes of a character have its span."""
        ids = self.encode(text)
        starts, ends = spans(((ids & 0xC0) != 0x80).astype(np.int64))
        return Encoding(ids=ids, starts=starts, ends=ends)

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return all ids of the part: no byte depends on what follows."""
        return self.encode(text), before

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the text of ids; special tokens have no text, and bytes that are not UTF-8 become U+FFFD."""
        array = check_ids(ids, size=self.size)
        return array[array < 256].astype(np.uint8).tobytes().decode("utf-8", errors="replace")

    def token(self, index: int) -> str:
        """Return the character of a printable byte, its hexadecimal form otherwise, or the name of the special
        token."""
        check_ids([index], size=self.size)
        if index >= 256:
            return f"<{self._special_names[index - 256]}>"
        return _shown(index)

    def word_starts(self) -> NDArray[np.bool_]:
        """Return True for special tokens, ASCII bytes that are not letters or digits, and the first byte of any other
        character."""
        return np.array([byte_begins_word(b) for b in range(256)] + [True] * len(self._specials), dtype=np.bool_)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`; there is no other file."""
        folders.write(folder, self._saved())

    def fingerprint(self) -> str:
        """Return a hash of the settings."""
        return self._saved().fingerprint()

    def _saved(self) -> folders.SavedTokenizer:
        return folders.SavedTokenizer(kind="bytes", settings={"specials": list(self._special_names)}, data=b"")


class ListedBytes:
    """A list of bytes of UTF-8, each with its index as its id, as in the enwik8 models of Transformer-XL.

    A line break that is not listed gives no token, as in the text on which those models were trained; any other byte
    that is not listed is an error. There are no special tokens.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        wrong = [number for number in numbers if not 0 <= number < 256]
        if wrong or len(set(numbers)) != len(numbers):
            raise DataError(
                f"a vocabulary of bytes must have different numbers from 0 to 255; got {wrong[:1]} or one twice. "
                f"Remove it."
            )
        self._bytes = np.array(numbers, dtype=np.uint8)
        self._table = np.full(256, -1, dtype=np.int64)
        self._table[self._bytes] = np.arange(len(numbers))

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self._bytes)

    @property
    def specials(self) -> Mapping[str, int]:
        """No special tokens."""
        return {}

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of the bytes of a text, without line breaks unless they are listed."""
        return self._look_up(self._raw(text))[0]

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets; all bytes of a character have its span."""
        raw = self._raw(text)
        ids, kept = self._look_up(raw)
        starts, ends = spans(((raw & 0xC0) != 0x80).astype(np.int64))
        return Encoding(ids=ids, starts=starts[kept], ends=ends[kept])

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return all ids of the part: no byte depends on what follows."""
        return self.encode(text), before

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the text of ids; bytes that are not UTF-8 become U+FFFD."""
        return self._bytes[check_ids(ids, size=self.size)].tobytes().decode("utf-8", errors="replace")

    def token(self, index: int) -> str:
        """Return the character of a printable byte, its hexadecimal form otherwise."""
        check_ids([index], size=self.size)
        return _shown(int(self._bytes[index]))

    def word_starts(self) -> NDArray[np.bool_]:
        """Return True for ASCII bytes that are not letters or digits, and the first byte of any other character."""
        return np.array([byte_begins_word(b) for b in self._bytes.tolist()], dtype=np.bool_)

    def numbers(self) -> list[int]:
        """Return the bytes in the order of their ids."""
        result: list[int] = self._bytes.tolist()
        return result

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `vocabulary.txt`: the number of one byte per line."""
        folders.write(folder, self._saved())

    def fingerprint(self) -> str:
        """Return a hash of the bytes."""
        return self._saved().fingerprint()

    def _saved(self) -> folders.SavedTokenizer:
        data = "".join(f"{number}\n" for number in self.numbers()).encode("ascii")
        return folders.SavedTokenizer(kind="listed_bytes", settings={}, data=data)

    def _raw(self, text: str) -> NDArray[np.uint8]:
        return np.frombuffer(without_surrogates(text).encode("utf-8"), dtype=np.uint8)

    def _look_up(self, raw: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the ids, and the mask of the bytes that have one."""
        ids: NDArray[np.int64] = self._table[raw]
        kept = ids >= 0
        unknown = raw[~kept & (raw != ord("\n"))]
        if unknown.size:
            raise DataError(
                f"every byte of a text must be in a vocabulary of bytes; got {_shown(int(unknown[0]))!r}. Remove it."
            )
        return ids[kept], kept


def _shown(byte: int) -> str:
    return chr(byte) if 0x20 < byte < 0x7F else f"<0x{byte:02X}>"


def collect_characters(
    texts: Iterable[str], *, min_count: int = 1, max_size: int | None = None, specials: Sequence[str] = SPECIALS
) -> CharacterTokenizer:
    """Return a tokeniser for the characters of texts: the most frequent first, equally frequent ones in order of
    appearance.

    `max_size` limits the whole vocabulary, including special tokens.
    """
    if min_count < 1:
        raise DataError(f"min_count must be at least 1; got {min_count}. Use 1 to keep all characters.")
    if max_size is not None and max_size < len(specials):
        raise DataError(f"max_size must have room for {len(specials)} special tokens; got {max_size}. Use more.")
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(without_surrogates(text))
    kept = [character for character, count in counts.most_common() if count >= min_count]
    return CharacterTokenizer(kept[: None if max_size is None else max_size - len(specials)], specials=specials)


def characters_from_saved(saved: folders.SavedTokenizer) -> CharacterTokenizer:
    """Return the tokeniser of a saved vocabulary."""
    settings = folders.take_settings(saved, {"specials": list})
    try:
        lines = saved.data.decode("utf-8").split("\n")[:-1]
        characters = [chr(int(line[2:], 16)) if line.startswith("U+") else line for line in lines]
        return CharacterTokenizer(characters, specials=folders.names(settings["specials"]))
    except (ValueError, OverflowError, DataError) as error:
        raise CheckpointError(
            f"{folders.VOCABULARY_FILE} must be a vocabulary, a character a line; got an error: {error} Save it again."
        ) from None


def bytes_from_saved(saved: folders.SavedTokenizer) -> ByteTokenizer:
    """Return the byte tokeniser with its special tokens."""
    settings = folders.take_settings(saved, {"specials": list})
    try:
        return ByteTokenizer(specials=folders.names(settings["specials"]))
    except DataError as error:
        raise CheckpointError(f"{folders.HEADER}: {error}") from None


def listed_bytes_from_saved(saved: folders.SavedTokenizer) -> ListedBytes:
    """Return the tokeniser of a saved list of bytes."""
    folders.take_settings(saved, {})
    try:
        return ListedBytes([int(line) for line in saved.data.decode("ascii").split("\n")[:-1]])
    except (ValueError, DataError) as error:
        raise CheckpointError(
            f"{folders.VOCABULARY_FILE} must be a list of bytes, a number a line; got an error: {error} Save it again."
        ) from None
