"""Segmentation of text into the units of the CMRC 2018 script: single Chinese characters, and words of everything else.

In: a text. Out: its units in order, lower case. The script splits other text with nltk's English word tokenizer; the
rules of it that can matter in an answer are implemented here: punctuation apart from words, numbers whole, the clitics
of English apart from their hosts. nltk also finds the ends of sentences with a trained model; here a period before a
space ends one, unless it follows a single letter, a word with periods in it, or a title. (Of the 14,312 different
answers of CMRC 2018, two are split differently than by the word rules of nltk 3.10 alone, at such a period.)
"""

import re

REMOVED = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
"""The script's list. It has the ellipsis as a pair of characters, which never equals one, so … is not removed."""

_CHINESE = re.compile(r"[\u4e00-\u9fa5]")
_OPENING = re.compile(r"""(?:^"?|[ (\[{<«‘„])\Z""")
_UNIT = re.compile(
    r"""
    (?P<quote> "|'' )
    | \.{2,}
    | [;@#$%&?!()\[\]{}<>«»‘„\u2012-\u2015]
    | ,(?!\d)
    | (?: (?!''|\.\.) [^\s";@#$%&?!()\[\]{}<>«»‘„\u2012-\u2015,] | ,(?=\d) )+
    """,
    re.VERBOSE,
)
_CLOSED = re.compile(r"[\])}>\"'» ]*(\s|$)")
_CLITIC = re.compile(r"(?<=[^'])('s|'m|'d|'ll|'re|'ve|n't|')$")
_LEADING_QUOTE = re.compile(r"'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)")
_FUSED = {
    "cannot": ("can", "not"),
    "d'ye": ("d", "'ye"),
    "gimme": ("gim", "me"),
    "gonna": ("gon", "na"),
    "gotta": ("got", "ta"),
    "lemme": ("lem", "me"),
    "more'n": ("more", "'n"),
    "wanna": ("wan", "na"),
}
_ABBREVIATED = re.compile(r"\w|.*\..*|mr|mrs|ms|dr|st|jr|sr|prof|rev|rep|sen|gov|gen|vs|bros|inc|ltd|co|corp")


def mixed_units(text: str) -> list[str]:
    """Return characters and words, without the characters in REMOVED."""
    units: list[str] = []
    other: list[str] = []
    for character in text.lower().strip():
        if character in REMOVED:
            continue
        if _CHINESE.match(character):
            units += english_units("".join(other))
            units.append(character)
            other = []
        else:
            other.append(character)
    return units + english_units("".join(other))


def without_punctuation(text: str) -> str:
    """Return the text in lower case, without the characters in REMOVED, with inner spaces kept."""
    return "".join(character for character in text.lower().strip() if character not in REMOVED)


def english_units(text: str) -> list[str]:
    """Return the words, numbers and punctuation of a text in lower case."""
    units: list[str] = []
    for match in _UNIT.finditer(text):
        if match["quote"]:
            opens = _OPENING.search(text[: match.start()]) is not None
            units.append("``" if opens else "''")
        else:
            units += _split_word(match.group(), text, match.end())
    return units


def _split_word(word: str, text: str, end: int) -> list[str]:
    """Split a word from its clitics and punctuation."""
    tail: list[str] = []
    if word.endswith(".'"):
        word, tail = word[:-1], ["'"]
    if len(word) > 1 and word[-1] == "." and word[-2] != ".":
        closed = _CLOSED.match(text, end)
        last = closed is not None and closed.end() == len(text)
        if last or (closed is not None and not _ABBREVIATED.fullmatch(word[:-1])):
            word, tail = word[:-1], [".", *tail]
    head: list[str] = []
    if _LEADING_QUOTE.match(word):
        head, word = ["'"], word[1:]
    while (clitic := _CLITIC.search(word)) is not None and clitic.start() > 0:
        word, tail = word[: clitic.start()], [clitic.group(), *tail]
    return [*head, *_FUSED.get(word, (word,)), *tail]
