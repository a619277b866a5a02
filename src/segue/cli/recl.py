"""`segue evaluate MODEL DATA --recl --against MODEL`: how much context each model of a group makes use of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from segue.api.evaluate import check_tokenizer, open_store
from segue.checkpoint.find import find, model_folder, path_of
from segue.checkpoint.folder import load, parameters_of
from segue.cli.console import say
from segue.cli.evaluate import whole_numbers
from segue.cli.plot import check_picture, figure, write_picture
from segue.cli.reporting import reporting
from segue.errors import ConfigError
from segue.evaluation.recl import (
    CONTEXTS,
    SHARES,
    THRESHOLD,
    EffectiveLength,
    check_contexts,
    context_losses,
    effective_lengths,
    reads_windows,
)
from segue.model import LanguageModel

TOKENS, TOKENS_BY_WINDOW = 10_000, 1_000
"""How many are predicted where no limit is given: fewer where each takes a window."""


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
    """Prints the perplexity of every model at every context length, then the effective lengths."""
    console = Console(highlight=False)
    if data is None:
        raise ConfigError("--recl needs a store; got models alone. Give its folder after MODEL.")
    inputs = [data, *map(path_of, models)]
    if plot is not None:
        check_picture(plot, replace=replace, inputs=inputs)
    contexts = CONTEXTS if lengths is None else tuple(whole_numbers(lengths, option="--lengths"))
    check_contexts(contexts)
    folders = [model_folder(find(model)) for model in models]
    store, group = open_store(data, folders[0]), [load(folder) for folder in folders]
    for folder, model in zip(folders, group, strict=True):
        check_tokenizer(store, folder, model)
    if clamp_distance is not None:
        group = [model.adjusted(positions={"clamp_distance": clamp_distance}) for model in group]
    windows = [exact or reads_windows(model) for model in group]
    stop = limit or min(store.length, contexts[-1] + (TOKENS_BY_WINDOW if any(windows) else TOKENS))
    losses = []
    for number, model in enumerate(group, start=1):
        with reporting(f"model {number} of {len(group)}") as report:
            losses.append(context_losses(model, store, contexts=contexts, limit=stop, exact=exact, progress=report))
    losses_NCT = np.stack(losses)
    for number, (path, model, by_window) in enumerate(zip(models, group, windows, strict=True), start=1):
        say(console, f"{number}  {path}: {_described(model, by_window, longest=contexts[-1])}", hang=3)
    say(console, f"{losses_NCT.shape[2]:,} tokens predicted, from token {contexts[-1]:,} of {data} on.")
    console.print(_perplexities(losses_NCT, contexts))
    console.print()
    found = {share: effective_lengths(losses_NCT, contexts, share=share) for share in SHARES}
    console.print(_table(found, contexts))
    if len(group) == 1:
        say(console, "One model is its own group: --against MODEL compares it with others.")
    if plot is not None:
        write_picture(_picture(found[SHARES[0]], contexts), plot, replace=replace, inputs=inputs)
        console.print(f"Plot: {plot}")


def _described(model: LanguageModel, by_window: bool, *, longest: int) -> str:
    way = "a window from nothing for every token" if by_window else "memory, each token seeing its context"
    positions = model.config.learned_positions
    most = f", at most its {positions} positions" if positions is not None and positions < longest else ""
    return f"{parameters_of(model) / 1e6:.2f} M parameters; contexts by {way}{most}."


def _perplexities(losses_NCT: NDArray[np.float64], contexts: Sequence[int]) -> Table:
    table = Table("context", box=None, pad_edge=False)
    for number in range(1, len(losses_NCT) + 1):
        table.add_column(f"perplexity of {number}", justify="right")
    for at, context in enumerate(contexts):
        values = np.exp(losses_NCT[:, at].mean(axis=1))
        table.add_row(f"{context:,}", *(f"{value:,.3f}" for value in values))
    return table


def _table(found: dict[float, list[EffectiveLength]], contexts: Sequence[int]) -> Table:
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


def _picture(lengths: list[EffectiveLength], contexts: Sequence[int]) -> Any:
    made, axes = figure()
    for number, length in enumerate(lengths, start=1):  # names may have characters that the font lacks
        axes.plot(contexts[1:], [100 * gain for gain in length.gains], marker="o", label=f"model {number}")
    axes.axhline(100 * THRESHOLD, color="black", linestyle=":", linewidth=1)
    axes.set_xlabel("context length, from the one before")
    axes.set_ylabel(f"relative gain in % (r = {SHARES[0]})")
    axes.legend()
    return made
