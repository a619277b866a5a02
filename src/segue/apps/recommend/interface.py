"""Functions of a recommender, for Python and the command line."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from segue.api.errors import python_errors
from segue.api.progress import StatusLine
from segue.api.tables import TableLike, table_source
from segue.apps.folder import FIRST, MODELS, check_new, read_about
from segue.apps.recommend import store
from segue.apps.recommend.build import REPORT_PAGE, build, material
from segue.apps.recommend.compare import RecommenderComparison, compare
from segue.apps.recommend.folder import models_with, read_model
from segue.apps.recommend.improve import RecommenderImprovement, improve
from segue.apps.recommend.model import Recommender
from segue.apps.recommend.ranking import choose, parse_wish, unknown_tag
from segue.apps.recommend.reasons import reasons
from segue.apps.recommend.rules import read_rules, with_rules
from segue.apps.recommend.settings import RecommenderSettings
from segue.apps.recommend.store import RECOMMEND
from segue.apps.recommend.tables import Item, parse_kinds, read_events, read_items
from segue.arguments import Positive, Seed
from segue.errors import ConfigError, DataError
from segue.files import check_folder, write_folder


@dataclass(frozen=True, kw_only=True)
class RecommenderReport:
    """Evaluation of a recommender."""

    folder: Path
    model: str
    """Name of the model in use."""
    numbers: dict[str, Any]
    """Numbers of users, items and events, and accuracy on held-out events beside item-kNN and popularity."""

    @property
    def page(self) -> Path:
        """The report as an HTML file, with a Markdown version beside it."""
        return self.folder / MODELS / self.model / REPORT_PAGE


@dataclass(frozen=True, kw_only=True)
class Recommended:
    """A recommended item."""

    item: Item
    log_probability: float
    because: str | None
    """Id of the item in the event that contributed most, verified by leaving that event out; None if there is no such
    event, or `why` was not requested."""
    fall: float
    """Decrease of the log-probability without that event."""


@python_errors
def learn_recommender(
    events: TableLike,
    out: str | Path,
    *,
    items: TableLike | None = None,
    kinds: Mapping[str, float] | None = None,
    settings: RecommenderSettings | None = None,
    model: str | None = None,
    database: str | None = None,
    encoding: str = "utf-8",
    seed: Seed = 0,
    progress: bool = True,
) -> RecommenderReport:
    """Train a recommender on events and items, and evaluate it on later events.

    Args:
        events: File (csv, tsv, jsonl, json, parquet) or table in memory with columns user and item, and optionally time
            and kind (view, click, comment, share, buy, or names of your own).
        out: New folder for the recommender.
        items: File or table with column id, and optionally title, description, tags (separated by |) and price.
            Default: none; items are known by their ids only.
        kinds: Weight of each kind of event as a training target. Default: buy 3, comment and share 2, others 1.
        settings: The network and its training. Default: two layers of width 64, at most 30 epochs and an hour.
        model: Name or folder of the language model that embeds item texts. Default: the packaged one.
        database: Empty PostgreSQL database for events and items: a URL "postgresql://user@host/name", without a
            password. Default: SQLite, in the folder.
        encoding: Encoding of files without a byte order mark. Default: "utf-8".
        seed: Random seed for initial weights and sampling.
        progress: Whether to show progress on standard error.

    Returns:
        The evaluation, with the path of the report.

    Raises:
        DataError: If the tables cannot be read or have too few events, or the database is not empty.
        ConfigError: If a setting is not valid.

    Examples:
        >>> rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
        >>> few = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
        >>> learned = segue.learn_recommender(rows, "shop", settings=few, progress=False)
        >>> learned.numbers["users"], learned.numbers["items"], learned.page.name
        (5, 7, 'report.html')
    """
    check_new(Path(out))
    check_folder(Path(out), kind="recommend")
    if database is not None:
        RECOMMEND.check_empty(database)
    chosen, weights = settings or RecommenderSettings(), parse_kinds(kinds or {})
    chosen.check()
    line, problems = StatusLine(show=progress), Counter[str]()

    def write(folder: Path) -> None:
        file = folder / RECOMMEND.sqlite
        kept = RECOMMEND.database_at(file, alone=False)
        kept.open()
        try:
            if items is not None:
                things = list(read_items(table_source(items, name="items"), problems, encoding=encoding))
                kept.do(lambda connection: store.add_items(connection, things))
            done = list(read_events(table_source(events, name="events"), problems, encoding=encoding))
            if not done and problems:
                reason, count = problems.most_common(1)[0]
                raise DataError(
                    f"a recommender needs events to learn from; got none: {count:,} rows skipped ({reason})."
                )
            kept.do(lambda connection: store.add_events(connection, sorted(done, key=lambda one: one.time)))
            built = build(
                material(kept, weights),
                weights=weights,
                settings=chosen,
                model=model,
                seed=seed,
                left_out={why: count for why, count in problems.items() if count},
                told=line.update,
            )
        finally:
            kept.close()
        RECOMMEND.write_model(folder, FIRST, built.write)
        if database is not None:
            RECOMMEND.copy_rows(file, database)
            file.unlink()
        RECOMMEND.make(folder, FIRST, database=database)

    inputs = [one for one in (events, items) if isinstance(one, str | Path)]
    write_folder(Path(out), write, kind="recommend", inputs=inputs)
    if (Path(out) / RECOMMEND.sqlite).is_file():
        (Path(out) / RECOMMEND.sqlite).chmod(0o600)
    line.clear()
    return describe_recommender(out)


@python_errors
def describe_recommender(folder: str | Path) -> RecommenderReport:
    """Return the evaluation of a recommender without loading its model.

    Args:
        folder: Folder of the recommender.

    Returns:
        The evaluation of the current model, and the path of its report.

    Raises:
        CheckpointError: If the folder is not a recommender.

    Examples:
        >>> rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
        >>> few = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
        >>> learned = segue.learn_recommender(rows, "store", settings=few, progress=False)
        >>> sorted(segue.describe_recommender("store").numbers["held_back"])
        ['item-kNN', 'network alone', 'popularity', 'segue']
    """
    name = RECOMMEND.current_model(Path(folder))
    numbers = read_about(Path(folder) / MODELS / name)["summary"]
    return RecommenderReport(folder=Path(folder), model=name, numbers=numbers)


@python_errors
def open_recommender(folder: str | Path) -> Recommender:
    """Open a recommender with all its current items.

    Args:
        folder: Folder written by `learn_recommender`.

    Returns:
        The current model. `session()` begins the session of a user, `read(session, events)` reads events in one step
        each, `scores(session)` gives the log-probability of each item to be next.

    Raises:
        CheckpointError: If the folder is not a recommender, or its files are damaged.

    Examples:
        >>> rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
        >>> few = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
        >>> learned = segue.learn_recommender(rows, "stall", settings=few, progress=False)
        >>> len(segue.open_recommender("stall").items)
        7
    """
    place = Path(folder)
    model = read_model(place / MODELS / RECOMMEND.current_model(place))
    with RECOMMEND.opened(place) as database:
        known, counted = database.do(lambda connection: (store.all_items(connection), store.events_by_item(connection)))
    model.add_items(item for _, item in known)
    model.count_events(counted)
    return model


@python_errors
def recommend(
    folder: str | Path, user: str, *, count: Positive = 10, wish: Mapping[str, Any] | None = None, why: bool = False
) -> list[Recommended]:
    """Recommend items to a user.

    Args:
        folder: Folder of the recommender. It may be running.
        user: Id of the user. A user without events gets popular items.
        count: Number of items.
        wish: Filters and adjustments: only_tags, without_tags, without_items, lowest_price, highest_price, seen, boost,
            boost_items, first, most_of_tag, at_most, least_new, diversity, novelty, besides the rules of the
            recommender. Default: none.
        why: Whether to give the reason for each item.

    Returns:
        Items, most likely first.

    Raises:
        CheckpointError: If the folder is not a recommender.
        ConfigError: If the wish is not valid, or asks for a tag that no item has.

    Examples:
        >>> rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
        >>> few = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
        >>> learned = segue.learn_recommender(rows, "booth", settings=few, progress=False)
        >>> len(segue.recommend("booth", "u1", count=3))
        3
    """
    model = open_recommender(folder)
    with RECOMMEND.opened(Path(folder)) as database:
        events = database.do(lambda connection: store.history(connection, user))
    session = model.read_history(events)
    given = parse_wish(wish or {})
    if (unknown := unknown_tag(model, given)) is not None:
        raise ConfigError(
            f"{unknown[0]} of a wish must be tags of items, in the same case; got {unknown[1]!r}, which no item has. "
            "Use another tag."
        )
    asked = with_rules(read_rules(Path(folder)), given)
    scores_V = model.scores(session)
    places = choose(model, scores_V, asked, count=count, seen=session.seen)
    found = reasons(model, session, places) if why else [None for _ in places]
    return [
        Recommended(
            item=model.items[place - 1],
            log_probability=float(scores_V[place]),
            because=None if reason is None else model.items[reason.item - 1].id,
            fall=0.0 if reason is None else reason.fall,
        )
        for place, reason in zip(places, found, strict=True)
    ]


@python_errors
def improve_recommender(
    folder: str | Path, *, settings: RecommenderSettings | None = None, seed: Seed = 0, progress: bool = True
) -> RecommenderImprovement:
    """Retrain on all events so far, and switch if the new model is no worse on the latest of them.

    Args:
        folder: Folder of the recommender. It may be running: it then loads the new model by itself.
        settings: Settings to change, e.g. RecommenderSettings(objective="permutation"); those that are not set
            explicitly stay as they are. Default: the settings of the current model.
        seed: Random seed for initial weights and sampling.
        progress: Whether to show progress on standard error.

    Returns:
        NDCG@10 of the current model and of the new one on the same held-out events, and whether it switched.

    Raises:
        ConfigError: If there are neither new nor deleted events nor changed settings, or a setting is not valid.
        CheckpointError: If the folder is not a recommender.

    Examples:
        >>> rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
        >>> few = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
        >>> learned = segue.learn_recommender(rows, "kiosk", settings=few, progress=False)
        >>> try:
        ...     segue.improve_recommender("kiosk", progress=False)
        ... except segue.SegueError as error:
        ...     print(str(error)[:22])
        kiosk must have events
    """
    line = StatusLine(show=progress)
    found = improve(
        Path(folder),
        changes={} if settings is None else settings.model_dump(exclude_unset=True),
        seed=seed,
        told=line.update,
    )
    line.clear()
    return found


@python_errors
def roll_back_recommender(folder: str | Path, *, to: str | None = None) -> str:
    """Return to an earlier model of a recommender.

    Args:
        folder: Folder of the recommender. It may be running.
        to: Model to return to. Default: the one that was in use before.

    Returns:
        Name of the model now in use.

    Raises:
        ConfigError: If the model does not exist.
        CheckpointError: If the model is damaged; the current one then stays in use.

    Examples:
        >>> rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
        >>> few = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
        >>> learned = segue.learn_recommender(rows, "market", settings=few, progress=False)
        >>> segue.roll_back_recommender("market", to="0001")
        '0001'
    """
    return RECOMMEND.roll_back(Path(folder), to, read_model)


@python_errors
def compare_recommenders(
    folder: str | Path, first: str, second: str, *, most: Positive = 2000, seed: Seed = 0
) -> RecommenderComparison:
    """Compare two models of a recommender by interleaving their lists on replayed events.

    Args:
        folder: Folder of the recommender. It may be running.
        first: Name of the first model, e.g. "0001".
        second: Name of the second model.
        most: Maximum number of events to replay.
        seed: Seed for interleaving the lists.

    Returns:
        Number of wins of each model, the p-value of the difference, and NDCG@10 of both.

    Raises:
        CheckpointError: If the model does not exist.

    Examples:
        >>> rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
        >>> few = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
        >>> learned = segue.learn_recommender(rows, "bazaar", settings=few, progress=False)
        >>> found = segue.compare_recommenders("bazaar", "0001", "0001")
        >>> found.asked == found.first_wins + found.second_wins + found.neither
        True
    """
    return compare(Path(folder), first, second, most=most, seed=seed)


@python_errors
def copy_recommender(folder: str | Path, out: str | Path, *, check: bool = False, database: str | None = None) -> None:
    """Copy a recommender with its models and events, even while it runs: to back it up, or to restore a back-up.

    Args:
        folder: Folder of the recommender, or of a back-up.
        out: New folder for the copy.
        check: Whether to verify the hash of every file first; for back-ups, whose files never change.
        database: URL of an empty PostgreSQL database for the events. Default: SQLite, in the copy, wherever they were.

    Returns:
        Nothing.

    Raises:
        CheckpointError: If the folder is not a recommender, or its files are damaged.
        DataError: If the copy cannot be written, or the database is not empty.

    Examples:
        >>> rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
        >>> few = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
        >>> learned = segue.learn_recommender(rows, "depot", settings=few, progress=False)
        >>> segue.copy_recommender("depot", "depot-copy")
        >>> segue.copy_recommender("depot-copy", "depot-again", check=True)
    """
    RECOMMEND.copy(Path(folder), Path(out), check=check, database=database)


@python_errors
def person_in_recommender(folder: str | Path, person: str, *, delete: bool = False) -> dict[str, Any]:
    """Return what a recommender stores about a person, and optionally delete it.

    Args:
        folder: Folder of the recommender. It may be running.
        person: Id of the user.
        delete: Whether to delete events and sessions of the person.

    Returns:
        Events and sessions of the person, as they are, or were before they were deleted; then `models` names the models
        that have learned from some of the events.

    Raises:
        CheckpointError: If the folder is not a recommender.

    Examples:
        >>> rows = [{"user": f"u{n % 5}", "item": f"i{n % 7}", "time": n} for n in range(60)]
        >>> few = segue.RecommenderSettings(width=8, epochs=1, segment=8, memory=8)
        >>> learned = segue.learn_recommender(rows, "office", settings=few, progress=False)
        >>> len(segue.person_in_recommender("office", "u1")["events"])
        12
    """
    with RECOMMEND.opened(Path(folder)) as database:
        found = database.do(lambda connection: store.of_person(connection, person))
        if delete:
            database.do(lambda connection: store.forget(connection, person))
            database.clean()
            found["models"] = models_with(Path(folder), found["events"])
    return found
