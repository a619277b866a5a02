"""The verbs by name. The module of a verb is imported when the verb is used, so that `segue --help` is quick."""

from difflib import get_close_matches
from importlib import import_module
from pathlib import PurePath
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import segue
from segue.cli.options import expanded

VERBS = {
    "models": "List the models and configs that have a name.",
    "doctor": "Check the installation, and a model for the classic mistakes.",
    "tour": "Show what makes these models what they are, computed as you watch.",
    "demo": "Run the main jobs in a few minutes: write, fill gaps, find entities, fine-tune, pretrain, compare.",
    "sample": "Write a real corpus for a first try, English or Chinese, plain or labelled.",
    "prepare": "Turn text into a store: ids on disk that training reads.",
    "plan": "Measure what a pretraining run will need: parameters, memory, time.",
    "pretrain": "Pretrain a model on a store, or resume a run.",
    "plot": "Draw the losses of runs against each other.",
    "evaluate": "Measure perplexity, accuracy on minimal pairs, speed, or context length.",
    "finetune": "Fine-tune a model for a task, and measure it.",
    "tune": "Search for settings with many fine-tuning runs.",
    "study": "Compare variants of a model at equal budgets, over several seeds.",
    "predict": "Answer rows of a table, or texts, with a fine-tuned model.",
    "compare": "Compare models on the same data, with intervals of their differences.",
    "score": "Compute log-probabilities of texts, by token, line or document.",
    "embed": "Compute a vector for each document or line.",
    "generate": "Continue a prompt, streamed to the terminal; or chat.",
    "infill": "Fill the gaps of a text with an XLNet.",
    "explain": "Show what a model looks at, what its scores are made of, and which words decided.",
    "serve": "Serve models over HTTP, with sessions that remember.",
    "desk": "Answer customers from your own questions and answers, with people behind.",
    "monitor": "Track sentiment by company and topic, and raise an alarm when it turns.",
    "recommend": "Recommend items from what users did and what items say, with reasons.",
    "convert": "Convert a checkpoint from or to another library.",
    "export": "Write a model as ONNX or for torch.export.",
    "inspect": "Say what a file or folder is, without loading weights.",
    "package": "Write a model in 16 bits with its card, to be used by its name.",
    "push": "Upload a model folder with its card to the hub.",
}
"""Each with the first line of its help, which is also that of its docstring."""
APPLICATIONS = {
    "desk": {
        "learn": "Learn a desk from questions and answers, and measure it.",
        "ask": "Ask a desk a question.",
        "run": "Run a desk: its page for visitors, its page for agents, HTTP.",
        "improve": "Learn again with what agents answered, and switch if it is no worse.",
        "roll-back": "Go back to an earlier model of a desk.",
        "back-up": "Copy a desk, also while it runs.",
        "restore": "Make a desk of a back-up, after its files were checked.",
        "person": "Show, export or delete what a desk keeps of a person.",
    },
    "monitor": {
        "learn": "Learn a monitor from labelled texts, and measure it.",
        "tell": "Say what a text is about: sentiment, topic, entities, and the words that decided.",
        "read": "Read files of texts into a monitor, and raise alarms where they turn.",
        "run": "Run a monitor: its sources, its page, HTTP.",
        "report": "Write the report of a day as HTML.",
        "export": "Write texts with what was read in them, as csv or parquet.",
        "improve": "Learn again with labels that people corrected, and switch if it is no worse.",
        "roll-back": "Go back to an earlier model of a monitor.",
        "back-up": "Copy a monitor, also while it runs.",
        "restore": "Make a monitor of a back-up, after its files were checked.",
        "person": "Show, export or delete the texts that a monitor keeps of a person.",
    },
    "recommend": {
        "learn": "Learn a recommender from events and items, and measure it on what came later.",
        "suggest": "List what a user may want next, and why.",
        "run": "Run a recommender: its page, HTTP.",
        "improve": "Learn again from all events by now, and switch if it is no worse.",
        "compare": "Compare two models by interleaving their lists on replayed events.",
        "roll-back": "Go back to an earlier model of a recommender.",
        "back-up": "Copy a recommender, also while it runs.",
        "restore": "Make a recommender of a back-up, after its files were checked.",
        "person": "Show, export or delete what a recommender keeps of a person.",
    },
}
"""Verbs that have verbs of their own, each with the first line of its help."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Verbs(TyperGroup):
    """The verbs: listed from the table, imported when one is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """For lists of verbs: the name and the first line of the help."""
        if cmd_name not in VERBS:
            return None
        return TyperCommand(cmd_name, help=VERBS[cmd_name], short_help=VERBS[cmd_name], rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        unknown = args and args[0] not in VERBS and not ctx.resilient_parsing
        if unknown and (near := get_close_matches(args[0], VERBS, n=1)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {near[0]!r}?")
        name, command, rest = super().resolve_command(ctx, args)
        return name, None if command is None else command_of(str(command.name)), rest


def command_of(verb: str) -> Any:
    """The command with all its options; that of an application has a command for each of its own verbs. Those are named
    with both words: "desk learn"."""
    application, _, name = verb.partition(" ")
    if name:
        return command_of(application).commands[name]
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    module = import_module(f"segue.cli.{verb}")
    for name, said in APPLICATIONS.get(verb, {}).items():
        alone.command(name, short_help=said, context_settings=CONTEXT)(
            expanded(getattr(module, name.replace("-", "_")))
        )
    if verb in APPLICATIONS:
        alone.callback(context_settings=CONTEXT, no_args_is_help=True)(getattr(module, verb))
    else:
        alone.command(verb, context_settings=CONTEXT)(expanded(getattr(module, verb)))
    command = typer.main.get_command(alone)
    for one in (command, *getattr(command, "commands", {}).values()):
        for parameter in one.params:
            _say_default(parameter)
    return command


def _say_default(parameter: Any) -> None:
    """Defaults are said in the words of the help, all in one way."""
    text, default = getattr(parameter, "help", None), parameter.default
    known = isinstance(default, str | int | float | PurePath) and not isinstance(default, bool) and default != ""
    if text and known and "Default:" not in text:
        parameter.help = f"{text} Default: {default}."
    parameter.show_default = False


app = typer.Typer(
    cls=Verbs,
    help="Transformer-XL and XLNet: models that do not stop at the segment boundary.",
    epilog="segue VERB --help describes a verb. The guides are in docs/.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=CONTEXT,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(segue.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> Any:
    """Options of segue itself."""
