"""Result rows of `segue.infer.score`: one for each token, line or document, with exact sums.

In: the log-probabilities of the tokens of a document, as they are computed. Out: `TokenScore` and `TextScore`, in
order. Log-probabilities are rounded to 2**-32, so that tokens, lines and documents add up to the same number.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segue.infer.documents import Document, Tokens

UNIT = 2.0**-32
"""Resolution of log-probabilities: all are multiples of it."""


class Found(NamedTuple):
    """Scores of some tokens."""

    values: NDArray[np.float64]
    """Log-probabilities; NaN if undefined."""
    likeliest: NDArray[np.bool_] | None
    """True if no other token was likelier; None: not requested."""

    def cut(self, begin: int, end: int | None) -> "Found":
        """Return the scores of the tokens from `begin` up to `end`."""
        return Found(self.values[begin:end], None if self.likeliest is None else self.likeliest[begin:end])


@dataclass(frozen=True, kw_only=True)
class TokenScore:
    """Score of a token."""

    document: int
    """Number of the document, from 1, over all inputs."""
    source: str
    line: int
    """Number of the line in the document, from 1."""
    token: str
    id: int
    start: int
    """Offset of the first character of the token in the document, from 0."""
    end: int
    """Offset after its last character."""
    log_probability: float | None
    """Natural log-probability; None if there is no context to predict the token from."""
    likeliest: bool | None = None
    """Whether it was the most likely token in its place; None if not requested or undefined."""


@dataclass(frozen=True, kw_only=True)
class TextScore:
    """Score of a line or document."""

    document: int
    source: str
    line: int | None
    """Number of the line; None for a document."""
    text: str
    """Beginning of the text, at most 1,000 characters."""
    characters: int
    tokens: int
    scored: int
    """Number of tokens with a log-probability."""
    log_probability: float
    """Sum over the tokens that have one."""
    perplexity: float | None
    """Perplexity per token; None if no token has a log-probability."""
    bits_per_character: float | None
    """Negative base-2 log-probability of the text, divided by its number of characters."""
    likeliest: bool | None = None
    """Whether every token was the most likely one in its place; None if not requested or undefined."""


ScoreRow: TypeAlias = TokenScore | TextScore


@dataclass
class ScoreTotals:
    """Sums over everything scored so far."""

    documents: int = 0
    characters: int = 0
    tokens: int = 0
    scored: int = 0
    units: int = 0
    """Log-probability in multiples of UNIT."""
    empty: int = 0
    """Number of documents without tokens."""

    @property
    def log_probability(self) -> float:
        return self.units * UNIT

    @property
    def perplexity(self) -> float | None:
        return _perplexity(self.units, self.scored)

    @property
    def bits_per_character(self) -> float | None:
        return _bits(self.units, self.scored, self.characters)


class _Sum:
    """The running sum over the tokens of a line or document."""

    def __init__(self) -> None:
        self.tokens = self.scored = self.units = 0
        self.unlikely: int | None = None

    def add(self, found: Found) -> None:
        is_there = ~np.isnan(found.values)
        there = found.values[is_there]
        if found.likeliest is not None:
            self.unlikely = (self.unlikely or 0) + int((is_there & ~found.likeliest).sum())
        self.tokens += len(found.values)
        self.scored += len(there)
        self.units += int(np.rint(there / UNIT).astype(np.int64).sum())

    def row(self, document: Document, *, line: int | None, text: str, characters: int) -> TextScore:
        return TextScore(
            document=document.number,
            source=document.source,
            line=line,
            text=text,
            characters=characters,
            tokens=self.tokens,
            scored=self.scored,
            log_probability=self.units * UNIT,
            perplexity=_perplexity(self.units, self.scored),
            bits_per_character=_bits(self.units, self.scored, characters),
            likeliest=None if self.unlikely is None or not self.scored else self.unlikely == 0,
        )


class DocumentRows:
    """Maker of one row for a document, at its end."""

    def __init__(self, document: Document, totals: ScoreTotals) -> None:
        self.document, self.totals, self.sum = document, totals, _Sum()

    def add(self, tokens: Tokens, found: Found) -> list[ScoreRow]:
        self.sum.add(found)
        return []

    def finish(self) -> list[ScoreRow]:
        document = self.document
        self.count()
        return [self.sum.row(document, line=None, text=document.text, characters=document.characters)]

    def count(self) -> None:
        self.totals.documents += 1
        self.totals.characters += self.document.characters
        self.totals.tokens += self.sum.tokens
        self.totals.scored += self.sum.scored
        self.totals.units += self.sum.units
        self.totals.empty += not self.sum.tokens


class LineRows:
    """Maker of a row for each line, completed by a token of a later line."""

    def __init__(self, document: Document, totals: ScoreTotals) -> None:
        self.whole = DocumentRows(document, totals)
        self.document, self.sum = document, _Sum()

    def add(self, tokens: Tokens, found: Found) -> list[ScoreRow]:
        self.whole.add(tokens, found)
        rows: list[ScoreRow] = []
        numbers, begins = np.unique(tokens.lines, return_index=True)
        for number, begin, end in zip(numbers, begins, [*begins[1:], None], strict=True):
            while self.document.lines[0].number < number:
                rows.append(self._row())
            self.sum.add(found.cut(begin, end))
        return rows

    def finish(self) -> Iterator[ScoreRow]:
        while self.document.lines:
            yield self._row()
        self.whole.count()

    def _row(self) -> ScoreRow:
        line, made = self.document.lines.popleft(), self.sum
        self.sum = _Sum()
        return made.row(self.document, line=line.number, text=line.text, characters=line.characters)


class TokenRows:
    """Maker of a row for each token."""

    def __init__(self, document: Document, totals: ScoreTotals, shown: Callable[[int], str]) -> None:
        self.whole = DocumentRows(document, totals)
        self.document, self.shown = document, shown

    def add(self, tokens: Tokens, found: Found) -> Iterator[ScoreRow]:
        self.whole.add(tokens, found)
        for place, value in enumerate(found.values.tolist()):
            index = int(tokens.ids[place])
            unknown = found.likeliest is None or math.isnan(value)
            yield TokenScore(
                document=self.document.number,
                source=self.document.source,
                line=int(tokens.lines[place]),
                token=self.shown(index),
                id=index,
                start=int(tokens.starts[place]),
                end=int(tokens.ends[place]),
                log_probability=None if math.isnan(value) else round(value / UNIT) * UNIT,
                likeliest=None if unknown or found.likeliest is None else bool(found.likeliest[place]),
            )

    def finish(self) -> list[ScoreRow]:
        self.whole.count()
        return []


def _perplexity(units: int, scored: int) -> float | None:
    return math.exp(min(-units * UNIT / scored, 700.0)) if scored else None


def _bits(units: int, scored: int, characters: int) -> float | None:
    return -units * UNIT / math.log(2) / characters if scored and characters else None


def summed(tokens: Sequence[TokenScore], *, document: int, text: str, characters: int) -> TextScore:
    """Return the row of a text with these tokens."""
    there = [token for token in tokens if token.log_probability is not None]
    units = sum(round((token.log_probability or 0.0) / UNIT) for token in there)
    asked = bool(there) and all(token.likeliest is not None for token in there)
    return TextScore(
        document=document,
        source=tokens[0].source if tokens else "text",
        line=None,
        text=text,
        characters=characters,
        tokens=len(tokens),
        scored=len(there),
        log_probability=units * UNIT,
        perplexity=_perplexity(units, len(there)),
        bits_per_character=_bits(units, len(there), characters),
        likeliest=all(token.likeliest for token in there) if asked else None,
    )
