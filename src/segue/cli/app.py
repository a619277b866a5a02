"""The commands by name. The module of a command is imported when the command is used, so that `segue --help` is
fast."""

from difflib import get_close_matches
from importlib import import_module
from pathlib import PurePath
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import segue
from segue.cli.options import expanded

VERBS = {
    "models": "List the named models and configs.",
    "doctor": "Check the installation, and test a model for known implementation errors.",
    "tour": "Demonstrate the ideas of Transformer-XL and XLNet, computed live.",
    "demo": "Run the main tasks in a few minutes: generate, infill, tag, fine-tune, pretrain, compare.",
    "sample": "Write a sample corpus, English or Chinese, plain or labelled.",
    "prepare": "Tokenise text into a store: token ids on disk, ready for training.",
    "plan": "Measure what a pretraining run needs: parameters, memory and time.",
    "pretrain": "Pretrain a model on a store, or resume a run.",
    "plot": "Plot the loss curves of one or more runs.",
    "evaluate": "Measure perplexity, metrics of a task, accuracy on minimal pairs, speed, or effective context length.",
    "finetune": "Fine-tune a model on a task, and evaluate it.",
    "tune": "Search for the best settings over many fine-tuning runs.",
    "study": "Compare variants of a model at equal budgets, over several seeds.",
    "predict": "Run a fine-tuned model on the rows of a table, or on texts.",
    "compare": "Compare models on the same data, with confidence intervals.",
    "score": "Compute log-probabilities of texts, by token, line or document.",
    "embed": "Compute a vector for each document or line.",
    "generate": "Continue a prompt, streaming the text to the terminal; or chat.",
    "infill": "Fill gaps in a text with an XLNet.",
    "explain": "Show attention, the terms of its scores, and the words behind a prediction.",
    "serve": "Serve models over HTTP, with stateful sessions.",
    "desk": "Answer customers from your own questions and answers, and hand over to people.",
    "monitor": "Track sentiment by company and topic, and raise an alarm when it changes.",
    "recommend": "Recommend items from user events and item texts, with reasons.",
    "convert": "Convert a checkpoint from or to the format of another library.",
    "export": "Export a model to ONNX or torch.export.",
    "inspect": "Describe a file or folder, without loading weights.",
    "package": "Package a model: 16-bit weights and a model card, loadable by name.",
    "push": "Upload a model folder and its model card to the Hugging Face Hub.",
}
"""Commands by name, with the first line of their help, which is also that of their docstring."""
APPLICATIONS = {
    "desk": {
        "learn": "Train a desk on questions and answers, and evaluate it.",
        "ask": "Ask a desk a question.",
        "run": "Serve a desk: web pages for visitors and agents, and an HTTP API.",
        "improve": "Retrain with the answers of agents, and switch if the new model is no worse.",
        "roll-back": "Return to an earlier model of a desk.",
        "back-up": "Back up a desk, even while it runs.",
        "restore": "Restore a desk from a back-up, after checking its files.",
        "person": "Show, export or delete what a desk stores about a person.",
    },
    "monitor": {
        "learn": "Train a monitor on labelled texts, and evaluate it.",
        "tell": "Analyse a text: sentiment, topic, entities, and the words that decided.",
        "read": "Read files of texts into a monitor, and raise alarms where sentiment changes.",
        "run": "Run a monitor: read its sources, and serve its web page and HTTP API.",
        "trends": "Show volume and sentiment by entity and topic; compare entities.",
        "alarms": "List, show, acknowledge or comment on alarms.",
        "names": "List new names in texts; add them to the list of entities, or dismiss them.",
        "report": "Write a daily report as HTML.",
        "export": "Export texts with their sentiment, topic and entities, as csv or parquet.",
        "improve": "Retrain with corrected labels, and switch if the new model is no worse.",
        "roll-back": "Return to an earlier model of a monitor.",
        "back-up": "Back up a monitor, even while it runs.",
        "restore": "Restore a monitor from a back-up, after checking its files.",
        "person": "Show, export or delete the texts of a person that a monitor stores.",
    },
    "recommend": {
        "learn": "Train a recommender on events and items, and evaluate it on later events.",
        "suggest": "Recommend items to a user, with reasons.",
        "run": "Serve a recommender: its web page and an HTTP API.",
        "improve": "Retrain on all events so far, and switch if the new model is no worse.",
        "compare": "Compare two models by interleaving their lists on replayed events.",
        "roll-back": "Return to an earlier model of a recommender.",
        "back-up": "Back up a recommender, even while it runs.",
        "restore": "Restore a recommender from a back-up, after checking its files.",
        "person": "Show, export or delete what a recommender stores about a person.",
    },
}
"""Commands with subcommands, each with the first line of its help."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Verbs(TyperGroup):
    """The commands: listed from the table, imported when one is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its name and the first line of its help, for lists of commands."""
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
    """Return the command with all its options; that of an application has its subcommands. These are named with both
    words: "desk learn"."""
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
    """Append the default to the help text, in one form for all options."""
    text, default = getattr(parameter, "help", None), parameter.default
    known = isinstance(default, str | int | float | PurePath) and not isinstance(default, bool) and default != ""
    if text and known and "Default:" not in text:
        parameter.help = f"{text} Default: {default}."
    parameter.show_default = False


app = typer.Typer(
    cls=Verbs,
    help="Transformer-XL and XLNet: models that do not stop at the segment boundary.",
    epilog="Run 'segue COMMAND --help' for help on a command. The guides are in docs/.",
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
