"""How tests read a page, and a text that every page must show as text."""

from html.parser import HTMLParser

EVIL = '<script>alert("1")</script> | `x` *y* [z](http://w) \ud800 \x07 & "q"'


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in {"meta", "br", "line", "circle", "polyline"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)


def parsed(html: str) -> _Tags:
    parser = _Tags()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser
