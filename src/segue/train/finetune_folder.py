"""The folder of a fine-tuning run: whether a run may use it, and the settings that identify the run.

The same command may repeat a run that was stopped or killed; a finished run is never overwritten.
"""

import json
from pathlib import Path
from typing import Any

import tomli_w

from segue.errors import ConfigError
from segue.train.events import STOPPED, Request
from segue.train.keeper import UNVALIDATED
from segue.train.run_folder import check_folder

SETTINGS, RESULTS = "settings.toml", "results.json"


def check_run(request: Request, run: Path) -> None:
    """Raise ConfigError if the run may not use the folder, before anything is read. Creates nothing."""
    check_folder(run, "finetune")
    if request.adapt is not None and request.new_weights:
        raise ConfigError(
            "--adapt continues from the weights of the model; got --new-weights too. Leave one of them out."
        )
    if (run / RESULTS).is_file() and _ended(run / RESULTS) != STOPPED:
        raise ConfigError(f"{run} must be a new folder; got one with a fine-tuned model. Choose another --out.")


def check_unfinished(run: Path, settings: str) -> None:
    """Raise ConfigError if the folder contains the model of a run with other settings. Creates nothing."""
    there = any((run / name).exists() for name in ("best", UNVALIDATED))
    before = run / SETTINGS
    if there and not (before.is_file() and before.read_bytes() == settings.encode("utf-8")):
        raise ConfigError(
            f"{run} must be a new folder; got one with a fine-tuned model of other settings. Choose another --out, or "
            "repeat the earlier command."
        )


def settings_text(request: Request, chosen: Any) -> str:
    """Return everything that determines the run, as TOML. `chosen` are its settings without gaps."""
    values = chosen.model_dump(mode="json", exclude_none=True)
    files = {name: str(value) for name in ("train", "valid", "test") if (value := getattr(request, name)) is not None}
    values["run"] = {
        "model": request.model,
        "task": request.kind.name,
        "new_weights": request.new_weights,
        "files": files,
        "columns": dict(request.columns),
    }
    if request.adapt is not None:
        values["run"]["adapt"] = request.adapt
    if request.wide is not None:
        values["run"]["wide"] = request.wide
    return tomli_w.dumps(values)


def _ended(path: Path) -> object:
    try:
        return json.loads(path.read_bytes()).get("ended")
    except (OSError, ValueError, AttributeError):
        return None
