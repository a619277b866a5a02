"""A whole source into a monitor, without a server: what `segue monitor read` does."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.apps.database import Database
from segue.apps.monitor import store
from segue.apps.monitor.folder import DATABASE, MODELS, current_model, read_model
from segue.apps.monitor.growing import read_more
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.sources import Source
from segue.apps.monitor.stream import Batch, Stream, Written
from segue.apps.monitor.texts import Rows, Text, to_text

AT_ONCE = 200
"""Texts of one transaction."""


@dataclass
class ReadSummary:
    """What came of reading."""

    texts: int = 0
    """New texts."""
    known: int = 0
    """Texts that were there before, from the same source."""
    refused: int = 0
    """Rows that are no text."""
    alarms: int = 0


def look_into(folder: Path) -> Database:
    """The database of a monitor, open, also while it runs; an empty one in memory where it has none yet."""
    if (folder / DATABASE).is_file():
        return open_database(folder, alone=False)
    database = Database(Path(":memory:"), name=store.NAME, steps=store.STEPS, alone=False)
    database.open()
    return database


def open_database(folder: Path, *, alone: bool = True) -> Database:
    """The database of a monitor, open."""
    database = Database(folder / DATABASE, name=store.NAME, steps=store.STEPS, alone=alone)
    database.open()
    return database


def made_batch(
    source: str,
    rows: Sequence[Mapping[str, Any]],
    how: Rows,
    *,
    refused: Sequence[tuple[str, Any]] = (),
    place: Mapping[str, Any] | None = None,
) -> Batch:
    """Rows as a batch; those that are no text are refused."""
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
    """One batch, in this thread."""
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
    """Reads all that the sources have now, one after the other."""
    name = current_model(folder)
    model = read_model(folder / MODELS / name)
    stream, summary = Stream(settings.rules()), ReadSummary()
    database = open_database(folder)
    try:
        for source in sources:
            for batch in _batches(database, source):
                written = take(database, stream, model, name, batch)
                summary.texts += len(written.numbers)
                summary.known += written.known
                summary.refused += len(batch.refused)
                summary.alarms += len(written.alarms)
                told(f"{source.name}: {summary.texts:,} texts, {summary.alarms:,} alarms")
    finally:
        database.close()
    return summary


def _batches(database: Database, source: Source) -> Iterator[Batch]:
    place = database.do(lambda connection: store.place_of(connection, source.name))
    for some in read_more(source, place, most=AT_ONCE):
        yield made_batch(source.name, some.rows, source.rows(), refused=some.refused, place=some.place)
