"""Functions of a desk, for Python and the command line."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.api.errors import python_errors
from segue.api.progress import StatusLine
from segue.api.tables import TableLike, several, table_sources
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
from segue.arguments import Seed
from segue.files import check_folder, write_folder


@dataclass(frozen=True, kw_only=True)
class DeskReport:
    """Evaluation of a desk."""

    folder: Path
    model: str
    """Name of the model in use."""
    numbers: dict[str, Any]
    """Numbers of topics and questions, accuracy on held-out questions, and the curve of error against coverage."""

    @property
    def page(self) -> Path:
        """The report as an HTML file, with a Markdown version beside it."""
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
    seed: Seed = 0,
    progress: bool = True,
) -> DeskReport:
    """Train a desk on questions and answers: it finds the answer to a question, and abstains when unsure.

    Args:
        sources: Files (csv, tsv, jsonl, json, parquet) or tables in memory, with columns question and answer, and
            optionally intent, dialogue, turns and source.
        out: New folder for the desk.
        model: Embedding model: a name, a model folder, or "none". Default: the packaged model of the language.
        error: Acceptable share of wrong answers, which sets the confidence threshold. Default: 0.05.
        outside_share: Expected share of out-of-scope questions; an answer to one of them counts as wrong. Default:
            their share among the held-out questions of the sources.
        finetune: Whether to fine-tune a network as well, given more than 3,000 questions, which takes minutes. It is
            used if it answers more of the held-out questions correctly.
        encoding: Encoding of files without a byte order mark. Default: "utf-8".
        database: PostgreSQL database for conversations: a URL "postgresql://user@host/name", without a password.
            Default: SQLite, in the folder.
        seed: Seed for the held-out split.
        progress: Whether to show progress on standard error.

    Returns:
        The evaluation, with the path of the report.

    Raises:
        DataError: If the sources cannot be read, or contain no answers.
        ConfigError: If a setting is not valid.

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
    knowledge = read_knowledge(table_sources(given), encoding=encoding)
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
    """Open a desk to ask it questions.

    Args:
        folder: Folder written by `learn_desk`.

    Returns:
        The current model. `ask(question)` returns the candidates, the confidence, and the answer if it is confident
        enough.

    Raises:
        CheckpointError: If the folder is not a desk, or its files are damaged.

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
    """Return the evaluation of a desk without loading its model.

    Args:
        folder: Folder of the desk.

    Returns:
        The evaluation of the current model, and the path of its report.

    Raises:
        CheckpointError: If the folder is not a desk.

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
def improve_desk(folder: str | Path, *, seed: Seed = 0, progress: bool = True) -> Improvement:
    """Retrain with agents' answers that were accepted on the page, and switch if the new model is no worse.

    Args:
        folder: Folder of the desk. It may be running: it then loads the new model by itself.
        seed: Seed for the held-out split of conversations.
        progress: Whether to show progress on standard error.

    Returns:
        The number of new answers, the accuracy on held-out questions before and after, and whether it switched.

    Raises:
        ConfigError: If there is nothing new to learn.
        CheckpointError: If the folder is not a desk.

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
    """Return to an earlier model of a desk.

    Args:
        folder: Folder of the desk. It may be running.
        to: Model to return to. Default: the previous one.

    Returns:
        Name of the model now in use.

    Raises:
        ConfigError: If the model does not exist.
        CheckpointError: If the model is damaged; the current one then stays in use.

    Examples:
        >>> rows = [{"question": "Where is my parcel?", "answer": "Look at Orders."}]
        >>> learned = segue.learn_desk(rows, "bureau", model="none", progress=False)
        >>> segue.roll_back_desk("bureau", to="0001")
        '0001'
    """
    return DESK.roll_back(Path(folder), to, read_model)


@python_errors
def copy_desk(folder: str | Path, out: str | Path, *, check: bool = False, database: str | None = None) -> None:
    """Copy a desk with its models and conversations, even while it runs: to back it up, or to restore a back-up.

    Args:
        folder: Folder of the desk, or of a back-up.
        out: New folder for the copy.
        check: Whether to verify the hash of every file first; for back-ups, whose files never change.
        database: URL of an empty PostgreSQL database for the conversations. Default: SQLite, in the copy, wherever they
            were.

    Returns:
        Nothing.

    Raises:
        CheckpointError: If the folder is not a desk, or its files are damaged.
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
    """Return what a desk stores about a person, and optionally delete it.

    Args:
        folder: Folder of the desk. It may be running.
        person: Id of the person that conversations were opened with.
        delete: Whether to delete the data. Models trained on accepted questions of the person, or of people deleted
            earlier, are deleted too; if one of them is in use, a replacement is trained without these questions first.
        progress: Whether to show progress on standard error.

    Returns:
        The conversations of the person with all messages, as they are, or were before they were deleted; then `models`
        names the models that were deleted, and `model` the one that is in use.

    Raises:
        CheckpointError: If the folder is not a desk.

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
