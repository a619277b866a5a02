"""Word tokenisers, for Transformer-XL's word-level data sets.

In: a text. Out: an id for each word between white space and, with `add_eos`, `<eos>` for each newline; exact offsets.
Encoding is lossy: `decode` puts one space between words, and words outside the vocabulary become the unknown id.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segue.config.schema import LARGEST_VOCABULARY
from segue.errors import CheckpointError, DataError
from segue.text import folder as folders
from segue.text.pieces import check_ids
from segue.text.tokenizer import SPECIALS, Encoding, Unfinished, special_ids
from segue.text.unicode import without_surrogates

EOS, UNK, LM1B_UNK = "<eos>", "<unk>", "<UNK>"
MOST_WORDS = LARGEST_VOCABULARY
"""Maximum number of distinct words that are counted, since they are all in memory."""
_WORDS = re.compile(r"\S+")
_WORDS_AND_LINES = re.compile(r"\n|\S+")
_NONE = np.zeros(0, dtype=np.int64)


class WordTokenizer:
    """Whole words: special tokens first, then `<eos>` if lines end with it, then the words.

    `<eos>` stands for a newline and nothing else, and decodes to one; a last line without a newline has none. The
    unknown id is the special token unk or, without it, the word `<unk>` if the data has it (as WikiText and PTB do), or
    `<UNK>` (as the One Billion Word benchmark does); with neither, an unknown word is an error.
    """

    def __init__(
        self, words: Sequence[str], *, specials: Sequence[str] = SPECIALS, lower: bool = False, add_eos: bool = False
    ) -> None:
        self._words, self._lower, self._add_eos = tuple(words), lower, add_eos
        self._special_names = tuple(specials)
        own = special_ids(specials)
        self._first = len(own) + add_eos
        self._tokens = [*(f"<{name}>" for name in own), *([EOS] if add_eos else []), *self._words]
        self._ids = {word: self._first + index for index, word in enumerate(self._words)}
        reserved = set(self._tokens[: self._first])
        wrong = next((w for w in self._words if len(w.split()) != 1 or w.strip() != w or w in reserved), None)
        if wrong is not None or len(self._ids) != len(self._words):
            raise DataError(
                f"the words of a vocabulary must be different, without white space, and no special tokens; "
                f"got {wrong!r} or one twice. Remove it."
            )
        self._unk = own.get("unk", self._ids.get(UNK, self._ids.get(LM1B_UNK)))
        self._specials = own if self._unk is None else own | {"unk": self._unk}
        self._longest = max(map(len, self._words), default=0)
        if add_eos:
            self._ids["\n"] = self._first - 1

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self._tokens)

    @property
    def specials(self) -> Mapping[str, int]:
        """Ids of the special tokens; `<eos>` is not one of them, because newlines produce it."""
        return self._specials

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of a text."""
        text = without_surrogates(text)
        return self._look_up(_WORDS_AND_LINES.findall(text) if self._add_eos else text.split())

    def encode_with_offsets(self, text: str) -> Encoding:
        """Return the same ids with offsets; white space belongs to no token."""
        text = without_surrogates(text)
        found = list((_WORDS_AND_LINES if self._add_eos else _WORDS).finditer(text))
        spans = np.array([word.span() for word in found], dtype=np.int64).reshape(-1, 2)
        return Encoding(
            ids=self._look_up([word.group() for word in found]), starts=spans[:, 0].copy(), ends=spans[:, 1].copy()
        )

    def encode_part(self, text: str, before: Unfinished) -> tuple[NDArray[np.int64], Unfinished]:
        """Return the ids of the words that white space has ended. A word longer than all known ones is unknown at once,
        and only its beginning is kept."""
        text = before.text + without_surrogates(text)
        last = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
        ended = text[: len(text) - len(last)]
        new = self.encode(ended)[before.given :] if ended else _NONE
        given = 0 if ended else before.given
        if len(last) <= self._longest:
            return new, Unfinished(text=last)
        # Lower case may be longer than upper case, but is never shorter: a cut word stays longer than all known ones.
        last = last[: self._longest + 1]
        return np.concatenate([new, self.encode(last)[given:]]), Unfinished(text=last, read=len(last), given=1)

    def decode(self, ids: Sequence[int] | NDArray[np.int64]) -> str:
        """Return the words with a space between them and line breaks for `<eos>`; special tokens have no text."""
        special = len(self._special_names)
        words = [self._tokens[i] for i in check_ids(ids, size=self.size).tolist() if i >= special]
        if not self._add_eos:
            return " ".join(words)
        text = " ".join("\n" if word == EOS else word for word in words)
        return re.sub(" ?\n ?", "\n", text)

    def token(self, index: int) -> str:
        """Return the word."""
        check_ids([index], size=self.size)
        return self._tokens[index]

    def word_starts(self) -> NDArray[np.bool_]:
        """Return True for every id."""
        return np.ones(self.size, dtype=np.bool_)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and `vocabulary.txt`, one word per line."""
        folders.write(folder, self._saved())

    def fingerprint(self) -> str:
        """Return a hash of the words and the settings."""
        return self._saved().fingerprint()

    def _saved(self) -> folders.SavedTokenizer:
        settings: dict[str, folders.Setting] = {
            "specials": list(self._special_names),
            "lower": self._lower,
            "add_eos": self._add_eos,
        }
        data = "".join(f"{word}\n" for word in self._words).encode("utf-8")
        return folders.SavedTokenizer(kind="words", settings=settings, data=data)

    def _look_up(self, words: list[str]) -> NDArray[np.int64]:
        if self._lower:
            words = [word.lower() for word in words]
        ids, unk = self._ids, self._unk
        if unk is not None:
            return np.fromiter((ids.get(word, unk) for word in words), dtype=np.int64, count=len(words))
        try:
            return np.fromiter((ids[word] for word in words), dtype=np.int64, count=len(words))
        except KeyError as error:
            raise DataError(
                f"every word must be in a vocabulary that has no unknown word; got {error.args[0]!r}. "
                f"Count the words again, with unk among the specials."
            ) from None


def count_words(
    texts: Iterable[str],
    *,
    min_count: int = 1,
    max_size: int | None = None,
    specials: Sequence[str] = SPECIALS,
    lower: bool = False,
    add_eos: bool = False,
) -> WordTokenizer:
    """Return a tokeniser for the words of texts: the most frequent first, equally frequent ones in order of appearance.

    `max_size` limits the whole vocabulary, including special tokens. For Transformer-XL's WikiText-103, count the
    training text with `specials=()` and `add_eos=True`; for PTB also `lower=True`.
    """
    if min_count < 1:
        raise DataError(f"min_count must be at least 1; got {min_count}. Use 1 to keep all words.")
    reserved = {f"<{name}>" for name in special_ids(specials)} | ({EOS} if add_eos else set())
    if max_size is not None and max_size < len(reserved):
        raise DataError(f"max_size must have room for {len(reserved)} special tokens; got {max_size}. Use more.")
    counts: Counter[str] = Counter()
    for text in texts:
        words = without_surrogates(text).split()
        counts.update([word.lower() for word in words] if lower else words)
        if len(counts) > MOST_WORDS:
            raise DataError(
                f"a text for a vocabulary of words must have at most {MOST_WORDS:,} different ones; got more. Train "
                "pieces: --kind unigram or bpe."
            )
    # Sorting is stable, and a Counter keeps the order in which words first occurred.
    kept = [word for word, count in counts.most_common() if count >= min_count and word not in reserved]
    limit = None if max_size is None else max_size - len(reserved)
    return WordTokenizer(kept[:limit], specials=specials, lower=lower, add_eos=add_eos)


def words_from_saved(saved: folders.SavedTokenizer) -> WordTokenizer:
    """Return the tokeniser of a saved vocabulary."""
    settings = folders.take_settings(saved, {"specials": list, "lower": bool, "add_eos": bool})
    try:
        lines = saved.data.decode("utf-8").split("\n")
        return WordTokenizer(
            lines[:-1],
            specials=folders.names(settings["specials"]),
            lower=settings["lower"] is True,
            add_eos=settings["add_eos"] is True,
        )
    except (UnicodeDecodeError, DataError) as error:
        raise CheckpointError(
            f"{folders.VOCABULARY_FILE} must be a vocabulary, a word a line; got an error: {error} Save it again."
        ) from None
