"""The daily report as one HTML file: volume and the four weeks before, alarms, entities, topics, negative texts."""

from typing import Any

from segue.apps.database import Connection
from segue.apps.monitor import queries
from segue.apps.monitor.describe import alarm_reason, moment, shortened
from segue.apps.monitor.watch import DAY
from segue.report.charts import Point, Series, chart
from segue.report.pages import Block, Bullets, Heading, Paragraph, Picture, Table, to_html

MOST = 15
PAST = 28
"""Days of history that the day is compared with."""


def daily_report(connection: Connection, day: float) -> str:
    """Return the report of the UTC day that contains a time."""
    start, end = day // DAY * DAY, day // DAY * DAY + DAY
    title = f"Daily report of {moment(start)[:10]}"
    line = queries.timeline(connection, entity="", topic="", start=start - PAST * DAY, end=end)["points"]
    today = line[-1]
    past = [point["texts"] for point in line[:-1]]
    usual = sum(past) / max(1, len(past))
    blocks: list[Block] = [
        Paragraph(
            text=f"{today['texts']:,} texts ({today['repeats']:,} of them repeats), on average {usual:,.0f} per "
            f"day in the {PAST} days before. Mean sentiment {_mean(today)}. Days are in UTC."
        ),
        *_volume(line, start),
        *_alarms(connection, start, end),
        *_entities(connection, start, end),
        *_topics(connection, start, end),
        *_negative(connection, start, end),
        *_sources(connection),
    ]
    return to_html(title, blocks)


def _mean(point: dict[str, Any]) -> str:
    if point["mean"] is None:
        return "–"
    return f"{point['mean']:+.2f} ({point['low']:+.2f} to {point['high']:+.2f})"


def _volume(line: list[dict[str, Any]], start: float) -> list[Block]:
    def series(name: str) -> Series:
        points = [Point(x=(one["start"] - start) / DAY, y=one[name]) for one in line]
        return Series(name=name, points=points)

    picture = chart(
        [series("texts"), series("negative")], title="Texts per day", x_label="days before", y_label="texts"
    )
    return [Picture(svg=picture)] if picture else []


def _alarms(connection: Connection, start: float, end: float) -> list[Block]:
    found = queries.alarms(connection, start=start, end=end, limit=MOST)
    said = [
        f"{moment(one['time'])}: {alarm_reason(one['entity'], one['topic'], one['kind'], one['figures'])} "
        f"({one['state']}{', part of alarm ' + str(one['incident']) if one['incident'] != one['number'] else ''})"
        for one in found
    ]
    return [Heading(text="Alarms"), Bullets(texts=said) if said else Paragraph(text="None.")]


def _entities(connection: Connection, start: float, end: float) -> list[Block]:
    rows = [
        (one["entity"], f"{one['texts']:,}", f"{one['negative']:,}", _mean(one), _mean(one["before"]))
        for one in queries.overview(connection, start=start, end=end, limit=MOST)
    ]
    if not rows:
        return []
    header = ("entity", "texts", "negative", "mean sentiment", "the day before")
    return [Heading(text="Entities"), Table(header=header, rows=rows, numbers=frozenset({1, 2}))]


def _topics(connection: Connection, start: float, end: float) -> list[Block]:
    rows = [
        (one["topic"], f"{one['texts']:,}", f"{one['negative']:,}", _mean(one))
        for one in queries.topics(connection, start=start, end=end)[:MOST]
        if one["topic"]
    ]
    if not rows:
        return []
    header = ("topic", "texts", "negative", "mean sentiment")
    return [Heading(text="Topics"), Table(header=header, rows=rows, numbers=frozenset({1, 2}))]


def _negative(connection: Connection, start: float, end: float) -> list[Block]:
    found = queries.texts(connection, sentiment="negative", start=start, before=(end, 0), limit=200)
    found.sort(key=lambda one: -one["negative"])
    rows = [(moment(one["time"])[11:16], f"{one['negative']:.0%}", shortened(one)) for one in found[:MOST]]
    if not rows:
        return []
    return [
        Heading(text="The most negative texts"),
        Table(header=("time", "negative", "text"), rows=rows, numbers=frozenset({1})),
    ]


def _sources(connection: Connection) -> list[Block]:
    rows = [
        (one["name"], f"{one['taken']:,}", f"{one['refused']:,}", one["problem"] or "")
        for one in queries.sources(connection)
    ]
    header = ("source", "texts in all", "refused", "problem")
    return [Heading(text="Sources"), Table(header=header, rows=rows, numbers=frozenset({1, 2}))] if rows else []
