"""`segue score`: log-probabilities of files of any length, one row for each token, line or document."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from segue.api.models import path_of, text_model
from segue.api.score import score_each
from segue.cli.console import duration
from segue.cli.options import ModelArgument, ReplaceFileOption, TextOptions
from segue.cli.output_tables import Kind, RowFormat, metered, row_format, row_writer, summarise, warn, written
from segue.files import check_file
from segue.infer.score import By, Order
from segue.infer.score_rows import TextScore, TokenScore

_KINDS: dict[str, Kind] = {
    "source": "text",
    "text": "text",
    "token": "text",
    "log_probability": "float64",
    "perplexity": "float64",
    "bits_per_character": "float64",
}


def run_scoring(
    model: str,
    inputs: Sequence[str],
    *,
    out: Path | None,
    replace: bool,
    to: RowFormat | None,
    by: By,
    order: Order,
    seed: int,
    reading: TextOptions,
) -> None:
    """Write the rows; with a file, print a summary."""
    written_as = row_format(out, to)
    files = reading.files(inputs)
    read_from = [path_of(model), *(file.path for file in files.files)]
    if out is not None:
        check_file(out, replace=replace, inputs=read_from)
    console = Console(stderr=True, highlight=False, emoji=False)
    names = [field.name for field in fields(TokenScore if by == "token" else TextScore)]
    names.remove("likeliest")  # not requested
    if by == "document":
        names.remove("line")
    loaded = text_model(model)
    count = 0
    with metered(console, files) as meter, written(out, replace=replace, inputs=read_from) as file:
        writer = row_writer(file, written_as, {name: _KINDS.get(name, "int64") for name in names})
        stream = score_each(
            loaded,
            files,
            by=by,
            likeliest=False,
            order=order,
            seed=seed,
            segment_length=reading.segment_length,
            batch_tokens=reading.batch_tokens,
            progress=False,
            on_event=meter.show,
        )
        for row in stream:
            writer.write({name: getattr(row, name) for name in names})
            count += 1
        writer.close()
        seconds = meter.seconds
    if out is None:
        warn(console, files)
        return
    objective, totals = loaded.model.config.objective, stream.totals
    likelihood = {"causal": "", "permutation": f", order {order}", "masked": ", pseudo-likelihood"}[objective]
    summarise(
        console,
        files,
        {
            "rows": f"{count:,}",
            "documents": f"{totals.documents:,}" + (f", {totals.empty:,} without a token" if totals.empty else ""),
            "characters": f"{totals.characters:,}",
            "tokens": f"{totals.tokens:,}",
            f"log-probability{likelihood}": f"{totals.log_probability:,.3f}",
            "perplexity": _shown(totals.perplexity),
            "bits/character": _shown(totals.bits_per_character),
            "time": f"{duration(seconds)}, {totals.tokens / max(seconds, 1e-9):,.0f} tokens/s",
        },
    )
    console.print(f"{out}", soft_wrap=True, markup=False)


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:,.4f}"


def score(
    model: ModelArgument,
    texts: Annotated[
        list[str],
        typer.Argument(metavar="FILE|-", help="Text files and folders, as for segue prepare; - reads standard input."),
    ],
    reading: TextOptions,
    by: Annotated[Literal["token", "line", "document"], typer.Option(help="Unit to score: one row each.")] = "document",
    order: Annotated[
        Literal["forward", "backward", "random"],
        typer.Option(help="Permutation models: factorisation order within a segment."),
    ] = "forward",
    seed: Annotated[int, typer.Option(min=0, help="Seed for random orders.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Table to write. Default: standard output.")] = None,
    replace: ReplaceFileOption = False,
    to: Annotated[
        Literal["jsonl", "csv", "tsv", "parquet"] | None,
        typer.Option(help="Output format. Default: inferred from the file name, else jsonl."),
    ] = None,
) -> None:
    """Compute log-probabilities of texts, by token, line or document.

    A causal model predicts each token from those before it, a permutation model in a factorisation order of each
    segment, a masked model from all other tokens of its window (pseudo-likelihood). Logarithms are natural.

    \b
    Example:
      segue score model reviews.txt --out scores.csv
      segue score model - < text.txt
    """
    run_scoring(
        model,
        texts,
        out=out,
        replace=replace,
        to=to,
        by=by,
        order=order,
        seed=seed,
        reading=reading,
    )
