"""Slots: placeholders in an answer that are filled in a conversation, as in `Your order {order} is on its way.`

In: an answer with slots, known questions with slots (`Where is my order {order}?`) and a visitor's message. Out: the
values found, and the slots that are still open, for which the desk asks. Messages come from strangers, so not every
position and length is tried: the words around a slot are searched, then one value beside them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from segue.text.unicode import is_unspaced

SLOT = re.compile(r"\{(\w{1,40})\}")
LONGEST = 200
"""Maximum number of characters of a value."""
MOST_WORDS, MOST_WIDE = 5, 12
"""Maximum number of words of a value without a digit, and of characters in a script without spaces."""
_NONE = re.compile(
    r"\b(?:(?:do|does|did|can|could|have|has|am|is|are|was)(?: not|n['’]?t)|cannot|no idea|not (?:sure|any|at hand)"
    r"|never mind|dunno|idk|forg[eo]t|forgotten|lost it|no longer|unknown|nothing|none|neither|n/a)\b"
    r"|^\W*(?:no|nope|yes|yeah|ok|okay|well|hi|hello|hey|help|please|thanks|thank you|sorry|sure|what|huh)\b[\W_]*$"
    r"|(?<!\w)i have (?:no|none)\b"
    r"|不知道|不清楚|不记得|不晓得|不确定|不明白|忘了|忘记|记不|没有|没带|没收到|找不到|丢了|算了"
    r"|^\W*(?:不是?|没|无|是的?|好的?|嗯+|哦+|你好|您好|在吗|谢谢|请问|对|行)\W*$",
    re.IGNORECASE,
)
"""Messages without a value."""
_QUESTION = re.compile(
    r"^\W*(?:what|where|when|why|who|whose|whom|which|how)\b"
    r"|^\W*(?:is|are|do|does|did|can|could|will|would|should|may|have|has)\b[^?？]*[?？]\W*$"
    r"|什么|怎么|怎样|为何|为什么|哪[里儿个些]|谁|多少|几时|多久|[吗呢么][?？。！\s]*$",
    re.IGNORECASE,
)
"""Messages that are questions."""
_MARKS = "?!.,:;？！。，：；"
_GAP = re.compile(r"[\s:#：]*")
_ASCII = re.compile(rf"[!-+\--:<->@-~]{{1,{LONGEST}}}")
_VALUE = re.compile(rf"[^\s,?!;，。？！；…]{{1,{LONGEST}}}")
_ENDS = re.compile(r"[\s,?!;，。？！；…]+")


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Slots of an answer: values found, and names of those still open."""

    values: Mapping[str, str]
    missing: tuple[str, ...]


def slots_in(answer: str, templates: Sequence[str], question: str) -> Slots:
    """Fill the slots of an answer from a question that fits a template. Words of the templates are not values: "where
    is order now" has no order number."""
    names = tuple(dict.fromkeys(SLOT.findall(answer)))
    values: dict[str, str] = {}
    words = {word for template in templates for part in SLOT.split(template)[::2] for word in _words(part)}
    for template in templates if names else ():
        for name, value in _fitted(template, question).items():
            if value.casefold().strip(_MARKS) not in words:
                values.setdefault(name, value)
    return Slots(values=values, missing=tuple(name for name in names if name not in values))


def filled(answer: str, values: Mapping[str, str]) -> str:
    """Return the answer with known values filled in; other slots stay as they are."""
    return SLOT.sub(lambda found: values.get(found[1], found[0])[:LONGEST], answer)


def told_value(message: str, slot: str = "") -> str | None:
    """Return the value in a reply to the question for a slot: the part with a digit, or all of a short reply. None if
    the reply is a question, says that there is no value, or only repeats the name of the slot.

    >>> told_value("it is 12345, thanks"), told_value("单号是 A-17。"), told_value("Ann Smith")
    ('12345', 'A-17', 'Ann Smith')
    >>> told_value("I do not know"), told_value("不知道"), told_value("where do I find it?")
    (None, None, None)
    >>> told_value("my order number", "order_number") is None
    True
    """
    named = {*_words(slot.replace("_", " ")), "my", "the", "a", "our"}
    if _NONE.search(message) or _QUESTION.search(message) or named.issuperset(_words(message)):
        return None
    for piece in _ENDS.split(message):
        if any(one.isdigit() for one in piece):
            run = next((one for one in _ASCII.findall(piece) if any(map(str.isdigit, one))), piece)
            return str(run).strip(f"#{_MARKS}")[:LONGEST]
    text = message.strip().strip(_MARKS).strip()
    wide = sum(map(is_unspaced, text))
    fits = text and not message.rstrip().endswith(("?", "？")) and len(text.split()) <= MOST_WORDS and wide <= MOST_WIDE
    return text[:LONGEST] if fits else None


def _words(text: str) -> list[str]:
    return [kept for word in text.split() if (kept := word.strip(_MARKS).casefold())]


def _fitted(template: str, question: str) -> dict[str, str]:
    """Return values found beside the words of a template that stand right before or after a slot."""
    found = {}
    parts = SLOT.split(template)
    for place in range(1, len(parts), 2):
        before, after = _words(parts[place - 1])[-2:], _words(parts[place + 1])[:2]
        value = _between(before, after, question) if after else None
        if value is None and before:
            value = _between(before, [], question)
            if value is not None and after and not value.isascii():  # in "订单什么时候到" no number is told
                value = None
        if value is not None:
            found[parts[place]] = value
    return found


def _between(before: Sequence[str], after: Sequence[str], question: str) -> str | None:
    """Return the value between some words; None if the question does not contain them."""
    end = _pattern(after)
    if not before:
        return next((value for found in end.finditer(question) if (value := _ahead(question, found.start()))), None)
    for found in _pattern(before).finditer(question):
        gap = _GAP.match(question, found.end())
        start = found.end() if gap is None else gap.end()
        if not after:
            run = _ASCII.match(question, start) or _VALUE.match(question, start)
            if run is not None and run[0].strip(_MARKS):
                return run[0].rstrip(_MARKS)
            continue
        for last in end.finditer(question, start, start + 2 * LONGEST):
            text = question[start : last.start()].rstrip()
            if _VALUE.fullmatch(text):
                return text
            if text:
                break
    return None


def _ahead(question: str, end: int) -> str:
    """Return the value that ends at a position."""
    text = question[max(0, end - LONGEST) : end].rstrip()
    return _ENDS.split(text)[-1].lstrip(":#：")


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Compile a pattern for consecutive words, in any case, with non-word characters between them, and whole."""
    inner = r"\W{1,20}".join(map(re.escape, words))
    first = r"(?<![A-Za-z0-9_])" if words and re.match(r"[A-Za-z0-9_]", words[0]) else ""
    last = r"(?![A-Za-z_])" if words and re.search(r"[A-Za-z0-9_]$", words[-1]) else ""
    return re.compile(first + inner + last, re.IGNORECASE)
