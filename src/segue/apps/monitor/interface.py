"""Functions of a monitor, for Python and the command line."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

from segue.api.errors import python_errors
from segue.api.progress import StatusLine
from segue.api.tables import TableLike, rows_of, several, table_source, table_sources
from segue.apps.cells import time_given
from segue.apps.folder import FIRST, MODELS, check_new, read_about
from segue.apps.monitor import reading, reviews
from segue.apps.monitor.build import REPORT_PAGE, build
from segue.apps.monitor.daily import daily_report
from segue.apps.monitor.entities import Entities, entities_of, read_entities
from segue.apps.monitor.export import write_export
from segue.apps.monitor.folder import models_with, read_model
from segue.apps.monitor.improve import MonitorImprovement, improve
from segue.apps.monitor.labelled import read_labelled
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.network import NO_MODEL
from segue.apps.monitor.reading import ReadSummary
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.sources import POSTED, Source, check_encoding, source_name
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.stream import Stream
from segue.apps.monitor.texts import Rows
from segue.apps.monitor.watch import DAY
from segue.apps.postgresql import check_url
from segue.arguments import Seed, check_path
from segue.errors import DataError
from segue.files import check_folder, new_file, write_folder


@dataclass(frozen=True, kw_only=True)
class MonitorReport:
    """Evaluation of a monitor."""

    folder: Path
    model: str
    """Name of the model in use."""
    numbers: dict[str, Any]
    """Numbers of rows, sentiments, topics and entities, and accuracy on held-out rows."""

    @property
    def page(self) -> Path:
        """The report as an HTML file, with a Markdown version beside it."""
        return self.folder / MODELS / self.model / REPORT_PAGE


@python_errors
def learn_monitor(
    sources: TableLike | Sequence[TableLike],
    out: str | Path,
    *,
    entities: TableLike | None = None,
    model: str | Path = NO_MODEL,
    database: str | None = None,
    seed: Seed = 0,
    progress: bool = True,
) -> MonitorReport:
    """Train a monitor on labelled rows: it predicts sentiment, topic and entities of texts, with calibrated
    probabilities.

    Args:
        sources: Files (csv, tsv, jsonl, json, parquet) or tables in memory, with columns text and sentiment (negative,
            neutral, positive), and optionally title, topic, time and entities: the sentiment towards single entities,
            as [{"code": "ACME", "sentiment": "negative"}] or "ACME:negative|GLBX:positive".
        out: New folder for the monitor.
        entities: File or table with columns code and names (separated by |). Default: none.
        model: Model to fine-tune on sentiment, which reads whole texts with memory, in addition to the linear model:
            "auto" for the packaged XLNet of the language, or a model folder. It is used if it improves accuracy on
            held-out rows; training takes minutes, and reading is several times slower. Default: none.
        database: PostgreSQL database for texts: a URL "postgresql://user@host/name", without a password. Default:
            SQLite, in the folder.
        seed: Seed for the held-out split.
        progress: Whether to show progress on standard error.

    Returns:
        The evaluation, with the path of the report.

    Raises:
        DataError: If the sources cannot be read, or contain fewer than two sentiments.
        ConfigError: If a setting is not valid.
        CheckpointError: If the model does not exist.

    Examples:
        >>> rows = [
        ...     {"text": "Profit rose", "sentiment": "positive"},
        ...     {"text": "The loss widened", "sentiment": "negative"},
        ... ]
        >>> learned = segue.learn_monitor(rows, "monitor", progress=False)
        >>> learned.numbers["rows"], learned.page.name
        (2, 'report.html')
    """
    check_new(Path(out))
    check_folder(Path(out), kind="monitor")
    if database is not None:
        check_url(database)
    given = several(sources)
    rows = read_labelled(table_sources(given))
    listed = _entities(entities)
    line = StatusLine(show=progress)
    built = build(rows, listed, seed=seed, told=line.update, model=_model(model))
    line.clear()

    def write(folder: Path) -> None:
        MONITOR.write_model(folder, FIRST, built.write)
        MONITOR.make(folder, FIRST, database=database)

    inputs = [one for one in (*given, entities) if isinstance(one, str | Path)]
    write_folder(Path(out), write, kind="monitor", inputs=inputs)
    return MonitorReport(folder=Path(out), model=FIRST, numbers=built.about["summary"])


@python_errors
def open_monitor(folder: str | Path) -> MonitorModel:
    """Open a monitor to read texts.

    Args:
        folder: Folder written by `learn_monitor`.

    Returns:
        The model in use. `read(text)` gives sentiment, topic and entities, `read_all(texts)` those of several texts,
        which is quicker where a network reads them; `deciding(text)` the words that decided in the linear model, and
        `by_network(text)` what the network added to them.

    Raises:
        CheckpointError: If the folder is not a monitor, or its files are damaged.

    Examples:
        >>> rows = [
        ...     {"text": "Profit rose", "sentiment": "positive"},
        ...     {"text": "The loss widened", "sentiment": "negative"},
        ... ]
        >>> learned = segue.learn_monitor(rows, "watch", progress=False)
        >>> segue.open_monitor("watch").read("The profit rose again").sentiment.label
        'positive'
    """
    return read_model(Path(folder) / MODELS / MONITOR.current_model(Path(folder)))


@python_errors
def describe_monitor(folder: str | Path) -> MonitorReport:
    """Return the evaluation of a monitor without loading its model.

    Args:
        folder: Folder of the monitor.

    Returns:
        The evaluation of the current model, and the path of its report.

    Raises:
        CheckpointError: If the folder is not a monitor.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "lookout", progress=False)
        >>> segue.describe_monitor("lookout").numbers["sentiments"]
        {'negative': 1, 'positive': 1}
    """
    name = MONITOR.current_model(Path(folder))
    return MonitorReport(folder=Path(folder), model=name, numbers=read_about(Path(folder) / MODELS / name)["summary"])


@python_errors
def feed_monitor(
    folder: str | Path,
    sources: TableLike | Sequence[TableLike],
    *,
    settings: MonitorSettings | None = None,
    encoding: str = "utf-8",
    progress: bool = True,
) -> ReadSummary:
    """Let a monitor read texts, and raise alarms where sentiment changes: a replay of the past with the code that reads
    live texts.

    Args:
        folder: Folder of the monitor; it must not be running.
        sources: Files (csv, tsv, jsonl, json, parquet, txt) or tables in memory with column text, and optionally title,
            time, author and id. Texts already read are skipped.
        settings: Rules for raising alarms. Default: at most two false alarms per subject in 30 days.
        encoding: Encoding of text files, e.g. "gb18030".
        progress: Whether to show progress on standard error.

    Returns:
        Number of new, known and refused texts, and of alarms.

    Raises:
        DataError: If the sources cannot be read, or the monitor is running.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "tower", progress=False)
        >>> segue.feed_monitor("tower", [{"text": "Prices are up", "time": "2024-05-01T10:00:00Z"}], progress=False)
        ReadSummary(texts=1, known=0, refused=0, alarms=0)
    """
    chosen = settings or MonitorSettings()
    check_encoding(encoding, "the files")
    given = several(sources)
    if not given:
        raise DataError("sources must have at least one file or table; got none. Add one.")
    line = StatusLine(show=progress)
    files = [one for one in given if isinstance(one, str | Path)]
    for one in files:
        check_path("sources", one)
    listed = [
        Source(
            name=source_name(Path(one)),
            kind="folder" if Path(one).is_dir() else "file",
            path=str(one),
            follow=False,
            encoding=encoding,
        )
        for one in files
    ]
    found = reading.read_sources(Path(folder), listed, chosen, told=line.update) if files else ReadSummary()
    for table in (one for one in given if not isinstance(one, str | Path)):
        _feed_rows(Path(folder), rows_of(table, name="sources"), chosen, found)
    line.clear()
    return found


def _feed_rows(folder: Path, rows: list[dict[str, Any]], settings: MonitorSettings, found: ReadSummary) -> None:
    name = MONITOR.current_model(folder)
    model, stream = read_model(folder / MODELS / name), Stream(settings.rules())
    with MONITOR.opened(folder, alone=True) as database:
        for start in range(0, len(rows), reading.AT_ONCE):
            batch = reading.made_batch(POSTED, rows[start : start + reading.AT_ONCE], Rows(source=POSTED, zone=UTC))
            found.add(batch, reading.take(database, stream, model, name, batch))


@python_errors
def improve_monitor(
    folder: str | Path, *, model: str | Path | None = None, seed: Seed = 0, progress: bool = True
) -> MonitorImprovement:
    """Retrain with labels that were corrected and accepted on the page, and switch if the new model is no worse.

    Args:
        folder: Folder of the monitor. It may be running: it then loads the new model by itself.
        model: Model to fine-tune, as for `learn_monitor`. Default: as for the current model.
        seed: Seed for the held-out split of rows.
        progress: Whether to show progress on standard error.

    Returns:
        The number of new corrections, the accuracy on held-out rows before and after, and whether it switched.

    Raises:
        ConfigError: If there is nothing new to learn.
        CheckpointError: If the folder is not a monitor.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "beacon", progress=False)
        >>> try:
        ...     segue.improve_monitor("beacon", progress=False)
        ... except segue.SegueError as error:
        ...     print(str(error)[:38])
        beacon must have accepted corrections
    """
    line = StatusLine(show=progress)
    found = improve(Path(folder), seed=seed, told=line.update, model=None if model is None else _model(model))
    line.clear()
    return found


@python_errors
def roll_back_monitor(folder: str | Path, *, to: str | None = None) -> str:
    """Return to an earlier model of a monitor.

    Args:
        folder: Folder of the monitor. It may be running.
        to: Model to return to. Default: the previous one.

    Returns:
        Name of the model now in use.

    Raises:
        ConfigError: If the model does not exist.
        CheckpointError: If the model is damaged; the current one then stays in use.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "post", progress=False)
        >>> segue.roll_back_monitor("post", to="0001")
        '0001'
    """
    return MONITOR.roll_back(Path(folder), to, read_model)


@python_errors
def copy_monitor(folder: str | Path, out: str | Path, *, check: bool = False, database: str | None = None) -> None:
    """Copy a monitor with its models and texts, even while it runs: to back it up, or to restore a back-up.

    Args:
        folder: Folder of the monitor, or of a back-up.
        out: New folder for the copy.
        check: Whether to verify the hash of every file first; for back-ups, whose files never change.
        database: URL of an empty PostgreSQL database for the texts. Default: SQLite, in the copy, wherever they were.

    Returns:
        Nothing.

    Raises:
        CheckpointError: If the folder is not a monitor, or its files are damaged.
        DataError: If the copy cannot be written, or the database is not empty.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "station", progress=False)
        >>> segue.copy_monitor("station", "station-copy")
        >>> segue.copy_monitor("station-copy", "station-again", check=True)
    """
    MONITOR.copy(Path(folder), Path(out), check=check, database=database)


@python_errors
def person_in_monitor(folder: str | Path, person: str, *, delete: bool = False) -> dict[str, Any]:
    """Return the texts of a person that a monitor stores, and optionally delete them.

    Args:
        folder: Folder of the monitor. It may be running.
        person: Id of the author that texts came with.
        delete: Whether to delete the texts, and remove them from the counts.

    Returns:
        The texts of the person, as they are, or were before they were deleted; then `models` names the models that have
        learned from corrections of them, and still have them.

    Raises:
        CheckpointError: If the folder is not a monitor.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "guard", progress=False)
        >>> segue.person_in_monitor("guard", "ann")
        {'person': 'ann', 'texts': []}
    """
    with MONITOR.opened(Path(folder)) as database:
        found = database.do(lambda connection: reviews.of_person(connection, person))
        if delete:
            database.do(lambda connection: reviews.forget(connection, person))
            database.clean()
            found["models"] = models_with(Path(folder), reviews.whole_texts(found))
    return found


@python_errors
def export_monitor(
    folder: str | Path,
    out: str | Path,
    *,
    entity: str = "",
    topic: str = "",
    start: str | None = None,
    end: str | None = None,
    replace: bool = False,
) -> int:
    """Export the texts of a monitor with their sentiment, topic and entities, as csv or parquet.

    Args:
        folder: Folder of the monitor. It may be running.
        out: File to write; .csv or .parquet.
        entity: Code of an entity. Default: all texts.
        topic: Name of a topic. Default: all.
        start: Start time, inclusive, e.g. "2024-05-01". Default: the first text.
        end: End time, exclusive. Default: the last text.
        replace: Whether to overwrite an existing file.

    Returns:
        Number of rows.

    Raises:
        CheckpointError: If the folder is not a monitor.
        DataError: If the file cannot be written.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "keep", progress=False)
        >>> read = segue.feed_monitor("keep", [{"text": "Prices are up"}], progress=False)
        >>> segue.export_monitor("keep", "texts.csv")
        1
    """
    times = [time_given(start, -1e18), time_given(end, 1e18)]
    with MONITOR.opened(Path(folder)) as database:
        return write_export(
            database,
            Path(out),
            entity=entity,
            topic=topic,
            start=times[0],
            end=times[1],
            most=MonitorSettings().max_export,
            replace=replace,
            inputs=[Path(folder)],
        )


@python_errors
def report_monitor(folder: str | Path, out: str | Path, *, day: str | None = None, replace: bool = False) -> Path:
    """Write a daily report as an HTML file: alarms, entities, topics, and the most negative texts.

    Args:
        folder: Folder of the monitor. It may be running.
        out: File to write.
        day: Day in UTC, e.g. "2024-05-01". Default: yesterday.
        replace: Whether to overwrite an existing file.

    Returns:
        Path of the file.

    Raises:
        CheckpointError: If the folder is not a monitor.
        DataError: If the file cannot be written.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "tell", progress=False)
        >>> read = segue.feed_monitor("tell", [{"text": "Up", "time": "2024-05-01T10:00:00Z"}], progress=False)
        >>> segue.report_monitor("tell", "day.html", day="2024-05-01").name
        'day.html'
    """
    chosen = time_given(day, time.time() - DAY)
    with MONITOR.opened(Path(folder)) as database:
        page = database.do(lambda connection: daily_report(connection, chosen))
    with new_file(Path(out), replace=replace, inputs=[Path(folder)]) as file:
        file.write(page.encode())
    return Path(out)


def _entities(given: TableLike | None) -> Entities:
    return entities_of(()) if given is None else read_entities(table_source(given, name="entities"))


def _model(given: str | Path) -> str:
    """Return a folder as an absolute path, so that `improve` finds it from elsewhere."""
    return str(Path(given).resolve()) if Path(given).is_dir() else str(given)
