"""The functions of a desk, for Python and for the command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.api.errors import python_errors
from segue.api.progress import StatusLine
from segue.api.tables import TableLike, several, table_source
from segue.apps.desk import store
from segue.apps.desk.build import REPORT_PAGE, build
from segue.apps.desk.folder import read_model
from segue.apps.desk.forget import forget_in_models
from segue.apps.desk.improve import Improvement, improve
from segue.apps.desk.knowledge import read_knowledge
from segue.apps.desk.model import DeskModel
from segue.apps.desk.store import DESK
from segue.apps.folder import FIRST, MODELS, check_new, read_about
from segue.apps.postgresql import check_url
from segue.files import check_folder, write_folder


@dataclass(frozen=True, kw_only=True)
class DeskReport:
    """What a desk has learned."""

    folder: Path
    model: str
    """Name of the model in use."""
    numbers: dict[str, Any]
    """Topics, questions, how good it is on what was held back, and the curve of errors against answered questions."""

    @property
    def page(self) -> Path:
        """The report as one HTML file. The same as markdown is beside it."""
        return self.folder / MODELS / self.model / REPORT_PAGE


@python_errors
def learn_desk(
    sources: TableLike | Sequence[TableLike],
    out: str | Path,
    *,
    model: str | None = None,
    error: float = 0.05,
    outside_share: float | None = None,
    finetune: bool = True,
    encoding: str = "utf-8",
    database: str | None = None,
    seed: int = 0,
    progress: bool = True,
) -> DeskReport:
    """Learn a desk from questions and answers: it finds the answer to a question, and knows when not to answer.

    Args:
        sources: Files (csv, tsv, jsonl, json, parquet) or tables in memory, with the columns question and answer, and
            if there are any intent, dialogue and turns.
        out: Folder of the desk; it must not exist yet.
        model: Model of the vectors: a name or a model folder, or "none". Default: the packaged model of the language.
        error: Share of wrong answers that is accepted; the threshold follows from it. Default: 0.05.
        outside_share: Share of the visitors' questions that will not be for this desk; an answer to one of them counts
            as wrong. Default: the share that such questions have among the held-back ones of the sources.
        finetune: Whether a network is fine-tuned too where there are more than 3,000 questions, which takes minutes. It
            is used if that makes more of the held-back questions right.
        encoding: Encoding of files without a byte order mark. Default: "utf-8".
        database: Where conversations will be kept: the URL of a database of PostgreSQL, "postgresql://user@host/name",
            without a password. Default: SQLite, in the folder.
        seed: Seed of what is held back.
        progress: Whether progress is shown on standard error.

    Returns:
        What was learned and measured, with the path of the report.

    Raises:
        DataError: If the sources cannot be read, or hold nothing to answer.
        ConfigError: If a setting is not possible.

    Examples:
        >>> rows = [
        ...     {"question": "Where is my parcel?", "answer": "Look at Orders."},
        ...     {"question": "I lost my card", "answer": "Block it in the app."},
        ... ]
        >>> learned = segue.learn_desk(rows, "desk", model="none", progress=False)
        >>> learned.numbers["topics"], learned.page.name
        (2, 'report.html')
    """
    check_new(Path(out))
    check_folder(Path(out), kind="desk")
    if database is not None:
        check_url(database)
    given = several(sources)
    tables = [table_source(one, name=f"table {n}") for n, one in enumerate(given, start=1)]
    knowledge = read_knowledge(tables, encoding=encoding)
    line = StatusLine(show=progress)
    built = build(
        knowledge,
        model=model,
        error=error,
        seed=seed,
        finetune=finetune,
        told=line.update,
        outside_share=outside_share,
    )
    line.clear()

    def write(folder: Path) -> None:
        DESK.write_model(folder, FIRST, built.write)
        DESK.make(folder, FIRST, database=database)

    write_folder(Path(out), write, kind="desk", inputs=[one for one in given if isinstance(one, str | Path)])
    return DeskReport(folder=Path(out), model=FIRST, numbers=built.about["summary"])


@python_errors
def open_desk(folder: str | Path) -> DeskModel:
    """Open a desk, to ask it questions.

    Args:
        folder: Folder of the desk, as `learn_desk` wrote it.

    Returns:
        The model in use. `ask(question)` gives the candidates, the confidence, and the answer, if it is sure enough.

    Raises:
        CheckpointError: If there is no desk, or its files are damaged.

    Examples:
        >>> rows = [{"question": "Where is my parcel?", "answer": "Look at Orders."}]
        >>> learned = segue.learn_desk(rows, "shop", model="none", progress=False)
        >>> desk = segue.open_desk("shop")
        >>> desk.ask("where is the parcel").candidates[0].topic.answer
        'Look at Orders.'
    """
    return read_model(Path(folder) / MODELS / DESK.current_model(Path(folder)))


@python_errors
def describe_desk(folder: str | Path) -> DeskReport:
    """Say what a desk has learned, without loading it.

    Args:
        folder: Folder of the desk.

    Returns:
        The numbers of the model in use, and the path of its report.

    Raises:
        CheckpointError: If there is no desk.

    Examples:
        >>> rows = [{"question": "Where is my parcel?", "answer": "Look at Orders."}]
        >>> learned = segue.learn_desk(rows, "store", model="none", progress=False)
        >>> segue.describe_desk("store").numbers["questions"]
        1
    """
    name = DESK.current_model(Path(folder))
    about = read_about(Path(folder) / MODELS / name)
    return DeskReport(folder=Path(folder), model=name, numbers=about["summary"])


@python_errors
def improve_desk(folder: str | Path, *, seed: int = 0, progress: bool = True) -> Improvement:
    """Learn again with agents' answers that were accepted on the page, and switch if that is no worse.

    Args:
        folder: Folder of the desk. It may be running: it takes the new model into use by itself.
        seed: Seed of which conversations are held back.
        progress: Whether progress is shown on standard error.

    Returns:
        What was learned, the share of held-back questions answered rightly before and now, and whether it switched.

    Raises:
        ConfigError: If there is nothing new to learn.
        CheckpointError: If there is no desk.

    Examples:
        >>> rows = [{"question": "Where is my parcel?", "answer": "Look at Orders."}]
        >>> learned = segue.learn_desk(rows, "office", model="none", progress=False)
        >>> try:
        ...     segue.improve_desk("office", progress=False)
        ... except segue.SegueError as error:
        ...     print(str(error)[:51])
        office must have accepted answers that it has not l
    """
    line = StatusLine(show=progress)
    found = improve(Path(folder), seed=seed, told=line.update)
    line.clear()
    return found


@python_errors
def roll_back_desk(folder: str | Path, *, to: str | None = None) -> str:
    """Go back to an earlier model of a desk.

    Args:
        folder: Folder of the desk. It may be running.
        to: Name of the model. Default: the one before the one in use.

    Returns:
        Name of the model that is in use now.

    Raises:
        ConfigError: If there is no such model.
        CheckpointError: If the model is damaged; the one in use stays.

    Examples:
        >>> rows = [{"question": "Where is my parcel?", "answer": "Look at Orders."}]
        >>> learned = segue.learn_desk(rows, "bureau", model="none", progress=False)
        >>> segue.roll_back_desk("bureau", to="0001")
        '0001'
    """
    return DESK.roll_back(Path(folder), to, read_model)


@python_errors
def copy_desk(folder: str | Path, out: str | Path, *, check: bool = False, database: str | None = None) -> None:
    """Copy a desk with its models and conversations, also while it runs; to make a back-up, or a desk of one.

    Args:
        folder: Folder of the desk, or of a back-up.
        out: Folder of the copy; it must not exist yet.
        check: Whether every file is compared with its hash first; for back-ups, whose files never change.
        database: URL of an empty database of PostgreSQL that takes the conversations. Default: SQLite, in the copy,
            wherever they were.

    Returns:
        Nothing.

    Raises:
        CheckpointError: If there is no desk, or its files are damaged.
        DataError: If the copy cannot be written, or the database is not empty.

    Examples:
        >>> rows = [{"question": "Where is my parcel?", "answer": "Look at Orders."}]
        >>> learned = segue.learn_desk(rows, "counter", model="none", progress=False)
        >>> segue.copy_desk("counter", "counter-copy")
        >>> segue.copy_desk("counter-copy", "restored", check=True)
    """
    DESK.copy(Path(folder), Path(out), check=check, database=database)


@python_errors
def person_in_desk(folder: str | Path, person: str, *, delete: bool = False, progress: bool = True) -> dict[str, Any]:
    """Find what a desk keeps of a person, and delete it if that is asked for.

    Args:
        folder: Folder of the desk. It may be running.
        person: Id of the person, as conversations were opened with it.
        delete: Whether all of it is deleted. Models that have learned from accepted questions of the person, or of
            others who were deleted before, are deleted too; where one of them is in use, another is learned without
            these questions first, and takes its place.
        progress: Whether progress is shown on standard error.

    Returns:
        The conversations of the person with all messages, as they are, or were before they were deleted; then `models`
        names the models that were deleted, and `model` the one that is in use.

    Raises:
        CheckpointError: If there is no desk.

    Examples:
        >>> rows = [{"question": "Where is my parcel?", "answer": "Look at Orders."}]
        >>> learned = segue.learn_desk(rows, "till", model="none", progress=False)
        >>> segue.person_in_desk("till", "ann")
        {'person': 'ann', 'conversations': []}
    """
    with DESK.opened(Path(folder)) as database:
        found = database.do(lambda connection: store.of_person(connection, person))
        if delete:
            database.do(lambda connection: store.forget(connection, person))
            database.clean()
    if delete:
        line = StatusLine(show=progress)
        found["models"] = forget_in_models(Path(folder), told=line.update)
        line.clear()
        found["model"] = DESK.current_model(Path(folder))
    return found
