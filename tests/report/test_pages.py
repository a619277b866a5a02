"""Whatever a document holds stays text in both forms of a page."""

import re

from segue.report.pages import Bullets, Code, Heading, Paragraph, Table, to_html, to_markdown
from tests.report.pages import EVIL, parsed


def test_text_stays_text_in_both_forms() -> None:
    blocks = [
        Heading(text=EVIL),
        Paragraph(text="1. # " + EVIL),
        Bullets(texts=[EVIL, "- a", "snake_case"]),
        Code(text="a ``` b <i>"),
        Table(header=[EVIL], rows=[[EVIL + "\nsecond line"]]),
    ]
    text = to_markdown(EVIL, blocks)
    assert "<script" not in text
    assert "\n1\\. " in text
    assert "\n- \\- a" in text
    assert "snake_case" in text
    assert "````\na ``` b" in text
    (row,) = [line for line in text.splitlines() if "second line" in line]
    assert len(re.findall(r"(?<!\\)\|", row)) == 2
    tags = parsed(to_html(EVIL, blocks))
    assert "script" not in tags.tags
    assert "i" not in tags.tags
    text.encode("utf-8")
