"""Messages that are recognised by their words, in English and Chinese: a wish for a person, anger, and small talk.

Lists of words decide, so that anyone can read why. Low confidence and repeated failure are left to `reply`.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from segue.text.unicode import is_unspaced

Talk = Literal["greeting", "thanks", "goodbye"]
"""Kinds of small talk."""
LONGEST_TALK = 80
"""Maximum number of characters in small talk; longer messages say more than that."""
_PERSON = re.compile(
    r"\b(?:(?:human|real|live|actual) (?:agent|person|being|representative|operator|support)"
    r"|(?:speak|talk|chat|connect me|put me through|transfer me)(?: \w+){0,2} (?:to|with) (?:an? |the |your )?(?:\w+ )?"
    r"(?:human|person|agent|someone|somebody|representative|operator|advisor|manager|staff)"
    r"|(?:want|need|get me|give me) (?:an? )?(?:human|agent|operator|representative|real person)|not a (?:ro)?bot)\b"
    r"|^\W*(?:human|agent|operator|representative)\W*$"
    r"|人工(?:客服|服务|坐席|座席)?|真人|转(?:接)?(?:人工|客服)|(?:找|要|叫).{0,4}(?:客服|经理|人来)",
    re.IGNORECASE,
)
ANGER_EN = (
    *("ridiculous", "outrageous", "unacceptable", "disgusting", "furious", "fed up", "sick of", "scam", "useless"),
    *("pathetic", "terrible service", "worst service", "worst company", "worst bank", "worst app", "waste of time"),
    *("waste of my time", "wtf", "fuck*", "bullshit", "this suck*", "you suck*", "stupid bot", "stupid machine"),
    *("stupid robot", "i am angry", "i'm angry", "so angry", "very angry", "really angry", "extremely angry"),
    *("i am annoyed", "i'm annoyed", "so annoyed", "very annoyed", "really annoyed", "extremely annoyed", "i am mad"),
    *("i'm mad", "so mad", "very mad", "really mad", "extremely mad", "sue you", "report you"),
)
"""Default cues of anger in English: words, where * stands for the rest of a word."""
ANGER_ZH = (
    *("真垃圾", "太垃圾", "垃圾公司", "垃圾客服", "垃圾服务", "垃圾平台", "什么垃圾", "骗子", "投诉", "太差", "差劲"),
    *("气死", "混蛋", "废物", "什么破", "滚蛋", "滚开", "给我滚", "岂有此理", "无语", "不可理喻", "坑人", "他妈的"),
    *("你妈的", "去你妈", "傻逼", "傻叉"),
)
"""Default cues of anger in Chinese: runs of characters."""
_LENGTHENED = re.compile(r"(\w)\1{2,}")
_TALK: dict[Talk, str] = {
    "goodbye": r"(?:good ?)?bye|see (?:you|ya)(?: later| soon)?|good ?night|take care"
    r"|have a (?:nice|good|great|lovely) (?:day|evening|weekend|one)|that(?: i|'|’)?s (?:all|it)"
    r"|再见|拜拜|回见|回头见|晚安|没事了|没有?别的(?:事|问题)了",
    "thanks": r"(?:many )?thanks|thank (?:you|u)|thx|ty|cheers|much appreciated|that help(?:s|ed)|ok|okay|alright"
    r"|all right|great|perfect|excellent|wonderful|nice|cool|got it|i see|understood"
    r"|谢谢|多谢|感谢|谢啦|谢了|辛苦|麻烦您?了|好的|好滴|好哒|嗯+|知道了|明白了?|了解了?|收到|懂了",
    "greeting": r"hi|hello|hey|hiya|howdy|greetings|good (?:morning|afternoon|evening|day)|how are you"
    r"|(?:is )?any(?:one|body) (?:there|here)|are you there"
    r"|[你您]们?好|大家好|早上好|上午好|中午好|下午好|晚上好|早安|哈[喽啰罗]|嗨|喂|有人(?:在)?[吗嘛么]|在[吗嘛么]|在不在",
}
_FILLERS = (
    r"there|all|everyone|everybody|team|again|a lot|a bunch|so much|very much|(?:so|very) kind|then|and|no|now|today"
    r"|(?:for )?(?:all )?(?:your|the) (?:help|time|answer|reply|support)|for (?:that|helping(?: me)?)|sir|madam"
    r"|请问|非常|十分|太|很|[你您]们?的?|客服|亲|那就?|先|啊|呀|哦|噢|啦|哈|了|吧|呢|帮助|帮忙|回复|解答"
)
_ALL_TALK = re.compile(
    rf"\W*+(?:(?:{'|'.join((*_TALK.values(), _FILLERS))})(?![A-Za-z])\W*+)++", re.IGNORECASE
)  # possessive: no backtracking, whatever a stranger repeats
_TALK_PARTS = {
    kind: re.compile(rf"(?<![A-Za-z])(?:{words})(?![A-Za-z])", re.IGNORECASE) for kind, words in _TALK.items()
}


def small_talk(message: str) -> Talk | None:
    """Return the kind of small talk that a message consists of; None if it says anything else.

    >>> small_talk("Hello there!"), small_talk("ok, thank you very much"), small_talk("谢谢，再见"), small_talk("你好")
    ('greeting', 'thanks', 'goodbye', 'greeting')
    >>> small_talk("hello, where is my parcel"), small_talk("thanks, are you open?"), small_talk("你好，我要退款")
    (None, None, None)
    """
    if len(message) > LONGEST_TALK or not _ALL_TALK.fullmatch(message):
        return None
    return next((kind for kind, words in _TALK_PARTS.items() if words.search(message)), None)


def wants_person(message: str) -> bool:
    """Return True if a message asks for a person.

    >>> wants_person("Can I talk to a real person?"), wants_person("我要转人工"), wants_person("my card is lost")
    (True, True, False)
    """
    return _PERSON.search(message) is not None


def is_angry(message: str, *, cues: Sequence[str] = (*ANGER_EN, *ANGER_ZH), shouting: bool = True) -> bool:
    """Return True if a message has a cue of anger, or, with `shouting`, if it is in capital letters with "!!".

    Case does not matter, and a letter that is written three times or more also counts as one or two. A cue in a script
    with spaces between words matches whole words, with * for the rest of a word; other cues match anywhere.

    >>> is_angry("This is ridiculous!"), is_angry("WHERE IS MY MONEY!!!"), is_angry("你们太差劲了"), is_angry("Hello!")
    (True, True, True, False)
    >>> is_angry("what a rip-off", cues=["rip-off"]), is_angry("This is ridiculous!", cues=["rip-off"])
    (True, False)
    """
    letters = [one for one in message if one.isalpha() and one.upper() != one.lower()]
    shouts = len(letters) >= 10 and sum(one.isupper() for one in letters) > 0.8 * len(letters) and "!!" in message
    found = _cues(tuple(cues))
    straight = message.replace("’", "'")
    spellings = (straight, _LENGTHENED.sub(r"\1", straight), _LENGTHENED.sub(r"\1\1", straight))
    return (shouting and shouts) or any(found.search(text) for text in spellings)


@lru_cache(maxsize=8)
def _cues(cues: tuple[str, ...]) -> re.Pattern[str]:
    """Compile cues into one pattern; without cues, it matches nothing."""
    patterns = []
    for cue in cues:
        inner = r"\s+".join(re.escape(word).replace(r"\*", r"\w*") for word in cue.split())
        first = r"(?<!\w)" if _is_word(cue[:1]) else ""
        last = r"(?!\w)" if _is_word(cue[-1:]) else ""
        patterns.append(f"{first}{inner}{last}")
    return re.compile("|".join(patterns) or r"(?!)", re.IGNORECASE)


def _is_word(character: str) -> bool:
    return character.isalnum() and not is_unspaced(character)
