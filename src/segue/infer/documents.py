"""Texts and files as documents of tokens, in constant memory: read and encoded in parts, with bounded read-ahead.

In: texts, or the inputs named by the user (files, folders, `-`). Out: Documents, which return their tokens in chunks,
with the character offsets and the line of each; and groups of them, to be read together. Files are read and split as in
`segue prepare` (`segue.data.readers`): the text of a file is split at blank lines, a record gives its field, and so on.
A document of more than some 65,536 characters is encoded in parts, split at line ends or spaces.

A token belongs to the line of its last character, its line end included. Lines are numbered from 1 in each document.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from segue.data.decode import Position, cut
from segue.data.inputs import Format, InputFile, find_inputs
from segue.data.problems import Problems
from segue.data.readers import LONGEST_LINE, PART, ReadSettings, check_rule, read_documents
from segue.errors import DataError
from segue.text.coverage import LanguageWatch
from segue.text.tokenizer import Tokenizer
from segue.text.unicode import without_surrogates

STANDARD_INPUT = "-"
SHOWN = 1000
"""Maximum number of characters of a text in a result row, because a line may be larger than memory."""
_STANDARD_INPUT_FILE = Path("/dev/stdin")
_NO_LINE = 0


class TextPart(NamedTuple):
    """Part of a document's text; the following parts belong to the same document, up to one that begins another."""

    source: str
    text: str
    begins: bool


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Some consecutive tokens of one document."""

    ids: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    """Character offsets of the beginning and end of each token in the document."""
    lines: NDArray[np.int64]
    """Line numbers; 0 for a special token that is not part of the text."""

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, begin: int, end: int) -> "Tokens":
        """Return the tokens from `begin` up to `end`."""
        return Tokens(
            ids=self.ids[begin:end],
            starts=self.starts[begin:end],
            ends=self.ends[begin:end],
            lines=self.lines[begin:end],
        )

    @classmethod
    def join(cls, parts: Sequence["Tokens"]) -> "Tokens":
        """Join consecutive tokens; at least one part."""
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            starts=np.concatenate([part.starts for part in parts]),
            ends=np.concatenate([part.ends for part in parts]),
            lines=np.concatenate([part.lines for part in parts]),
        )

    @classmethod
    def special(cls, ids: Sequence[int], *, at: int) -> "Tokens":
        """Return special tokens, which come from no text, at this offset."""
        place = np.full(len(ids), at, dtype=np.int64)
        lines = np.full(len(ids), _NO_LINE, dtype=np.int64)
        return cls(ids=np.array(ids, dtype=np.int64), starts=place, ends=place, lines=lines)


@dataclass(kw_only=True)
class Line:
    """The part of a document's line that was read."""

    number: int
    text: str = ""
    """Beginning of the line."""
    characters: int = 0

    def add(self, text: str) -> None:
        """Add text to the line."""
        self.text += text[: SHOWN - len(self.text)]
        self.characters += len(text)


# --------------------------------------------------------------------------------------------------------- texts, files


def text_parts(texts: Iterable[str], *, source: str = "text") -> Iterator[TextPart]:
    """Yield the parts of texts, each a document. Long texts are split like files."""
    for text in texts:
        begins = True
        held: list[str] = []
        size = 0
        *first, last = text.split("\n")
        for number, line in enumerate([*first, last]):
            pieces = list(cut(line, LONGEST_LINE))
            if number < len(first):
                pieces[-1] += "\n"
            for piece in pieces:
                if size > PART:
                    yield TextPart(source, "".join(held), begins)
                    held, size, begins = [], 0, False
                held.append(piece)
                size += len(piece.removesuffix("\n")) + 1
        yield TextPart(source, "".join(held), begins)


class TextFiles:
    """Files, folders, globs and `-` as documents, to be iterated once. Missing files raise an error at once."""

    def __init__(
        self,
        inputs: Sequence[str | Path],
        read: ReadSettings = ReadSettings(),  # noqa: B008  (it is frozen)
        *,
        standard_input: Format = "text",
    ) -> None:
        self.read = read
        self.problems = Problems()
        """Problems found in the text so far, and how they were handled."""
        self.files: list[InputFile] = []
        for given in inputs:
            if str(given) == STANDARD_INPUT:
                self.files.append(_standard_input(standard_input, self.files))
            else:  # one at a time: a file that is named twice, or has the same bytes as another, is read twice
                self.files += find_inputs([given], self.problems)
        if not self.files:
            raise DataError("at least one file is needed; got none. Name a file, or - for standard input.")
        check_rule(self.files, read)
        self._done = 0
        self._position = Position()

    @property
    def bytes_total(self) -> int | None:
        """Size of all files on disk in bytes; None if standard input is among them."""
        known = all(file.path != _STANDARD_INPUT_FILE for file in self.files)
        return sum(file.size for file in self.files) if known else None

    @property
    def bytes_read(self) -> int:
        """Number of these bytes that have been read."""
        return self._done + self._position.bytes

    def __iter__(self) -> Iterator[TextPart]:
        anything = False
        for file in self.files:
            source = STANDARD_INPUT if file.path == _STANDARD_INPUT_FILE else str(file.path)
            for part in read_documents(file, self.read, self.problems, self._position):
                anything = True
                yield TextPart(source, "".join(part.lines), part.begins)
            self._done, self._position = self._done + self._position.bytes, Position()
        if not anything:
            raise DataError(
                f"the inputs must contain text; got none in {', '.join(str(file.path) for file in self.files[:3])}. "
                "Check how they were made."
            )


def _standard_input(format: Format, files: Sequence[InputFile]) -> InputFile:
    if format == "parquet":
        raise DataError("standard input must be read from its beginning; got parquet. Name a file.")
    if any(file.path == _STANDARD_INPUT_FILE for file in files):
        raise DataError("standard input can be read only once; got - twice. Name it once.")
    return InputFile(path=_STANDARD_INPUT_FILE, format=format, compression=None, size=0)


# ------------------------------------------------------------------------------------------------------------ documents


class Document:
    """A document that is being read: returns its tokens in order, and encodes only as much as requested."""

    def __init__(
        self,
        number: int,
        parts: Iterator[TextPart],
        tokenizer: Tokenizer,
        *,
        keep_lines: bool,
        closing: Sequence[int] = (),
    ) -> None:
        self.number = number
        """Number of the document, from 1, over all inputs."""
        self.source = ""
        self.text = ""
        """Beginning of the document."""
        self.characters = 0
        """Number of characters that have been read."""
        self.tokens = 0
        """Number of tokens of its text that have been encoded."""
        self.lines: deque[Line] = deque()
        """Lines that were read and not yet removed, if lines are kept."""
        self.complete = False
        """Whether the whole document is encoded."""
        self._parts, self._tokenizer, self._keep_lines, self._closing = parts, tokenizer, keep_lines, closing
        self._line = 1
        self._fresh = True  # at the beginning of a line
        self._waiting: deque[Tokens] = deque()
        self._held = 0

    @property
    def place(self) -> str:
        """Name of the document in messages."""
        return f"document {self.number} ({self.source})"

    def fill(self, count: int) -> int:
        """Encode until `count` tokens wait to be taken, or all there are; return the number that wait."""
        while self._held < count and not self.complete:
            part = next(self._parts, None)
            if part is None:
                self.complete = True
                self._hold(Tokens.special(self._closing, at=self.characters))
            else:
                self.source = part.source
                self._hold(self._encode(without_surrogates(part.text)))
        return self._held

    def waiting(self) -> list[NDArray[np.int64]]:
        """Return the ids that wait to be taken."""
        return [tokens.ids for tokens in self._waiting]

    def take(self, count: int) -> Tokens:
        """Return the next `count` tokens, or all that are left."""
        self.fill(count)
        taken: list[Tokens] = []
        missing = min(count, self._held)
        self._held -= missing
        while missing:
            first = self._waiting.popleft()
            if len(first) > missing:
                self._waiting.appendleft(first.cut(missing, len(first)))
                first = first.cut(0, missing)
            taken.append(first)
            missing -= len(first)
        return Tokens.join(taken) if taken else Tokens.special((), at=self.characters)

    def _hold(self, tokens: Tokens) -> None:
        if len(tokens):
            self._waiting.append(tokens)
            self._held += len(tokens)

    def _encode(self, text: str) -> Tokens:
        try:
            encoding = self._tokenizer.encode_with_offsets(text)
        except DataError as error:  # from tokenisers that do not know every character
            raise DataError(f"{self.place}: {error}") from None
        codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
        borders = np.flatnonzero(codes == ord("\n")) + 1
        lines = self._line + borders.searchsorted(encoding.ends, side="left")
        begin = self.characters
        if self._keep_lines:
            self._note_lines(text, borders)
        self._line += len(borders)
        self.text += text[: SHOWN - len(self.text)]
        self.characters += len(text)
        self.tokens += len(encoding.ids)
        return Tokens(ids=encoding.ids, starts=encoding.starts + begin, ends=encoding.ends + begin, lines=lines)

    def _note_lines(self, text: str, borders: NDArray[np.int64]) -> None:
        begin = 0
        for number, end in enumerate([*borders.tolist(), len(text)], start=self._line):
            if end > begin:
                if self._fresh:
                    self.lines.append(Line(number=number))
                self.lines[-1].add(text[begin:end])
                self._fresh = text[end - 1] == "\n"
            begin = end


def pools(
    parts: Iterable[TextPart],
    tokenizer: Tokenizer,
    *,
    limit: int,
    keep_lines: bool,
    closing: Sequence[int] = (),
    watch: LanguageWatch | None = None,
) -> Iterator[list[Document]]:
    """Yield all documents, in order, in lists of whole ones with at most `limit` tokens together. A longer one comes
    alone and is encoded while it is taken, before the next list is requested. `closing` are special tokens after
    each. `watch` warns of another language. Default: a new one."""
    held: list[Document] = []
    size = 0
    watch = LanguageWatch(tokenizer) if watch is None else watch
    for number, own in groupby(_numbered(parts), key=lambda pair: pair[0]):
        document = Document(number, (part for _, part in own), tokenizer, keep_lines=keep_lines, closing=closing)
        count = document.fill(limit + 1)
        watch.read(*document.waiting())
        if held and size + count > limit:
            yield held
            held, size = [], 0
        if not document.complete:
            yield [document]
        else:
            held.append(document)
            # A document has a cost even without tokens.
            size += max(1, count)
    if held:
        yield held


def _numbered(parts: Iterable[TextPart]) -> Iterator[tuple[int, TextPart]]:
    number = 0
    for part in parts:
        number += part.begins
        yield number, part
