"""Polite polling of RSS, Atom and JSON over HTTP: conditional requests, back-off, robots.txt.

In: a source whose address the operator configured. Out: rows, and the validators (ETag, Last-Modified) for the next
request. Redirects are not followed: the error names the target, which the operator can configure instead. Responses
have a maximum size, and XML may not define entities.
"""

import codecs
import html
import html.entities
import http.client
import json
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.robotparser import RobotFileParser
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import segue
from segue.apps.cells import parse_time
from segue.apps.monitor.sources import Source
from segue.apps.outbox import deadline
from segue.errors import DataError

AGENT = f"segue-monitor/{segue.__version__}"
LARGEST = 10_000_000
TIMEOUT = 20.0
"""Seconds that a site may be silent."""
DEADLINE = 60.0
"""Seconds for a whole response."""
LONGEST_WAIT = 6 * 3600.0
LONGEST_DELAY = 86_400
"""Largest crawl delay of a robots.txt that is obeyed, in seconds: a larger one is a mistake."""
DEEPEST = 100
"""Maximum depth of the elements of a feed."""
ROBOTS_KEPT = 86_400.0
_TAGS = re.compile(r"<[^>]*>")
_ITEMS = ("items", "data", "articles", "results", "posts")


@dataclass
class Fetched:
    """The result of a request."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    refused: list[tuple[str, Any]] = field(default_factory=list)
    """Items that are not rows, each with the reason."""
    place: dict[str, Any] = field(default_factory=dict)
    wait: float = 0.0
    """Seconds until the next request."""
    problem: str | None = None


class Poller:
    """Repeated requests to one address."""

    def __init__(self, source: Source) -> None:
        self._source, self._failures = source, 0
        self._robots: RobotFileParser | None = None
        self._robots_until = 0.0

    def look(self, place: Mapping[str, Any]) -> Fetched:
        """Request the address once. Failures are reported in `problem`, and double the wait each time."""
        every = self._source.every
        try:
            robots = self._allowed()
            delay = robots.crawl_delay(AGENT) if robots is not None else None
            every = max(every, float(min(delay or 0, LONGEST_DELAY)))
            status, headers, body = _get(self._source.url, place)
            if status == 304:
                self._failures = 0
                return Fetched(place=dict(place), wait=every)
            if status != 200:
                raise _Refused(status, headers)
            text = decoded(body, headers.get("content-type", ""))
            rows, refused = (read_feed(text), []) if self._source.kind == "feed" else read_json(text)
        except (_Refused, DataError, OSError, http.client.HTTPException, ValueError) as error:
            self._failures += 1
            wait = min(every * 2.0 ** min(self._failures, 12), LONGEST_WAIT)
            asked = error.retry_after if isinstance(error, _Refused) else None
            wait = max(wait, min(asked, LONGEST_WAIT)) if asked is not None else wait
            return Fetched(place=dict(place), wait=wait, problem=str(error)[:300] or type(error).__name__)
        self._failures = 0
        new = {name: headers[name] for name in ("etag", "last-modified") if headers.get(name)}
        return Fetched(rows=rows, refused=refused, place=new, wait=every)

    def _allowed(self) -> RobotFileParser | None:
        """Return the robots.txt of the site, None if it has none; raise DataError if it forbids the address."""
        if self._robots_until < time.monotonic():
            parts = urlsplit(self._source.url)
            status, _, body = _get(f"{parts.scheme}://{parts.netloc}/robots.txt", {})
            self._robots = None
            if status == 200:
                self._robots = RobotFileParser()
                self._robots.parse(body.decode("utf-8", "replace").splitlines())
            elif status >= 500:
                raise DataError(f"robots.txt of the site must be readable; got HTTP {status}. It is tried again.")
            self._robots_until = time.monotonic() + ROBOTS_KEPT
        if self._robots is not None and not self._robots.can_fetch(AGENT, self._source.url):
            raise DataError("robots.txt of the site must allow the address; it does not. Ask the site, or remove it.")
        return self._robots


class _Refused(Exception):  # noqa: N818
    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        to = f", which leads to {headers['location'][:200]}" if headers.get("location") else ""
        super().__init__(f"HTTP {status}{to}")
        self.retry_after = _seconds(headers.get("retry-after", "").strip())


def _seconds(asked: str) -> float | None:
    """Return the seconds that a Retry-After header names as a number or as a date; None if it names none."""
    if asked.isascii() and asked.isdigit() and len(asked) < 10:
        return float(asked)
    until = parse_time(asked, UTC) if asked else None
    return None if until is None else max(0.0, until - time.time())


def _get(url: str, place: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=TIMEOUT, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)
    headers = {"user-agent": AGENT, "accept": "application/rss+xml, application/atom+xml, application/json, */*;q=0.5"}
    for name, asked in (("etag", "if-none-match"), ("last-modified", "if-modified-since")):
        if place.get(name):
            headers[asked] = str(place[name])
    try:
        connection.connect()
        sock = connection.sock  # which the connection forgets when the other side closes it after its answer
        end = time.monotonic() + DEADLINE
        with deadline(lambda: sock, seconds=DEADLINE):
            found = _answered(connection, parts, headers)
        if time.monotonic() >= end:  # an answer without a length looks whole when its socket is shut
            raise TimeoutError(f"it took more than {DEADLINE:g} seconds")
        return found
    finally:
        connection.close()


def _answered(
    connection: http.client.HTTPConnection, parts: SplitResult, headers: Mapping[str, str]
) -> tuple[int, dict[str, str], bytes]:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request("GET", path, headers=dict(headers))
    response = connection.getresponse()
    body = response.read(LARGEST + 1)
    if len(body) > LARGEST:
        raise DataError(f"an answer must have at most {LARGEST:,} bytes; got more. Remove the source.")
    return response.status, {name.lower(): value for name, value in response.getheaders()}, body


_CHARSET = re.compile(r"charset=[\"']?([\w.:-]+)", re.IGNORECASE)
_DECLARED = re.compile(rb"<\?xml[^>]*?encoding=[\"']([\w.:-]+)[\"']")
_LARGER = {"gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252"}
"""Encodings that sites name, and the supersets that they use."""


def decoded(body: bytes, content_type: str = "") -> str:
    """Decode a response with the encoding of its byte order mark, HTTP header or XML declaration, in this order.
    Default: UTF-8."""
    if body.startswith(codecs.BOM_UTF8):
        return body.decode("utf-8-sig", "replace")
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body.decode("utf-16", "replace")
    declared = _DECLARED.match(body)
    named = _CHARSET.search(content_type)
    name = named[1] if named else declared[1].decode("ascii") if declared else "utf-8"
    try:
        known = codecs.lookup(name).name
        return body.decode(_LARGER.get(known, known), "replace")
    except LookupError:
        raise DataError(
            f"an answer must have an encoding that Python knows; got {name!r}. Remove the source."
        ) from None


# ----------------------------------------------------------------------------------------------------------------- XML


def read_feed(body: str) -> list[dict[str, Any]]:
    """Return the items of an RSS or Atom feed, as rows with title, text, time, author and id. A feed that is not quite
    XML is mended first."""
    try:
        root = _parsed(body)
    except expat.ExpatError as error:
        try:
            root = _parsed(mended(body))
        except expat.ExpatError:
            raise DataError(f"a feed must be XML; got something else: {str(error)[:100]}.") from None
    found = []
    for item in root.iter():
        if _name(item) in ("item", "entry"):
            cells = _cells(item)
            found.append({name: value for name, value in cells.items() if value})
    return found


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_REFERENCE = re.compile(r"&(?:(#\d{1,7};|#x[0-9a-fA-F]{1,6};|(?:amp|lt|gt|quot|apos);)|(\w{1,32};)|)")


def mended(body: str) -> str:
    """Mend what feeds often get wrong: space before the declaration, control characters, entities of HTML (&nbsp;) and
    a bare &."""

    def character(match: re.Match[str]) -> str:
        known, named = match.groups()
        if known:
            return match[0]
        value = html.entities.html5.get(named or "")
        return f"&amp;{named or ''}" if value is None else "".join(f"&#{ord(one)};" for one in value)

    return _REFERENCE.sub(character, _NOT_XML.sub("", body).lstrip())


def _parsed(body: str) -> Element:
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator="}")
    depth = 0

    def refuse(*_: Any) -> None:
        raise DataError("a feed must not define entities; it does. Remove the source.")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:  # what is inside of an item is looked through for each item around it
            raise DataError(f"a feed must have at most {DEEPEST} elements inside of each other; got more.")
        builder.start(name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name)

    parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.Parse(body, True)
    return builder.close()


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2].lower()


def _cells(item: Element) -> dict[str, str]:
    by_name: dict[str, str] = {}
    for part in item:
        name = _name(part)
        if name == "author" and len(part):
            text = next((one.text or "" for one in part if _name(one) == "name"), "")
        else:
            text = "".join(part.itertext())
        by_name.setdefault(name, text.strip())
    texts = [plain_text(by_name.get(name, "")) for name in ("encoded", "content", "description", "summary")]
    return {
        "title": plain_text(by_name.get("title", "")),
        "text": max(texts, key=len),
        "time": by_name.get("pubdate") or by_name.get("published") or by_name.get("updated") or by_name.get("date", ""),
        "author": by_name.get("author") or by_name.get("creator", ""),
        "id": by_name.get("guid") or by_name.get("id") or by_name.get("link", ""),
    }


def plain_text(markup: str) -> str:
    """Return the text of markup, without its tags."""
    return " ".join(html.unescape(_TAGS.sub(" ", html.unescape(markup) if "&lt;" in markup else markup)).split())


# ---------------------------------------------------------------------------------------------------------------- JSON


def read_json(body: str) -> tuple[list[dict[str, Any]], list[tuple[str, Any]]]:
    """Return the objects of a list, or of the list that an object has, and the other items of it with the reason why
    they are no rows."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise DataError("an answer must be JSON; it is not.") from None
    if isinstance(value, dict):
        value = next((value[name] for name in _ITEMS if isinstance(value.get(name), list)), [value])
    if not isinstance(value, list):
        raise DataError("an answer must be a list of objects in JSON; it is another value.")
    others = [("an item must be an object of JSON; it is another value", row) for row in value if type(row) is not dict]
    return [row for row in value if isinstance(row, dict)], others
