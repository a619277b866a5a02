"""Adding proposed names to the list of entities, or dismissing them.

The list is part of a model, and models never change; so adding names creates the next model, with the same weights and
a longer list. It is put into use at once, a running monitor follows, and roll-back reverts it. Texts that were read
before are not read again.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from segue.apps.database import Connection
from segue.apps.folder import MODELS, next_name, read_about
from segue.apps.monitor.build import REPORT_PAGE, REPORT_TEXT
from segue.apps.monitor.entities import LONGEST, MOST, Entities, entities_of
from segue.apps.monitor.folder import OWN, read_model, read_rows, write_model
from segue.apps.monitor.store import MONITOR
from segue.errors import ConfigError

TAKEN, DISMISSED, OPEN = "taken", "dismissed", "open"


def decide(connection: Connection, names: Sequence[str], state: str) -> int:
    """Set the state of names, and return the number of names that exist."""
    found = [
        connection.execute("UPDATE names SET state = ? WHERE name = ?", (state, name)).rowcount
        for name in dict.fromkeys(names)
    ]
    return sum(found)


def check_listed(names: Mapping[str, str]) -> dict[str, str]:
    """Return names with their codes, stripped; raise ConfigError if one is not valid."""
    found = {name.strip(): code.strip().removeprefix("$") for name, code in names.items()}
    for name, code in found.items():
        if not 1 < len(name) <= LONGEST or "|" in name or "\n" in name:
            raise ConfigError(f"a name must have 2 to {LONGEST} characters and no |; got {name[:40]!r}.")
        if not 0 < len(code) <= LONGEST or "\n" in code:
            raise ConfigError(f"the code of {name!r} must have 1 to {LONGEST} characters; got {code[:40]!r}.")
    if not found:
        raise ConfigError("a name and its code must be given; got none.")
    return found


def with_names(entities: Entities, names: Mapping[str, str]) -> Entities:
    """Return the list with more names; an unknown code is a new entity."""
    listed = {one.code: list(one.names) for one in entities.all}
    for name, code in names.items():
        listed.setdefault(code, [])
        if name != code:
            listed[code].append(name)
    if len(listed) > MOST:
        raise ConfigError(f"a list must have at most {MOST:,} entities; got {len(listed):,}. Take fewer.")
    return entities_of(listed.items())


def take_names(monitor: Path, names: Mapping[str, str]) -> str:
    """Add names with their codes to the list of the model in use, and put the new model into use. Return its name."""
    names = check_listed(names)
    before = MONITOR.current_model(monitor)
    source = monitor / MODELS / before
    model = read_model(source)
    longer = replace(model, entities=with_names(model.entities, names))
    about = {key: value for key, value in read_about(source).items() if key not in OWN}
    about["summary"] = {**about["summary"], "entities": len(longer.entities.all)}
    about["listed"] = {"from": before, "names": names}

    def write(folder: Path) -> None:
        write_model(folder, longer, tuple(read_rows(source)), about)
        for name in (REPORT_PAGE, REPORT_TEXT):
            shutil.copyfile(source / name, folder / name)

    name = next_name(monitor)
    MONITOR.write_model(monitor, name, write)
    MONITOR.use_model(monitor, name)
    with MONITOR.opened(monitor) as database:
        database.do(lambda connection: decide(connection, list(names), TAKEN))
    return name
