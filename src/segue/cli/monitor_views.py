"""`segue monitor trends`, `alarms` and `names`: what a monitor has counted, on the terminal."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.cli.applications import show_json
from segue.cli.console import say
from segue.errors import ConfigError

MonitorArgument: TypeAlias = Annotated[Path, typer.Argument(metavar="MONITOR", help="Folder of the monitor.")]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
MOST_TEXTS = 5


def trends(
    monitor: MonitorArgument,
    entity: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="Entity to show; repeat it to compare several. Default: the most mentioned."),
    ] = None,
    topic: Annotated[str, typer.Option(metavar="NAME", help="Topic to show entities within. Default: all.")] = "",
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Start of the period, inclusive. Default: a week before its end."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End of the period, exclusive. Default: the newest text.")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with columns date, symbol and close, to correlate with the sentiment of each --entity. "
            "Default: none.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show volume and sentiment by entity and topic; compare entities.

    An entity is shown with its topics, and a topic with its entities. Periods are whole days in UTC, and each is
    compared with the period of the same length before it.

    \b
    Example:
      segue monitor trends monitor --entity ACME --from 2024-05-01
      segue monitor trends monitor --entity ACME --entity GLBX --topic law
    """
    from segue.apps.monitor.views import trends_in_monitor

    if prices is not None and not entity:
        raise ConfigError("--prices needs an entity whose price it is; got none. Give --entity CODE.")
    found = trends_in_monitor(monitor, entities=entity or (), topic=topic, start=start, end=end, prices=prices)
    if as_json:
        show_json(found)
        return
    console = Console(highlight=False, emoji=False)
    within = f", within {topic}" if topic else ""
    every, before = found["all"], found["all"]["before"]
    say(
        console,
        f"{_moment(found['start'])[:10]} to {_moment(found['end'] - 1)[:10]} (UTC){within}: {every['texts']:,} texts, "
        f"{every['negative']:,} negative, mean sentiment {_score(every['mean'])}; before, {before['texts']:,} texts, "
        f"mean sentiment {_score(before['mean'])}.",
    )
    for by in ("entity", "topic"):
        rows = found["entities" if by == "entity" else "topics"]
        if rows:
            console.print(_figures(by, rows))
    for row in found["entities"]:
        if "price" in row:
            say(console, f"{row['entity']}: {_price(row['price'])}")


def _figures(by: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(by, box=None, pad_edge=False)
    counted = "alarms" in rows[0]
    for name in ("texts", "negative", "mean", "95 % interval", "before", *(("alarms",) if counted else ())):
        table.add_column(name, justify="right")
    for row in rows:
        interval = "–" if row["mean"] is None else f"{row['low']:+.2f} to {row['high']:+.2f}"
        cells = [
            f"{row['texts']:,}",
            f"{row['negative']:,}",
            _score(row["mean"]),
            interval,
            _score(row["before"]["mean"]),
        ]
        table.add_row(Text(row[by] or "–"), *cells, *((f"{row['alarms']:,}",) if counted else ()))
    return table


def _score(mean: float | None) -> str:
    return "–" if mean is None else f"{mean:+.2f}"


def _price(found: dict[str, Any] | None) -> str:
    if found is None:
        return "no price in this period."
    parts = []
    for name, day in (("same_day", "the same day"), ("next_day", "the next day")):
        one = found[name]
        if one is None:
            parts.append(f"{day}: too few days")
        else:
            parts.append(f"{day}: {one['correlation']:+.2f} (p = {one['p_value']:.3f}, {one['days']} days)")
    return (
        f"correlation of daily sentiment with the return of the price on {', on '.join(parts)}. p is the share of "
        "shuffled days that correlate as strongly. This is not investment advice."
    )


def alarms(
    monitor: MonitorArgument,
    number: Annotated[
        int | None, typer.Argument(metavar="NUMBER", min=1, help="Alarm to show. Default: list them.")
    ] = None,
    entity: Annotated[str, typer.Option(metavar="CODE", help="Entity of the alarms. Default: all.")] = "",
    topic: Annotated[str, typer.Option(metavar="NAME", help="Topic of the alarms. Default: all.")] = "",
    open_only: Annotated[bool, typer.Option("--open", help="List only alarms that nobody has acknowledged.")] = False,
    acknowledge: Annotated[
        bool, typer.Option("--acknowledge", help="Acknowledge the alarm, and the others of its incident.")
    ] = False,
    comment: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Comment to add to the alarm. Default: none.")
    ] = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who acknowledges or comments.")] = "local",
    as_json: JsonOption = False,
) -> None:
    """List, show, acknowledge or comment on alarms.

    \b
    Example:
      segue monitor alarms monitor --open
      segue monitor alarms monitor 3 --acknowledge --comment "Known recall"
    """
    from segue.apps.monitor.views import alarm_in_monitor, alarms_in_monitor

    console = Console(highlight=False, emoji=False)
    if number is None:
        if acknowledge or comment is not None:
            raise ConfigError("--acknowledge and --comment need an alarm; got none. Give its NUMBER.")
        found = alarms_in_monitor(monitor, entity=entity, topic=topic, state="open" if open_only else "")
        if as_json:
            show_json(found)
            return
        for one in found:
            say(console, _line(one), hang=4)
        if not found:
            say(console, "No alarms.")
        return
    one = alarm_in_monitor(monitor, number, acknowledge=acknowledge, comment=comment, by=by)
    if as_json:
        show_json(one)
        return
    say(console, _line(one), hang=4)
    say(console, f"From {_moment(one['since'])} to {_moment(one['time'])} (UTC); statistic "
        f"{one['figures']['statistic']:.1f}, threshold {one['figures']['threshold']:.1f}.")  # fmt: skip
    if one["state"] == "acknowledged":
        say(console, f"Acknowledged by {one['agent']}, {_moment(one['acknowledged'])}.")
    if one["related"]:
        say(console, f"Same incident: {', '.join(str(other['number']) for other in one['related'])}.")
    for group in one["groups"]:
        say(console, f"{len(group['texts']):,} texts: {', '.join(group['words'])}")
        for text in group["texts"][:MOST_TEXTS]:
            words = " ".join(f"{text['title']} {text['text']}".split())
            say(console, f"{_moment(text['time'])} {text['sentiment']}: {words[:200]}", indent=2, hang=2)
    for said in one["comments"]:
        say(console, f"{said['agent']}, {_moment(said['created'])}: {said['text']}", hang=2)


def _line(one: dict[str, Any]) -> str:
    part = f", part of {one['incident']}" if one["incident"] != one["number"] else ""
    return f"{one['number']}  {_moment(one['time'])}  {one['state']}{part}  {one['reason']}"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def names(
    monitor: MonitorArgument,
    take: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=CODE", help="Name to add to the list, with its code; repeatable. Default: none."),
    ] = None,
    dismiss: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Name to propose no longer; repeatable. Default: none.")
    ] = None,
    propose: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Dismissed name to propose again; repeatable. Default: none."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=20_000, help="Maximum number of names to print.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List new names in texts; add them to the list of entities, or dismiss them.

    Adding names creates the next model, with the same weights and a longer list; a running monitor uses it at once.

    \b
    Example:
      segue monitor names monitor
      segue monitor names monitor --take "Hooli Corp=HOOL" --dismiss "Big Apple"
    """
    from segue.apps.monitor.interface import describe_monitor
    from segue.apps.monitor.views import names_in_monitor

    taken = dict(_pair(one) for one in take or ())
    found = names_in_monitor(monitor, take=taken, dismiss=dismiss or (), propose=propose or (), limit=limit)
    console = Console(highlight=False, emoji=False)
    if as_json:
        show_json(found)
        return
    if taken:
        say(console, f"Model {describe_monitor(monitor).model} is now in use. To return to the previous one: segue "
            f"monitor roll-back {monitor}")  # fmt: skip
    if not found:
        say(console, "No names are proposed.")
        return
    table = Table("name", box=None, pad_edge=False)
    for name in ("texts", "first", "last"):
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(Text(one["name"]), f"{one['texts']:,}", _moment(one["first"])[:10], _moment(one["last"])[:10])
    console.print(table)


def _pair(given: str) -> tuple[str, str]:
    name, equals, code = given.rpartition("=")
    if not equals:
        raise ConfigError(
            f"--take must be a name with its code; got {given[:60]!r}. Write --take 'Hooli Corp=HOOL', for example."
        )
    return name, code
