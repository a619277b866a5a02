"""`segue doctor`: the checks of `evaluation.checks`, through every kernel, each with a sentence on what it means."""

import re
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import groupby
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from segue.checkpoint.find import find, is_here, model_folder
from segue.checkpoint.folder import load as load_folder
from segue.cli.completion import complete_model
from segue.cli.console import finding, say
from segue.config import ModelConfig, changed
from segue.config import load as load_config
from segue.evaluation.checks import Check, check_installation, check_model
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


EXTRAS = {
    "corpora": "Parquet files, to read and to write.",
    "tokenizers": "The tokenizer.json of transformers 5.",
    "pictures": "Plots of runs and evaluations.",
    "hub": "Models by their name on the hub, and segue push.",
    "tune": "The search of segue tune.",
    "export": "ONNX programs.",
    "serve": "The server of segue serve.",
    "redis": "Sessions in Redis, for several servers of segue serve.",
    "lm-eval": "lm-evaluation-harness, through segue-lm-eval.",
}
"""What each optional extra is for."""
NOT_FOR_USERS = {"test", "check", "browser"}


def examine(model: str | None) -> bool:
    """Prints every finding; True if none failed."""
    console = Console(highlight=False)
    fine = _report(console, "Installation", check_installation())
    _print_extras(console)
    for title, language_model in _models(model):
        fine = _report(console, title, check_model(language_model)) and fine
    console.print("\nAll is well." if fine else "\n[bold red]Something failed: see above.[/]")
    return fine


def extras() -> dict[str, list[str]]:
    """The packages of each optional extra that is for users, as the installation says."""
    found: dict[str, list[str]] = {}
    for text in requires("segue") or []:
        package, _, condition = text.partition(";")
        extra = re.search(r"""extra *== *['"](\w+)['"]""", condition)
        if extra is not None and extra[1] not in NOT_FOR_USERS:
            found.setdefault(extra[1], []).append(re.match(r"[\w.-]+", package)[0])  # type: ignore[index]
    return found


def _print_extras(console: Console) -> None:
    """Each with what it is for, and what is missing."""
    console.print("\n[bold]Extras[/]")
    for name, packages in extras().items():
        missing = [package for package in packages if not _installed(package)]
        state = f"missing; pip install {' '.join(missing)}" if missing else ", ".join(packages)
        finding(console, None if missing else True, f"{name}: {state}")
        say(console, EXTRAS.get(name, ""), indent=8, style="dim")


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


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


def doctor(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Model folder, run folder, name, or config file. Default: small models of both kinds.",
            autocompletion=complete_model,
        ),
    ] = None,
) -> None:
    """Check the installation, and a model for the classic mistakes.

    The exit status is 1 if a check fails.

    \b
    Example:
      segue doctor run
    """
    raise typer.Exit(0 if examine(model) else 1)
