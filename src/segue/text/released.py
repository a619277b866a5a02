"""Tokenisers from a released `spiece.model`, with the pre-processing of the XLNet code and exact offsets.

In: a text. Out: the ids of the released code, and offsets into the text before pre-processing. Encoding is lossy: white
space is collapsed, quotes, accents and compatibility forms are replaced, and characters that the model does not know
become `<unk>`, so `decode` gives the normalised text. One deliberate difference: a text that spells a special token,
such as `<eop>`, which XLNet's model lists as an ordinary symbol, is encoded as its characters.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segue.text import folder as folders
from segue.text.normalise import normalise, normalise_with_map
from segue.text.pieces import (
    LAYOUT,
    SPACE_MARK,
    check_ids,
    joined_pairs,
    open_model,
    piece_widths,
    spans,
    whole_model,
    xlnet_start_piece,
)
from segue.text.tokenizer import Encoding, Unfinished
from segue.text.unicode import without_surrogates

_MAX_MODEL = 1 << 26
_STRETCH = 4096
_LONGEST_WORD = 8192  # characters; a longer word is split in incremental encoding
_WORD, _SPACES = re.compile(r"\S+"), re.compile(r"\s+")
# Han characters that no normalisation changes or combines.
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]{2}")
_NONE = np.zeros(0, dtype=np.int64)


class ReleasedPieces:
    """Sub-word pieces of a released model."""

    def __init__(
        self,
        model: bytes,
        *,
        lower: bool = False,
        keep_accents: bool = False,
        source: str = "a released SentencePiece model",
    ) -> None:
        """`source` is the name of the model in errors, such as the path of its file."""
        self._model, self.lower, self.keep_accents = model, lower, keep_accents
        with whole_model(source):
            self._open(source)

    def _open(self, source: str) -> None:
        self._processor = processor = open_model(self._model, source=source)
        self._unk = processor.unk_id()
        self._widths = piece_widths(processor)
        self._pieces = processor.id_to_piece(list(range(self.size)))
        self._special = np.array(processor.is_control(list(range(self.size))), dtype=np.bool_)
        self._special[list(self.specials.values())] = True
        self._rewrites = self._find_rewrites()
        self._rewritten = np.zeros(self.size, dtype=np.bool_)
        self._rewritten[list(self._rewrites)] = True
        # A text may be split at a space only if the model drops it and puts a mark before each part.
        self._may_cut = processor.Normalize("  a ") == f"{SPACE_MARK}a"
        self._pairs = joined_pairs(processor)
        self._words_apart = (
            processor.Normalize("a b").endswith(f"a{SPACE_MARK}b")
            and processor.piece_to_id(SPACE_MARK) != self._unk
            and not any(pair[1] == SPACE_MARK for pair in self._pairs)
        )

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self._widths)

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens that the model has."""
        found = {piece[1:-1]: self._processor.piece_to_id(piece) for piece in LAYOUT if piece not in ("<s>", "</s>")}
        return {name: index for name, index in found.items() if index != self._unk} | {"unk": self._unk}

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text."""
        text = self._normalise(without_surrogates(text))
        parts = [part for _, part in self._parts(text)]
        if not parts:
            return _NONE
        ids = np.concatenate(self._processor.encode(parts, return_type="numpy", num_threads=1)).astype(np.int64)
        return self._rewrite(ids, ids)[0]

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets. A span includes the white space before its word; a mark without a character
        has an empty span."""
        mapped = normalise_with_map(without_surrogates(text), lower=self.lower, keep_accents=self.keep_accents)
        ids, starts, ends = [_NONE], [_NONE], [_NONE]
        for begin, part in self._parts(mapped.text):
            raw = np.asarray(self._processor.encode(part, return_type="numpy"), dtype=np.int64)
            if not raw.size:
                continue
            part_ids, widths = self._rewrite(raw, self._surface_widths(part, raw))
            first, last = self._source_spans(part, after_cut=begin > 0)
            token_starts, token_ends = spans(widths)
            ids.append(part_ids)
            starts.append(_at(mapped.starts, first[token_starts] + begin))
            token_last = last[token_ends - 1] + begin
            empty = token_last <= first[token_starts] + begin
            ends.append(np.where(empty, starts[-1], mapped.ends[np.maximum(token_last - 1, 0)]))
        return Encoding(ids=np.concatenate(ids), starts=np.concatenate(starts), ends=np.concatenate(ends))

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return the ids up to the last white space, or to the last two Han characters that are adjacent in no piece.

        The text held back begins where `encode` begins a part, and is encoded from there each time, so that sums of
        scores are rounded in the same way. A word that is too long is split as if there were a space.
        """
        new, checked = _NONE, max(len(before.text), 1)
        text = _SPACES.sub(" ", before.text + without_surrogates(text))
        if len(text) > _LONGEST_WORD:
            text = _WORD.sub(_cut_word, text)
        has_new_word = text.find(" ", checked - 1) >= 0
        if has_new_word and self._may_cut and (ended := self._last_part(text)):
            new = self.encode(text[:ended])[before.given :]
            text, before, checked = text[ended:], Unfinished(), 1
        read = self._last_safe(text, begin=checked) if self._words_apart else 0
        if read <= before.read:
            return new, Unfinished(text=text, read=before.read, given=before.given)
        ids = self.encode(text[:read])
        return np.concatenate([new, ids[before.given :]]), Unfinished(text=text, read=read, given=len(ids))

    def _last_safe(self, text: str, *, begin: int) -> int:
        """Return the last position from `begin` on where the ids before it do not depend on later text; 0 if there is
        none."""
        places = range(len(text), begin - 1, -1)
        return next((place for place in places if text[place - 1] == " " or self._is_apart(text, place)), 0)

    def _is_apart(self, text: str, place: int) -> bool:
        two = text[place - 1 : place + 1]
        return (
            _HAN.fullmatch(two) is not None
            and two not in self._pairs
            # Adjacent unknown characters become one id.
            and any(self._processor.piece_to_id(character) != self._unk for character in two)
            and self._processor.Normalize(two).endswith(two)
        )

    def _last_part(self, text: str) -> int:
        """Return the start of the last part of a text, of those that begin after white space; see `_parts`."""
        if len(text) <= _STRETCH and (text.isascii() or len(self._normalise(text)) <= _STRETCH):
            return 0
        last = part = length = 0  # the part and the length in characters of the normalised text
        for found in _WORD.finditer(text):
            if length > part + _STRETCH:
                last, part = found.start(), length
            word = self._normalise(found.group())
            # Some characters have a space in their normal form.
            while (space := word.find(" ", max(part + _STRETCH - length, 0))) >= 0:
                part = length + space + 1
            length += len(word) + 1
        return last

    def _normalise(self, text: str) -> str:
        return normalise(text, lower=self.lower, keep_accents=self.keep_accents)

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the normalised text of ids; special and unknown tokens have no text."""
        array = check_ids(ids, size=self.size)
        return str(self._processor.decode(array[~self._special[array]].tolist()))

    def token(self, index: int) -> str:
        """Return the piece, with U+2581 for a space."""
        check_ids([index], size=self.size)
        return self._pieces[index]

    def word_starts(self) -> NDArray[np.bool_]:
        """Return the rule of the XLNet code: pieces that begin with U+2581 or `<`, and ASCII punctuation."""
        return np.array([xlnet_start_piece(piece) for piece in self._pieces], dtype=np.bool_)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `spiece.model`."""
        folders.write(folder, self._saved())

    def fingerprint(self) -> str:
        """Return a hash of the model and the settings."""
        return self._saved().fingerprint()

    def _saved(self) -> folders.SavedTokenizer:
        settings = {"lower": self.lower, "keep_accents": self.keep_accents}
        return folders.SavedTokenizer(kind="released", settings=settings, data=self._model)

    def _parts(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the start and the text of the parts of a normalised text, split at spaces, which are left out."""
        start = 0
        while self._may_cut and len(text) - start > _STRETCH:
            cut = text.find(" ", start + _STRETCH)
            if cut < 0:
                break
            yield start, text[start:cut]
            start = cut + 1
        if start < len(text):
            yield start, text[start:]

    def _surface_widths(self, part: str, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        widths = self._widths[ids]
        unknown = ids == self._unk
        if unknown.any():  # one id for a run of unknown characters: ask for the run
            surfaces = self._processor.encode(part, return_type=str)
            widths[unknown] = [len(surfaces[index]) for index in np.flatnonzero(unknown)]
        return widths

    def _source_spans(self, part: str, *, after_cut: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return, for each character of SentencePiece's own normalisation, its span in the part."""
        text, offsets = self._processor.Normalize(part, with_offsets=True)
        first = np.asarray(offsets, dtype=np.int64)
        marks = int(self._may_cut)  # one mark that is not in the part: the space of the split, or nothing
        for begin, end in _runs(first, begin=marks):
            if text[begin:end] == part[first[begin] : first[end]]:  # a symbol that is copied: one to one
                first[begin:end] += np.arange(end - begin)
        last = first[np.minimum(np.searchsorted(first, first, side="right"), len(first) - 1)]
        if marks:
            first[0], last[0] = (-1, 0) if after_cut else (first[0], first[0])
        return first, last

    def _rewrite(
        self, ids: NDArray[np.int64], widths: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Replace pieces that the XLNet code splits, and special tokens that a text spells."""
        hits = np.flatnonzero(self._rewritten[ids])
        if not hits.size:
            return ids, widths
        counts = np.ones(len(ids), dtype=np.int64)
        counts[hits] = [len(self._rewrites[int(ids[hit])][0]) for hit in hits]
        new_ids, new_widths = np.repeat(ids, counts), np.repeat(widths, counts)
        places = np.cumsum(counts) - counts
        for hit in hits:
            replaced, replaced_widths = self._rewrites[int(ids[hit])]
            place = slice(places[hit], places[hit] + len(replaced))
            new_ids[place], new_widths[place] = replaced, replaced_widths
        return new_ids, new_widths

    def _find_rewrites(self) -> dict[int, tuple[list[int], list[int]]]:
        rewrites = {}
        specials = set(self.specials.values())
        for index, piece in enumerate(self._pieces):
            if index in specials:
                if index != self._unk:
                    rewrites[index] = ([self._processor.piece_to_id(c) for c in piece], [1] * len(piece))
            elif len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit() and not self._special[index]:
                parts = self._without_comma(piece)
                widths = [len(part) for part in parts]
                widths[0] += len(piece) - sum(widths)
                rewrites[index] = ([self._processor.piece_to_id(part) for part in parts], widths)
        return rewrites

    def _without_comma(self, piece: str) -> list[str]:
        """Return the pieces of a number, then its comma: `12,` becomes `12` and `,`, whatever the model has learned."""
        parts = list(self._processor.encode(piece[:-1].replace(SPACE_MARK, ""), return_type=str))
        if not piece.startswith(SPACE_MARK) and parts[0].startswith(SPACE_MARK):
            parts[:1] = [parts[0][1:]] if len(parts[0]) > 1 else []
        return [*parts, ","]


def read_pieces(path: str | Path, *, lower: bool = False, keep_accents: bool = False) -> ReleasedPieces:
    """Read the tokeniser of a released `spiece.model`; the settings are those with which the model was trained."""
    model = folders.read_limited(Path(path), limit=_MAX_MODEL)
    return ReleasedPieces(model, lower=lower, keep_accents=keep_accents, source=str(path))


def _cut_word(found: re.Match[str]) -> str:
    """Return a word with a space after every `_LONGEST_WORD` characters."""
    word = found.group()
    return " ".join(word[start : start + _LONGEST_WORD] for start in range(0, len(word), _LONGEST_WORD))


def _at(values: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    return values[np.minimum(places, len(values) - 1)] if len(values) else np.zeros_like(places)


def _runs(values: NDArray[np.int64], *, begin: int) -> list[tuple[int, int]]:
    """Return the runs of equal values from `begin` on, except that of the last value."""
    edges = np.flatnonzero(np.diff(values[begin:])) + begin + 1
    return [(a, b) for a, b in zip([begin, *edges.tolist()], edges.tolist(), strict=False) if b - a > 1]
