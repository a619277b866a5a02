"""The folder of an application: models, of which one is in use, and a database.

    FOLDER/NAME.json          the kind of folder, the name of the model in use, those in use before it, and the URL of
                              its database, if any
    FOLDER/models/0001/       a model; its model.json has facts about it
    FOLDER/NAME.sqlite        its database, if there is no URL

A model folder is written atomically and never changed. Another model is put into use by changing one small file.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from segue.apps.database import Database, Place, Step, copy_database
from segue.apps.postgresql import check_url
from segue.apps.sqlite import make_plain
from segue.checkpoint.files import read_manifest, read_small, verify
from segue.errors import CheckpointError, ConfigError, DataError
from segue.files import MANIFEST, Kind, settle, sweep, unwritable, write_file, write_folder
from segue.files.single import try_lock

MODELS, MODEL, FIRST, LOCK = "models", "model.json", "0001", ".lock"
MODEL_KINDS: Mapping[str, Kind] = {"desk": "desk-model", "monitor": "monitor-model", "recommend": "recommend-model"}
FORMAT = 1
MOST_EARLIER = 100
"""Maximum number of models in use before that are remembered."""
LARGEST = 1 << 24
"""Maximum size of a small file in bytes."""


@dataclass(frozen=True, kw_only=True)
class Application:
    """Properties shared by all folders of an application."""

    name: Literal["desk", "monitor", "recommend"]
    """Name of its command and of its files."""
    what: str
    """Description of its folder, for messages."""
    steps: Sequence[Step]
    """Migration steps of its database schema; a new version adds a step, and never changes one."""
    written: Sequence[str] = ()
    """Names of files that the operator may add to the folder; copies include them."""

    # ------------------------------------------------------------------------------------------------------- databases

    @property
    def file(self) -> str:
        """Name of the file that identifies a folder of this application."""
        return f"{self.name}.json"

    @property
    def sqlite(self) -> str:
        """Name of the database in the folder."""
        return f"{self.name}.sqlite"

    def place_of(self, folder: Path) -> Place:
        """Return where its database is: a SQLite file in the folder, or the URL of a PostgreSQL database."""
        url = self._read(folder).get("database")
        return folder / self.sqlite if url is None else check_url(str(url))

    def database(self, folder: Path, *, alone: bool) -> Database:
        """Return the database of a folder, not opened yet: `alone` for the server, otherwise for commands beside it. A
        SQLite file exists since the folder was created: if it is missing it was lost, and is not replaced by an empty
        one."""
        place = self.place_of(folder)
        if isinstance(place, Path) and (not place.is_file() or place.stat().st_size == 0):
            raise DataError(
                f"{folder} must have {self.sqlite}, with all that was written into it; got "
                f"{'an empty file' if place.is_file() else 'none'}. Put it back, or restore a back-up."
            )
        return self.database_at(place, alone=alone, begun=isinstance(place, Path))

    def database_at(self, place: Place, *, alone: bool, begun: bool = False) -> Database:
        """Return the database at a path or URL, not opened yet."""
        return Database(place, name=f"segue {self.name}", steps=self.steps, alone=alone, begun=begun)

    def check_empty(self, url: str) -> None:
        """Raise an error unless a URL is that of a writable PostgreSQL database without rows."""
        database = self.database_at(check_url(url), alone=True)
        database.open()
        try:
            database.check_empty()
        finally:
            database.close()

    @contextmanager
    def opened(self, folder: Path, *, alone: bool = False) -> Iterator[Database]:
        """Open the database of a folder for the duration of a block."""
        database = self.database(folder, alone=alone)
        database.open()
        try:
            yield database
        finally:
            database.close()

    # ---------------------------------------------------------------------------------------------------------- models

    def current_model(self, folder: Path) -> str:
        """Return the name of the model in use."""
        return str(self._read(folder)["model"])

    def use_model(self, folder: Path, name: str, *, instead_of: str | None = None) -> None:
        """Put a model into use, from the next start or the next check on. Raise CheckpointError if `instead_of` is
        given and is no longer in use, because it was changed meanwhile."""
        values = self._read(folder)
        if instead_of is not None and values["model"] != instead_of:
            raise CheckpointError(
                f"{folder} must still use the model {instead_of}, which {name} is measured against; got "
                f"{values['model']}. {name} is kept, and not in use: learn again."
            )
        self._write(folder, name, database=values.get("database"), earlier=_earlier(values, name))

    @contextmanager
    def changing(self, folder: Path, *, wait: Callable[[], object] | None = None) -> Iterator[None]:
        """Lock the models of a folder while new ones are created from them, which only one process may do at a time.
        Another one is refused or, with `wait`, calls it and waits."""
        self._read(folder)
        path = folder / MODELS / LOCK
        try:
            lock = open(path, "ab")  # noqa: SIM115
        except OSError as error:
            raise unwritable(path, error, CheckpointError) from None
        with lock:
            while not try_lock(lock.fileno()):
                if wait is None:
                    raise ConfigError(
                        f"{folder} must be changed by one command at a time; another one is learning. Wait for its end."
                    )
                wait()
                time.sleep(0.2)
            yield

    def make(self, folder: Path, model: str, *, database: str | None) -> None:
        """Turn a folder with this model into one of the application, with an empty SQLite database, unless it has one
        or a URL is given."""
        if database is None:
            empty = self.database_at(folder / self.sqlite, alone=False)
            empty.open()
            empty.close()
            make_plain(folder / self.sqlite)
        self._write(folder, model, database=database)

    def _write(self, folder: Path, model: str, *, database: str | None, earlier: Sequence[str] = ()) -> None:
        values: dict[str, Any] = {"format": FORMAT, "model": model, "earlier": list(earlier)}
        if database is not None:
            values["database"] = check_url(database)
        write_file(folder / self.file, json.dumps(values) + "\n", failure=CheckpointError)

    def write_model(self, folder: Path, name: str, write: Callable[[Path], None]) -> None:
        """Add a model atomically."""
        (folder / MODELS).mkdir(exist_ok=True)
        write_folder(folder / MODELS / name, write, kind=MODEL_KINDS[self.name])

    def roll_back(self, folder: Path, name: str | None, read: Callable[[Path], object]) -> str:
        """Put an earlier model into use: the one in use before the current one, or the one named. `read` loads a model;
        if it raises, nothing changes."""
        values, names = self._read(folder), model_names(folder)
        now = values["model"]
        before = values.get("earlier", [one for one in names if one < now])  # earlier versions did not write it
        earlier = [one for one in before if one in names]
        if name is None and not earlier:
            others = ", ".join(one for one in names if one != now)
            raise ConfigError(
                f"{folder} must have an earlier model to return to; its model in use, {now}, is the first. "
                + (f"To use another one, name it with --to: {others}." if others else "Nothing was changed.")
            )
        chosen = earlier[-1] if name is None else name
        if chosen not in names:
            raise ConfigError(f"--to must be one of the models {', '.join(names)}; got {chosen!r}. Name one of them.")
        read(folder / MODELS / chosen)
        self.use_model(folder, chosen)
        return chosen

    def _read(self, folder: Path) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(read_small(folder / self.file, limit=LARGEST))
            if found["format"] != FORMAT or not re.fullmatch("[0-9]{1,9}", found["model"]):
                raise ValueError
            if not isinstance(found.get("database", ""), str) or not isinstance(found.get("earlier", []), list):
                raise ValueError
        except (CheckpointError, OSError, ValueError, KeyError, TypeError, RecursionError):
            raise CheckpointError(
                f"{folder} must be {self.what} of this version; got another folder, or none. Make one with segue "
                f"{self.name} learn."
            ) from None
        return found

    # ---------------------------------------------------------------------------------------------------------- copies

    def copy(self, source: Path, out: Path, *, check: bool, database: str | None) -> None:
        """Copy a folder, also while its server runs: models, which never change, and a consistent copy of the database,
        in SQLite or at a URL. The copy is a complete folder of the application with a hash of every file. With `check`,
        every file of the source is compared with its hash first, as is possible in a back-up."""
        if check and not (source / self.file).is_file():
            raise CheckpointError(
                f"{source} must be a folder that segue {self.name} back-up wrote; got another folder, or none. Check "
                "the path."
            )
        values = self._read(source)
        name = str(values["model"])
        if database is not None:
            check_url(database)
        check_new(out)
        self._check_source(source, out, check=check)
        if name not in model_names(source):
            raise CheckpointError(
                f"{source} must have the model that it uses, {MODELS}/{name}; got none. Roll back to one of "
                f"{', '.join(model_names(source)) or 'an earlier copy'}, or restore a back-up."
            )

        def write(folder: Path) -> None:
            for one in dict.fromkeys([name, *model_names(source)]):
                shutil.copytree(source / MODELS / one, folder / MODELS / one, symlinks=True)
                try:
                    verify(folder / MODELS / one)
                except CheckpointError:
                    verify(source / MODELS / one)  # the message names it, if the source is damaged
                    raise
            self.copy_rows(self.place_of(source), folder / self.sqlite if database is None else database)
            for one in self.written:
                if (source / one).is_file():
                    shutil.copyfile(source / one, folder / one)
            self._write(folder, name, database=database, earlier=values.get("earlier", []))

        write_folder(out, write, kind=self.name, inputs=[source])
        if (out / self.sqlite).is_file():
            (out / self.sqlite).chmod(0o600)

    def copy_rows(self, source: Place, target: Place) -> None:
        """Make a consistent copy of a database in an empty one."""
        copy_database(source, target, name=f"segue {self.name}", steps=self.steps)

    def _check_source(self, source: Path, out: Path, *, check: bool) -> None:
        """Raise an error unless `out` is outside the source and the source has no symbolic links, which would bring
        files from elsewhere into the copy. With `check`, it must have no files that the manifest does not list."""
        if out.resolve().is_relative_to(source.resolve()):
            raise ConfigError(f"a copy of {source} must be outside of it; got {out}. Choose another folder.")
        for path in source.rglob("*"):
            if path.is_symlink():
                raise CheckpointError(f"{path} must be a file of {self.what}; got a symbolic link. Use another copy.")
        if not check:
            return
        verify(
            source,
            remedy=f"Use another back-up. If this is {self.what} in use rather than a back-up, copy it with segue "
            f"{self.name} back-up.",
        )
        listed = {*read_manifest(source), MANIFEST}
        for path in source.rglob("*"):
            if path.is_file() and path.relative_to(source).as_posix() not in listed:
                raise CheckpointError(
                    f"{path} must be named in {source / MANIFEST}; it is not. Remove it, or use another back-up."
                )


def _earlier(values: Mapping[str, Any], name: str) -> list[str]:
    """Return the models in use before `name`, the latest last, if it replaces that of the given values: the history up
    to its own last use if it was in use before, or else all of it with the one that it replaces."""
    history = [*values.get("earlier", []), values["model"]]
    if name in history:
        return history[: len(history) - 1 - history[::-1].index(name)]
    return history[-MOST_EARLIER:]


def check_new(out: Path) -> None:
    """Raise DataError unless a folder can be created: an existing one is never replaced, because it has data of users.
    The result of a command that was killed at its very end is moved there first."""
    was_there = out.exists()
    settle(out)
    sweep(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        earlier = "" if was_there else ": an earlier command was killed after it had written all of it, and it is whole"
        raise DataError(
            f"{out} must not exist yet; it does{earlier}. {'Choose' if was_there else 'Use it, choose'} another "
            "folder, or move it away."
        )


def model_names(folder: Path) -> list[str]:
    """Return all models of a folder, the oldest first."""
    folders = (folder / MODELS).iterdir() if (folder / MODELS).is_dir() else ()
    return sorted(one.name for one in folders if one.name.isdigit() and (one / MODEL).is_file())


def next_name(folder: Path) -> str:
    """Return the name for the next model."""
    return f"{int(model_names(folder)[-1]) + 1:04d}"


def read_about(model: Path) -> dict[str, Any]:
    """Return the facts about a model, as they were written."""
    verify(model, [MODEL], remedy="Roll back to another model, or restore a back-up.")
    found: dict[str, Any] = json.loads(read_small(model / MODEL, limit=LARGEST))
    return found


def packed(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return texts as two arrays, for a file of tensors: their bytes, and the end of each."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    letters = np.frombuffer(b"".join(encoded), dtype=np.uint8).copy()
    return letters, np.cumsum([len(text) for text in encoded], dtype=np.int64)


def unpacked(letters: NDArray[Any], ends: NDArray[Any]) -> tuple[str, ...]:
    """Return the texts of two such arrays."""
    found, places = letters.tobytes(), ends.tolist()
    starts = [0, *places[:-1]][: len(places)]
    return tuple(found[start:end].decode("utf-8", "surrogatepass") for start, end in zip(starts, places, strict=True))
