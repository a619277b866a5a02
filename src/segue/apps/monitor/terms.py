"""Terms of texts for linear models: words, word pairs and subwords; character n-grams in Chinese; comparisons.

In: a text. Out: its terms, or with `located` each with its span in the text. Case and full-width forms are normalised,
and a number is `#` whatever its digits, so that "up 14 %" and "up 9 %" are alike. A comparison of numbers ("to 11.2 mn
from 13.1 mn") is a term for its direction.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

PIECES = (3, 4, 5)
"""Lengths of subwords, in which the ends of the word are marked."""
RUNS = (1, 2, 3)
"""Lengths of character n-grams in Chinese."""
LONGEST_WORD = 40
_HAN = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"(0[0,.]*0|0)(%?)|([{_HAN}]+)|([^\W_{_HAN}]+)|([$%!?+\-])")
_WIDE = {0xFF01 + n: 0x21 + n for n in range(94)} | {0x3000: 0x20}
_TABLE = _WIDE | {ord(digit): "0" for digit in "123456789"} | {0xFF10 + n: "0" for n in range(10)}
_COMPARED = re.compile(
    r"(?<!\d)(\d[\d,]{0,40}+(?:\.\d+)?)(?P<between>[^.;\d]{0,60}\b(?:from|compared (?:to|with)|versus|vs|against)\b"
    r"[^.;\d]{0,60})(\d[\d,]*(?:\.\d+)?)"
)
"""Two compared numbers; the length of the first one is limited, or a text of digits would take seconds."""
_LOSS = re.compile(r"\bloss")

Located = tuple[str, int, int]
"""A term, its start and its end in the text."""


def normal(text: str) -> str:
    """Return the normalised text, which has the same length."""
    lowered = text.translate(_TABLE).lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(one if len(one.lower()) != 1 else one.lower() for one in text.translate(_TABLE))


def terms_of(text: str) -> list[str]:
    """Return all terms of a text, as often as they occur."""
    found: list[str] = []
    units: list[str] = []
    before = ""
    for match in _TOKEN.finditer(normal(text)):
        number, percent, han, word, sign = match.groups()
        if han is not None:
            units += han
            before = ""
            continue
        if number is not None and units:
            units.append("#" + percent)
            continue
        if units:
            found += _runs(tuple(units))
            units = []
        token = "#" + percent if number is not None else word if word is not None else sign
        found.append(token)
        if before:
            found.append(f"{before} {token}")
        if word is not None:
            found += _pieces(word)
        before = token
    if units:
        found += _runs(tuple(units))
    found += [term for term, _, _ in _comparisons(text)]
    return found


def located(text: str) -> Iterator[Located]:
    """Yield the same terms, each with its span."""
    units: list[Located] = []
    before: Located | None = None
    for match in _TOKEN.finditer(normal(text)):
        number, percent, han, word, sign = match.groups()
        start, end = match.span()
        if han is not None:
            units += [(one, start + place, start + place + 1) for place, one in enumerate(han)]
            before = None
            continue
        if number is not None and units:
            units.append(("#" + percent, start, end))
            continue
        yield from _located_runs(units)
        units = []
        token = "#" + percent if number is not None else word if word is not None else sign
        yield token, start, end
        if before is not None:
            yield f"{before[0]} {token}", before[1], end
        if word is not None:
            marked = f"<{word[:LONGEST_WORD]}>"
            for n in PIECES:
                for place in range(len(marked) - n + 1):
                    if n < len(marked):
                        yield (
                            f"~{marked[place : place + n]}",
                            start + max(0, place - 1),
                            min(end, start + place + n - 1),
                        )
        before = token, start, end
    yield from _located_runs(units)
    yield from _comparisons(text)


@lru_cache(maxsize=100_000)
def _pieces(word: str) -> tuple[str, ...]:
    marked = f"<{word[:LONGEST_WORD]}>"
    return tuple(
        f"~{marked[place : place + n]}" for n in PIECES for place in range(len(marked) - n + 1) if n < len(marked)
    )


def _runs(units: tuple[str, ...]) -> list[str]:
    return [
        *units,
        *(a + b for a, b in pairwise(units)),
        *(a + b + c for a, b, c in zip(units, units[1:], units[2:], strict=False)),
    ]


def _located_runs(units: list[Located]) -> Iterator[Located]:
    for n in RUNS:
        for place in range(len(units) - n + 1):
            some = units[place : place + n]
            yield "".join(unit for unit, _, _ in some), some[0][1], some[-1][2]


def _comparisons(text: str) -> Iterator[Located]:
    """Yield a term for each comparison of numbers: up or down, and whether it is about a loss."""
    if len(text) > 20_000 or not any(digit in text for digit in "0123456789"):
        return
    for match in _COMPARED.finditer(text):
        first, second = (float(part.replace(",", "")) for part in (match[1], match[3]))
        if first != second and not _is_year(first) and not _is_year(second):
            way = "up" if first > second else "down"
            lost = _LOSS.search(text[max(0, match.start() - 60) : match.end()].lower())
            yield f"^{way}{' loss' if lost else ''}", match.start(), match.end()


def _is_year(number: float) -> bool:
    return number.is_integer() and 1900 <= number <= 2100
