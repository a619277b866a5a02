"""`segue models`: the named models and configs, listed for a terminal of any width."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console

from segue.api.catalogue import PackagedModel, card_or_config
from segue.api.catalogue import models as catalogue
from segue.checkpoint.packaged import VARIABLE
from segue.cli.completion import complete_name
from segue.cli.console import say

_USES = {
    "causal": "generates, scores and embeds text; can be fine-tuned",
    "permutation": "fills gaps from both sides, scores and embeds text; can be fine-tuned",
    "masked": "embeds text; can be fine-tuned",
}


def print_models() -> None:
    """Print a paragraph for each model with weights, then for each config."""
    console = Console(highlight=False, emoji=False)
    say(console, "Models, with weights", style="bold underline")
    found = catalogue()
    for model in found.packaged.values():
        _print_packaged(console, model)
    if not found.packaged:
        why = "it was built without them" if not found.built_with_models else "its folder is empty"
        say(console, f"None in this installation of segue: {why}. {VARIABLE}=FOLDER adds a folder of models.")
    console.print()
    say(console, "Configs, without weights", style="bold underline")
    for name, config in found.configs.items():
        say(console, f"{name}  {config.parameters() / 1e6:.1f} M parameters", hang=2, style="bold")
        say(console, config.about, indent=2)
        say(console, config.paper, indent=2, style="dim")
    console.print()
    say(console, f"Presets of whole runs, for segue pretrain: {', '.join(found.presets)}.")
    say(console, "`segue models NAME` prints the card of a model, or a config to start from.")


def print_one(name: str) -> None:
    """Print the card of a model, or a config as TOML, which can be redirected to a file."""
    found = card_or_config(name)
    if found.is_card:
        print(found.text)
        if found.only_for_segue:
            print(f"\n## In other libraries\n\nsegue only: {found.only_for_segue}")
        return
    if found.only_for_segue:
        print(f"segue only: {found.only_for_segue}", file=sys.stderr)
    print(found.text, end="")


def _print_packaged(console: Console, model: PackagedModel) -> None:
    facts = [f"{model.bytes / 1e6:.1f} MB", *model.languages]
    if model.task is not None:
        facts.append(f"{model.task}{_labels(model.labels)}")
        if model.trunk is not None:
            facts.append(f"on {model.trunk}")
    else:
        facts.insert(0, f"{model.parameters / 1e6:.1f} M parameters")
        facts.append(model.config.objective)
    facts.append(f"licence {model.licence}")
    say(console, f"{model.name}  {', '.join(facts)}", hang=2, style="bold")
    if model.task == "similarity":
        use = "compares and embeds texts: segue predict, segue embed"
    else:
        use = "predicts rows and texts: segue predict" if model.task is not None else _USES[model.config.objective]
    say(console, use, indent=2)
    if model.only_for_segue:
        say(console, "segue only: transformers cannot represent it", indent=2, style="dim")
    if not model.comes_with_segue:
        say(console, f"in {model.folder.parent} ({VARIABLE})", indent=2, style="dim")


def _labels(labels: Sequence[str]) -> str:
    """Return the classes of a task if they are few; otherwise their number."""
    return f" ({', '.join(labels)})" if 0 < len(labels) <= 8 else f" ({len(labels)} labels)" if labels else ""


def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Model or config to show. Default: list all.", autocompletion=complete_name
        ),
    ] = None,
) -> None:
    """List the named models and configs.

    With NAME, print the card of a model, or a config as TOML to start from.

    \b
    Example:
      segue models xlnet-base > my.toml
    """
    if name is None:
        print_models()
    else:
        print_one(name)
