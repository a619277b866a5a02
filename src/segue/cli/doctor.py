"""`segue doctor`: the checks of `evaluate.checks`, through every kernel, each with a sentence on what it means."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import torch
from rich.console import Console

from segue.checkpoint.find import find, is_here, model_folder
from segue.checkpoint.folder import load as load_folder
from segue.cli.paragraphs import finding, say
from segue.config import ModelConfig, changed
from segue.config import load as load_config
from segue.evaluate.checks import Check, check_installation, check_model
from segue.model import LanguageModel
from segue.model.named import named

SMALL = {
    "num_layers": 3,
    "width": 64,
    "num_heads": 4,
    "head_width": 16,
    "inner_width": 128,
    "vocabulary": {"size": 500},
}


def examine(model: str | None) -> bool:
    """Prints every finding; True if none failed."""
    console = Console(highlight=False)
    fine = _report(console, "Installation", check_installation())
    for title, language_model in _models(model):
        fine = _report(console, title, check_model(language_model)) and fine
    console.print("\nAll is well." if fine else "\n[bold red]Something failed: see above.[/]")
    return fine


def _models(model: str | None) -> Iterable[tuple[str, LanguageModel]]:
    torch.manual_seed(0)
    if model is None:
        for name in ("transformer-xl-enwik8-base", "xlnet-base"):
            yield f"A small {name}, random weights", LanguageModel(changed(named(name), **SMALL))
    elif Path(model).suffix == ".toml":
        yield f"The model of {model}, random weights", LanguageModel(load_config(model).model)
    elif is_here(model):
        folder = model_folder(find(model))
        yield f"The model in {folder}", load_folder(folder)
    else:
        config: ModelConfig = named(model)
        yield f"{model}, random weights", LanguageModel(config)


def _report(console: Console, title: str, checks: Iterable[Check]) -> bool:
    """One line for each result of a check, with the kernels that gave it; then what the check means."""
    console.print(f"\n[bold]{title}[/]")
    fine = True
    for name, findings in groupby(checks, key=lambda check: check.name):
        kernels: dict[tuple[bool | None, str], list[str]] = {}
        meaning = ""
        for check in findings:
            kernels.setdefault((check.passed, check.measured), []).extend([check.kernel] if check.kernel else [])
            meaning, fine = check.meaning, fine and check.passed is not False
        for (passed, measured), names in kernels.items():
            where = f" ({', '.join(names)})" if names else ""
            finding(console, passed, f"{name}{where}: {measured}")
        say(console, meaning, indent=8, style="dim")
    return fine
