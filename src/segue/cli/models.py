"""`segue models`: the named models, readable in a terminal of any width."""

from rich.console import Console

from segue.cli.paragraphs import say
from segue.config import Config, dump
from segue.model.named import named, named_models


def print_models() -> None:
    """A paragraph for each: name and size, what it is, its paper."""
    console = Console(highlight=False)
    for name, model in named_models().items():
        say(console, f"{name}  {model.parameters() / 1e6:.1f} M parameters", hang=2, style="bold")
        say(console, model.about, indent=2)
        say(console, model.paper, indent=2, style="dim")
    console.print()
    say(console, "`segue models NAME` prints a config to start from.")


def print_config(name: str) -> None:
    """As TOML, so that it can be sent to a file."""
    print(dump(Config(model=named(name))), end="")
