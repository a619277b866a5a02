"""The verbs, put together. Each imports what it needs only when it runs, so that --help is quick."""

from typing import Annotated

import typer

import segue

app = typer.Typer(
    help="Transformer-XL and XLNet: models that do not stop at the segment boundary.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
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
) -> None:
    """Options of segue itself."""


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="Show the whole config of this one.")] = None,
) -> None:
    """List the named models: what each is, its parameters, its paper."""
    from segue.cli.models import print_config, print_models

    if name is None:
        print_models()
    else:
        print_config(name)


@app.command()
def doctor(
    model: Annotated[
        str | None,
        typer.Argument(help="A named model, a config file, or a model folder. Left out: small models of both kinds."),
    ] = None,
) -> None:
    """Check the installation, and a model for the classic mistakes."""
    from segue.cli.doctor import examine

    raise typer.Exit(0 if examine(model) else 1)


@app.command()
def tour() -> None:
    """A guided tour of the models: memory, permutations, exactness. All numbers are computed as you watch."""
    from segue.cli.tour import run

    run()
