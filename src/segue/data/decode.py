"""Decoding of files to lines of clean text, in chunks: decompression, encodings, line ends.

- A byte order mark decides the encoding (UTF-8, UTF-16, UTF-32) and is dropped; otherwise the given encoding is used.
- Malformed bytes become U+FFFD and are counted; a file with too many of them is refused: it is not text, or in another
  encoding.
- NUL is dropped and counted: it is never part of a text, and SentencePiece models cannot hold it.
- A line ends with LF, CR LF or CR. Other separators (form feed, U+2028, ...) are text.
"""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any, BinaryIO, cast

from segue.data.inputs import InputFile
from segue.data.problems import Problems
from segue.errors import DataError

CHUNK = 2**18
LARGEST_EXPANSION = 100
"""Default maximum ratio of decompressed to compressed size; text expands three to ten times."""
HARMLESS = 2**26
"""Bytes that a compressed file may always expand to by default."""
TOLERATED_SHARE = 0.1  # share of characters that are malformed or NUL, once there are more than a hundred
_LOOK = 2**12  # bytes at the beginning used to guess an encoding for a message
STRAY_SHARE = 0.001  # share of malformed characters in a text that is read strictly
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is a prefix of it
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Position:
    """Reading position in a file (on disk, before decompression)."""

    def __init__(self) -> None:
        self.bytes = 0


class _Counted(io.RawIOBase):
    """A file that updates its position."""

    def __init__(self, file: BinaryIO, position: Position) -> None:
        self._file, self._position = file, position

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._position.bytes += len(data)
        return len(data)


class Content:
    """Content of a file, decompressed while it is read; raises DataError if it expands too much."""

    def __init__(self, file: InputFile, stream: BinaryIO, largest_expansion: int | None) -> None:
        self._file, self._stream, self._read = file, stream, 0
        self._expansion = LARGEST_EXPANSION if largest_expansion is None else largest_expansion
        self._most = max(self._expansion * file.size, HARMLESS if largest_expansion is None else 2**20)

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""
        data = self._stream.read(size)
        self._read += len(data)
        if self._file.compression and self._read > self._most:
            raise DataError(
                f"{self._file.path} must not expand to more than {self._expansion} times its {self._file.size:,} "
                "bytes; it does. Allow more with --largest-expansion, or leave it out."
            )
        return data

    def blocks(self) -> Iterator[bytes]:
        """Yield the whole content in chunks."""
        return iter(partial(self.read, CHUNK), b"")


@contextmanager
def opened(file: InputFile, position: Position, *, largest_expansion: int | None) -> Iterator[Content]:
    """Open the content of a file; damage raises DataError. `largest_expansion` defaults to LARGEST_EXPANSION."""
    try:
        with file.path.open("rb") as raw:
            stream = _decompressed(file, io.BufferedReader(_Counted(raw, position), CHUNK))
            yield Content(file, stream, largest_expansion)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        what = f"a whole .{file.compression} file" if file.compression else "readable"
        raise DataError(f"{file.path} must be {what}; got {error}. Copy it again, or leave it out.") from None


def _decompressed(file: InputFile, stream: io.BufferedReader) -> BinaryIO:
    if file.compression == "gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    if file.compression == "bz2":
        return cast(BinaryIO, bz2.BZ2File(stream))
    if file.compression == "xz":
        return cast(BinaryIO, lzma.LZMAFile(stream))
    if file.compression == "zst":
        # pyarrow instead of zstandard, whose stream reader accepts truncated files.
        return cast(BinaryIO, arrow(file).CompressedInputStream(stream, "zstd"))
    return stream


def arrow(file: InputFile) -> Any:
    """Return pyarrow; raise DataError with the install command if it is missing."""
    try:
        import_module("pyarrow.parquet")
        return import_module("pyarrow")
    except ImportError:
        raise DataError(
            f"reading {file.path} needs pyarrow; it is not installed. Install it: pip install pyarrow."
        ) from None


def chunks(
    file: InputFile, position: Position, problems: Problems, *, encoding: str, largest_expansion: int | None
) -> Iterator[str]:
    """Yield the text in chunks of about CHUNK bytes, with LF line ends, without NULs and byte order marks."""
    with opened(file, position, largest_expansion=largest_expansion) as content:
        yield from decoded(content.blocks(), str(file.path), problems, encoding=encoding)


def check_expansion(largest_expansion: int | None) -> None:
    """Raise DataError unless this is a valid factor."""
    if largest_expansion is not None and largest_expansion < 1:
        raise DataError(f"largest_expansion must be at least 1; got {largest_expansion}. Leave it out.")


def decoded(
    blocks: Iterable[bytes], where: str, problems: Problems, *, encoding: str, strict: bool = False
) -> Iterator[str]:
    """Yield the text of some bytes, a chunk for each block; see `chunks`.

    `strict` is for texts that may be small: it also refuses one with more than a few malformed characters if they are
    many relative to the other non-ASCII characters. Chinese read in a wrong encoding can have few.
    """
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    decoder: _Decoder | None = None
    mark, asked = b"", encoding
    characters = bad = damaged = beyond = line = 0  # `beyond` counts characters beyond ASCII
    beginning = b""
    first = ""  # place of the first bad character
    for data in chain(blocks, [b""]):
        final = not data
        if decoder is None:
            mark, encoding = next(((mark, name) for mark, name in _MARKS if data.startswith(mark)), (b"", encoding))
            data = data[len(mark) :]
            decoder, beginning = _Decoder(encoding), data[:_LOOK]
        text, malformed = decoder.decode(data, final=final)
        nuls = text.count("\0")
        for kind, number, sign in (("malformed_characters", malformed, "\ufffd"), ("nul_characters", nuls, "\0")):
            if number:
                place = f"line {line + text.count(chr(10), 0, text.find(sign)) + 1}"
                first = first or place
                problems.count(kind, f"{where}, {place}", number)
        characters, bad = characters + len(text), bad + malformed + nuls
        line += text.count("\n")
        refuse = bad > 100 and bad > TOLERATED_SHARE * characters
        if strict:
            damaged, beyond = damaged + malformed, beyond + len(text) - len(text.encode("ascii", "ignore"))
            refuse |= damaged > max(STRAY_SHARE * characters, TOLERATED_SHARE * beyond)
            refuse |= bad > TOLERATED_SHARE * characters
        if refuse:
            begins = ", as the byte order mark at its beginning says" if mark else ""
            raise DataError(
                f"{where} must be text in {encoding}{begins}; {bad} of its first {characters} characters are malformed "
                f"or NUL, the first in {first}. {_remedy(mark, encoding, asked, beginning)}"
            )
        text = newlines.decode(text.replace("\0", "") if nuls else text, final=final)
        if text:
            yield text


def _remedy(mark: bytes, encoding: str, asked: str, beginning: bytes) -> str:
    """Return the remedy for a text that is not in its encoding; never one that was already applied."""
    wide = None if mark else _wide_encoding(beginning)
    if wide is not None and not _same(wide, asked):
        return f"Its NUL bytes look like {wide.upper()} without a byte order mark: try --encoding {wide}."
    if mark:
        size = len(mark)
        other = "" if _same(encoding, asked) else f" and say --encoding {asked} again"
        return (
            f"The mark decides, whatever --encoding says. If it is wrong, take it away (tail -c +{size + 1} FILE > NEW)"
            f"{other or ' and say how the text is encoded with --encoding'}; else leave the file out."
        )
    others = [name for name in ("utf-8", "gb18030", "big5", "latin-1") if not _same(name, asked)]
    return f"If it is text, give its encoding (--encoding {others[0]}, {' or '.join(others[1:])}); else leave it out."


def _wide_encoding(beginning: bytes) -> str | None:
    """Return UTF-16 if every other byte is often NUL, as for line ends, spaces and Latin letters; else None."""
    places = {"utf-16-le": beginning[1::2], "utf-16-be": beginning[0::2]}
    counts = {name: places[name].count(0) for name in places}
    name = max(counts, key=lambda name: counts[name])
    often = counts[name] > TOLERATED_SHARE * len(places[name]) and sum(counts.values()) < 1.1 * counts[name]
    return name if often else None


def _same(encoding: str, other: str) -> bool:
    return codecs.lookup(encoding).name == codecs.lookup(other).name


class _Decoder:
    """Incremental decoder that counts replaced characters."""

    def __init__(self, encoding: str) -> None:
        self._utf8 = codecs.lookup(encoding).name == "utf-8"
        self._rest = b""
        self._other = None if self._utf8 else codecs.getincrementaldecoder(encoding)("replace")

    def decode(self, data: bytes, *, final: bool) -> tuple[str, int]:
        if self._other is not None:
            text = self._other.decode(data, final)
            return text, text.count("\ufffd")
        data = self._rest + data
        text, used = codecs.utf_8_decode(data, "replace", final)
        self._rest = data[used:]
        # U+FFFD in the input is not damage; its first byte always begins a character, so this is exact.
        return text, text.count("\ufffd") - data[:used].count(b"\xef\xbf\xbd")


def check_encoding(encoding: str) -> None:
    """Raise DataError unless this is a text encoding."""
    try:
        b"a".decode(encoding, "replace")  # zlib and the like are encodings, too, but not of text
        codecs.getincrementaldecoder(encoding)("replace").decode(
            bytes(range(128, 256)), True
        )  # punycode cannot replace
    except (LookupError, ValueError):
        raise DataError(
            f"the encoding must be a text encoding that Python knows; got {encoding!r}. Try utf-8, gb18030, big5 or "
            "latin-1."
        ) from None


def lines(pieces: Iterator[str], *, longest: int) -> Iterator[tuple[str, bool]]:
    """Yield lines without their ends, and whether each ends here: one longer than `longest` comes in several pieces."""
    held: list[str] = []
    size = 0
    for piece in pieces:
        *whole, rest = piece.split("\n")
        for line in whole:
            if held:
                held.append(line)
                line, held, size = "".join(held), [], 0
            if len(line) > longest:
                *cuts, line = cut(line, longest)
                for part in cuts:
                    yield part, False
            yield line, True
        if rest:
            held.append(rest)
            size += len(rest)
        if size > longest:
            *cuts, rest = cut("".join(held), longest)
            for part in cuts:
                yield part, False
            held, size = [rest], len(rest)
    if held:
        yield "".join(held), True


def cut(line: str, longest: int) -> Iterator[str]:
    """Yield pieces of at most `longest` characters, split after a space near the limit if there is one."""
    start = 0
    while len(line) - start > longest:
        space = line.rfind(" ", start + longest - longest // 16, start + longest)
        end = start + longest if space < 0 else space + 1
        yield line[start:end]
        start = end
    yield line[start:]
