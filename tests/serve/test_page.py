"""The page as files: what is sent, and with which headers."""

import re
from pathlib import Path

import httpx

import segue.serve

FOLDER = Path(segue.serve.__file__).parent / "page"


def test_the_page_and_its_files(client: httpx.Client) -> None:
    first = client.get("/")
    assert first.headers["content-type"].startswith("text/html")
    names = {path.name for path in FOLDER.iterdir()}
    assert {"index.html", "main.js", "style.css", "icon.svg"} <= names
    for name in names:
        got = client.get(f"/page/{name}").raise_for_status()
        assert got.content == (FOLDER / name).read_bytes()
        policy = got.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        # The tab of an explanation has inline scripts, in a frame that reaches nothing outside it.
        assert ("unsafe" in policy) == (name == "explain.html")
        assert got.headers["x-content-type-options"] == "nosniff"
    for wrong in ("/page/", "/page/none.js", "/page/..%2fapp.py", "/page/%2e%2e/app.py", "/page/../app.py"):
        assert client.get(wrong).status_code == 404


def test_nothing_is_made_of_markup_or_comes_from_elsewhere() -> None:
    for path in FOLDER.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function", text), path
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//cdn|@import|url\(", text), path
    for name in ("index.html", "explain.html"):
        text = (FOLDER / name).read_text()
        assert not re.search(r"<style|style=|<script(?! type=\"module\" src)| on\w+=", text), name
    assert '<iframe id="explanation" title="segue explain" sandbox="allow-scripts" hidden>' in text
