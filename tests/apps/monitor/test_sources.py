"""The operator's list, files that grow, feeds over HTTP."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from segue.apps.monitor import feeds
from segue.apps.monitor.feeds import AGENT, Poller, decoded, plain_text, read_feed, read_json
from segue.apps.monitor.growing import read_more
from segue.apps.monitor.sources import Source, read_sources
from segue.errors import ConfigError, DataError

RSS = """<?xml version="1.0"?><rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>Wire</title>
<item><title>Acme falls</title>
<description>&lt;p&gt;Shares of &lt;b&gt;Acme&lt;/b&gt; fell&amp;nbsp;today&lt;/p&gt;</description>
<pubDate>Thu, 14 Feb 2019 00:00:00 GMT</pubDate><guid>a1</guid><dc:creator>ann</dc:creator></item>
<item><title>Second</title><link>https://a.example/2</link></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>F</title><entry><title>长江电力</title><id>x</id>
<updated>2019-02-14T00:00:00Z</updated><summary>净利润增长</summary><author><name>甲</name></author></entry></feed>"""


class Site(BaseHTTPRequestHandler):
    """A site with a feed, which counts what it is asked."""

    asked: ClassVar[list[tuple[str, dict[str, str]]]] = []
    robots: ClassVar[str] = "User-agent: *\nDisallow: /private\nCrawl-delay: 77\n"
    broken: ClassVar[int] = 0

    def do_GET(self) -> None:
        Site.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        headers, body, status = {"etag": '"v1"'}, RSS.encode(), 200
        if self.path == "/robots.txt":
            headers, body = {}, Site.robots.encode()
        elif Site.broken:
            headers, body, status = {"retry-after": "4000"}, b"", Site.broken
        elif self.path == "/slow":
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(200):
                    self.wfile.write(b" ")
                    time.sleep(0.05)
            return
        elif self.path == "/moved":
            headers, body, status = {"location": "https://elsewhere.example/feed"}, b"", 301
        elif self.headers.get("if-none-match") == '"v1"':
            body, status = b"", 304
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[str]:
    Site.asked.clear()
    Site.broken = 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def feed(url: str, **more: Any) -> Source:
    return Source(name="wire", kind="feed", url=url, every=10.0, **more)


def test_feeds_become_rows() -> None:
    first, second = read_feed(RSS)
    assert first == {
        "title": "Acme falls", "text": "Shares of Acme fell today", "time": "Thu, 14 Feb 2019 00:00:00 GMT",
        "author": "ann", "id": "a1",
    }  # fmt: skip
    assert second == {"title": "Second", "id": "https://a.example/2"}
    [entry] = read_feed(ATOM)
    assert (entry["title"], entry["text"], entry["author"]) == ("长江电力", "净利润增长", "甲")
    assert read_json('{"items": [{"text": "a"}]}') == ([{"text": "a"}], [])
    assert plain_text("a <b>&amp;</b> c") == "a & c"


@pytest.mark.parametrize(
    "body",
    [
        b"not xml",
        b"",
        b'<!DOCTYPE x [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;">]><rss><item><title>&b;</title></item></rss>',
        b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><rss><item><title>&a;</title></item></rss>',
    ],
)
def test_hostile_feeds_are_refused(body: bytes) -> None:
    with pytest.raises(DataError):
        read_feed(decoded(body))


TRADITIONAL = str.maketrans("长电净润", "長電淨潤")
DECLARED = '<?xml version="1.0" encoding="{}"?>' + ATOM


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (ATOM.encode(), ""),
        (ATOM.encode("utf-8-sig"), ""),
        (ATOM.encode("utf-16"), ""),
        (DECLARED.format("GB2312").encode("gb2312"), "text/xml"),
        (DECLARED.format("gbk").encode("gbk"), ""),
        (DECLARED.format("Big5").translate(TRADITIONAL).encode("big5"), ""),
        (ATOM.encode("gb18030"), 'application/atom+xml; charset="GB18030"'),
    ],
    ids=["plain", "mark", "utf-16", "gb2312", "gbk", "big5", "header"],
)
def test_a_feed_is_read_in_its_own_encoding(body: bytes, content_type: str) -> None:
    [entry] = read_feed(decoded(body, content_type))
    assert entry["title"] in ("长江电力", "長江電力")
    assert entry["author"] == "甲"


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(DataError, match="encoding that Python knows; got 'runes'"):
        decoded(b"<rss/>", "text/xml; charset=runes")


def test_an_address_is_asked_politely(site: str) -> None:
    poller = Poller(feed(f"{site}/feed?x=1"))
    first = poller.look({})
    assert (len(first.rows), first.place, first.problem) == (2, {"etag": '"v1"'}, None)
    assert first.wait == 77.0  # what robots.txt asks for
    second = poller.look(first.place)
    assert (second.rows, second.place) == ([], first.place)
    assert [path for path, _ in Site.asked] == ["/robots.txt", "/feed?x=1", "/feed?x=1"]
    assert all(headers["user-agent"] == AGENT for _, headers in Site.asked)


def test_trouble_makes_the_looks_rarer(site: str) -> None:
    poller = Poller(feed(f"{site}/feed"))
    Site.broken = 503
    waits = [poller.look({}).wait for _ in range(3)]
    assert waits == [4000.0, 4000.0, 4000.0]  # as the site asks
    Site.broken = 404
    found = poller.look({})
    assert found.problem == "HTTP 404"
    assert found.wait >= 4000
    Site.broken = 0
    assert poller.look({}).wait == 77.0


def test_a_site_that_sends_a_byte_now_and_then_keeps_nobody_waiting(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "DEADLINE", 0.3)
    found = Poller(feed(f"{site}/slow")).look({})
    assert found.problem is not None
    assert "took more than" in found.problem


def test_robots_and_redirects_are_obeyed_not_followed(site: str) -> None:
    found = Poller(feed(f"{site}/private/feed")).look({})
    assert found.problem is not None
    assert "robots.txt" in found.problem
    moved = Poller(feed(f"{site}/moved")).look({})
    assert moved.problem == "HTTP 301, which leads to https://elsewhere.example/feed"
    assert not any(path.startswith("/private") for path, _ in Site.asked)
    gone = Poller(feed("http://127.0.0.1:9/feed")).look({})
    assert gone.problem
    assert gone.wait == 20.0


# --------------------------------------------------------------------------------------------------------------- files


def read_all(source: Source, place: dict[str, Any], most: int = 2) -> tuple[list[Any], list[Any], dict[str, Any]]:
    rows, refused = [], []
    for some in read_more(source, place, most=most):
        assert len(some.rows) + len(some.refused) <= most
        rows += some.rows
        refused += some.refused
        place = some.place
    return rows, refused, json.loads(json.dumps(place))


def test_a_growing_file_is_read_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "posts.jsonl"
    source = Source(name="posts", kind="file", path=str(path))
    path.write_text('{"text": "a"}\n{"text": "b"}\nnonsense\n{"te')
    rows, refused, place = read_all(source, {})
    assert [row["text"] for row in rows] == ["a", "b"]
    assert refused == [("a line must be an object of JSON; it is not", "nonsense")]
    with path.open("a") as file:
        file.write('xt": "c"}\n\n[1]\n')
    rows, refused, place = read_all(source, place)
    assert [row["text"] for row in rows] == ["c"]
    assert len(refused) == 1
    assert read_all(source, place)[:2] == ([], [])
    path.write_text('{"text": "new file"}\n')
    assert read_all(source, place)[0] == [{"text": "new file"}]


def test_csv_grows_with_quotes_over_lines_and_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "posts.csv"
    path.write_bytes('标题,正文\n涨,"第一行\n第二行"\n短\n'.encode("gb18030"))
    source = Source(name="posts", kind="file", path=str(path), encoding="gb18030")
    rows, refused, place = read_all(source, {})
    assert rows == [{"标题": "涨", "正文": "第一行\n第二行"}]
    assert refused[0][0] == "a row must have 2 cells; it has 1"
    with path.open("ab") as file:
        file.write('跌,"没有'.encode("gb18030"))
    assert read_all(source, place)[0] == []
    with path.open("ab") as file:
        file.write('完"\n'.encode("gb18030"))
    assert read_all(source, place)[0] == [{"标题": "跌", "正文": "没有完"}]


def test_a_folder_gets_more_files_and_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret\n")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "a.txt").write_text("one\ntwo\n")
    source = Source(name="in", kind="folder", path=str(folder), pattern="*.txt")
    rows, _, place = read_all(source, {})
    assert [row["text"] for row in rows] == ["one", "two"]
    (folder / "b.txt").write_text("three\n")
    assert [row["text"] for row in read_all(source, place)[0]] == ["three"]
    with pytest.raises(DataError, match="existing folder"):
        read_all(Source(name="in", kind="folder", path=str(tmp_path / "none")), {})


def test_files_that_cannot_grow_are_read_as_tables(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{"text": str(n)} for n in range(5)]))
    source = Source(name="rows", kind="file", path=str(path))
    first = next(read_more(source, {}, most=2))
    assert [row["text"] for row in first.rows] == ["0", "1"]
    rows, _, place = read_all(source, first.place)
    assert [row["text"] for row in rows] == ["2", "3", "4"]
    assert read_all(source, place)[:2] == ([], [])


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[[source]]\nname = 'a'\nkind = 'file'\n", "must have a path"),
        ("[[source]]\nname = 'a'\nkind = 'feed'\nurl = 'file:///etc/passwd'\n", "must begin with http"),
        ("[[source]]\nname = 'a'\nkind = 'stdin'\n[[source]]\nname = 'a'\nkind = 'stdin'\n", "name of its own"),
        ("[[source]]\nname = 'a'\nkind = 'stdin'\nzone = 'Moon'\n", "time zone"),
        ("[[source]]\nname = 'a'\nkind = 'stdin'\ncolumns = {words = 'x'}\n", "must name columns by"),
        ("[[source]]\nname = 'a'\nkind = 'stdin'\nencoding = 'runes'\n", "encoding that Python knows"),
        ("[[source]\n", "in TOML"),
        ("[[source]]\nname = 'a'\nkind = 'pigeon'\n", "kind"),
        ("[mail]\nhost = 'h'\nsender = 'a'\nto = []\n", "mail"),
    ],
)
def test_a_list_with_mistakes_is_explained(tmp_path: Path, written: str, said: str) -> None:
    (tmp_path / "sources.toml").write_text(written)
    with pytest.raises(ConfigError, match=said):
        read_sources(tmp_path / "sources.toml")


def test_paths_of_a_list_are_beside_it(tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text("[[source]]\nname = 'a'\nkind = 'file'\npath = 'in/a.jsonl'\n")
    assert read_sources(tmp_path / "list.toml").source[0].path == str(tmp_path / "in" / "a.jsonl")


def rows_in(path: Path, place: dict[str, Any], **more: Any) -> tuple[list[str], list[str], dict[str, Any]]:
    """Texts and refusals after a place, and the place then."""
    texts, refused = [], []
    for some in read_more(Source(name=path.name, kind="file", path=str(path), follow=False, **more), place, most=10):
        texts += [row["text"] for row in some.rows]
        refused += [why for why, _ in some.refused]
        place = some.place
    return texts, refused, place


def test_another_file_of_the_same_name_is_read_from_its_beginning(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    first, second = tmp_path / "one" / "news.csv", tmp_path / "two" / "news.csv"
    first.write_text("text\nup\ndown\n")
    second.write_text("text\nother\nmore\nand more\n")
    texts, _, place = rows_in(first, {})
    assert texts == ["up", "down"]
    texts, refused, place = rows_in(second, place)
    assert (texts, refused) == (["other", "more", "and more"], [])
    with first.open("a") as file:
        file.write("up again\n")
    texts, _, place = rows_in(first, place)
    assert texts == ["up again"]
    first.write_text("text\nrewritten in its place and longer than it was before\n")
    assert rows_in(first, place)[0] == ["rewritten in its place and longer than it was before"]


def test_lines_in_another_encoding_are_refused_and_not_guessed(tmp_path: Path) -> None:
    table, lines, wide = tmp_path / "a.csv", tmp_path / "b.jsonl", tmp_path / "c.csv"
    table.write_bytes("text\n公司中标\n".encode("gb18030"))
    texts, [why], _ = rows_in(table, {})
    assert texts == []
    assert why == "a line must be in utf-8; it is not. Name the encoding of the file"
    assert rows_in(table, {}, encoding="gb18030")[0] == ["公司中标"]
    lines.write_bytes(b'{"text": "a \xff\xfe b"}\n{"text": "good"}\n')
    texts, refused, _ = rows_in(lines, {})
    assert texts == ["good"]
    assert len(refused) == 1
    wide.write_bytes("text\nup\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"c\.csv must be in utf-8; it is not"):
        rows_in(wide, {})


def test_an_encoding_whose_lines_end_otherwise_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "sources.toml"
    listed.write_text("[[source]]\nname = 'a'\nkind = 'stdin'\nencoding = 'utf-16'\n")
    with pytest.raises(ConfigError, match="a line ends with one byte"):
        read_sources(listed)
