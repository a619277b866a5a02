"""`segue evaluate MODEL --speed`: speed of evaluation with memory, beside the numbers of the paper."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from segue.api.evaluate_speed import SpeedEvaluation, evaluate_speed
from segue.cli.console import say
from segue.cli.evaluate import whole_numbers
from segue.cli.reporting import reporting
from segue.evaluation.speed import SpeedRow


def run_speed(model: str, data: Path | None, *, lengths: str | None, segment_length: int | None, repeats: int) -> None:
    """Print the setup, then a row for each attention length."""
    console = Console(highlight=False, emoji=False)
    chosen = None if lengths is None else whole_numbers(lengths, option="--lengths")
    with reporting("time") as report:
        found = evaluate_speed(
            model,
            data,
            lengths=chosen,
            segment_length=segment_length,
            repeats=repeats,
            progress=False,
            on_event=lambda event: report(event.done, event.total or 0),
        )
    for line in _setup(found, data, repeats=repeats):
        say(console, line, hang=2)
    console.print(_table(found.rows))


def _setup(found: SpeedEvaluation, data: Path | None, *, repeats: int) -> list[str]:
    config = found.config
    text = "random ids" if data is None else str(data)
    return [
        f"{found.name}: {config.num_layers} layers, width {config.width}, {config.num_heads} heads of "
        f"{config.resolved_head_width}, inner width {config.inner_width}, {config.vocabulary.size} tokens; "
        f"{found.dtype}, {found.device}; one row of {text}.",
        f"With memory: segments of {found.rows[0].segment_length} tokens, keys and values kept; every token sees the "
        f"attention length. Median of {repeats} runs of that length.",
        "Sliding window: a vanilla model of the same shape, without memory, positions learned in every layer; for "
        f"each token a whole window is read, and its last position predicts. Median of {repeats} windows.",
    ]


def _table(rows: Sequence[SpeedRow]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in (
        "attention length",
        "memory ms/token",
        "window ms/token",
        "times slower",
        "published",
    ):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row.attention_length:,}",
            f"{row.memory_seconds * 1000:.3f}",
            f"{row.window_seconds * 1000:,.1f}",
            f"{row.ratio:,.0f}",
            "" if row.published is None else f"{row.published:,}",
        )
    return table
