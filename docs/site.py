"""Gathers the pages of the site in build/pages, from where mkdocs builds it: `make docs`.

    python docs/site.py

The pages are those in docs and four files beside it; the README is the home page in both languages. Links between
them lead to the pages of the site. A link to any other file of the repository, such as a result or a recipe, becomes
the name of that file, because the site has no copy of it. A link to nothing is an error.
"""

import re
import shutil
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
BESIDE = {
    "README.md": "index.md",
    "README.zh-CN.md": "index.zh.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files beside docs, and what they are called in the site."""
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
CHINESE = ".zh.md"
OTHER_LANGUAGE = re.compile(r"\n\[(?:中文|English)\]\([^)]*\)\n")


def place_of(file: str) -> str | None:
    """Where a file of the repository is in the site. The theme knows Chinese as zh."""
    if not file.startswith("docs/"):
        return BESIDE.get(file)
    return file.removeprefix("docs/").replace(".zh-CN.md", CHINESE)


def translated(place: str) -> bool:
    """Whether a page of the site exists in Chinese."""
    return place.endswith(CHINESE) or (ROOT / "docs" / place).with_suffix(".zh-CN.md").exists() or place == "index.md"


def with_links_of_the_site(markdown: str, *, file: str, place: str) -> str:
    """A page with its links changed. The line that leads to the other language goes: the site has a menu for that."""

    def changed(match: re.Match[str]) -> str:
        target = match["target"]
        if "://" in target:
            return match[0]
        linked = normpath(str(PurePosixPath(file).parent / target))
        if not (ROOT / linked).exists():
            raise SystemExit(f"{file} links to {target}, and there is no such file")
        there = place_of(linked)
        if there is None:
            return f"{match['text']} (`{linked}`)"
        if there.endswith(CHINESE):  # the site's menu leads from one language to the other; names are the same in both
            if not place.endswith(CHINESE):
                return match["text"]
            there = there.removesuffix(CHINESE) + ".md"
        anchor = match["anchor"] or ""
        if translated(there) and not translated(place):  # a page in English on both sides, where titles differ
            anchor = ""
        link = relpath(there, str(PurePosixPath(place).parent))
        return f"{match['image']}[{match['text']}]({link}{anchor})"

    return LINK.sub(changed, OTHER_LANGUAGE.sub("\n", markdown, count=1))


def gather() -> None:
    """Writes all pages and pictures anew."""
    shutil.rmtree(PAGES, ignore_errors=True)
    files = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*")) if path.is_file()]
    for file in [*files, *BESIDE]:
        place = place_of(file)
        if place is None or file.endswith((".py", ".pyc", ".toml")):
            continue
        out = PAGES / place
        out.parent.mkdir(parents=True, exist_ok=True)
        if file.endswith(".md"):
            page = with_links_of_the_site((ROOT / file).read_text(encoding="utf-8"), file=file, place=place)
            out.write_text(page, encoding="utf-8")
        else:
            shutil.copyfile(ROOT / file, out)


if __name__ == "__main__":
    gather()
