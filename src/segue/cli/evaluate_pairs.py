"""`segue evaluate MODEL --pairs FILE`: accuracy of a model on minimal pairs."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from segue.api.evaluate_pairs import PairEvaluation, evaluate_pairs
from segue.api.models import path_of
from segue.cli.console import say
from segue.cli.options import chosen_columns
from segue.cli.output_tables import Kind, row_format, row_writer, written
from segue.cli.reporting import reporting
from segue.errors import ConfigError
from segue.evaluation.metrics.pairs import Group, PairAccuracy
from segue.files import check_file

_COLUMNS: dict[str, Kind] = {
    "paradigm": "text",
    "phenomenon": "text",
    "good": "text",
    "bad": "text",
    "log_probability_good": "float64",
    "log_probability_bad": "float64",
    "tokens_good": "int64",
    "tokens_bad": "int64",
}


def run_pairs(
    model: str,
    data: Path | None,
    source: Path,
    *,
    columns: list[str],
    orders: int | None,
    seed: int,
    segment_length: int | None,
    out: Path | None,
    replace: bool,
    as_json: bool,
) -> None:
    """Print a row for each phenomenon, and the accuracy over all."""
    if data is not None:
        raise ConfigError(f"--pairs takes no store; got {data}. Leave it out.")
    inputs = [path_of(model), source]
    if out is not None:
        row_format(out, None)
        check_file(out, replace=replace, inputs=inputs)
    with reporting("sentences") as report:
        found = evaluate_pairs(
            model,
            source,
            columns=chosen_columns(columns),
            orders=orders,
            seed=seed,
            segment_length=segment_length,
            progress=False,
            on_event=lambda event: report(event.done, event.total or 0),
        )
    if out is not None:
        _write(out, found, replace=replace, inputs=inputs)
    if as_json:
        print(json.dumps(_values(found), ensure_ascii=False))
    else:
        _print(found.accuracy, found.scored_by)
    _warn(found)


def _print(accuracy: PairAccuracy, way: str) -> None:
    console = Console(highlight=False, emoji=False)
    table = Table("phenomenon", box=None, pad_edge=False)
    for name in ("paradigms", "pairs", "ties", "accuracy"):
        table.add_column(name, justify="right")
    inside = _inside(accuracy)
    for name, group in accuracy.phenomena.items():
        table.add_row(Text(name), f"{inside[name]:,}", *_cells(group))
    total = Group(pairs=accuracy.pairs, ties=accuracy.ties, accuracy=accuracy.accuracy.value)
    table.add_row("all pairs", f"{len(accuracy.paradigms):,}", *_cells(total))
    table.add_row("mean of paradigms", "", "", "", f"{100 * accuracy.mean_of_paradigms:.2f}")
    console.print(table)
    low, high = accuracy.accuracy.low, accuracy.accuracy.high
    interval = (
        "" if low is None or high is None else (f"95 % interval over all pairs: {100 * low:.2f} to {100 * high:.2f}. ")
    )
    say(console, f"{interval}Accuracy in %; a tie counts as half, chance is 50. Scored by {way}.")


def _inside(accuracy: PairAccuracy) -> dict[str, int]:
    """Return the number of paradigms of each phenomenon."""
    return {
        name: len({paradigm for paradigm, of in accuracy.phenomenon_of.items() if of == name})
        for name in accuracy.phenomena
    }


def _cells(group: Group) -> list[str]:
    return [f"{group.pairs:,}", f"{group.ties:,}", f"{100 * group.accuracy:.2f}"]


def _values(found: PairEvaluation) -> dict[str, Any]:
    accuracy, scores = found.accuracy, found.scores
    overall = accuracy.accuracy
    return {
        "accuracy": overall.value,
        "low": overall.low,
        "high": overall.high,
        "mean_of_paradigms": accuracy.mean_of_paradigms,
        "pairs": accuracy.pairs,
        "ties": accuracy.ties,
        "scored_by": found.scored_by,
        "tokens": int(scores.tokens_N2.sum()),
        "unknown_tokens": scores.unknown,
        "phenomena": {name: asdict(group) for name, group in accuracy.phenomena.items()},
        "paradigms": {
            name: asdict(group) | {"phenomenon": accuracy.phenomenon_of[name]}
            for name, group in accuracy.paradigms.items()
        },
    }


def _write(out: Path, found: PairEvaluation, *, replace: bool, inputs: Sequence[Path]) -> None:
    with written(out, replace=replace, inputs=inputs) as file:
        writer = row_writer(file, row_format(out, None), _COLUMNS)
        for pair, values, tokens in zip(
            found.pairs, found.scores.values_N2.tolist(), found.scores.tokens_N2.tolist(), strict=True
        ):
            row = {
                "paradigm": pair.paradigm,
                "phenomenon": pair.phenomenon,
                "good": pair.good,
                "bad": pair.bad,
                "log_probability_good": values[0],
                "log_probability_bad": values[1],
                "tokens_good": tokens[0],
                "tokens_bad": tokens[1],
            }
            writer.write(row)
        writer.close()


def _warn(found: PairEvaluation) -> None:
    pairs, accuracy, scores = found.pairs, found.accuracy, found.scores
    console = Console(stderr=True, highlight=False, emoji=False)
    same = sum(pair.good == pair.bad for pair in pairs)
    if same:
        say(console, f"{same:,} of {len(pairs):,} pairs have the same sentence twice; they are ties.", style="yellow")
    if accuracy.ties > same:
        say(
            console,
            f"{accuracy.ties - same:,} pairs of different sentences are ties: the tokeniser gives both the same "
            "tokens, or their scores are equal.",
            style="yellow",
        )
    total = int(scores.tokens_N2.sum())
    if scores.unknown:
        say(
            console,
            f"{scores.unknown:,} of {total:,} tokens ({scores.unknown / total:.2%}) are unknown to the tokeniser.",
            style="yellow",
        )
