"""The demonstration: a monitor trained on and fed with real texts from a given folder.

The folder has `labelled.*` (text, sentiment), `texts.*` (text, time), and optionally `entities.*` (code, names) and
`prices.*` (date, symbol, close), as csv, tsv, jsonl or parquet, compressed or not. A folder that contains the data sets
`financial_phrasebank` and `stocknet` as they are distributed is accepted too.
"""

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

from segue.apps.monitor.interface import learn_monitor
from segue.apps.monitor.sources import Listed, Prices, Source
from segue.data.tables import TableSettings, open_table
from segue.errors import DataError

SENTENCES = "financial_phrasebank/Sentences_50Agree.txt"
STREAM = "stocknet/tweets.tsv"
COMPANIES = "stocknet/symbols.tsv"
CLOSES = "stocknet/prices.csv"


def prepare_demo(folder: Path, data: Path, listed: Listed, *, told: Callable[[str], object]) -> Listed:
    """Train a monitor in `folder` if there is none, and return the configuration with the texts as a source."""
    texts = _found(data, "texts", STREAM)
    if texts is None:
        raise DataError(f"{data} must contain texts.csv, with columns text and time; it does not. Add it.")
    prices = _found(data, "prices", CLOSES)
    if not folder.exists():
        told(f"learning a monitor in {folder}")
        found = learn_monitor(_labelled(data), folder, entities=_entities(data))
        told(f"{found.numbers['rows']:,} rows, {found.numbers['sentiment']['accuracy']:.1%} right, held back")
    source = Source(name="demo", kind="file", path=str(texts), follow=False)
    return listed.model_copy(
        update={
            "source": [*listed.source, source],
            "prices": listed.prices or (None if prices is None else Prices(path=str(prices))),
        }
    )


def _found(data: Path, name: str, other: str) -> Path | None:
    """Return the file with a name and any suffix, or the one of the data set; None if there is neither."""
    own = sorted(data.glob(f"{name}.*")) if data.is_dir() else []
    known = [data / other, data / f"{other}.xz"]
    return next((path for path in [*own, *known] if path.is_file()), None)


def _labelled(data: Path) -> Any:
    found = _found(data, "labelled", SENTENCES)
    if found is None:
        raise DataError(f"{data} must contain labelled.csv, with columns text and sentiment; it does not. Add it.")
    if "Sentences" not in found.name:
        return found
    with (lzma.open if found.suffix == ".xz" else open)(found, "rt", encoding="utf-8") as file:
        pairs = [line.rstrip("\n").rpartition("@") for line in file]
    return [{"text": text, "sentiment": label} for text, _, label in pairs if text]


def _entities(data: Path) -> Any:
    """Return the list of entities; companies of stocknet also get their short names."""
    found = _found(data, "entities", COMPANIES)
    if found is None or found.name.partition(".")[0] == "entities":
        return found
    rows = []
    for _, row in open_table(found, TableSettings()):
        name = str(row["Company"]).strip()
        rows.append({"code": str(row["Symbol"]).strip().removeprefix("$"), "names": f"{name}|{short_name(name)}"})
    return rows


def short_name(name: str) -> str:
    """Return the name of a company without its legal form: Apple for Apple Inc."""
    kinds = {"inc", "inc.", "corporation", "corp", "corp.", "company", "limited", "ltd", "plc", "co.", "&", "the"}
    words = [word.rstrip(",") for word in name.split()]
    while len(words) > 1 and words[-1].lower() in kinds:
        words.pop()
    return " ".join(words)
