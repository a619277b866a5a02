"""`segue monitor`: sentiment by topic and company, with alarms when it changes."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

from segue.cli.applications import (
    SECRET,
    DatabaseOption,
    DeleteOption,
    HeldSeedOption,
    HostOption,
    KeysOption,
    OutOption,
    PortOption,
    ToOption,
    check_reachable,
    folder_or_temporary,
    log_to_terminal,
    show_address,
    show_checked,
    show_copy,
    show_json,
    show_restored,
    show_rolled_back,
    show_switch,
    with_secret,
)
from segue.cli.console import say
from segue.cli.monitor_views import MonitorArgument, alarms, names, trends
from segue.cli.options import ReplaceFileOption
from segue.cli.serve import check_installed, is_local
from segue.config import settings as settings_of
from segue.errors import ConfigError

if TYPE_CHECKING:
    from segue.apps.monitor.model import MonitorModel

__all__ = [
    "alarms", "back_up", "export", "improve", "learn", "monitor", "names", "person", "read", "report", "restore",
    "roll_back", "run", "tell", "trends",
]  # fmt: skip
PASSWORD = "SEGUE_MAIL_PASSWORD"
MOST_REASONS = 5
SetOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Rule or limit to change, e.g. false_alarms=1; repeatable."),
]


def monitor() -> None:
    """Track sentiment by company and topic, and raise an alarm when it changes.

    \b
    Example:
      segue monitor learn labelled.csv --entities companies.csv --out monitor
      segue monitor run monitor --sources sources.toml
    """


def learn(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Tables (csv, tsv, jsonl, json, parquet) with columns text and sentiment, and optionally title, "
            "topic, time and entities.",
        ),
    ],
    out: OutOption,
    entities: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Table with columns code and names, the names separated by |. Default: none."
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help='Network that reads whole texts with memory, in addition to the linear model: "auto" for the '
            "packaged XLNet of the language, or a model folder. It is fine-tuned, which takes minutes, and used "
            "if it improves accuracy on held-out rows; reading is then several times slower.",
        ),
    ] = "none",
    database: DatabaseOption = None,
    seed: HeldSeedOption = 0,
) -> None:
    """Train a monitor on labelled texts, and evaluate it.

    \b
    Example:
      segue monitor learn labelled.csv --entities companies.csv --out monitor
      segue monitor learn articles.csv --model auto --out monitor
    """
    from segue.apps.monitor.interface import learn_monitor
    from segue.apps.monitor.report import network_sentence

    found = learn_monitor(files, out, entities=entities, model=model, database=database, seed=seed)
    console, numbers = Console(highlight=False, emoji=False), found.numbers
    kinds = ", ".join(f"{count:,} {name}" for name, count in numbers["sentiments"].items())
    say(console, f"{numbers['rows']:,} rows ({kinds}), {numbers['topics']:,} topics, {numbers['entities']:,} entities.")
    for name, what in (("sentiment", "rows"), ("topic", "rows"), ("entity", "labels of entities")):
        if name in numbers:
            one = numbers[name]
            say(console, f"{name}, {one['held_back']:,} held-out {what}: accuracy {one['accuracy']:.1%}, macro F1 "
                f"{one['macro_f1']:.1%}, calibration error {one['calibration_error']:.1%}.")  # fmt: skip
    if "network" in numbers:
        say(console, network_sentence(numbers["network"]))
    say(console, f"Report: {found.page}, and report.md beside it.")


def tell(
    monitor: MonitorArgument,
    texts: Annotated[list[str], typer.Argument(metavar="TEXT", help="Texts to analyse.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON lines.")] = False,
) -> None:
    """Analyse a text: sentiment, topic, entities, and the words that decided.

    \b
    Example:
      segue monitor tell monitor "Profit fell, and Acme cut its forecast"
    """
    from segue.apps.monitor.interface import open_monitor

    model, console = open_monitor(monitor), Console(highlight=False, emoji=False)
    for text in texts:
        found = model.read(text)
        deciding = _words(model, text, None)
        network = model.by_network(text)
        if as_json:
            row = {
                "text": text,
                "sentiment": vars(found.sentiment) | {"label": found.sentiment.label},
                "topic": found.topic,
                "topic_probability": found.topic_probability,
                "entities": {
                    code: vars(one) | {"label": one.label, "deciding": _shown(_words(model, text, code))}
                    for code, one in found.entities.items()
                },
                "deciding": _shown(deciding),
                "network": network,
            }
            show_json(row)
            continue
        sure = max(vars(found.sentiment).values())
        say(console, f"{found.sentiment.label} {sure:.1%}" + (f", {found.topic}" if found.topic else ""))
        if deciding:
            say(console, f"words that decided: {_line(deciding)}", indent=2)
        if network is not None:
            say(console, f"the network, which read the whole text: {network:+.2f}", indent=2)
        for code, one in found.entities.items():
            say(console, f"{code}: {one.label}, negative {one.negative:.1%}, positive {one.positive:.1%}", indent=2)
            if own := _words(model, text, code):
                say(console, f"words that decided: {_line(own)}", indent=4)


def _words(model: "MonitorModel", text: str, entity: str | None) -> list[tuple[str, float]]:
    """Return the words that contributed most to the predicted sentiment of a text, or of an entity in it."""
    words = sorted(model.deciding(text, entity=entity), key=lambda one: -one.weight)
    return [(text[one.start : one.end], one.weight) for one in words if one.weight > 0][:5]


def _line(words: list[tuple[str, float]]) -> str:
    return ", ".join(f"{word} {weight:+.2f}" for word, weight in words)


def _shown(words: list[tuple[str, float]]) -> list[dict[str, str | float]]:
    return [{"text": word, "weight": weight} for word, weight in words]


def read(
    monitor: MonitorArgument,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="Files or folders of texts (csv, tsv, jsonl, parquet, txt)."),
    ],
    settings: SetOption = None,
    encoding: Annotated[str, typer.Option(help="Encoding of text files, e.g. gb18030. Default: utf-8.")] = "utf-8",
) -> None:
    """Read files of texts into a monitor, and raise alarms where sentiment changes.

    Texts already read are skipped. Past texts are replayed by the same code that reads live ones.

    \b
    Example:
      segue monitor read monitor texts.jsonl --set false_alarms=1
    """
    from segue.apps.monitor.interface import feed_monitor
    from segue.apps.monitor.settings import MonitorSettings

    chosen = settings_of(MonitorSettings, {}, settings or [])
    found = feed_monitor(monitor, files, settings=chosen, encoding=encoding)
    console = Console(highlight=False, emoji=False)
    say(
        console,
        f"{found.texts:,} new texts, {found.known:,} known, {found.refused:,} refused; {found.alarms:,} alarms.",
    )
    for why, count in found.reasons.most_common(MOST_REASONS):
        say(console, f"  refused, {count:,}: {why}")


def run(
    monitor: Annotated[
        Path | None,
        typer.Argument(metavar="MONITOR", help="Folder of the monitor. Default: with --demo, a temporary one."),
    ] = None,
    sources: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="TOML file of sources, mail and prices. Default: texts come from the POST route only."
        ),
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8090,
    keys: KeysOption = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", help=f"URL to send alarms to, signed with the secret in {SECRET}. Default: none."),
    ] = None,
    settings: SetOption = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Train a monitor and read real texts first, if the folder does not exist.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for --demo with labelled.csv and texts.csv, and optionally entities.csv and prices.csv.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Load the monitor, check that it can start, and exit.")
    ] = False,
) -> None:
    """Run a monitor: read its sources, and serve its web page and HTTP API.

    Ctrl-C or SIGTERM finishes open requests and exits; even kill -9 loses no data.

    \b
    Example:
      segue monitor run monitor --sources sources.toml
      segue monitor run --demo --data FOLDER
    """
    check_installed("segue monitor")
    from segue.apps.keys import read_role_keys
    from segue.apps.monitor.run import run_monitor
    from segue.apps.monitor.settings import MonitorSettings
    from segue.apps.monitor.sources import Listed, read_sources
    from segue.apps.monitor.store import MONITOR

    console = Console(stderr=True, highlight=False, emoji=False)
    log_to_terminal()
    chosen = settings_of(MonitorSettings, {}, settings or [])
    check_reachable(host, keys, what="a monitor")
    told = with_secret(webhook)
    folder = folder_or_temporary(monitor, name="monitor", what="a monitor", demo=demo)
    listed = Listed() if sources is None else read_sources(sources)
    if demo:
        from segue.apps.monitor.demo import prepare_demo

        if data is None:
            raise ConfigError(
                "--demo needs real texts; got no --data. Give --data FOLDER, with labelled.csv (text, sentiment) and "
                "texts.csv (text, time)."
            )
        listed = prepare_demo(folder, data, listed, told=lambda said: console.print(said, soft_wrap=True, markup=False))

    def started(address: str) -> None:
        if check:
            show_checked(console, folder, model=MONITOR.current_model(folder), host=host)
        else:
            show_address(console, address)

    run_monitor(
        folder,
        listed=listed,
        host=host,
        port=port,
        keys=None if keys is None else read_role_keys(keys),
        local=is_local(host),
        settings=chosen,
        webhook=told,
        password=os.environ.get(PASSWORD, ""),
        started=started,
        check=check,
    )


def report(
    monitor: MonitorArgument,
    out: Annotated[Path, typer.Option(metavar="FILE", help="HTML file to write.")],
    day: Annotated[
        str | None, typer.Option(metavar="DAY", help="Day in UTC, e.g. 2024-05-01. Default: yesterday.")
    ] = None,
    replace: ReplaceFileOption = False,
) -> None:
    """Write a daily report as HTML.

    \b
    Example:
      segue monitor report monitor --day 2024-05-01 --out day.html
    """
    from segue.apps.monitor.interface import report_monitor

    say(Console(highlight=False, emoji=False), f"Report: {report_monitor(monitor, out, day=day, replace=replace)}.")


def export(
    monitor: MonitorArgument,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write: .csv or .parquet.")],
    entity: Annotated[str, typer.Option(metavar="CODE", help="Code of the entity to export. Default: all texts.")] = "",
    topic: Annotated[str, typer.Option(metavar="NAME", help="Topic to export. Default: all.")] = "",
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Start time, inclusive. Default: the first text.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="End time, exclusive. Default: the last text.")
    ] = None,
    replace: ReplaceFileOption = False,
) -> None:
    """Export texts with their sentiment, topic and entities, as csv or parquet.

    \b
    Example:
      segue monitor export monitor --entity AAPL --from 2024-05-01 --out texts.csv
    """
    from segue.apps.monitor.interface import export_monitor

    count = export_monitor(monitor, out, entity=entity, topic=topic, start=start, end=end, replace=replace)
    say(Console(highlight=False, emoji=False), f"{out}: {count:,} rows.")


def improve(
    monitor: MonitorArgument,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help='Network to try, as for learn, or "none" for the linear model alone. Default: as for the model '
            "in use.",
        ),
    ] = None,
    seed: HeldSeedOption = 0,
) -> None:
    """Retrain with corrected labels, and switch if the new model is no worse.

    \b
    Example:
      segue monitor improve monitor
    """
    from segue.apps.monitor.interface import improve_monitor

    found = improve_monitor(monitor, model=model, seed=seed)
    console = Console(highlight=False, emoji=False)
    say(console, f"{found.learned:,} accepted corrections learned.")
    say(
        console,
        f"Accuracy on {found.asked:,} held-out rows: before {found.right_before:.1%}, now {found.right_now:.1%}.",
    )
    if found.entities_asked:
        say(
            console,
            f"Accuracy on {found.entities_asked:,} held-out labels of entities: before {found.entities_before:.1%}, "
            f"now {found.entities_now:.1%}.",
        )
    show_switch("monitor", monitor, model=found.model, switched=found.switched)


def roll_back(
    monitor: MonitorArgument,
    to: ToOption = None,
) -> None:
    """Return to an earlier model of a monitor.

    \b
    Example:
      segue monitor roll-back monitor
    """
    from segue.apps.monitor.interface import roll_back_monitor
    from segue.apps.monitor.store import MONITOR

    before = MONITOR.current_model(monitor)
    show_rolled_back(roll_back_monitor(monitor, to=to), before=before, command=f"segue monitor roll-back {monitor}")


def back_up(monitor: MonitorArgument, out: OutOption) -> None:
    """Back up a monitor, even while it runs.

    \b
    Example:
      segue monitor back-up monitor --out monitor-copy
    """
    from segue.apps.monitor.interface import copy_monitor

    copy_monitor(monitor, out)
    show_copy(monitor, out)


def restore(
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="Folder that segue monitor back-up wrote.")],
    out: OutOption,
    database: DatabaseOption = None,
) -> None:
    """Restore a monitor from a back-up, after checking its files.

    With --database, texts are restored into PostgreSQL; the database must be empty.

    \b
    Example:
      segue monitor restore monitor-copy --out monitor
      segue monitor restore copy --out monitor --database postgresql:///monitor
    """
    from segue.apps.monitor.interface import copy_monitor

    copy_monitor(copy, out, check=True, database=database)
    show_restored(copy, out)


def person(
    monitor: MonitorArgument,
    person: Annotated[str, typer.Argument(metavar="ID", help="Id of the author.")],
    delete: DeleteOption = False,
) -> None:
    """Show, export or delete the texts of a person that a monitor stores.

    The texts are printed as JSON; redirect them to a file to export them.

    \b
    Example:
      segue monitor person monitor user-17 > user-17.json
      segue monitor person monitor user-17 --delete
    """
    from segue.apps.monitor.interface import person_in_monitor

    found = person_in_monitor(monitor, person, delete=delete)
    console = Console(highlight=False, emoji=False)
    if delete:
        say(console, f"{len(found['texts']):,} texts deleted.")
        for name in found["models"]:
            say(
                console,
                f"Model {name} was trained on corrections of these texts, and still contains them: delete "
                f"{monitor / 'models' / name} once another model is in use, or train the monitor again.",
            )
    else:
        show_json(found, indent=1)
