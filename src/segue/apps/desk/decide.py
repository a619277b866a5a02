"""Signs in a message that a person should take over: the wish for one, and anger. English and Chinese, by their words.

In: a message. Out: whether it has such a sign. Words decide, so that anyone can read why; what the model is not sure
of, and questions that fail again and again, are for the service.
"""

import re

_PERSON = re.compile(
    r"\b(?:(?:human|real|live|actual) (?:agent|person|being|representative|operator|support)"
    r"|(?:speak|talk|chat|connect me|put me through|transfer me)(?: \w+){0,2} (?:to|with) (?:an? |the |your )?(?:\w+ )?"
    r"(?:human|person|agent|someone|somebody|representative|operator|advisor|manager|staff)"
    r"|(?:want|need|get me|give me) (?:an? )?(?:human|agent|operator|representative|real person)|not a (?:ro)?bot)\b"
    r"|^\W*(?:human|agent|operator|representative)\W*$"
    r"|人工(?:客服|服务|坐席|座席)?|真人|转(?:接)?(?:人工|客服)|(?:找|要|叫).{0,4}(?:客服|经理|人来)",
    re.IGNORECASE,
)
_ANGER = re.compile(
    r"\b(?:ridiculous|outrageous|unacceptable|disgusting|furious|fed up|sick of|worst (?:service|company|bank|app)"
    r"|scam|useless|pathetic|terrible service|waste of (?:my )?time|wtf|f+u+c+k\w*|bullshit|(?:this|you) sucks?"
    r"|stupid (?:bot|machine|robot)|i(?:'m| am) (?:so |very |really |extremely )?(?:angry|annoyed|mad)"
    r"|(?:sue|report) you)\b"
    r"|垃圾|骗子|投诉|太差|气死|混蛋|废物|什么破|滚|岂有此理|无语|差劲|不可理喻|坑人|他妈|妈的|傻[逼叉]",
    re.IGNORECASE,
)


def wants_person(message: str) -> bool:
    """Whether somebody asks for a person.

    >>> wants_person("Can I talk to a real person?"), wants_person("我要转人工"), wants_person("my card is lost")
    (True, True, False)
    """
    return _PERSON.search(message) is not None


def is_angry(message: str) -> bool:
    """Whether a message sounds angry: by its words, or where it shouts.

    >>> is_angry("This is ridiculous!"), is_angry("WHERE IS MY MONEY!!!"), is_angry("你们太差劲了"), is_angry("Hello!")
    (True, True, True, False)
    """
    letters = [one for one in message if one.isalpha() and one.upper() != one.lower()]
    shouts = len(letters) >= 10 and sum(one.isupper() for one in letters) > 0.8 * len(letters) and "!!" in message
    return shouts or _ANGER.search(message) is not None
