"""Tables of tokens in CoNLL formats: one token per line, columns by tabs or spaces, a blank line after a sentence."""

import re
from collections.abc import Iterator
from itertools import chain, islice

from segue.data.tables.reader import LONGEST_ROW, Record, TableReader, TableRows, Unread, count

CONLL_U = ("id", "tokens", "lemma", "tags", "xpos", "feats", "head", "deprel", "deps", "misc")
_COMMENT = re.compile(r"#\s*[\w:.]+\s*=")


def read_conll(reading: TableReader, *, columns: tuple[str, ...] | None) -> TableRows:
    """Read a CoNLL table: one token per line, a blank line (or -DOCSTART-) between sentences; a row is a sentence, with
    a list for each column."""
    source = reading.lines()
    head: list[tuple[int, str | Unread]] = []
    sample = ""  # the first line of a token; a # may be one, but only if nothing else is
    for number, line in islice(source, 1000):
        head.append((number, line))
        if isinstance(line, str) and line.strip() and not line.startswith("-DOCSTART-"):
            sample = line if not sample or not line.startswith("#") else sample
            if not line.startswith("#"):
                break
    cells = _columns_of(sample)
    if columns is None:
        between = tuple(f"column{place}" for place in range(2, len(cells)))
        columns = ("tokens", *between, "tags") if len(cells) > 1 else ("tokens",)
        if len(cells) == len(CONLL_U) and re.fullmatch(r"1(-\d+)?", cells[0]):
            columns = CONLL_U
    tabs = "\t" in sample
    return TableRows(columns, "line", _sentences(reading, chain(head, source), columns, tabs=tabs))


def _columns_of(line: str) -> list[str]:
    """Return the cells of a line. A line that begins with the separator has a blank as its token, as in Chinese files
    by characters."""
    line = line.rstrip(" \t")
    cells = line.split("\t" if "\t" in line else " ")
    if "" in cells:
        cells = [cells[0] or " ", *(cell for cell in cells[1:] if cell or "\t" in line)]
    return cells


def _is_comment(line: str, *, tabs: bool, width: int) -> bool:
    """Return True for a comment before a sentence, as in CoNLL-U; but `#` and hashtags can be tokens."""
    if not line.startswith("#"):
        return False
    return "\t" not in line if tabs else len(_columns_of(line)) != width or bool(_COMMENT.match(line))


def _sentences(
    reading: TableReader, source: Iterator[tuple[int, str | Unread]], columns: tuple[str, ...], *, tabs: bool
) -> Iterator[tuple[int, Record]]:
    """Yield the sentences. A sentence with an unreadable line is unreadable."""
    tokens: list[list[str]] = []
    begin = size = 0
    wrong: tuple[int, Unread] | None = None
    for number, line in chain(source, [(0, "")]):
        if isinstance(line, Unread):
            wrong = wrong or (number, line)
            continue
        if not line.strip() or line.startswith("-DOCSTART-"):
            if wrong is not None:
                yield wrong
            elif tokens:
                reading.good()
                yield begin, {name: list(cells) for name, *cells in zip(columns, *tokens, strict=True)}
            tokens, size, wrong = [], 0, None
            continue
        if wrong is not None or (not tokens and _is_comment(line, tabs=tabs, width=len(columns))):
            continue
        cells = _columns_of(line)
        if columns == CONLL_U and re.fullmatch(r"\d+[-.]\d+", cells[0]):  # multiword tokens and empty nodes
            continue
        begin = begin if tokens else number
        size += len(line)
        tokens.append(cells)
        if len(cells) != len(columns):
            why = f"{count(len(cells), 'cell')} for {count(len(columns), 'column')}: {line[:40]!r}"
            wrong = number, reading.bad(number, why)
        elif size > LONGEST_ROW:
            wrong = begin, reading.bad(begin, f"no blank line in the next {LONGEST_ROW} characters")
    reading.check()
