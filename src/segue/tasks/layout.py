"""Layout of texts as documents: `A SEP B SEP CLS`, or for masked models `CLS A SEP B SEP`.

In: one or more texts. Out: a TokenDocument, and for each text the positions of its tokens and the characters that they
cover. A tokeniser without CLS or SEP (words, for example) ends texts with the end-of-document or end-of-paragraph
token, if it has one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.config import ModelConfig
from segue.errors import DataError
from segue.model.reading import TokenDocument
from segue.text.tokenizer import Encoding, Tokenizer

CLS_SEGMENT = 2


@dataclass(frozen=True, kw_only=True)
class Part:
    """The tokens of one text inside a document."""

    begin: int
    """Index of its first token."""
    starts: NDArray[np.int64]
    """First character of each token in the text."""
    ends: NDArray[np.int64]
    """Character after the last of each token."""

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, kw_only=True)
class Arranged:
    """A document and the positions of its texts."""

    document: TokenDocument
    parts: tuple[Part, ...]
    cls: int
    """Index of CLS, or of the token that stands for it."""


class Layout:
    """Arranges texts for a model and its tokeniser."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        config: ModelConfig,
        *,
        max_length: int | None = None,
        segment_length: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.max_length = max_length
        self.segment_length = segment_length
        """Number of tokens read at a time, if known."""
        self.truncated = 0
        """Number of documents truncated to `max_length`."""
        self.remarks: Counter[str] = Counter()
        """Further remarks about the documents, with counts."""
        specials = tokenizer.specials
        self._cls = specials.get("cls")
        self._sep = specials.get("sep", specials.get("eod", specials.get("eop")))

    def arrange(self, *texts: str) -> Arranged:
        """Arrange texts as one document; if it exceeds `max_length`, the longest texts are truncated at the end."""
        encodings = [self.tokenizer.encode_with_offsets(text) for text in texts]
        return self.arrange_encoded(encodings)

    def special_tokens(self, texts: int) -> int:
        """Return the number of special tokens in a document of `texts` texts."""
        return (self._cls is not None) + (texts if self._sep is not None else 0)

    def arrange_encoded(self, encodings: Sequence[Encoding]) -> Arranged:
        """Arrange encoded texts as one document."""
        if len(encodings) > 1 and self._sep is None:
            raise DataError(
                "a document of several texts needs a tokeniser with sep, eod or eop; got one without. "
                "Train the model with a unigram or bpe tokeniser."
            )
        kept = self._shares([len(encoding.ids) for encoding in encodings])
        ids: list[NDArray[np.int64]] = []
        segments: list[NDArray[np.int64]] = []
        parts: list[Part] = []
        first = self.config.objective == "masked" and self._cls is not None
        if first:
            ids.append(np.array([self._cls]))
            segments.append(np.array([0]))
        length = len(ids)
        for number, (encoding, share) in enumerate(zip(encodings, kept, strict=True)):
            parts.append(Part(begin=length, starts=encoding.starts[:share], ends=encoding.ends[:share]))
            pieces = [encoding.ids[:share]] if self._sep is None else [encoding.ids[:share], np.array([self._sep])]
            ids += pieces
            new = sum(map(len, pieces))
            segments.append(np.full(new, min(number, 1)))
            length += new
        if self._cls is not None and not first:
            ids.append(np.array([self._cls]))
            segments.append(np.array([CLS_SEGMENT if self.config.segments == "relative" else 0]))
            length += 1
        document = TokenDocument(
            ids=np.concatenate(ids).astype(np.int64), segments=np.concatenate(segments).astype(np.int64)
        )
        return Arranged(document=document, parts=tuple(parts), cls=0 if first else length - 1)

    def _shares(self, lengths: list[int]) -> list[int]:
        """Return the number of tokens of each text to keep: the longest is truncated first."""
        if self.max_length is None:
            return lengths
        room = max(1, self.max_length - self.special_tokens(len(lengths)))
        if sum(lengths) <= room:
            return lengths
        self.truncated += 1
        kept, left = [0] * len(lengths), room
        for done, number in enumerate(sorted(range(len(lengths)), key=lambda n: lengths[n])):
            kept[number] = min(lengths[number], left // (len(lengths) - done))
            left -= kept[number]
        return kept

    def preview(self, document: TokenDocument) -> str:
        """Return the tokens of a document in readable form."""
        names = {index: f"<{name}>" for name, index in self.tokenizer.specials.items()}
        return " ".join(names.get(int(i), self.tokenizer.token(int(i))) for i in document.ids)
