"""Conversion of rows with tags or entities to one form: a text, its units, and entities as character spans.

In: tokens with a tag each (IOB1, IOB2, BIOES, or plain classes), or a text with entities: CLUENER's {type: {surface:
[[start, last], ...]}}, a list of {start, end, type}, or a list of [start, end, type]. Out: a Marked.

Entities consist of units: the tokens if the row has some; otherwise words (runs of letters and digits) and every other
character that is not white space.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segue.data.tables import Row
from segue.errors import DataError
from segue.evaluation.metrics.entities import Scheme, Span, spans_of, tags_of
from segue.tasks.labels import label_text
from segue.tasks.task import UnusableRowError
from segue.text.unicode import begins_word, is_unspaced

AnyScheme = Literal["iob1", "iob2", "bioes", "plain"]
"""`plain`: a class for each token, such as a part of speech, without entities."""

_TAG = re.compile(r"O|[BIES](-.+)?", re.DOTALL)
_KEYS = {"start": ("start", "start_offset"), "end": ("end", "end_offset"), "type": ("type", "label", "entity")}
_SURFACES = ("text", "word", "surface")


@dataclass(frozen=True, kw_only=True)
class Form:
    """Settings for the conversion of rows."""

    scheme: AnyScheme
    joiner: str | None
    """Text between tokens; None is for Chinese and similar languages: nothing, but a space between two words of a
    script with spaces."""
    end_inclusive: bool
    whole_words: bool
    prefers_text: bool
    """In prediction, use the text of rows with both tokens and a text."""


@dataclass(frozen=True, kw_only=True)
class Marked:
    """A row in the common form."""

    text: str
    starts: NDArray[np.int64]
    """First character of each unit."""
    ends: NDArray[np.int64]
    tokens: bool
    """True if the units are tokens of the row."""
    spans: frozenset[Span] | None = None
    """Entities: type, first character and character after the last. All of them, also those that overlap."""
    repaired: int = 0
    """Number of tags that violate their scheme."""
    mismatched: int = 0
    """Number of entities whose surface differs from the text at their offsets."""


def mark(row: Row, form: Form, *, labelled: bool) -> Marked:
    """Convert a row, or raise UnusableRowError."""
    if not labelled:
        has_text = row.get("text") is not None
        if row.get("tokens") is not None and not (has_text and form.prefers_text):
            return _mark_tokens(tokens_of(row), None, form)
        return _mark_text(row, None, form)
    value = answer_of(row)
    return _mark_text(row, value, form) if marks_text(row, value) else _mark_tokens(*tokens_and_tags(row, value), form)


def answer_of(row: Row) -> Any:
    """Return the tags or entities of a row; a cell of text may contain JSON, or tags separated by spaces."""
    value = row.get("tags")
    if value is None:
        raise UnusableRowError("no tags or entities (an empty list says that there are none)")
    return _listed(value)


def marks_text(row: Row, value: Any) -> bool:
    """Return True if an answer has offsets in a text, not tags of tokens."""
    if value == []:
        return row.get("tokens") is None
    return isinstance(value, dict) or (isinstance(value, list) and any(not isinstance(v, str | int) for v in value))


def tokens_of(row: Row) -> list[str]:
    """Return the tokens of a row."""
    tokens = _listed(row["tokens"])
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise DataError(f"tokens must be a list of texts; got {str(tokens)[:80]!r}. Name the column of the tokens.")
    if not any(token.strip() for token in tokens):
        raise UnusableRowError("an empty sentence")
    if not all(tokens):
        raise UnusableRowError("an empty token")
    return tokens


def tokens_and_tags(row: Row, value: Any) -> tuple[list[str], list[str]]:
    """Return the tokens and tags of a row; raise an error unless their numbers agree."""
    if "tokens" not in row:
        raise DataError(
            f"tags need a column of tokens; got none for {str(value)[:80]!r}. Name it with --column tokens=NAME; "
            "entities of a text are a list of {start, end, type}, or {type: {surface: [[start, last]]}}."
        )
    if row["tokens"] is None:
        raise UnusableRowError("an empty sentence")
    tokens = tokens_of(row)
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise DataError(
            f"tags must be a list of names, as B-PER; got {str(value)[:80]!r}. Write the names of the tags instead."
        )
    if len(value) != len(tokens):
        raise UnusableRowError("tags and tokens of different number")
    return tokens, [label_text(tag) for tag in value]


def _mark_tokens(tokens: list[str], tags: list[str] | None, form: Form) -> Marked:
    assert tokens
    text, starts, ends = join(tokens, form.joiner)
    spans, repaired = None, 0
    if tags is not None:
        found = token_spans(tags, form.scheme)
        if form.scheme != "plain":
            again = tags_of(found, length=len(tags), scheme=form.scheme)
            repaired = sum(a != b for a, b in zip(tags, again, strict=True))
        spans = frozenset((kind, int(starts[first]), int(ends[end - 1])) for kind, first, end in found)
    return Marked(text=text, starts=starts, ends=ends, tokens=True, spans=spans, repaired=repaired)


def token_spans(tags: Sequence[str], scheme: AnyScheme) -> set[Span]:
    """Return the entities of tags, in tokens; with plain classes every token is a span of its own."""
    if scheme == "plain":
        return {(tag, place, place + 1) for place, tag in enumerate(tags)}
    return spans_of(tags, scheme)


def span_tags(spans: Iterable[Span], *, length: int, scheme: AnyScheme) -> list[str]:
    """Return the tags of these spans of tokens."""
    if scheme != "plain":
        return tags_of(spans, length=length, scheme=scheme)
    tags = ["O"] * length
    for kind, first, end in spans:
        tags[first:end] = [kind] * (end - first)
    return tags


def _mark_text(row: Row, value: Any, form: Form) -> Marked:
    if "text" not in row:
        raise DataError(
            "a row must have a text or a list of tokens; got neither. Name the column: --column text=NAME or "
            "--column tokens=NAME."
        )
    text = row["text"] if isinstance(row["text"], str) else str(row["text"] or "")
    if not text.strip():
        raise UnusableRowError("an empty text")
    starts, ends = units_of(text, whole_words=form.whole_words)
    spans, mismatched = None, 0
    if value is not None:
        found: set[Span] = set()
        for kind, start, end, surface in entities_of(value, end_inclusive=form.end_inclusive):
            if not 0 <= start < end <= len(text):
                raise UnusableRowError("an entity that is not within its text")
            if text[start:end].strip():
                mismatched += surface is not None and surface != text[start:end]
                found.add((kind, start, end))
        spans = frozenset(found)
    return Marked(text=text, starts=starts, ends=ends, tokens=False, spans=spans, mismatched=mismatched)


def entities_of(value: Any, *, end_inclusive: bool) -> Iterator[tuple[str, int, int, str | None]]:
    """Yield the type, start, end (exclusive) and, if given, the surface of each entity."""
    if isinstance(value, dict):  # CLUENER, whose ends are always inclusive
        for kind, surfaces in value.items():
            for surface, places in surfaces.items() if isinstance(surfaces, dict) else [(None, None)]:
                for place in places if isinstance(places, list) else [None]:
                    if not (isinstance(place, list) and len(place) == 2):
                        raise _not_understood({kind: surfaces})
                    yield label_text(kind), *_offsets(place[0], place[1], True, place), surface
        return
    for entity in value if isinstance(value, list) else [value]:
        if isinstance(entity, dict):
            found = {name: next((entity[key] for key in keys if key in entity), None) for name, keys in _KEYS.items()}
            surface = next((entity[key] for key in _SURFACES if isinstance(entity.get(key), str)), None)
        elif isinstance(entity, list | tuple) and len(entity) == 3:
            found, surface = dict(zip(_KEYS, entity, strict=True)), None
        else:
            raise _not_understood(entity)
        start, end = _offsets(found["start"], found["end"], end_inclusive, entity)
        yield label_text(found["type"]), start, end, surface


def _offsets(start: Any, end: Any, inclusive: bool, entity: Any) -> tuple[int, int]:
    if not all(isinstance(offset, int) and not isinstance(offset, bool) for offset in (start, end)):
        raise _not_understood(entity)
    return start, end + inclusive


def _not_understood(entity: Any) -> DataError:
    return DataError(
        "entities must be a list of {start, end, type} or [start, end, type], or {type: {surface: [[start, last]]}}; "
        f"got {str(entity)[:80]!r}. Write them so; tags go with a column of tokens."
    )


def _listed(value: Any) -> Any:
    if not isinstance(value, str):
        return list(value) if isinstance(value, tuple) else value
    if value.lstrip().startswith(("[", "{")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            pass
    return value.split()


# ---------------------------------------------------------------------------------------------------- training rows


def scheme_of(rows: Sequence[Sequence[str]]) -> Scheme:
    """Return the scheme of the training tags: BIOES if E or S occurs; IOB1 if entities begin with I, and with B only
    after another of their type; otherwise IOB2. In a mixture, the more frequent one; all are read alike."""
    strays = needless = 0
    for tags in rows:
        previous = "O"
        for tag in tags:
            if not _TAG.fullmatch(tag):
                raise DataError(
                    f"a tag must be O, or B, I, E or S and a type, as B-PER; got {tag!r}. Write I for M of BMES, E and "
                    "S for L and U of BILOU. For classes of tokens that are no entities, as parts of speech, set "
                    "task.scheme=plain."
                )
            if tag[0] in "ES":
                return "bioes"
            same = previous != "O" and previous[1:] == tag[1:]
            strays += tag[0] == "I" and not same
            needless += tag[0] == "B" and not same
            previous = tag
    return "iob1" if strays > needless else "iob2"


def check_scheme(tags: Iterable[str], scheme: AnyScheme) -> None:
    """Raise DataError if a chosen scheme does not allow a tag."""
    if scheme != "plain":
        spans_of(list(tags), scheme)


def mostly_unspaced(texts: Iterable[str]) -> bool:
    """Return True if there are more characters of a script without spaces, such as Chinese, than words of other
    scripts."""
    unspaced = words = 0
    for text in texts:
        before = False
        for character in text:
            alone = is_unspaced(character)
            within = character.isalpha() and not alone
            unspaced += alone
            words += within and not before
            before = within
    return unspaced > words


# -------------------------------------------------------------------------------------------------------- units


def join(tokens: Sequence[str], joiner: str | None) -> tuple[str, NDArray[np.int64], NDArray[np.int64]]:
    """Return the joined text of the tokens, and the start and end of each."""
    parts: list[str] = []
    starts, ends = np.zeros(len(tokens), dtype=np.int64), np.zeros(len(tokens), dtype=np.int64)
    length = 0
    for number, token in enumerate(tokens):
        if number:
            between = joiner if joiner is not None else " " if _are_words(tokens[number - 1], token) else ""
            parts.append(between)
            length += len(between)
        starts[number] = length
        parts.append(token)
        length += len(token)
        ends[number] = length
    return "".join(parts), starts, ends


def _are_words(left: str, right: str) -> bool:
    """Return True for two tokens that are words. Single letters and digits are not: character-based data splits numbers
    into digits."""
    return len(left) > 1 and len(right) > 1 and not begins_word(left[-1]) and not begins_word(right[0])


def units_of(text: str, *, whole_words: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the start and end of the words and other characters of a text, without white space."""
    starts: list[int] = []
    ends: list[int] = []
    for place, character in enumerate(text):
        if character.isspace():
            continue
        goes_on = whole_words and starts and ends[-1] == place and not begins_word(character)
        if goes_on and not begins_word(text[place - 1]):
            ends[-1] = place + 1
        else:
            starts.append(place)
            ends.append(place + 1)
    return np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64)
