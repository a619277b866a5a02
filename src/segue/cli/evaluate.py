"""`segue evaluate`: perplexity and bits of a model on a store. --speed, --recl, --pairs and --table have modules
of their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from segue.api.evaluate import Evaluation, store_for
from segue.api.evaluate import evaluate as evaluated
from segue.api.models import load, path_of
from segue.api.plot import check_picture, figure, write_picture
from segue.cli.options import LabelledTableOptions, ModelArgument, ReplaceFileOption
from segue.cli.reporting import reporting
from segue.errors import ConfigError
from segue.evaluation.perplexity import Order

TAKES = {
    "--speed": {"--segment-length", "--lengths", "--repeats"},
    "--recl": {"--clamp-distance", "--limit", "--plot", "--replace", "--lengths", "--against", "--exact-context"},
    "--pairs": {"--segment-length", "--orders", "--seed", "--column", "--json", "--out", "--replace"},
    "--table": {
        "--column",
        "--json",
        "--batch-size",
        "--format",
        "--columns",
        "--delimiter",
        "--quoting",
        "--encoding",
        "--largest-expansion",
        "--malformed-share",
    },
}
"""Options of each mode; the rest are for perplexity."""
OWN = {"--lengths", "--repeats", "--against", "--exact-context", "--orders", "--seed", "--out", *TAKES["--table"]}
"""Options that do not apply to perplexity."""


def check_options(*, modes: Mapping[str, bool], given: Mapping[str, object]) -> None:
    """Raise ConfigError for options without effect. `modes` says which of --speed, --recl, --pairs and --table
    were given; `given` are all other options by name, None if not given."""
    chosen = [name for name, wanted in modes.items() if wanted]
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} cannot be combined; got both. Choose one.")
    mode = chosen[0] if chosen else None
    wrong = [
        name
        for name, value in given.items()
        if value not in (None, False) and (name in OWN if mode is None else name not in TAKES[mode])
    ]
    if wrong and mode is None:
        owners = [name for name, taken in TAKES.items() if set(wrong) & taken]
        raise ConfigError(f"{', '.join(wrong)} requires {' or '.join(owners)}; none was given. Add one.")
    if wrong:
        raise ConfigError(
            f"{mode} accepts only {', '.join(sorted(TAKES[mode or '']))}; got {', '.join(wrong)}. Leave it out."
        )


def whole_numbers(text: str, *, option: str) -> list[int]:
    """Return the numbers of an option N,N,..."""
    try:
        return [int(value) for value in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"{option} must be comma-separated whole numbers; got {text!r}. Write 100,200,300, for example."
        ) from None


def run_evaluation(
    source: str,
    data: Path | None,
    *,
    segment_length: int | None,
    memory_length: int | None,
    attention_span: int | None,
    clamp_distance: int | None,
    window: int | None,
    stride: int,
    order: Order,
    pseudo: bool,
    lanes: int,
    limit: int | None,
    sweep: str | None,
    plot: Path | None,
    replace: bool,
) -> None:
    """Print a table; with a sweep, a row for each memory length, and a plot."""
    console = Console(highlight=False, emoji=False)
    if data is None:
        raise ConfigError("perplexity needs a store; got only a model. Give the folder of a store, or use --speed.")
    inputs = [data, path_of(source)]
    if plot is not None:
        check_picture(plot, replace=replace, inputs=inputs)
    store = store_for(source, data)
    model = load(source)
    lengths = _sweep_lengths(sweep) if sweep is not None else [memory_length]
    table = Table(
        "memory", "perplexity", "bits/token", "bits/character", "bits/byte", "tokens", box=None, pad_edge=False
    )
    found: list[Evaluation] = []
    for length in lengths:
        with reporting("evaluate" if length is None else f"evaluate, memory {length}") as report:
            one = evaluated(
                model,
                store,
                segment_length=segment_length,
                memory_length=length,
                attention_span=attention_span,
                clamp_distance=clamp_distance,
                window=window,
                stride=stride,
                order=order,
                pseudo=pseudo,
                lanes=lanes,
                limit=limit,
                progress=False,
                on_event=lambda event: report(event.done, event.total or 0),
            )
        found.append(one)
        table.add_row(*_row(one))
    console.print(table)
    if plot is not None:
        write_picture(_picture(found), plot, replace=replace, inputs=inputs)
        console.print(f"Plot: {plot}", soft_wrap=True, markup=False)


def _row(found: Evaluation) -> list[str]:
    approximate = "" if found.exact else "~"
    return [
        str(found.memory_length) if found.memory_length else "none",
        f"{found.perplexity:,.3f}",
        f"{found.bits_per_token:.4f}",
        f"{approximate}{found.bits_per_character:.4f}",
        f"{approximate}{found.bits_per_byte:.4f}",
        f"{found.tokens:,}",
    ]


def _sweep_lengths(text: str) -> list[int | None]:
    name, _, values = text.partition("=")
    try:
        lengths: list[int | None] = [int(value) for value in values.split(",")]
    except ValueError:
        lengths = []
    if name != "memory_length" or not lengths:
        raise ConfigError(
            f"--sweep must have the form memory_length=N,N,...; got {text!r}. Write memory_length=64,128,256, for "
            "example."
        )
    return lengths


def _picture(found: list[Evaluation]) -> Any:
    made, axes = figure()
    axes.plot([one.memory_length or 0 for one in found], [one.perplexity for one in found], marker="o")
    axes.set_xlabel("memory length")
    axes.set_ylabel("perplexity")
    return made


def evaluate(
    model: ModelArgument,
    tables: LabelledTableOptions,
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="STORE",
            help="Store with the tokeniser of the model; optional for --speed, none for --pairs and --table.",
        ),
    ] = None,
    segment_length: Annotated[
        int | None, typer.Option(min=1, help="Segment length in tokens. Default: as in training.")
    ] = None,
    memory_length: Annotated[
        int | None, typer.Option(min=1, help="Memory length in tokens. Default: as in training.")
    ] = None,
    attention_span: Annotated[
        int | None,
        typer.Option(min=1, help="Number of positions that each token attends to, itself included. Default: no limit."),
    ] = None,
    clamp_distance: Annotated[
        int | None, typer.Option(min=1, help="Clamp relative distances at this value. Default: no limit.")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(min=1, help="Length of a sliding window, evaluated without memory. Default: no window."),
    ] = None,
    stride: Annotated[int, typer.Option(min=1, help="Number of tokens to advance per window.")] = 1,
    order: Annotated[
        Literal["forward", "backward", "random"],
        typer.Option(help="Permutation models: factorisation order within a segment."),
    ] = "forward",
    pseudo: Annotated[
        bool, typer.Option("--pseudo", help="Measure pseudo-likelihood, for masked and permutation models.")
    ] = False,
    lanes: Annotated[
        int, typer.Option(min=1, help="Number of parts of the text to read in parallel. Affects only speed.")
    ] = 8,
    limit: Annotated[int | None, typer.Option(min=1, help="Number of tokens to evaluate. Default: all.")] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="memory_length=N,N,...", help="Evaluate once for each memory length.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Image file for the plot of --sweep or --recl.")
    ] = None,
    replace: ReplaceFileOption = False,
    speed: Annotated[
        bool,
        typer.Option("--speed", help="Measure time per token with memory, against a vanilla model's sliding window."),
    ] = False,
    recl: Annotated[
        bool,
        typer.Option(
            "--recl", help="Measure the relative effective context length of MODEL and the models of --against."
        ),
    ] = False,
    lengths: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="--speed, --recl: attention or context lengths.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="--speed: number of timed runs. Default: 3.")] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="--recl: another model of the comparison group; repeatable."),
    ] = None,
    exact_context: Annotated[
        bool, typer.Option("--exact-context", help="--recl: evaluate a separate window for every token. Slow.")
    ] = False,
    pairs: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|FOLDER",
            help="Measure accuracy on minimal pairs (BLiMP) in a jsonl file, also .gz or .xz, or a folder.",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Measure the metrics of a fine-tuned model on labelled examples: csv, tsv, json, jsonl, parquet, "
            "CoNLL, SQuAD, or datasets:NAME.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="--table: number of rows per batch. Affects only speed. Default: 32.")
    ] = None,
    orders: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="--pairs, permutation models: number of random orders to average over. Default: pseudo-likelihood.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="--orders: seed for random orders. Default: 0.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="--pairs: table of the log-probabilities of each pair to write, .jsonl or .csv."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="--pairs, --table: print all results as one JSON object.")
    ] = False,
) -> None:
    """Measure perplexity, metrics of a task, accuracy on minimal pairs, speed, or effective context length.

    \b
    Example:
      segue evaluate run corpus-valid --memory-length 256
      segue evaluate sentiment --table test.csv
      segue evaluate run --speed
    """
    given = {
        "--segment-length": segment_length,
        "--memory-length": memory_length,
        "--attention-span": attention_span,
        "--clamp-distance": clamp_distance,
        "--window": window,
        "--order": order if order != "forward" else None,
        "--pseudo": pseudo,
        "--limit": limit,
        "--sweep": sweep,
        "--plot": plot,
        "--replace": replace,
        "--lengths": lengths,
        "--repeats": repeats,
        "--against": against or None,
        "--exact-context": exact_context,
        "--column": tables.column or None,
        "--batch-size": batch_size,
        "--format": tables.format,
        "--columns": tables.columns,
        "--delimiter": tables.delimiter,
        "--quoting": None if tables.quoting is None else str(tables.quoting),
        "--encoding": tables.encoding if tables.encoding != "utf-8" else None,
        "--largest-expansion": tables.largest_expansion,
        "--malformed-share": str(tables.malformed_share) if tables.malformed_share != 0.05 else None,
        "--orders": orders,
        # A seed of 0 is given too.
        "--seed": None if seed is None else str(seed),
        "--out": out,
        "--json": as_json,
    }
    modes = {"--speed": speed, "--recl": recl, "--pairs": pairs is not None, "--table": table is not None}
    check_options(modes=modes, given=given)
    if table is not None:
        from segue.cli.evaluate_task import run_task

        run_task(model, data, table, tables=tables, batch_size=batch_size or 32, as_json=as_json)
    elif pairs is not None:
        from segue.cli.evaluate_pairs import run_pairs

        run_pairs(
            model,
            data,
            pairs,
            columns=tables.column or [],
            orders=orders,
            seed=seed or 0,
            segment_length=segment_length,
            out=out,
            replace=replace,
            as_json=as_json,
        )
    elif speed:
        from segue.cli.evaluate_speed import run_speed

        run_speed(model, data, lengths=lengths, segment_length=segment_length, repeats=repeats or 3)
    elif recl:
        from segue.cli.recl import run_recl

        run_recl(
            [model, *(against or [])],
            data,
            lengths=lengths,
            limit=limit,
            exact=exact_context,
            clamp_distance=clamp_distance,
            plot=plot,
            replace=replace,
        )
    else:
        run_evaluation(
            model,
            data,
            segment_length=segment_length,
            memory_length=memory_length,
            attention_span=attention_span,
            clamp_distance=clamp_distance,
            window=window,
            stride=stride,
            order=order,
            pseudo=pseudo,
            lanes=lanes,
            limit=limit,
            sweep=sweep,
            plot=plot,
            replace=replace,
        )
