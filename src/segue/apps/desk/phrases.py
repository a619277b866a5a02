"""Texts of the desk itself, in English and Chinese; answers are the operator's."""

import re
from typing import Literal

Language = Literal["en", "zh"]
PHRASES: dict[Language, dict[str, str]] = {
    "en": {
        "did_you_mean": "I am not sure what you mean. Is it one of these?",
        "asked_for_person": "I will connect you with a person. Please wait a moment.",
        "anger": "I am sorry about this. I have asked a colleague to help you here.",
        "out_of_scope": "I cannot help with that myself. I have asked a colleague to answer you here.",
        "low_confidence": "I am not sure about this, so I have asked a colleague to answer you here.",
        "no_answer": "A colleague has to answer this. I have passed it on, and you will see the answer here.",
        "repeated_failure": "Sorry, I did not understand your question. I have asked a colleague to answer you here.",
        "follow_up": "To answer this, I need one more detail: your {slot}. Could you send it to me?",
        "follow_up_again": "Sorry, I cannot answer this without your {slot}. If you do not have it, just say so, and a "
        "colleague will help you.",
        "resumed": "I am taking over again from my colleague. Is there anything else I can help you with?",
    },
    "zh": {
        "did_you_mean": "我不太确定您的意思。您是想问下面的问题吗？",
        "asked_for_person": "正在为您转接人工客服，请稍候。",
        "anger": "非常抱歉给您带来不便，已请同事在这里为您处理。",
        "out_of_scope": "这个问题我无法回答，已请同事在这里为您解答。",
        "low_confidence": "这个问题我没有把握，已请同事在这里为您解答。",
        "no_answer": "这个问题需要由同事解答，已为您转达，答复会显示在这里。",
        "repeated_failure": "抱歉，我没有理解您的问题，已请同事在这里为您解答。",
        "follow_up": "麻烦您提供一下{slot}，我来为您查询。",
        "follow_up_again": "抱歉，没有{slot}就无法为您查询。如果您手边没有，请告诉我，我会请同事来处理。",
        "resumed": "接下来由我继续为您服务。请问还有什么可以帮您？",
    },
}


def phrase(language: str, name: str) -> str:
    """Return a text of the desk in Chinese, or in English for any other language."""
    return PHRASES["zh" if language == "zh" else "en"][name]


def follow_up(language: str, slot: str, *, again: bool = False) -> str:
    """Return the question for the value of a slot. The name of the slot is part of the sentence.

    >>> follow_up("en", "order_number")
    'To answer this, I need one more detail: your order number. Could you send it to me?'
    >>> follow_up("zh", "订单号"), follow_up("zh", "order")
    ('麻烦您提供一下订单号，我来为您查询。', '麻烦您提供一下 order，我来为您查询。')
    """
    name = slot.replace("_", " ")
    text = phrase(language, "follow_up_again" if again else "follow_up")
    if language == "zh" and name.isascii():
        text = re.sub(r"(?<=\w)(?=\{slot\})|(?<=\{slot\})(?=\w)", " ", text)  # between scripts, not beside punctuation
    return text.format(slot=name)
