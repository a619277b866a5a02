"""The guides list every setting of a desk with its default, and every cue of anger."""

import re

import pytest

from segue.apps.desk.decide import ANGER_EN, ANGER_ZH
from segue.apps.desk.settings import DeskSettings
from tests.test_guides import DOCS

ABOVE = {"desk.md": "[see above](#run)", "desk.zh-CN.md": "见上文"}
ROW = re.compile(r"^\| `(\w+)` \|(.*?)\| (.+) \|$", re.MULTILINE)


def shown(value: object, above: str) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return above
    return f"`{value}`" if value != "" else ""


@pytest.mark.parametrize("name", ABOVE)
def test_the_table_of_settings_is_that_of_the_code(name: str) -> None:
    text = (DOCS / "apps" / name).read_text(encoding="utf-8")
    rows = {name: (default.strip(), meaning) for name, default, meaning in ROW.findall(text)}
    fields = DeskSettings.model_fields
    assert list(rows) == list(fields)
    assert {key: default for key, (default, _) in rows.items()} == {
        key: shown(field.default, ABOVE[name]) for key, field in fields.items()
    }
    if name == "desk.md":
        assert {key: meaning for key, (_, meaning) in rows.items()} == {
            key: " ".join((field.description or "").split()) for key, field in fields.items()
        }


@pytest.mark.parametrize("name", ABOVE)
def test_the_cues_of_anger_are_those_of_the_code(name: str) -> None:
    text = (DOCS / "apps" / name).read_text(encoding="utf-8")
    (listed,) = (block for block in re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S) if ANGER_EN[0] in block)
    english, chinese = (re.split(r",\s+", part.strip()) for part in listed.split("\n\n"))
    assert (tuple(english), tuple(chinese)) == (ANGER_EN, ANGER_ZH)
