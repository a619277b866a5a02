"""Shell commands of fine-tuning requests, for reports and for the recommendation of a search."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from segue.config import toml_value

if TYPE_CHECKING:
    from segue.train.events import Request


def finetune_command(request: "Request", out: Path | str) -> str:
    """Return `segue finetune ...` with the settings that differ from the defaults, quoted for a shell."""
    words = ["segue", "finetune", request.model, "--task", request.kind.name, "--train", str(request.train)]
    for option, value in (("--valid", request.valid), ("--test", request.test)):
        words += [option, str(value)] if value is not None else []
    words += ["--out", str(out)]
    for role, name in request.columns.items():
        words += ["--column", f"{role}={name}"]
    tables = request.tables
    words += ["--format", tables.format] if tables.format is not None else []
    words += ["--columns", ",".join(tables.columns)] if tables.columns is not None else []
    words += ["--delimiter", tables.delimiter] if tables.delimiter is not None else []
    words += ["--quoting" if tables.quoting else "--no-quoting"] if tables.quoting is not None else []
    words += ["--encoding", tables.encoding] if tables.encoding != type(tables)().encoding else []
    share = tables.malformed_share
    words += ["--malformed-share", str(share)] if share != type(tables)().malformed_share else []
    words += ["--largest-expansion", str(limit)] if (limit := tables.largest_expansion) is not None else []
    words += ["--new-weights"] if request.new_weights else []
    words += ["--adapt", str(request.adapt)] if request.adapt is not None else []
    words += [] if request.baselines else ["--no-baselines"]
    words += [] if request.wide is None else ["--wide" if request.wide else "--no-wide"]
    return shlex.join([*words, *changed_settings(request.settings)])


def changed_settings(settings: Any) -> list[str]:
    """Return `section.key=value` for each setting that differs from its default, as the command line reads it."""
    found = []
    for section, values in settings.model_dump(mode="json").items():
        defaults = type(getattr(settings, section))().model_dump(mode="json")
        found += [
            f"{section}.{key}={written(value)}"
            for key, value in values.items()
            if value != defaults[key] and value is not None
        ]
    return found


def written(value: Any) -> str:
    """Return a value as it is written after the equals sign: as TOML if plain text would be read as something else."""
    if isinstance(value, str):
        plain = toml_value(value) == value and not {"\n", "\r"} & set(value)
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)
