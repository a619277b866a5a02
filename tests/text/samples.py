"""Texts and tokenisers that several tests of this folder share."""

import functools
import io
import json

import tokenizers
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer

from segue.checkpoint.unigram import described
from segue.text.byte_pairs import BytePairTokenizer
from segue.text.fast import FastTokenizer
from segue.text.pieces import PieceTokenizer
from segue.text.released import ReleasedPieces
from segue.text.symbols import ByteTokenizer, CharacterTokenizer, collect_characters
from segue.text.tokenizer import Tokenizer
from segue.text.train import train_pieces
from segue.text.word_pieces import WordPieceTokenizer
from segue.text.word_pieces import word_pieces as make_word_pieces
from segue.text.words import WordTokenizer, count_words

ENGLISH = (
    "The old lighthouse keeper counted the ships that passed before dawn.\n"
    "In 1995, he counted 1,204 of them; in 2019, only 37, and he didn't know why.\n"
    'He wrote "the sea is quieter now" into his book, and the wind turned the page.\n'
    "A keeper counts, a ship passes, and the light goes on turning through the night.\n"
)
CHINESE = (
    "守塔的老人每天清晨都会数一数经过的船只，然后把数目写进一本旧册子里。\n"
    "他说：“海比从前安静了。”风翻过一页，灯光仍然在夜里转动。\n"
    "二〇一九年，只有三十七艘船经过这里（包括一艘渔船）；他不知道为什么。\n"
    "船来了，船又走了，灯一直亮着，海浪轻轻地拍打着岸边的石头。\n"
)
CORPUS = [ENGLISH, CHINESE]

# What breaks tokenisers: marks and symbols of their own, control characters, bytes that are not there.
HARD = [
    *("\u2581", "\u2581\u2581 \u2581", "\u2585", "\u2047"),
    *("\0", "\t", "\n", "\r\n", "\x85", "\u2028", "\ufeff", "\ufffd"),
    *("<sep>", "<unk>", "<mask>", "<cls>", "<s>", "</s>", "<pad>", "<eod>", "<eop>", "<eos>", "<0x41>", "``x''"),
    *("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e8\U0001f1f3", "e\u0301\u0323"),
    *("\u00e9", "\u1e69", "\u0130", "\u03a3\u03c2"),
    *("\uff21\uff22\uff0c\u3000\uff11", "\u00bd", "\ufdfa", "\U0001f101"),
    *("\u1100\u1161", "\ud55c\uae00", "\U00020bb7", "\u00a8", "\u00b4"),
    *("\ud800", "\udfff", "\ud83d", "\udc00\ud800", "a" * 300, " " * 50, "\u5929" * 200, "12,", "1,000,"),
    *("lighthouse keeper", "守塔的老人", " the ", "counted"),
]  # fmt: skip
any_text = st.one_of(
    st.text(st.characters(), max_size=60),
    st.lists(st.one_of(st.sampled_from(HARD), st.text(st.characters(), max_size=4)), max_size=12).map("".join),
)


def repaired(text: str) -> str:
    """The text with lone surrogates replaced, character by character."""
    return "".join("\ufffd" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text)


@functools.cache
def unigram() -> PieceTokenizer:
    return train_pieces(CORPUS, kind="unigram", vocabulary_size=420, character_coverage=0.99)


@functools.cache
def bpe() -> PieceTokenizer:
    return train_pieces(CORPUS, kind="bpe", vocabulary_size=500)


@functools.cache
def words() -> WordTokenizer:
    return count_words(CORPUS, add_eos=True)


@functools.cache
def characters() -> CharacterTokenizer:
    return collect_characters(CORPUS)


@functools.cache
def released_model() -> bytes:
    """A model like the released one: normalising, without bytes, `<eop>` as an ordinary symbol, numbers with commas."""
    model = io.BytesIO()
    sentences = [*ENGLISH.split("\n"), *CHINESE.split("\n"), "12, 13, 14, 15, 5, 37, 1995, 2019, don't < > e o p"]
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 5),
        model_writer=model,
        vocab_size=260,
        hard_vocab_limit=False,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=5,
        control_symbols=["<cls>", "<sep>", "<mask>", "<eod>"],
        user_defined_symbols=["<eop>", "5,"],
        split_by_number=False,
        split_by_unicode_script=False,
        num_threads=1,
        minloglevel=2,
    )
    return model.getvalue()


@functools.cache
def released(*, lower: bool = False, keep_accents: bool = False) -> ReleasedPieces:
    return ReleasedPieces(released_model(), lower=lower, keep_accents=keep_accents)


@functools.cache
def fast(*, lower: bool = False) -> FastTokenizer:
    """As transformers 5 has the released model."""
    return FastTokenizer(json.dumps(described(released_model(), lower=lower)).encode())


@functools.cache
def byte_pairs() -> BytePairTokenizer:
    """Byte pairs as GPT-2 has them, trained by the library."""
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    trained.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = tokenizers.decoders.ByteLevel()
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<|endoftext|>"], initial_alphabet=letters, show_progress=False
    )
    trained.train_from_iterator([ENGLISH, CHINESE], trainer)
    return BytePairTokenizer(trained.to_str().encode())


@functools.cache
def word_piece_tokens() -> tuple[str, ...]:
    """A vocabulary as BERT has it: special tokens, single characters, then pieces of words."""
    words = [word.lower() for word in ENGLISH.replace(",", " ").replace(".", " ").split()]
    letters = sorted(set("".join([*words, ENGLISH, CHINESE, "'\"!?[]#-<>"])) - set(" \n"))
    pieces = dict.fromkeys(["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters])
    pieces |= dict.fromkeys(f"##{letter}" for letter in letters if letter.isascii() and letter.isalnum())
    pieces |= dict.fromkeys([*words, *(word[:3] for word in words), *(f"##{word[-3:]}" for word in words), "The", "He"])
    return tuple(pieces)


@functools.cache
def word_pieces(
    *, lower: bool = True, accents: bool | None = None, chinese: bool = True, clean: bool = True
) -> WordPieceTokenizer:
    settings = {
        "lowercase": lower,
        "strip_accents": accents,
        "handle_chinese_chars": chinese,
        "clean_text": clean,
    }
    return make_word_pieces(word_piece_tokens(), settings, source="vocab.txt")


KINDS = {
    "unigram": unigram,
    "bpe": bpe,
    "words": words,
    "characters": characters,
    "bytes": ByteTokenizer,
    "released": released,
    "released lower": lambda: released(lower=True),
    "released accents": lambda: released(keep_accents=True),
    "fast": fast,
    "fast lower": lambda: fast(lower=True),
    "byte pairs": byte_pairs,
    "word pieces": word_pieces,
    "word pieces with case": lambda: word_pieces(lower=False, chinese=False, clean=False),
}
LOSSLESS = ("unigram", "bpe", "bytes", "byte pairs")
TILED = ("unigram", "bpe", "bytes")
"""Kinds whose tokens begin and end between characters, or share one; byte pairs also join the end of one character with
the beginning of the next."""


def make(kind: str) -> Tokenizer:
    return KINDS[kind]()
