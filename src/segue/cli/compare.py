"""`segue compare`: a table of models, with confidence intervals of their differences to the first."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.api.compare import ModelComparison
from segue.api.compare import compare as compare_models
from segue.cli.completion import complete_model
from segue.cli.console import say
from segue.cli.options import DocumentsOption, FieldOption, LabelledTableOptions
from segue.cli.reporting import reporting
from segue.evaluation.metrics.bootstrap import FEWEST, Metric


def compare(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL MODEL...",
            help="Two or more models, each a folder or a name; either all fine-tuned on one task, or none.",
            autocompletion=complete_model,
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Labelled table for fine-tuned models, or a text file for language models.",
        ),
    ],
    reading: LabelledTableOptions,
    documents: DocumentsOption = None,
    field: FieldOption = "text",
    batch_size: Annotated[int, typer.Option(min=1, help="Number of rows per batch. Affects only speed.")] = 32,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare models on the same data, with confidence intervals.

    Fine-tuned models are compared by the metrics of their task, language models by bits per character and per byte,
    which do not depend on the tokeniser. Differences are relative to the first model, with 95 % intervals from a paired
    bootstrap.

    \b
    Example:
      segue compare xlnet-reviews bert-reviews --data test.csv
    """
    with reporting("models") as report:
        found = compare_models(
            models,
            data,
            columns=reading.roles(),
            tables=reading.settings(),
            field=field,
            documents=documents,
            batch_size=batch_size,
            progress=False,
            on_event=lambda event: report(event.done, event.total or 0),
        )
    if as_json:
        print(json.dumps(asdict(found), ensure_ascii=False))
    else:
        _print(found)
    console = Console(stderr=True, highlight=False, emoji=False)
    for note in found.notes:
        say(console, note, style="yellow")


def _print(found: ModelComparison) -> None:
    console = Console(highlight=False, emoji=False)
    table = Table("model", "metric", box=None, pad_edge=False)
    for name in ("value", "95 %", "difference", "95 %"):
        table.add_column(name, justify="right")
    for model in found.models:
        shown = model.name
        for name, metric in model.metrics.items():
            difference = model.differences.get(name)
            cells = ["", ""] if difference is None else [f"{difference.value:+.4f}", _interval(difference, sign="+")]
            table.add_row(Text(shown), Text(name), f"{metric.value:.4f}", _interval(metric), *cells)
            shown = ""
    console.print(table)
    what = "documents" if found.task == "language modelling" else "examples"
    text = f"{found.task}, {found.examples:,} {what}. "
    if found.examples < FEWEST:
        text += f"No intervals are given below {FEWEST}."
    else:
        text += (
            "A difference is significant on this data if its interval excludes 0; other seeds may give other results."
        )
    say(console, text)


def _interval(metric: Metric, *, sign: str = "") -> str:
    if metric.low is None or metric.high is None:
        return ""
    return f"{metric.low:{sign}.4f} to {metric.high:{sign}.4f}"
