"""The pretraining corpora of the packaged models: cleaned, de-duplicated, decontaminated, mixed and shuffled.

    python -m recipes.corpus en --sources DATA/pretraining --against DATA --out corpus-en

In: text files, one paragraph per line and a blank line between documents. Out: `train.txt` and `valid.txt` in the same
form, and `report.json` with the SHA-256 of every input, the recipe, and what each step removed.

- Cleaning repairs gaps that stripped markup left, and drops lines that are not prose.
- A paragraph that occurs again, anywhere in the corpus, is dropped.
- A paragraph that shares a long n-gram with any text under `--against` is dropped: 13 words, or 20 characters of
  Chinese.
- Each source is sampled with the share that the recipe states; documents are shuffled by a hash of their text.
"""

import argparse
import hashlib
import json
import lzma
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from recipes.overlap import Overlap

LONGEST_DOCUMENT = 30_000
"""Maximum number of characters; a longer document (a novel) is split at a paragraph, so that shuffling mixes it with
others."""
VALIDATION_SHARE = 0.005


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file of the corpus and its settings."""

    file: str
    share: float = 1.0
    """Share of its documents that is kept, chosen by a hash of their text."""
    lines_are_documents: bool = False
    shortest_line: int = 1
    """Minimum number of characters; shorter lines, except the title, are headings and remains of lists."""


RECIPES: dict[str, list[Source]] = {
    "en": [
        Source(file="en/wiki.txt.xz", shortest_line=25),
        Source(file="en/openstax.txt.xz", shortest_line=40),
        Source(file="en/novels.txt.xz"),
        Source(file="en/dialogue_sgd.txt.xz", share=0.4),
        Source(file="en/commonvoice.txt.xz", lines_are_documents=True, shortest_line=15),
    ],
    "zh": [
        Source(file="zh/wiki.txt.xz", shortest_line=12),
        Source(file="zh/laws.txt.xz", share=0.5, shortest_line=6),
        Source(file="zh/late_qing_novels.txt.xz"),
        Source(file="zh/commonvoice.txt.xz", lines_are_documents=True, shortest_line=6),
    ],
}


def documents(source: Source, folder: Path) -> Iterator[list[str]]:
    """Yield the documents of a file as lists of paragraphs."""
    with lzma.open(folder / source.file, "rt", encoding="utf-8") as file:
        lines = (line.strip() for line in file)
        if source.lines_are_documents:
            yield from ([line] for line in lines if line)
            return
        paragraphs: list[str] = []
        for line in lines:
            if line:
                paragraphs.append(line)
            elif paragraphs:
                yield paragraphs
                paragraphs = []
        if paragraphs:
            yield paragraphs


# -------------------------------------------------------------------------------------------------------- cleaning

HOLES = [
    (
        re.compile(r"-\{(?:[^{}|;:]*\|)?(?:[^{}|;:]*:)?([^{}|;:]*)[^{}]*\}-"),
        r"\1",
    ),  # variants of Chinese: -{A|zh-hans:B;...}-
    (re.compile(r"[(（]\s*[,;:，；：、]\s*"), lambda match: match.group()[0]),  # "(, born 1900)"
    (re.compile(r"\s*[(（]\s*[,;，；、\s]*[)）]"), ""),
    (re.compile(r'“”|「」|『』|《》|〈〉|""'), ""),
    (re.compile(r"[​‎‏﻿­]"), ""),
    (re.compile(r" +([,.;:!?)])(?=\s|$)"), r"\1"),
    (re.compile(r"\s+"), " "),
]
NOT_PROSE = re.compile(r"https?://|www\.|\{\{|\}\}|\[\[|\]\]|</|\\[a-z]+\{|�")


def clean(line: str) -> str:
    """Return the line with the gaps of stripped markup repaired."""
    for pattern, replacement in HOLES:
        line = pattern.sub(replacement, line)
    return line.strip()


def is_prose(line: str, shortest: int) -> bool:
    """Return True if a line is long enough, has no markup left, and consists mostly of letters."""
    if len(line) < shortest or NOT_PROSE.search(line):
        return False
    letters = sum(character.isalpha() or character == " " for character in line)
    return letters >= 0.75 * len(line)


# ------------------------------------------------------------------------------------------------------ de-duplication


def digest(text: str) -> bytes:
    """Return a short hash of the letters of a text, ignoring case, spaces and punctuation."""
    letters = "".join(character for character in text.casefold() if character.isalnum())
    return hashlib.blake2b(letters.encode(), digest_size=8).digest()


def chance(text: str, purpose: str) -> float:
    """Return a number from 0 to 1 that depends on the text alone, so that sampling is reproducible."""
    value = hashlib.blake2b(f"{purpose}\0{text}".encode(), digest_size=8).digest()
    return int.from_bytes(value, "big") / 2**64


# ------------------------------------------------------------------------------------------------------------- corpus


def cut(paragraphs: list[str]) -> Iterator[list[str]]:
    """Yield a document in parts of at most LONGEST_DOCUMENT characters, as far as its paragraphs allow."""
    part: list[str] = []
    size = 0
    for paragraph in paragraphs:
        if part and size + len(paragraph) > LONGEST_DOCUMENT:
            yield part
            part, size = [], 0
        part.append(paragraph)
        size += len(paragraph)
    if part:
        yield part


def build(language: str, sources: Path, overlap: Overlap) -> tuple[list[str], dict[str, Counter[str]]]:
    """Return the documents of a corpus, shuffled, and the counts of kept and removed text of each source."""
    seen: set[bytes] = set()
    kept: list[tuple[float, str]] = []
    counts: dict[str, Counter[str]] = {}
    for source in RECIPES[language]:
        count = counts[source.file] = Counter()
        for document in documents(source, sources):
            count["documents read"] += 1
            if chance("\n".join(document), "share") >= source.share:
                count["documents not drawn"] += 1
                continue
            paragraphs = list(_kept_paragraphs(document, source, seen, overlap, count))
            for part in cut(paragraphs):
                text = "\n".join(part)
                if source.lines_are_documents or len(text) >= 100:
                    kept.append((chance(text, "order"), text))
                    count["documents"] += 1
                    count["characters"] += len(text)
    kept.sort()
    return [text for _, text in kept], counts


def _kept_paragraphs(
    document: list[str], source: Source, seen: set[bytes], overlap: Overlap, count: Counter[str]
) -> Iterator[str]:
    for number, raw in enumerate(document):
        line = clean(raw)
        title = number == 0 and not source.lines_are_documents
        if not is_prose(line, 1 if title else source.shortest_line):
            count["lines not prose"] += 1
            continue
        mark = digest(line)
        if mark in seen and not (title or line.startswith(("User:", "Assistant:"))):
            count["duplicate lines"] += 1
            continue
        seen.add(mark)
        if overlap.contains(line):
            count["lines in test sets"] += 1
            count["characters in test sets"] += len(line)
            continue
        yield line


def write(path: Path, texts: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for text in texts:
            file.write(f"{text}\n\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", choices=sorted(RECIPES))
    parser.add_argument("--sources", type=Path, required=True, help="Folder with the text to pretrain on.")
    parser.add_argument("--against", type=Path, required=True, help="Folder of data sets whose text is kept out.")
    parser.add_argument("--out", type=Path, required=True, help="Folder to write.")
    arguments = parser.parse_args()
    overlap = Overlap(arguments.language)
    for path in overlap.test_files(arguments.against, without=arguments.sources):
        overlap.add_file(path)
    overlap.finish()
    texts, counts = build(arguments.language, arguments.sources, overlap)
    held_out = max(1, round(len(texts) * VALIDATION_SHARE))
    arguments.out.mkdir(parents=True, exist_ok=True)
    write(arguments.out / "valid.txt", texts[:held_out])
    write(arguments.out / "train.txt", texts[held_out:])
    report = {
        "inputs": {
            source.file: {
                "sha256": hashlib.sha256((arguments.sources / source.file).read_bytes()).hexdigest(),
                "share": source.share,
                **counts[source.file],
            }
            for source in RECIPES[arguments.language]
        },
        "documents": {"train": len(texts) - held_out, "valid": held_out},
        "characters": sum(map(len, texts)),
        "kept out": {"files": overlap.files, "n-grams": len(overlap.grams), "length": overlap.length},
    }
    (arguments.out / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False), encoding="utf-8")
    print(json.dumps({key: value for key, value in report.items() if key != "kept out"}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
