"""Training of tokenisers from texts: one entry point for all kinds, and the training of SentencePiece models.

In: texts, each a document or a line. Out: a tokeniser. The same texts, settings and seed give the same tokeniser, bit
by bit: SentencePiece runs on one thread, because its vocabulary depends on the number of threads.
"""

import io
import random
import re
from collections.abc import Iterable, Iterator
from typing import Literal, get_args

from sentencepiece import SentencePieceTrainer

from segue.errors import DataError
from segue.text.pieces import LAYOUT, RESERVED, SPACE_MARK, PieceTokenizer
from segue.text.symbols import ByteTokenizer, collect_characters
from segue.text.tokenizer import Tokenizer
from segue.text.unicode import stretches, without_surrogates
from segue.text.words import count_words

Kind = Literal["unigram", "bpe", "words", "characters", "bytes"]

# SentencePiece reserves these for itself in training and skips sentences with them; newlines are tokens of their own.
_BREAKS = re.compile("[\n\t\0\u2581\u2585]+")
_STRETCH = 500  # characters; a sentence has at most twice as many, so at most 4,000 bytes
_SIZES = re.compile(r"too high \(\d+\)\. Please set it to a value <= (\d+)|required_chars\. \d+ vs (\d+)")


def train_tokenizer(
    kind: Kind,
    texts: Iterable[str],
    *,
    vocabulary_size: int | None = None,
    character_coverage: float = 0.9995,
    lower: bool = False,
    add_eos: bool = False,
    max_sentences: int = 200_000,
    seed: int = 0,
) -> Tokenizer:
    """Train a tokeniser of any kind; settings of other kinds are ignored.

    `vocabulary_size` is required for unigram and bpe and a limit for words and characters (None: no limit); bytes have
    a fixed size. `train_pieces`, `count_words` and `collect_characters` have more settings.
    """
    if kind not in get_args(Kind):
        raise DataError(
            f"the kind of a tokeniser must be one of {', '.join(get_args(Kind))}; got {kind!r}. Choose one."
        )
    if kind == "words":
        return count_words(texts, max_size=vocabulary_size, lower=lower, add_eos=add_eos)
    if kind == "characters":
        return collect_characters(texts, max_size=vocabulary_size)
    if kind == "bytes":
        return ByteTokenizer()
    if vocabulary_size is None:
        raise DataError(f"vocabulary_size must be given for {kind}; got none. 8000 to 32000 is usual.")
    return train_pieces(
        texts,
        kind=kind,
        vocabulary_size=vocabulary_size,
        character_coverage=character_coverage,
        max_sentences=max_sentences,
        seed=seed,
    )


def train_pieces(
    texts: Iterable[str],
    *,
    kind: Literal["unigram", "bpe"] = "unigram",
    vocabulary_size: int,
    character_coverage: float = 0.9995,
    max_sentences: int = 200_000,
    seed: int = 0,
) -> PieceTokenizer:
    """Train a lossless SentencePiece tokeniser of exactly `vocabulary_size` ids.

    `character_coverage` is the share of the characters of the texts that get a piece; the rest is encoded as bytes.
    Texts are split at newlines, and longer lines after 500 to 1,000 characters; of these sentences a random
    `max_sentences` are used (a reservoir with `seed`), which bounds memory and time for any number of texts.
    """
    if kind not in ("unigram", "bpe"):
        raise DataError(f"the kind of pieces must be unigram or bpe; got {kind!r}. Choose one.")
    if not 0.5 <= character_coverage <= 1.0:
        raise DataError(f"character_coverage must be from 0.5 to 1; got {character_coverage}. 0.9995 is usual.")
    if max_sentences < 1:
        raise DataError(f"max_sentences must be at least 1; got {max_sentences}. 200000 is usual.")
    if vocabulary_size <= RESERVED:
        raise DataError(
            f"vocabulary_size must be above {RESERVED} (special tokens, the newline and 256 bytes); "
            f"got {vocabulary_size}. 8000 to 32000 is usual."
        )
    sentences = sample_sentences(texts, max_sentences=max_sentences, seed=seed)
    if not sentences:
        raise DataError("the texts to train on must have characters besides newlines; got none. Check the files.")
    return PieceTokenizer(
        _run_trainer(sentences, kind=kind, vocabulary_size=vocabulary_size, character_coverage=character_coverage)
    )


def sample_sentences(texts: Iterable[str], *, max_sentences: int, seed: int) -> list[str]:
    """Return a random sample of the sentences, each with the same probability, in memory bounded by its size."""
    chance = random.Random(seed)
    kept: list[str] = []
    for number, sentence in enumerate(_sentences(texts)):
        if number < max_sentences:
            kept.append(sentence)
        else:
            place = chance.randrange(number + 1)
            if place < max_sentences:
                kept[place] = sentence
    return kept


def _sentences(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in _BREAKS.split(without_surrogates(text)):
            if line:
                yield from stretches(line, length=_STRETCH)


def _run_trainer(sentences: list[str], *, kind: str, vocabulary_size: int, character_coverage: float) -> bytes:
    # A space must have a piece, or it would be encoded as the bytes of U+2581. Its mark is required, and must occur:
    # the trainer aborts the process if a required character has no count.
    sentences.append(" ")
    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type=kind,
            vocab_size=vocabulary_size,
            character_coverage=character_coverage,
            required_chars=SPACE_MARK,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            byte_fallback=True,
            unk_id=LAYOUT.index("<unk>"),
            bos_id=LAYOUT.index("<s>"),
            eos_id=LAYOUT.index("</s>"),
            pad_id=LAYOUT.index("<pad>"),
            control_symbols=[piece for piece in LAYOUT if piece not in ("<unk>", "<s>", "</s>", "<pad>")],
            user_defined_symbols=["\n"],
            max_sentence_length=1 << 14,
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(str(error), vocabulary_size) from None
    return model.getvalue()


class VocabularyTooLargeError(DataError):
    """The texts are too short for so large a vocabulary."""

    def __init__(self, vocabulary_size: int, *, most: int) -> None:
        super().__init__(
            f"vocabulary_size must be at most {most} for these texts; got {vocabulary_size}. "
            f"Use {most} or less, or more text."
        )
        self.most = most
        """Largest vocabulary size that the texts allow."""


def _explained(message: str, vocabulary_size: int) -> DataError:
    found = _SIZES.search(message)
    if found and found[1]:
        return VocabularyTooLargeError(vocabulary_size, most=int(found[1]))
    if found:
        return DataError(
            f"vocabulary_size must be at least {found[2]} for the characters of these texts; got {vocabulary_size}. "
            f"Use more, or a smaller character_coverage."
        )
    return DataError(f"the texts must be fit for training SentencePiece; it said: {message}. Check the texts.")
