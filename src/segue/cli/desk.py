"""`segue desk`: customer service from questions and answers, with a subcommand for each step."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console

from segue.cli.applications import (
    SECRET,
    DatabaseOption,
    DeleteOption,
    HeldSeedOption,
    HostOption,
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
from segue.cli.serve import check_installed, is_local
from segue.config import settings as settings_of

DeskArgument: TypeAlias = Annotated[Path, typer.Argument(metavar="DESK", help="Folder of the desk.")]


def desk() -> None:
    """Answer customers from your own questions and answers, and hand over to people.

    \b
    Example:
      segue desk learn faq.csv --out desk
      segue desk run desk
    """


def learn(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Tables (csv, tsv, jsonl, json, parquet) with columns question and answer, and optionally "
            "intent, dialogue, turns and source.",
        ),
    ],
    out: OutOption,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help='Embedding model, or "none". Default: the packaged model for each language.'
        ),
    ] = None,
    error: Annotated[float, typer.Option(help="Acceptable share of wrong answers.")] = 0.05,
    outside_share: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Expected share of out-of-scope questions; answers to them count as wrong. Default: as in the files.",
        ),
    ] = None,
    finetune: Annotated[
        bool,
        typer.Option(
            help="Whether to fine-tune a network as well, given more than 3,000 questions; it is used if it helps. "
            "Default: yes."
        ),
    ] = True,
    encoding: Annotated[str, typer.Option(help="Encoding of files without a byte order mark.")] = "utf-8",
    database: DatabaseOption = None,
    seed: HeldSeedOption = 0,
) -> None:
    """Train a desk on questions and answers, and evaluate it.

    \b
    Example:
      segue desk learn faq.csv dialogues.jsonl --out desk --error 0.02
    """
    from segue.apps.desk.interface import learn_desk

    found = learn_desk(
        files,
        out,
        model=model,
        error=error,
        outside_share=outside_share,
        finetune=finetune,
        encoding=encoding,
        database=database,
        seed=seed,
    )
    _show(found.numbers)
    for note in found.numbers["notes"]:
        say(Console(highlight=False, emoji=False), note, style="yellow")
    say(Console(highlight=False, emoji=False), f"Report: {found.page}, and report.md beside it.")


def _show(numbers: dict[str, Any]) -> None:
    from segue.apps.desk.report import NO_ANSWERS, found_said, outside_said, said_of, share_said

    console = Console(highlight=False, emoji=False)
    asked = "shortened questions" if numbers["shortened"] else "held-out questions"
    for line in numbers["columns"]:
        say(console, line)
    say(console, f"{numbers['topics']:,} topics, {numbers['questions']:,} questions.")
    if numbers["without_answer"] == numbers["topics"]:
        say(console, f"{NO_ANSWERS} Add a column answer to the table.")
    say(console, f"{numbers['held_back']:,} {asked}: of those in scope, the correct topic came first in "
        f"{numbers['right']:.1%}, and among the first three in {numbers['right_in_three']:.1%}.")  # fmt: skip
    say(console, f"Accepted error rate {numbers['accepted_error']:.1%}: {said_of(numbers['counts'])}.")
    say(console, share_said(numbers["outside_share"]))
    if numbers["outside_counts"] is not None:
        say(console, f"{found_said(numbers['outside_counts'])} {outside_said(numbers['counts'])}.")


_REASONS = {
    "low_confidence": "the desk is not confident enough",
    "out_of_scope": "it seems to be out of scope",
    "no_answer": "its topic has no answer",
}


def ask(
    desk: DeskArgument,
    questions: Annotated[
        list[str],
        typer.Argument(metavar="QUESTION", help="Questions of one conversation, in order."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON lines.")] = False,
) -> None:
    """Ask a desk a question.

    \b
    Example:
      segue desk ask desk "How do I reset my password?"
    """
    from segue.apps.desk.interface import open_desk
    from segue.apps.desk.phrases import follow_up
    from segue.text.unicode import is_chinese

    model, console = open_desk(desk), Console(highlight=False, emoji=False)
    found = None
    for place, question in enumerate(questions):
        told = found.told(question) if found is not None and found.reason is None and found.slots.missing else None
        found = told if told is not None and told is not found else model.ask(question, before=questions[:place])
        missing = found.slots.missing if found.reason is None else ()
        if as_json:
            row = {
                "question": question,
                "answer": found.answer,
                "confidence": found.confidence,
                "inside": found.inside,
                "needs": dict(found.needs),
                "reason": found.reason,
                "missing": list(missing),
                "candidates": [{"topic": one.topic.name, "probability": one.probability} for one in found.candidates],
            }
            show_json(row)
            continue
        if missing:
            say(console, follow_up("zh" if is_chinese(question) else "en", missing[0]))
        else:
            say(
                console,
                found.answer
                if found.answer is not None
                else f"This goes to a person: {_REASONS[found.reason or 'no_answer']}.",
            )
        numbers = (("confidence", "confidence", found.confidence), ("in scope", "inside", found.inside))
        shown = (f"{label} {value:.1%}, threshold {found.needs[name]:.1%}" for label, name, value in numbers)
        say(console, "; ".join(shown), indent=2)
        for one in found.candidates[:3]:
            say(console, f"{one.probability:6.1%}  {one.topic.name}", indent=2, hang=8)


def run(
    desk: Annotated[
        Path | None,
        typer.Argument(metavar="DESK", help="Folder of the desk. Default: with --demo, a temporary one."),
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8080,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with one ROLE NAME KEY per line; roles: visitor, agent, operator. Default: no keys.",
        ),
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", help=f"URL to send events to, signed with the secret in {SECRET}. Default: none."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Setting to change, e.g. max_message=500; repeatable."),
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Train a desk on real data first, if the folder does not exist.")
    ] = False,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Tables for --demo; repeatable. Default: questions made from Python's own documentation.",
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Check that the desk can start, and exit.")] = False,
) -> None:
    """Serve a desk: web pages for visitors and agents, and an HTTP API.

    Visitors ask at /, agents answer at /agent. Ctrl-C or SIGTERM finishes open requests and exits; even kill -9 loses
    no data.

    \b
    Example:
      segue desk run desk --port 8080
      segue desk run --demo
    """
    check_installed("segue desk")
    from segue.apps.desk.run import run_desk
    from segue.apps.desk.settings import DeskSettings
    from segue.apps.desk.store import DESK
    from segue.apps.keys import read_role_keys

    console = Console(stderr=True, highlight=False, emoji=False)
    log_to_terminal()
    chosen = settings_of(DeskSettings, {}, settings or [])
    check_reachable(host, keys, what="a desk")
    told = with_secret(webhook)
    folder = folder_or_temporary(desk, name="desk", what="a desk", demo=demo)
    if demo and not folder.exists():
        _learn_demo(folder, data or [], console)

    def started(address: str) -> None:
        if check:
            show_checked(console, folder, model=DESK.current_model(folder), host=host)
            return
        console.print(f"visitors  {address}/", soft_wrap=True)
        console.print(f"agents    {address}/agent", soft_wrap=True)
        show_address(console, address)

    run_desk(
        folder,
        host=host,
        port=port,
        keys=None if keys is None else read_role_keys(keys),
        local=is_local(host),
        settings=chosen,
        webhook=told,
        started=started,
        check=check,
    )


def _learn_demo(folder: Path, data: list[Path], console: Console) -> None:
    from segue.apps.desk.demo import demo_rows
    from segue.apps.desk.interface import learn_desk

    console.print(f"training a desk in {folder}", soft_wrap=True, markup=False)
    found = learn_desk(data if data else demo_rows(), folder, finetune=False)
    console.print(f"{found.numbers['topics']:,} topics, {found.numbers['questions']:,} questions")


def improve(desk: DeskArgument, seed: HeldSeedOption = 0) -> None:
    """Retrain with the answers of agents, and switch if the new model is no worse.

    \b
    Example:
      segue desk improve desk
    """
    from segue.apps.desk.interface import improve_desk
    from segue.apps.desk.report import counted, said_of

    found = improve_desk(desk, seed=seed)
    console = Console(highlight=False, emoji=False)
    learned = f"{found.learned:,} reviewed {'question' if found.learned == 1 else 'questions'} learned"
    say(console, f"{learned}, {found.outside:,} of them as out of scope." if found.outside else f"{learned}.")
    if found.withdrawn:
        removed = "question that is" if found.withdrawn == 1 else "questions that are"
        say(console, f"Removed {found.withdrawn:,} {removed} no longer accepted.")
    if found.asked:
        say(console, f"Accuracy on {found.asked:,} held-out questions: before {found.right_before:.1%}, now "
            f"{found.right_now:.1%}.")  # fmt: skip
        for name, counts in (("before", found.before), ("now", found.now)):
            say(console, f"Accepted error rate {found.error:.1%}, {name}: {said_of(counted(counts))}.")
    else:
        say(console, "No question could be held out, because no topic has two: the new model was not evaluated. To use "
            f"it anyway: segue desk roll-back {desk} --to {found.model}")  # fmt: skip
    show_switch("desk", desk, model=found.model, switched=found.switched)


def roll_back(
    desk: DeskArgument,
    to: ToOption = None,
) -> None:
    """Return to an earlier model of a desk.

    \b
    Example:
      segue desk roll-back desk
    """
    from segue.apps.desk.interface import roll_back_desk
    from segue.apps.desk.store import DESK

    before = DESK.current_model(desk)
    show_rolled_back(roll_back_desk(desk, to=to), before=before, command=f"segue desk roll-back {desk}")


def back_up(desk: DeskArgument, out: OutOption) -> None:
    """Back up a desk, even while it runs.

    \b
    Example:
      segue desk back-up desk --out desk-copy
    """
    from segue.apps.desk.interface import copy_desk

    copy_desk(desk, out)
    show_copy(desk, out)


def restore(
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="Folder that segue desk back-up wrote.")],
    out: OutOption,
    database: DatabaseOption = None,
) -> None:
    """Restore a desk from a back-up, after checking its files.

    With --database, conversations are restored into PostgreSQL; the database must be empty.

    \b
    Example:
      segue desk restore desk-copy --out desk
      segue desk restore desk-copy --out desk --database postgresql:///desk
    """
    from segue.apps.desk.interface import copy_desk

    copy_desk(copy, out, check=True, database=database)
    show_restored(copy, out)


def person(
    desk: DeskArgument,
    person: Annotated[str, typer.Argument(metavar="ID", help="Id of the person.")],
    delete: DeleteOption = False,
) -> None:
    """Show, export or delete what a desk stores about a person.

    The data is printed as JSON; redirect it to a file to export it. --delete also deletes models trained on accepted
    questions of the person; if one of them is in use, a replacement is trained without these questions first.

    \b
    Example:
      segue desk person desk user-17 > user-17.json
      segue desk person desk user-17 --delete
    """
    from segue.apps.desk.interface import person_in_desk

    found = person_in_desk(desk, person, delete=delete)
    console = Console(highlight=False, emoji=False)
    if delete and not found["conversations"] and not found.get("models"):
        say(console, f"The desk stores nothing about {person!r}; nothing was deleted.")
    elif delete:
        count = len(found["conversations"])
        say(console, f"{count:,} {'conversation' if count == 1 else 'conversations'} deleted.")
        if found["models"]:
            names = ", ".join(found["models"])
            say(
                console,
                f"Deleted the models trained on accepted questions of deleted people: {names}. Model {found['model']} "
                "is now in use.",
            )
    else:
        show_json(found, indent=1)
