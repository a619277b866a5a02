"""Cues of anger: what they match, and that an operator sets them."""

from pathlib import Path

import pytest

import segue
from segue.apps.desk.decide import is_angry
from segue.apps.desk.reply import reply
from segue.apps.desk.settings import DeskSettings
from segue.config import settings as settings_of
from segue.errors import ConfigError

ANGRY = (
    *("This is ridiculous, where is my parcel", "I am so angry", "I’m mad", "fuuuuck this", "fucking bot"),
    *("THIS SUCKS", "what a WASTE of  my time", "uselesss", "WHERE IS MY MONEY!!!"),
    *("你们太差劲了", "垃圾公司", "他妈的", "我要投诉", "给我滚"),
)
CALM = (
    *("hello", "how do I scan a document", "a useful scampi recipe", "is this made of wood", "where is my parcel!!"),
    *("滚筒洗衣机怎么用", "垃圾分类怎么做", "垃圾邮件太多", "他妈妈的手机", "我妈的订单", "THANK YOU SO MUCH"),
)


@pytest.mark.parametrize("text", ANGRY)
def test_anger_is_recognised(text: str) -> None:
    assert is_angry(text)


@pytest.mark.parametrize("text", CALM)
def test_what_only_looks_like_it_is_not(text: str) -> None:
    assert not is_angry(text)


def test_an_operator_sets_the_cues(learned: Path) -> None:
    model = segue.open_desk(learned)

    def angry(text: str, *given: str) -> bool:
        settings = settings_of(DeskSettings, {}, list(given))
        talk = {"memory": {}, "language": "en", "failures": 0}
        return reply(model, talk, [], text, settings, chosen=None).about.get("reason") == "anger"

    assert angry("this is ridiculous")
    assert not angry("this is ridiculous", 'anger_en=["rip-off", "cheat*"]')
    assert angry("a RIP-OFF is what this is", 'anger_en=["rip-off", "cheat*"]')
    assert angry("you cheated me", 'anger_en=["rip-off", "cheat*"]')
    assert not angry("a tripping-off point", 'anger_en=["rip-off", "cheat*"]')
    assert angry("太慢啦", 'anger_zh=["太慢"]')
    assert not angry("你们太差劲了", "anger_zh=[]")
    assert angry("WHERE IS MY PARCEL!!")
    assert not angry("WHERE IS MY PARCEL!!", "anger_shouting=false")
    for odd in ("anger_en=[1]", 'anger_en=[""]', 'anger_en=["*"]', "anger_en=rude"):
        with pytest.raises(ConfigError, match="anger_en"):
            settings_of(DeskSettings, {}, [odd])
