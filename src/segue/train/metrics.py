"""Reading of a run's `metrics.jsonl`: a JSON object per line, with its step."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from segue.checkpoint.card import Metric
from segue.errors import DataError


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the values of all lines, except a last one that a killed process left incomplete."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"{path} must be a readable file; got {error}. Check the path.") from None
    result: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line.decode("utf-8"))
            sound = isinstance(values, dict) and isinstance(values.get("step"), int)
        except UnicodeDecodeError as error:
            raise _damaged(path, number, f"the byte {line[error.start]:#04x}, which is not UTF-8") from None
        except (ValueError, RecursionError):
            sound = False
        if sound:
            result.append(values)
        elif number < len(lines):
            raise _damaged(path, number, "something else")
    return result


def newest_losses(path: Path) -> dict[str, Metric]:
    """Return the last training and validation loss in the log of a run."""
    losses: dict[str, Metric] = {}
    for line in read_metrics(path) if path.exists() else []:
        losses |= losses_in(line)
    return losses


def losses_in(line: Mapping[str, Any]) -> dict[str, Metric]:
    """Return the losses in a line of metrics."""
    names = {"loss": "training loss of one step", "validation_loss": "validation loss"}
    return {
        key: Metric(name=name, value=line[key], step=line["step"])
        for key, name in names.items()
        if isinstance(line.get(key), float)  # values that are not finite are written as text
    }


def _damaged(path: Path, number: int, found: str) -> DataError:
    return DataError(
        f"{path} must hold a JSON object with a step in each line; got {found} in line {number}. Delete that line, or "
        "move the file away: it is a log, and no state of the run is in it."
    )
