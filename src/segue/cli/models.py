"""`segue models`: what comes with segue by name, readable in a terminal of any width: models and configs apart."""

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from segue.checkpoint.card import licence_and_languages
from segue.checkpoint.files import CARD, LARGEST_CARD, read_small
from segue.checkpoint.packaged import VARIABLE, WITHOUT, Packaged, package_folder, packaged_model, packaged_models
from segue.checkpoint.parts import CONFIG, LARGEST_TASK, TASK, TRUNK, read_toml
from segue.cli.completion import complete_name
from segue.cli.console import say
from segue.config import Config, ModelConfig, dump, model_config, parameter_count, parse, toml
from segue.config.presets import preset_names, preset_text
from segue.errors import ConfigError
from segue.model.named import named_models

_USES = {
    "causal": "writes on from a text, scores and embeds texts, and is fine-tuned for tasks",
    "permutation": "fills gaps from both sides, scores and embeds texts, and is fine-tuned for tasks",
    "masked": "embeds texts, and is fine-tuned for tasks",
}


def print_models() -> None:
    """A paragraph for each model with weights, then for each config."""
    console = Console(highlight=False)
    say(console, "Models, with weights", style="bold underline")
    packaged = packaged_models()
    for model in packaged.values():
        _print_packaged(console, model)
    if not packaged:
        why = "it was built without them" if not package_folder().is_dir() else "this version has none yet"
        say(console, f"None in this installation of segue: {why}. {VARIABLE}=FOLDER adds a folder of models.")
    console.print()
    say(console, "Configs, without weights", style="bold underline")
    for name, config in named_models().items():
        say(console, f"{name}  {config.parameters() / 1e6:.1f} M parameters", hang=2, style="bold")
        say(console, config.about, indent=2)
        say(console, config.paper, indent=2, style="dim")
    console.print()
    say(console, f"Presets of whole runs, for segue pretrain: {', '.join(preset_names())}.")
    say(console, "`segue models NAME` prints the card of a model, or a config to start from.")


def print_one(name: str) -> None:
    """The card of a model, or a config as TOML, so that it can be sent to a file."""
    model = packaged_model(name)
    if model is not None:
        model.verify()
        print(read_small(model.folder / CARD, limit=LARGEST_CARD).decode("utf-8").rstrip())
        if why := _only_for_segue(_config(model.folder)):
            print(f"\n## In other libraries\n\nFor segue alone: {why}")
        return
    if name in named_models():
        config = named_models()[name].config
        text = dump(Config(model=config))
        convertible = named_models()[name].for_transformers
    elif name in preset_names():
        text = preset_text(name)
        config = _preset_model(text, name)
        convertible = False  # not known yet
    else:
        near = get_close_matches(name, [*packaged_models(), *named_models(), *preset_names()], n=1, cutoff=0.3)
        hint = WITHOUT if not package_folder().is_dir() else f"Did you mean {near[0]}?" if near else "See that list."
        raise ConfigError(f"a name must be one that `segue models` lists; got {name!r}. {hint}")
    if not convertible and (why := _only_for_segue(config)):
        print(f"For segue alone: {why}", file=sys.stderr)
    print(text, end="")


def _preset_model(text: str, name: str) -> ModelConfig:
    """Whatever size its vocabulary will have: where it is left out, the store of a run knows it."""
    values = toml(text, source=name)["model"]
    values.setdefault("vocabulary", {}).setdefault("size", 32000)
    return model_config(**values)


def _print_packaged(console: Console, model: Packaged) -> None:
    folder, config = model.folder, _config(model.folder)
    licence, languages = licence_and_languages(read_small(folder / CARD, limit=LARGEST_CARD).decode("utf-8"))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    facts = [f"{size / 1e6:.1f} MB", *languages]
    if (folder / TASK).is_file():
        facts.append(_task(folder))
        if (folder / TRUNK).is_file():
            from segue.checkpoint.differences import read_trunk  # it needs torch

            facts.append(f"on {read_trunk(folder).name}")
    else:
        facts.insert(0, f"{parameter_count(config) / 1e6:.1f} M parameters")
        facts.append(config.objective)
    facts.append(f"licence {licence}")
    say(console, f"{model.name}  {', '.join(facts)}", hang=2, style="bold")
    use = "answers rows and texts: segue predict" if (folder / TASK).is_file() else _USES[config.objective]
    say(console, use, indent=2)
    if _only_for_segue(config):
        say(console, "for segue alone: transformers cannot express it", indent=2, style="dim")
    if not model.comes_with_segue:
        say(console, f"in {folder.parent}, by {VARIABLE}", indent=2, style="dim")


def _task(folder: Path) -> str:
    """What it answers: the name of the task, and the labels where they are few."""
    values = toml(read_small(folder / TASK, limit=LARGEST_TASK).decode("utf-8"), source=str(folder / TASK))
    labels = [str(label) for label in (values.get("values") or {}).get("labels") or []]
    shown = f" ({', '.join(labels)})" if 0 < len(labels) <= 8 else f" ({len(labels)} labels)" if labels else ""
    return f"{str(values.get('task'))[:40]}{shown}"


def _config(folder: Path) -> ModelConfig:
    return parse(read_toml(folder / CONFIG)).model


def models(
    name: Annotated[
        str | None,
        typer.Argument(help="Model or config to show. Default: list them all.", autocompletion=complete_name),
    ] = None,
) -> None:
    """List the models and configs that have a name.

    With NAME: the card of a model, or a config as TOML to start from.

    \b
    Example:
      segue models xlnet-base > my.toml
    """
    if name is None:
        print_models()
    else:
        print_one(name)


def _only_for_segue(config: ModelConfig) -> str | None:
    """Why other libraries cannot have it; None if they can."""
    from segue.checkpoint.families.writing import only_for_segue  # it needs torch

    return only_for_segue(config)
