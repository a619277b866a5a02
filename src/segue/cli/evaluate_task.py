"""`segue evaluate MODEL --table FILE`: metrics of a fine-tuned model on labelled examples."""

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from segue.api.evaluate_task import evaluate_task
from segue.cli.console import say
from segue.cli.finetune import metric_table
from segue.cli.options import LabelledTableOptions
from segue.cli.reporting import reporting
from segue.errors import ConfigError


def run_task(
    model: str, data: Path | None, source: str, *, tables: LabelledTableOptions, batch_size: int, as_json: bool
) -> None:
    """Print a table of metrics with their intervals."""
    if data is not None:
        raise ConfigError(f"--table takes no store; got {data}. Leave it out.")
    with reporting("rows") as report:
        found = evaluate_task(
            model,
            source,
            columns=tables.roles(),
            tables=tables.settings(),
            batch_size=batch_size,
            progress=False,
            on_event=lambda event: report(event.done, event.total or 0),
        )
    if as_json:
        print(json.dumps(asdict(found), ensure_ascii=False))
    else:
        console = Console(highlight=False, emoji=False)
        console.print(metric_table(f"{found.task}, {found.examples:,} examples", dict(found.metrics)))
    console = Console(stderr=True, highlight=False, emoji=False)
    for note in found.notes:
        say(console, note, style="yellow")
