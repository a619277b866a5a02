"""`segue predict`: predictions for the rows of a table or for texts, in order, in constant memory.

Every row is written. A row that cannot be read or answered has no prediction; a column of its own says why.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TextIO

import typer
from rich.console import Console

from segue.api.models import path_of
from segue.api.predict import Table, is_table_name, load_finetuned, predict_each, table_file, text_rows
from segue.api.progress import Progress
from segue.cli.console import moving_line, say
from segue.cli.options import ModelArgument, ReplaceFileOption, TableOptions
from segue.cli.output_tables import check_standard_output
from segue.cli.prediction_table import PROBLEM, PredictionFormat, PredictionWriter
from segue.data.problems import MEANING
from segue.data.tables import DATASETS, STANDARD_INPUT, TableSettings
from segue.errors import ConfigError
from segue.files import check_file, new_text_file


def run_prediction(
    model: str,
    sources: Sequence[str],
    *,
    out: Path | None,
    replace_existing: bool,
    to: PredictionFormat | None,
    columns: dict[str, str],
    tables: TableSettings,
    batch_size: int,
    escape_formulas: bool,
) -> None:
    """Write a row for each row of the table, or for each text (`is_table` decides which they are)."""
    from_table = is_table(sources)
    inputs: list[str | Path] = [path_of(model), *(sources if from_table else ())]
    if out is not None:
        check_file(out, replace=replace_existing, inputs=inputs)
    else:
        check_standard_output()
    made = load_finetuned(model)
    table = table_file(sources[0], tables) if from_table else text_rows(made, sources)
    written = problems = 0
    first_problem = ""
    console = Console(stderr=True, highlight=False, emoji=False)
    with (
        _opened(out, replace=replace_existing, inputs=inputs) as file,
        moving_line(console) as progress,
    ):
        bar = progress.add_task("", total=None, line="")
        writer = PredictionWriter(file, to or _format_of(out), table.columns, escape_formulas=escape_formulas)

        def show(event: Progress) -> None:
            if event.done % 100 == 0:
                progress.update(bar, line=f"{event.done:,} rows")

        found = predict_each(made, table, columns=columns, batch_size=batch_size, progress=False, on_event=show)
        for one in found:
            problem = writer.write(one.row, one.answer, one.problem)
            if problem is not None:
                problems += 1
                first_problem = first_problem or problem
            written += 1
        writer.close()
        progress.remove_task(bar)
    if problems:
        text = f"{problems:,} of {written:,} rows have no answer; the column `{PROBLEM}` says why. The first: "
        say(console, text + first_problem, hang=2, style="yellow")
    _warn(console, table, writer)
    if out is not None:
        console.print(f"{written:,} rows in {out}.", soft_wrap=True, markup=False)


def is_table(sources: Sequence[str]) -> bool:
    """Return True for a table rather than texts: a single argument that is `-`, `datasets:NAME`, an existing path, or a
    name with the extension of a table. A path among several arguments is an error, because it would be read as a text.
    """
    if len(sources) == 1:
        return (
            sources[0] == STANDARD_INPUT
            or sources[0].startswith(DATASETS)
            or is_table_name(sources[0])
            or os.path.exists(sources[0])
        )
    for source in sources:
        if source == STANDARD_INPUT or os.path.isfile(source):
            raise ConfigError(
                f"several arguments are read as texts; got {source!r} among them, which is a table. Give the table "
                "alone, or give the texts as rows on standard input."
            )
    return False


def _warn(console: Console, table: Table, writer: PredictionWriter) -> None:
    """Print other differences from the input table."""
    problems = table.problems
    for kind, number in problems.counts.items():
        if kind != "malformed_records":  # they are among the rows without a prediction
            say(console, f"{number:,} {MEANING[kind]}; first: {problems.first[kind]}", hang=2, style="yellow")
    if writer.escaped:
        text = (
            f"{writer.escaped:,} cells that look like spreadsheet formulas were prefixed with '; --no-escape-formulas "
            "leaves them unchanged."
        )
        say(console, text, hang=2, style="yellow")
    for name, number in writer.left_out.items():
        text = f"{number:,} rows have a field {name!r} that the first rows lack; it is not written. Use --to jsonl."
        say(console, text, hang=2, style="yellow")


def _format_of(out: Path | None) -> PredictionFormat:
    match "" if out is None else out.suffix:
        case ".csv":
            return "csv"
        case ".tsv":
            return "tsv"
        case _:
            return "jsonl"


@contextmanager
def _opened(out: Path | None, *, replace: bool, inputs: Iterable[str | Path]) -> Iterator[TextIO]:
    """Yield standard output, or a file that is written atomically."""
    if out is None:
        yield sys.stdout
        return
    with new_text_file(out, replace=replace, inputs=inputs) as file:
        yield file


def predict(
    model: ModelArgument,
    sources: Annotated[list[str], typer.Argument(metavar="FILE|-|TEXT", help="Table, - for standard input, or texts.")],
    tables: TableOptions,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Table to write. Default: standard output.")] = None,
    replace: ReplaceFileOption = False,
    to: Annotated[
        Literal["csv", "tsv", "jsonl"] | None,
        typer.Option(help="Output format. Default: inferred from the file name, else jsonl."),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Batch size. Affects only speed.")] = 32,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas/--no-escape-formulas",
            help="Whether to put a ' before text that a spreadsheet would evaluate as a formula (= + - @), in csv "
            "and tsv. Default: yes.",
        ),
    ] = True,
) -> None:
    """Run a fine-tuned model on the rows of a table, or on texts.

    A single argument that is a path, or has the extension of a table (.csv, .jsonl, ...), is read as a table. All other
    arguments are texts; a task with two texts takes them in turn.

    Every row is written, in order. A row that cannot be read or answered has no answer, and the column `problem` says
    why; such rows are counted on standard error, and the exit status is 0.

    \b
    Example:
      segue predict topics reviews.csv --out answers.csv
      segue predict topics "The room was clean."
    """
    run_prediction(
        model,
        sources,
        out=out,
        replace_existing=replace,
        to=to,
        columns=tables.roles(),
        tables=tables.settings(),
        batch_size=batch_size,
        escape_formulas=escape_formulas,
    )
