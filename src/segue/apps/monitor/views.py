"""Trends, alarms and proposed names of a monitor, for Python and the command line.

The web page shows the same through `routes`; both use the statements of `queries`.
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from segue.api.errors import python_errors
from segue.apps.cells import time_given
from segue.apps.database import Connection
from segue.apps.keys import LOCAL
from segue.apps.monitor import listing, queries
from segue.apps.monitor.describe import alarm_reason
from segue.apps.monitor.groups import grouped
from segue.apps.monitor.prices import beside, closes_between, read_prices
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.watch import DAY
from segue.arguments import Positive
from segue.errors import ConfigError

WINDOW = 7 * DAY
"""Default length of a period in seconds."""
MOST_ALARMS = 100_000
"""Maximum number of alarms that are counted for an entity."""


@python_errors
def trends_in_monitor(
    folder: str | Path,
    *,
    entities: Sequence[str] = (),
    topic: str = "",
    start: str | None = None,
    end: str | None = None,
    prices: str | Path | None = None,
    limit: Positive = 20,
) -> dict[str, Any]:
    """Return volume and mean sentiment by entity and topic, compared with the period before.

    Args:
        folder: Folder of the monitor. It may be running.
        entities: Codes of entities to compare. Default: those with the most texts.
        topic: Topic that texts must have: entities are then shown within it. Default: all topics.
        start: Start of the period, inclusive, e.g. "2024-05-01"; periods are whole days in UTC. Default: a week before
            its end.
        end: End of the period, exclusive. Default: the newest text.
        prices: Table with columns date, symbol and close, to correlate the prices of `entities` with their sentiment.
            Default: none.
        limit: Maximum number of rows in a list.

    Returns:
        `start` and `end` in seconds; `all`, and for each of `entities` and `topics`, texts, negative, mean, its 95 %
        interval (low, high) and `before`, the same for the period of equal length before. Each of the chosen
        `entities` also has alarms and, with `prices`, price: correlations with the return of the same day and of the
        next day, with permutation p-values, or None if it has no price. `topics` are those of the one entity, or of all
        texts; there are none if several entities are compared.

    Raises:
        CheckpointError: If the folder is not a monitor.
        ConfigError: If a time cannot be read.
        DataError: If the prices cannot be read.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "tide", entities=[{"code": "ACME", "names": "Acme"}], progress=False)
        >>> read = segue.feed_monitor("tide", [{"text": "Acme is up", "time": "2024-05-01T10:00:00Z"}], progress=False)
        >>> [(row["entity"], row["texts"]) for row in segue.trends_in_monitor("tide")["entities"]]
        [('ACME', 1)]
    """
    closes = {} if prices is None else read_prices(Path(prices))

    def work(connection: Connection) -> dict[str, Any]:
        span = queries.span(connection)
        last = time_given(end, time.time() if span is None else span[1] + 1)
        first = time_given(start, last - WINDOW)
        if not first < last:
            raise ConfigError(f"the start of a period must be before its end; got {start} and {end}. Swap them.")
        window = {"start": first // DAY * DAY, "end": -(-last // DAY) * DAY}
        everything = queries.totals(connection, entity="", topic=topic, **window)
        found: dict[str, Any] = {**window, "topic": topic, "all": everything, "entities": [], "topics": []}
        if entities:
            found["entities"] = [
                {"entity": code, **queries.totals(connection, entity=code, topic=topic, **window)} for code in entities
            ]
        elif topic:
            found["entities"] = queries.within(connection, entity="", topic=topic, **window, limit=limit)
        else:
            found["entities"] = queries.overview(connection, **window, limit=limit)
        for row in found["entities"] if entities else ():
            code, since, until = row["entity"], window["start"], window["end"]
            raised = queries.alarms(connection, entity=code, topic=topic, start=since, end=until, limit=MOST_ALARMS)
            row["alarms"] = len(raised)
            if prices is not None:
                means = queries.daily_means(connection, row["entity"], **window)
                kept = closes_between(closes.get(row["entity"], {}), **window)
                row["price"] = beside(means, kept) if kept else None
        if topic:
            code = entities[0] if len(entities) == 1 else ""
            found["topics"] = [{"topic": topic, **queries.totals(connection, entity=code, topic=topic, **window)}]
        elif len(entities) < 2:
            code = entities[0] if entities else ""
            found["topics"] = queries.within(connection, entity=code, topic="", **window, limit=limit)
        return found

    with MONITOR.opened(Path(folder)) as database:
        return database.do(work)


@python_errors
def alarms_in_monitor(
    folder: str | Path, *, entity: str = "", topic: str = "", state: str = "", limit: Positive = 100
) -> list[dict[str, Any]]:
    """Return the alarms of a monitor, the latest first.

    Args:
        folder: Folder of the monitor. It may be running.
        entity: Code of an entity. Default: all.
        topic: Name of a topic; with `entity`, the alarms of the entity that have a text of the topic behind them.
            Default: all.
        state: "open" or "acknowledged". Default: both.
        limit: Maximum number of alarms.

    Returns:
        Alarms with number, incident, entity, topic, kind, time, since, figures, state and reason.

    Raises:
        CheckpointError: If the folder is not a monitor.
        ConfigError: If there is no such state.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "bell", progress=False)
        >>> segue.alarms_in_monitor("bell", state="open")
        []
    """
    if state not in ("", "open", "acknowledged"):
        raise ConfigError(
            f"--state must be open or acknowledged; got {state!r:.80}. Use one of them, or leave it out for both."
        )
    asked = entity if entity or topic else None
    with MONITOR.opened(Path(folder)) as database:
        found = database.do(
            lambda connection: queries.alarms(connection, entity=asked, topic=topic, state=state, limit=limit)
        )
    return [told(one) for one in found]


@python_errors
def alarm_in_monitor(
    folder: str | Path, number: Positive, *, acknowledge: bool = False, comment: str | None = None, by: str = LOCAL.name
) -> dict[str, Any]:
    """Return an alarm with the texts behind it, and optionally acknowledge it or comment on it first.

    Args:
        folder: Folder of the monitor. It may be running.
        number: Number of the alarm.
        acknowledge: Whether to acknowledge all alarms of its incident.
        comment: Comment to add. Default: none.
        by: Name of whoever acknowledges or comments.

    Returns:
        The alarm, with reason, figures, texts, groups of similar texts, comments, and related alarms.

    Raises:
        CheckpointError: If the folder is not a monitor.
        ConfigError: If there is no such alarm, or the comment is empty or too long.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "siren", progress=False)
        >>> try:
        ...     segue.alarm_in_monitor("siren", 1)
        ... except segue.SegueError as error:
        ...     print(error)
        number must be that of an alarm of the monitor; got 1. segue.alarms_in_monitor lists them.
    """
    said = None if comment is None else comment.replace("\0", "").strip()
    most = MonitorSettings().max_comment
    if said is not None and not 0 < len(said) <= most:
        raise ConfigError(
            f"--comment must have 1 to {most:,} characters; got {len(said):,}. Shorten it, or leave it out if it "
            "is empty."
        )

    def work(connection: Connection) -> dict[str, Any] | None:
        if acknowledge:
            queries.acknowledge(connection, number, by)
        if said is not None:
            queries.comment(connection, number, by, said)
        return queries.one_alarm(connection, number)

    with MONITOR.opened(Path(folder)) as database:
        found = database.do(work)
    if found is None:
        raise ConfigError(
            f"number must be that of an alarm of the monitor; got {number}.",
            remedy="segue.alarms_in_monitor lists them.",
            option="`segue monitor alarms MONITOR` lists them.",
        )
    return {**told(found), "groups": grouped(found["texts"])}


@python_errors
def names_in_monitor(
    folder: str | Path,
    *,
    take: Mapping[str, str] | None = None,
    dismiss: Sequence[str] = (),
    propose: Sequence[str] = (),
    limit: Positive = 50,
) -> list[dict[str, Any]]:
    """Return the names that texts mention and the list of entities lacks; add them to the list, or dismiss them.

    Args:
        folder: Folder of the monitor. It may be running: it then uses the new list by itself.
        take: Names to add to the list, each with the code of its entity. This creates the next model, with the same
            weights. Default: none.
        dismiss: Names to propose no longer.
        propose: Dismissed names to propose again.
        limit: Maximum number of names to return.

    Returns:
        Proposed names with the number of texts that mention each and the times of the first and the last one; those
        with the most texts come first.

    Raises:
        CheckpointError: If the folder is not a monitor.
        ConfigError: If a name or code is not valid, or a name to dismiss or propose was never found in a text.

    Examples:
        >>> rows = [{"text": "Up", "sentiment": "positive"}, {"text": "Down", "sentiment": "negative"}]
        >>> learned = segue.learn_monitor(rows, "roster", progress=False)
        >>> read = segue.feed_monitor("roster", [{"text": "A loss at Hooli Corp again"}], progress=False)
        >>> [(one["name"], one["texts"]) for one in segue.names_in_monitor("roster")]
        [('Hooli Corp', 1)]
        >>> segue.names_in_monitor("roster", take={"Hooli Corp": "HOOL"})
        []
    """
    with MONITOR.opened(Path(folder)) as database:
        if take:
            listing.check_listed(take)

        def decide(connection: Connection) -> None:
            for names, state in ((dismiss, listing.DISMISSED), (propose, listing.OPEN)):
                for name in names:
                    if not listing.decide(connection, [name], state):
                        raise ConfigError(
                            f"a name must be one that texts mention; got {name[:60]!r}. Write it as in the texts."
                        )

        database.do(decide)
        if take:
            listing.take_names(Path(folder), take)
        return database.do(lambda connection: queries.names(connection, limit=limit))


def told(one: dict[str, Any]) -> dict[str, Any]:
    """Return an alarm with its reason in words."""
    return {**one, "reason": alarm_reason(one["entity"], one["topic"], one["kind"], one["figures"])}
