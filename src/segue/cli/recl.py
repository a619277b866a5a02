"""`segue evaluate MODEL DATA --recl --against MODEL`: relative effective context length of a group of models."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from segue.api.evaluate_context import ContextEvaluation, ContextReader, evaluate_context
from segue.api.models import path_of
from segue.api.plot import check_picture, figure, write_picture
from segue.api.progress import Progress
from segue.cli.console import say
from segue.cli.evaluate import whole_numbers
from segue.cli.reporting import Report, reporting
from segue.errors import ConfigError
from segue.evaluation.recl import SHARES, THRESHOLD, EffectiveLength


def run_recl(
    models: Sequence[str],
    data: Path | None,
    *,
    lengths: str | None,
    limit: int | None,
    exact: bool,
    clamp_distance: int | None,
    plot: Path | None,
    replace: bool,
) -> None:
    """Print the perplexity of every model at every context length, then the effective lengths."""
    console = Console(highlight=False, emoji=False)
    if data is None:
        raise ConfigError("--recl needs a store; got only models. Give the folder of a store after MODEL.")
    inputs = [data, *map(path_of, models)]
    if plot is not None:
        check_picture(plot, replace=replace, inputs=inputs)
    found = _measured(
        models,
        data,
        contexts=None if lengths is None else whole_numbers(lengths, option="--lengths"),
        limit=limit,
        exact=exact,
        clamp_distance=clamp_distance,
    )
    contexts = found.contexts
    for number, (path, reader) in enumerate(zip(models, found.readers, strict=True), start=1):
        say(console, f"{number}  {path}: {_described(reader, longest=contexts[-1])}", hang=3)
    say(console, f"{found.losses_NCT.shape[2]:,} tokens predicted, starting at token {contexts[-1]:,} of {data}.")
    console.print(_perplexities(found))
    console.print()
    console.print(_table(found.lengths, contexts))
    if len(models) == 1:
        say(console, "One model is its own group: --against MODEL compares it with others.")
    if plot is not None:
        write_picture(_picture(found.lengths[SHARES[0]], contexts), plot, replace=replace, inputs=inputs)
        console.print(f"Plot: {plot}", soft_wrap=True, markup=False)


def _measured(
    models: Sequence[str],
    data: Path,
    *,
    contexts: Sequence[int] | None,
    limit: int | None,
    exact: bool,
    clamp_distance: int | None,
) -> ContextEvaluation:
    """Evaluate the models, and show the progress of each."""
    reports: dict[str, Report] = {}
    with ExitStack() as held:

        def show(event: Progress) -> None:
            if event.what not in reports:
                held.close()  # the bar of the previous model
                reports[event.what] = held.enter_context(reporting(event.what))
            reports[event.what](event.done, event.total or 0)

        return evaluate_context(
            models,
            data,
            contexts=contexts,
            limit=limit,
            exact=exact,
            clamp_distance=clamp_distance,
            progress=False,
            on_event=show,
        )


def _described(reader: ContextReader, *, longest: int) -> str:
    way = "a separate window for every token" if reader.by_window else "memory, each token seeing its context"
    positions = reader.learned_positions
    most = f", at most its {positions} positions" if positions is not None and positions < longest else ""
    return f"{reader.parameters / 1e6:.2f} M parameters; contexts by {way}{most}."


def _perplexities(found: ContextEvaluation) -> Table:
    table = Table("context", box=None, pad_edge=False)
    for number in range(1, len(found.readers) + 1):
        table.add_column(f"perplexity of {number}", justify="right")
    for context, values in zip(found.contexts, found.perplexities.T, strict=True):
        table.add_row(f"{context:,}", *(f"{value:,.3f}" for value in values))
    return table


def _table(found: Mapping[float, Sequence[EffectiveLength]], contexts: Sequence[int]) -> Table:
    table = Table("model", box=None, pad_edge=False)
    for share in found:
        table.add_column(f"RECL r = {share}", justify="right")
    for number, lengths in enumerate(zip(*found.values(), strict=True), start=1):
        table.add_row(str(number), *(_length(length, contexts) for length in lengths))
    return table


def _length(length: EffectiveLength, contexts: Sequence[int]) -> str:
    if length.open_end:
        return f">= {length.context:,}"
    return f"<= {length.context:,}" if length.context == contexts[0] else f"{length.context:,}"


def _picture(lengths: Sequence[EffectiveLength], contexts: Sequence[int]) -> Any:
    made, axes = figure()
    for number, length in enumerate(lengths, start=1):  # names may have characters that the font lacks
        axes.plot(contexts[1:], [100 * gain for gain in length.gains], marker="o", label=f"model {number}")
    axes.axhline(100 * THRESHOLD, color="black", linestyle=":", linewidth=1)
    axes.set_xlabel("context length, from the one before")
    axes.set_ylabel(f"relative gain in % (r = {SHARES[0]})")
    axes.legend()
    return made
