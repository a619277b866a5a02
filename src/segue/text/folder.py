"""The files of a saved tokeniser: `tokenizer.json` and at most one data file, written whole, read with suspicion.

In: a kind, settings and the bytes of the data file. Out: the same, checked. What they mean is for the kinds to say.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from segue.errors import CheckpointError

FORMAT = "segue-tokenizer-1"
HEADER = "tokenizer.json"
PIECES_FILE, VOCABULARY_FILE = "spiece.model", "vocabulary.txt"
# The data file of each kind; a name never comes out of a file that was read.
DATA_FILES: Mapping[str, str | None] = {
    "pieces": PIECES_FILE,
    "released": PIECES_FILE,
    "words": VOCABULARY_FILE,
    "characters": VOCABULARY_FILE,
    "bytes": None,
    "listed_bytes": VOCABULARY_FILE,
}
MAX_HEADER, MAX_DATA = 1 << 20, 1 << 28

Setting = bool | int | str | list[str] | None


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What a tokeniser is made of."""

    kind: str
    settings: Mapping[str, Setting]
    data: bytes

    def fingerprint(self) -> str:
        """A hash of everything that decides the ids."""
        header = json.dumps([FORMAT, self.kind, dict(self.settings)], sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(header.encode("ascii") + b"\0" + self.data).hexdigest()


def write(folder: Path, saved: Saved) -> None:
    """Writes the data file, then the header that vouches for it, each beside its place and then moved there."""
    if not folder.is_dir():
        raise CheckpointError(f"a tokeniser is saved into an existing folder; got {folder}. Create it first.")
    name = DATA_FILES[saved.kind]
    header = {
        "format": FORMAT,
        "kind": saved.kind,
        "settings": dict(saved.settings),
        "sha256": hashlib.sha256(saved.data).hexdigest(),
    }
    if name is not None:
        _write_file(folder / name, saved.data)
    _write_file(folder / HEADER, (json.dumps(header, indent=2, ensure_ascii=True) + "\n").encode("ascii"))


def read(folder: Path) -> Saved:
    """The kind, settings and data of a folder, refused unless they are whole and belong together."""
    path = folder / HEADER
    kind, settings, expected = _parse(path, read_limited(path, limit=MAX_HEADER))
    name = DATA_FILES[kind]
    data = b"" if name is None else read_limited(folder / name, limit=MAX_DATA)
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise CheckpointError(
            f"{folder / (name or HEADER)} must have the hash that {HEADER} names; got {found[:12]}..., expected "
            f"{expected[:12]}... The file was changed or belongs to another tokeniser: copy both again."
        )
    return Saved(kind=kind, settings=settings, data=data)


def read_limited(path: Path, *, limit: int) -> bytes:
    """The bytes of a file that is there and not longer than the limit."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise CheckpointError(f"{path} must be a file that can be read; got something else. Check the path.")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size, limit) + 1)  # memory for what is there, not for what may be
    except OSError as error:
        raise CheckpointError(
            f"{path} must be a file that can be read; got {error.strerror or error}. Check the path."
        ) from None
    if len(data) > limit:
        raise CheckpointError(f"{path} must have at most {limit} bytes; it has more. It is not a tokeniser's file.")
    return data


def take_settings(saved: Saved, expected: Mapping[str, type]) -> dict[str, Setting]:
    """The settings, which must be exactly the expected ones with the expected types."""
    fits = set(saved.settings) == set(expected) and all(
        type(saved.settings[name]) is kind for name, kind in expected.items()
    )
    if not fits:
        raise CheckpointError(
            f"{HEADER}: settings of kind {saved.kind} must be "
            f"{', '.join(f'{name}: {kind.__name__}' for name, kind in expected.items())}; got {dict(saved.settings)}. "
            f"Save the tokeniser again."
        )
    return dict(saved.settings)


def names(setting: Setting) -> list[str]:
    """A setting that must be a list of strings."""
    if not isinstance(setting, list) or not all(isinstance(name, str) for name in setting):
        raise CheckpointError(f"{HEADER}: specials must be a list of names; got {setting}. Save the tokeniser again.")
    return setting


def _parse(path: Path, data: bytes) -> tuple[str, dict[str, Setting], str]:
    try:
        header = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} must be JSON; got {error}. Copy it again.") from None
    written = header.get("format") if isinstance(header, dict) else None
    if written != FORMAT:
        raise CheckpointError(
            f"{path} must have format {FORMAT}; got {written!r}. Other libraries use the same file name: "
            f"read their spiece.model with read_pieces, or train a tokeniser."
        )
    kind = header.get("kind")
    if not isinstance(kind, str) or kind not in DATA_FILES:
        raise CheckpointError(f"{path}: kind must be one of {', '.join(DATA_FILES)}; got {kind!r}. Save it again.")
    settings, expected = header.get("settings"), header.get("sha256")
    if not isinstance(settings, dict) or not isinstance(expected, str):
        raise CheckpointError(f"{path} must have settings and a sha256; got {sorted(header)}. Save it again.")
    return kind, settings, expected


def _write_file(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CheckpointError(
            f"{path} must be a place that can be written; got {error.strerror or error}. Choose another folder."
        ) from None
