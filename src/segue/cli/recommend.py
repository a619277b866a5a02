"""`segue recommend`: recommendations from user events and item texts."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.console import Console

from segue.cli.applications import (
    DatabaseOption,
    DeleteOption,
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
)
from segue.cli.console import say
from segue.cli.serve import check_installed, is_local
from segue.config import settings as settings_of
from segue.errors import ConfigError

RecArgument: TypeAlias = Annotated[Path, typer.Argument(metavar="REC", help="Folder of the recommender.")]
SeedOption: TypeAlias = Annotated[int, typer.Option(help="Random seed for initial weights and sampling.")]


def recommend() -> None:
    """Recommend items from user events and item texts, with reasons.

    \b
    Example:
      segue recommend learn --events events.csv --items items.csv --out rec
      segue recommend run rec
    """


def learn(
    events: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Table (csv, tsv, jsonl, json, parquet) with columns user and item, and optionally time and kind.",
        ),
    ],
    out: OutOption,
    items: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table with column id, and optionally title, description, tags (separated by |) and price. "
            "Default: none; items are known by their ids only.",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=WEIGHT",
            help="Weight of a kind of event; repeatable. Default: buy 3, comment and share 2, all others 1.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Name or folder of the model that embeds item texts. Default: the packaged one."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Setting to change, e.g. objective=permutation, width=128; repeatable."
        ),
    ] = None,
    database: DatabaseOption = None,
    encoding: Annotated[str, typer.Option(help="Encoding of files without a byte order mark, e.g. gb18030.")] = "utf-8",
    seed: SeedOption = 0,
) -> None:
    """Train a recommender on events and items, and evaluate it on later events.

    \b
    Example:
      segue recommend learn --events events.csv --items items.csv --out rec
    """
    from segue.apps.recommend.interface import learn_recommender
    from segue.apps.recommend.report import not_measured
    from segue.apps.recommend.settings import RecommenderSettings

    found = learn_recommender(
        events,
        out,
        items=items,
        kinds=_weights(kind or []),
        settings=settings_of(RecommenderSettings, {}, settings or []),
        model=model,
        database=database,
        encoding=encoding,
        seed=seed,
    )
    console, numbers = Console(highlight=False, emoji=False), found.numbers
    say(console, f"{numbers['users']:,} users, {numbers['items']:,} items, {numbers['events']:,} events.")
    if items is not None and numbers["items_with_text"] < numbers["items"]:
        without = numbers["items"] - numbers["items_with_text"]
        say(console, f"Items without a title, description or tags, or not in {items}: {without:,}", indent=2)
    for reason, count in numbers["left_out"].items():
        say(console, f"Rows skipped: {count:,} ({reason})", indent=2)
    measured = {name: one for name, one in numbers["held_back"].items() if one["events"]}
    if not measured:
        say(console, not_measured(numbers))
    for name, one in measured.items():
        say(console, f"{name}, {one['events']:,} held-out events: NDCG@10 {one['ndcg']:.4f}, HR@10 "
            f"{one['hit_rate']:.4f}.")  # fmt: skip
    say(console, f"Report: {found.page}, and report.md beside it.")


def _weights(given: list[str]) -> dict[str, float]:
    found = {}
    for one in given:
        name, _, weight = one.rpartition("=")
        try:
            found[name.strip()] = float(weight)
        except ValueError:
            name = ""
        if not name:
            raise ConfigError(f"--kind must be a name and a weight; got {one[:60]!r}. Write --kind buy=3.")
    return found


def suggest(
    rec: RecArgument,
    user: Annotated[str, typer.Argument(metavar="USER", help="Id of the user.")],
    count: Annotated[int, typer.Option(min=1, max=1000, help="Number of items.")] = 10,
    why: Annotated[bool, typer.Option("--why", help="Give the reason for each item.")] = False,
    diversity: Annotated[
        float, typer.Option(min=0, max=1, help="Diversity, from 0 (most likely items) to 1 (most different items).")
    ] = 0.0,
    novelty: Annotated[
        float, typer.Option(min=0, max=1, help="Novelty, from 0 (no adjustment) to 1 (least popular items).")
    ] = 0.0,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Tag that items must have; repeatable. Default: all items.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print items as JSON lines.")] = False,
) -> None:
    """Recommend items to a user, with reasons.

    \b
    Example:
      segue recommend suggest rec user-17 --count 5 --why
    """
    from segue.apps.recommend.interface import recommend

    wish = {"diversity": diversity, "novelty": novelty, "only_tags": tag or []}
    console = Console(highlight=False, emoji=False)
    for one in recommend(rec, user, count=count, wish=wish, why=why):
        if as_json:
            row = {
                "item": one.item.id,
                "title": one.item.title,
                "log_probability": one.log_probability,
                "because": one.because,
                "fall": one.fall,
            }
            show_json(row)
            continue
        because = f"  because of {one.because} ({one.fall:+.2f})" if one.because is not None else ""
        say(console, f"{one.item.id}  {one.item.title}{because}")


def run(
    rec: Annotated[
        Path | None,
        typer.Argument(metavar="REC", help="Folder of the recommender. Default: with --demo, a temporary one."),
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8095,
    keys: KeysOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Limit to change, e.g. max_sessions=500; repeatable."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Train on real events first, if the folder does not exist.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for --demo with events.csv and items.csv, or with MovieLens."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Load the recommender, check that it can start, and exit.")
    ] = False,
) -> None:
    """Serve a recommender: its web page and an HTTP API.

    Ctrl-C or SIGTERM finishes open requests and exits; even kill -9 loses no acknowledged event.

    \b
    Example:
      segue recommend run rec
      segue recommend run --demo --data movielens
    """
    check_installed("segue recommend")
    from segue.apps.keys import read_role_keys
    from segue.apps.recommend.run import run_recommender
    from segue.apps.recommend.settings import ServiceSettings
    from segue.apps.recommend.store import RECOMMEND

    console = Console(stderr=True, highlight=False, emoji=False)
    log_to_terminal()
    chosen = settings_of(ServiceSettings, {}, settings or [])
    check_reachable(host, keys, what="a recommender")
    folder = folder_or_temporary(rec, name="recommend", what="a recommender", demo=demo)
    if demo:
        from segue.apps.recommend.demo import prepare_demo

        prepare_demo(folder, data, told=lambda said: console.print(said, soft_wrap=True, markup=False))

    def started(address: str) -> None:
        if check:
            show_checked(console, folder, model=RECOMMEND.current_model(folder), host=host)
        else:
            show_address(console, address)

    run_recommender(
        folder,
        host=host,
        port=port,
        keys=None if keys is None else read_role_keys(keys),
        local=is_local(host),
        settings=chosen,
        started=started,
        check=check,
    )


def improve(
    rec: RecArgument,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Setting to change, e.g. objective=permutation; repeatable. Default: the settings of the current "
            "model.",
        ),
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Retrain on all events so far, and switch if the new model is no worse.

    \b
    Example:
      segue recommend improve rec
      segue recommend improve rec --set objective=permutation
    """
    from segue.apps.recommend.interface import improve_recommender
    from segue.apps.recommend.settings import RecommenderSettings

    found = improve_recommender(rec, settings=settings_of(RecommenderSettings, {}, settings or []), seed=seed)
    console = Console(highlight=False, emoji=False)
    deleted = f", {found.deleted:,} deleted" if found.deleted else ""
    say(console, f"{found.learned:,} new events{deleted}. NDCG@10 on {found.asked:,} held-out events: before "
        f"{found.before:.4f}, now {found.now:.4f}.")  # fmt: skip
    show_switch("recommend", rec, model=found.model, switched=found.switched)
    if found.deleted and not found.switched:
        lower = "was measured lower" if found.asked else "could not be measured"
        say(console, f"The current model was trained on deleted events; {found.model}, which {lower}, was not. To use "
            f"it: segue recommend roll-back {rec} --to {found.model}")  # fmt: skip


def compare(
    rec: RecArgument,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Name of the first model, e.g. 0001.")],
    second: Annotated[str, typer.Argument(metavar="SECOND", help="Name of the second model.")],
    most: Annotated[int, typer.Option(min=1, max=10**6, help="Maximum number of events to replay.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed for interleaving the lists.")] = 0,
) -> None:
    """Compare two models by interleaving their lists on replayed events.

    \b
    Example:
      segue recommend compare rec 0001 0002
    """
    from segue.apps.recommend.interface import compare_recommenders

    found = compare_recommenders(rec, first, second, most=most, seed=seed)
    console = Console(highlight=False, emoji=False)
    p_value = "< 0.001" if found.p_value < 0.001 else f"= {found.p_value:.3f}"
    say(console, f"{found.asked:,} replayed events: {found.first} won {found.first_wins:,}, {found.second} won "
        f"{found.second_wins:,}, neither {found.neither:,}; p {p_value}.")  # fmt: skip
    say(console, f"NDCG@10: {found.first} {found.first_ndcg:.4f}, {found.second} {found.second_ndcg:.4f}.")


def roll_back(
    rec: RecArgument,
    to: ToOption = None,
) -> None:
    """Return to an earlier model of a recommender.

    \b
    Example:
      segue recommend roll-back rec
    """
    from segue.apps.recommend.interface import roll_back_recommender
    from segue.apps.recommend.store import RECOMMEND

    before = RECOMMEND.current_model(rec)
    show_rolled_back(roll_back_recommender(rec, to=to), before=before, command=f"segue recommend roll-back {rec}")


def back_up(rec: RecArgument, out: OutOption) -> None:
    """Back up a recommender, even while it runs.

    \b
    Example:
      segue recommend back-up rec --out rec-copy
    """
    from segue.apps.recommend.interface import copy_recommender

    copy_recommender(rec, out)
    show_copy(rec, out)


def restore(
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="Folder that segue recommend back-up wrote.")],
    out: OutOption,
    database: DatabaseOption = None,
) -> None:
    """Restore a recommender from a back-up, after checking its files.

    With --database, events and items are restored into PostgreSQL; the database must be empty.

    \b
    Example:
      segue recommend restore rec-copy --out rec
      segue recommend restore rec-copy --out rec --database postgresql:///rec
    """
    from segue.apps.recommend.interface import copy_recommender

    copy_recommender(copy, out, check=True, database=database)
    show_restored(copy, out)


def person(
    rec: RecArgument,
    person: Annotated[str, typer.Argument(metavar="ID", help="Id of the user.")],
    delete: DeleteOption = False,
) -> None:
    """Show, export or delete what a recommender stores about a person.

    The data is printed as JSON; redirect it to a file to export it.

    \b
    Example:
      segue recommend person rec user-17 > user-17.json
      segue recommend person rec user-17 --delete
    """
    from segue.apps.recommend.interface import person_in_recommender

    found = person_in_recommender(rec, person, delete=delete)
    console = Console(highlight=False, emoji=False)
    if delete:
        parts = ((len(found["events"]), "event"), (len(found["sessions"]), "saved session"))
        said = ", ".join(f"{number:,} {what if number == 1 else f'{what}s'}" for number, what in parts)
        say(console, f"Deleted: {said}.")
        if found["models"]:
            names = ", ".join(found["models"])
            say(console, f"Trained on these events: {names}. For a model without them: segue recommend improve {rec}")
    else:
        show_json(found, indent=1)
