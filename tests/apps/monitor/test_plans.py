"""Every statement of a page finds its rows by an index: none reads a whole table that grows with the texts."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import segue
from segue.apps.database import Connection, Database
from segue.apps.monitor import queries, reviews, store
from segue.apps.monitor.daily import daily_report
from segue.apps.monitor.store import MONITOR
from tests.apps.monitor.news import DAY, START, stream

END = START + 50 * DAY
GROWING = "texts|mentions|hours|days|entity_days|alarms|alarm_texts|labels|names|comments|m|t|l|x"
WHOLE = re.compile(rf"SCAN (?:{GROWING})\b(?! USING (?:COVERING )?INDEX)")
"""A table that is read from its first row to its last; one that is read backwards by its number until there are rows
enough is named by hand."""
BACKWARDS = ("ORDER BY number DESC LIMIT ?", "ORDER BY number DESC")


class Explaining:
    """A connection that keeps how each statement is done."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.plans: list[tuple[str, list[str]]] = []

    def execute(self, statement: str, values: Any = ()) -> Any:
        rows = self._connection.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
        self.plans.append((statement, [row[3] for row in rows]))
        return self._connection.execute(statement, values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.fixture(scope="module")
def database(learned: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    folder = tmp_path_factory.mktemp("plans") / "monitor"
    segue.copy_monitor(learned, folder)
    assert segue.feed_monitor(folder, stream(days=50, bad_from=40), progress=False).alarms
    with MONITOR.opened(folder) as one:
        one.do(lambda c: reviews.correct(c, 1, sentiment="neutral", topic=None, entities={}, agent="a"))
        yield one


MONTH = {"start": END - 30 * DAY, "end": END}
ASKED: dict[str, Callable[[Any], Any]] = {
    "overview": lambda c: queries.overview(c, **MONTH, limit=10),
    "topics": lambda c: queries.topics(c, **MONTH),
    "topics of an entity": lambda c: queries.within(c, entity="ACME", topic="", **MONTH, limit=10),
    "entities of a topic": lambda c: queries.within(c, entity="", topic="law", **MONTH, limit=10),
    "timeline by the day": lambda c: queries.timeline(c, entity="ACME", topic="", **MONTH),
    "timeline of both": lambda c: queries.timeline(c, entity="ACME", topic="results", **MONTH),
    "timeline by the hour": lambda c: queries.timeline(c, entity="", topic="", start=END - DAY, end=END),
    "means": lambda c: queries.daily_means(c, "ACME", **MONTH),
    "texts": lambda c: queries.texts(c),
    "texts of both": lambda c: queries.texts(c, entity="ACME", topic="results"),
    "negative texts": lambda c: queries.texts(c, sentiment="negative"),
    "positive texts": lambda c: queries.texts(c, entity="ACME", sentiment="positive"),
    "neutral texts": lambda c: queries.texts(c, entity="ACME", sentiment="neutral"),
    "negative texts of both": lambda c: queries.texts(c, entity="ACME", topic="results", sentiment="negative"),
    "latest": lambda c: queries.latest(c, after=5, limit=5),
    "one text": lambda c: queries.one_text(c, 1),
    "alarms": lambda c: queries.alarms(c),
    "open alarms": lambda c: queries.alarms(c, state="open"),
    "alarms of an entity": lambda c: queries.alarms(c, entity="ACME"),
    "alarms of both": lambda c: queries.alarms(c, entity="ACME", topic="results"),
    "alarms of all texts": lambda c: queries.alarms(c, entity="", topic=""),
    "one alarm": lambda c: queries.one_alarm(c, 1),
    "open incidents": queries.open_incidents,
    "acknowledge": lambda c: queries.acknowledge(c, 1, "alice"),
    "comment": lambda c: queries.comment(c, 1, "alice", "seen"),
    "names": lambda c: queries.names(c, limit=10),
    "span": queries.span,
    "report": lambda c: daily_report(c, END - DAY),
    "corrections": lambda c: reviews.proposals(c, state="open", limit=10),
    "accepted": lambda c: reviews.accepted(c, "0001"),
    "decide": lambda c: reviews.decide(c, 1, accepted=True, reviewer="bob"),
    "person": lambda c: reviews.of_person(c, "writer-3"),
    "forget": lambda c: reviews.forget(c, "writer-3"),
    "known": lambda c: store.known_ids(c, ["a", "b"]),
    "originals": lambda c: store.originals(c, ["a", "b"]),
    "to judge": lambda c: store.to_judge(c, END - DAY, END),
    "history": lambda c: store.history(c, "ACME", "", start=END - DAY, end=END, most=10),
    "history of both": lambda c: store.history(c, "ACME", "results", start=END - DAY, end=END, most=10),
    "negatives": lambda c: store.negatives(c, "", "law", start=END - DAY, end=END),
    "last originals": lambda c: store.last_originals(c, 10),
}


@pytest.mark.parametrize("name", ASKED)
def test_no_statement_reads_a_whole_table(name: str, database: Database) -> None:
    def work(connection: Connection) -> list[tuple[str, list[str]]]:
        explaining = Explaining(connection)
        ASKED[name](explaining)
        return explaining.plans

    plans = database.do(work)
    assert plans
    for statement, steps in plans:
        if not any(end in statement for end in BACKWARDS):
            assert not [step for step in steps if WHOLE.search(step)], (statement, steps)


@pytest.mark.parametrize("tone", ["negative", "positive", "neutral"])
def test_texts_of_a_sentiment_have_an_index_of_their_own(tone: str, database: Database) -> None:
    def work(connection: Connection) -> list[tuple[str, list[str]]]:
        explaining = Explaining(connection)
        queries.texts(explaining, entity="ACME", sentiment=tone)  # type: ignore[arg-type]
        return explaining.plans

    [(_, steps)] = database.do(work)
    assert f"{tone}_mentions" in steps[0]
    assert not any("TEMP B-TREE" in step for step in steps)
