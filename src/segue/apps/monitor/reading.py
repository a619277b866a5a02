"""Reading of sources into a monitor without a server, as `segue monitor read` does."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from segue.apps.database import Database
from segue.apps.folder import MODELS
from segue.apps.monitor import store
from segue.apps.monitor.folder import read_model
from segue.apps.monitor.growing import read_more
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.sources import Source
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.stream import Batch, Stream, Written
from segue.apps.monitor.texts import Rows, Text, to_text

AT_ONCE = 200
"""Maximum number of texts in a transaction."""


@dataclass
class ReadSummary:
    """Number of texts that were read, and of alarms."""

    texts: int = 0
    """Number of new texts."""
    known: int = 0
    """Number of texts that were read before from the same source."""
    refused: int = 0
    """Number of rejected rows."""
    alarms: int = 0
    reasons: Counter[str] = field(default_factory=Counter, repr=False, compare=False)
    """Reasons of rejection, with the number of rows."""

    def add(self, batch: Batch, written: Written) -> None:
        """Add the result of a batch."""
        self.texts += len(written.numbers)
        self.known += written.known
        self.refused += len(batch.refused)
        self.reasons.update(why for why, _ in batch.refused)
        self.alarms += len(written.alarms)


def made_batch(
    source: str,
    rows: Sequence[Mapping[str, Any]],
    how: Rows,
    *,
    refused: Sequence[tuple[str, Any]] = (),
    place: Mapping[str, Any] | None = None,
) -> Batch:
    """Return a batch of the texts in rows; rows that are not texts are rejected."""
    arrived = time.time()
    texts: list[Text] = []
    problems = list(refused)
    for row in rows:
        found = to_text(row, how, arrived=arrived)
        if isinstance(found, str):
            problems.append((found, dict(row)))
        else:
            texts.append(found)
    return Batch(source=source, texts=texts, refused=problems, place=place, arrived=arrived)


def take(database: Database, stream: Stream, model: MonitorModel, name: str, batch: Batch) -> Written:
    """Process one batch in this thread."""
    looked = database.do(lambda connection: stream.look(connection, batch))
    read = stream.read(batch, looked, model, name)
    try:
        return database.do(lambda connection: stream.write(connection, read))
    except BaseException:
        stream.forget()
        raise


def read_sources(
    folder: Path, sources: Sequence[Source], settings: MonitorSettings, *, told: Callable[[str], object]
) -> ReadSummary:
    """Read everything that the sources contain now, one after the other."""
    name = MONITOR.current_model(folder)
    model = read_model(folder / MODELS / name)
    stream, summary = Stream(settings.rules()), ReadSummary()
    with MONITOR.opened(folder, alone=True) as database:
        for source in sources:
            for batch in _batches(database, source):
                summary.add(batch, take(database, stream, model, name, batch))
                told(f"{source.name}: {summary.texts:,} texts, {summary.alarms:,} alarms")
    return summary


def _batches(database: Database, source: Source) -> Iterator[Batch]:
    place = database.do(lambda connection: store.place_of(connection, source.name))
    for some in read_more(source, place, most=AT_ONCE):
        yield made_batch(source.name, some.rows, source.rows(), refused=some.refused, place=some.place)
