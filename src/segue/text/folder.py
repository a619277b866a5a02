"""The files of a saved tokeniser: `tokenizer.json` and at most one data file, written atomically and checked when read.

In: a kind, settings and the bytes of the data file. Out: the same, checked; their meaning is left to the kinds. The
header protects all of it: `sha256` the data file, `fingerprint` kind, settings and data together.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from segue.errors import CheckpointError
from segue.files import write_file

FORMAT = "segue-tokenizer-1"
HEADER = "tokenizer.json"
PIECES_FILE, VOCABULARY_FILE, FAST_FILE = "spiece.model", "vocabulary.txt", "fast.json"
# The data file of each kind; a name is never taken from a file.
DATA_FILES: Mapping[str, str | None] = {
    "pieces": PIECES_FILE,
    "released": PIECES_FILE,
    "words": VOCABULARY_FILE,
    "characters": VOCABULARY_FILE,
    "bytes": None,
    "listed_bytes": VOCABULARY_FILE,
    "fast": FAST_FILE,
    "byte_pairs": FAST_FILE,
    "word_pieces": FAST_FILE,
}
MAX_HEADER, MAX_DATA = 1 << 20, 1 << 28

Setting = bool | int | str | list[str] | None


@dataclass(frozen=True, kw_only=True)
class SavedTokenizer:
    """Kind, settings and data of a tokeniser."""

    kind: str
    settings: Mapping[str, Setting]
    data: bytes

    def fingerprint(self) -> str:
        """Return a hash of everything that determines the ids."""
        header = json.dumps([FORMAT, self.kind, dict(self.settings)], sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(header.encode("ascii") + b"\0" + self.data).hexdigest()


def write(folder: Path, saved: SavedTokenizer) -> None:
    """Write the data file, then the header with its hash, each atomically."""
    if not folder.is_dir():
        raise CheckpointError(f"a tokeniser is saved into an existing folder; got {folder}. Create it first.")
    name = DATA_FILES[saved.kind]
    header = {
        "format": FORMAT,
        "kind": saved.kind,
        "settings": dict(saved.settings),
        "sha256": hashlib.sha256(saved.data).hexdigest(),
        "fingerprint": saved.fingerprint(),
    }
    if name is not None:
        write_file(folder / name, saved.data, failure=CheckpointError)
    text = json.dumps(header, indent=2, ensure_ascii=True) + "\n"
    write_file(folder / HEADER, text, failure=CheckpointError)


def read(folder: Path) -> SavedTokenizer:
    """Return the kind, settings and data in a folder; raise CheckpointError unless they are complete and belong
    together."""
    path = folder / HEADER
    kind, settings, expected, fingerprint = _parse(path, read_limited(path, limit=MAX_HEADER))
    name = DATA_FILES[kind]
    data = b"" if name is None else read_limited(folder / name, limit=MAX_DATA)
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise CheckpointError(
            f"{folder / (name or HEADER)} must have the hash that {HEADER} names; got {found}, expected "
            f"{expected}. The file was changed or belongs to another tokeniser: copy both again."
        )
    saved = SavedTokenizer(kind=kind, settings=settings, data=data)
    if fingerprint is not None and fingerprint != saved.fingerprint():
        raise CheckpointError(
            f"{path} must have the fingerprint of its kind, settings and data; got another. The file was changed: copy "
            "it again."
        )
    return saved


def read_limited(path: Path, *, limit: int) -> bytes:
    """Return the bytes of a file; raise CheckpointError if it does not exist or exceeds the limit."""
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise CheckpointError(f"{path} must be a readable file; got something else. Check the path.")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(min(size, limit) + 1)  # memory for the actual size, not for the limit
    except OSError as error:
        raise CheckpointError(
            f"{path} must be a readable file; got {error.strerror or error}. Check the path."
        ) from None
    if len(data) > limit:
        raise CheckpointError(f"{path} must have at most {limit} bytes; it has more. It is not a tokeniser's file.")
    return data


def take_settings(saved: SavedTokenizer, expected: Mapping[str, type]) -> dict[str, Setting]:
    """Return the settings; raise CheckpointError unless they have exactly the expected names and types."""
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
    """Return a setting that must be a list of strings."""
    if not isinstance(setting, list) or not all(isinstance(name, str) for name in setting):
        raise CheckpointError(f"{HEADER}: specials must be a list of names; got {setting}. Save the tokeniser again.")
    return setting


def _parse(path: Path, data: bytes) -> tuple[str, dict[str, Setting], str, str | None]:
    """Return kind, settings, hash of the data, and the fingerprint, which headers of the first versions lack."""
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
    fingerprint = header.get("fingerprint", "")
    fits = header.keys() - {"fingerprint"} == {"format", "kind", "settings", "sha256"}
    if not fits or not all(isinstance(text, str) for text in (expected, fingerprint)) or type(settings) is not dict:
        raise CheckpointError(
            f"{path} must have settings, a sha256, a fingerprint and nothing else; got {sorted(header)}. Copy it again."
        )
    return kind, settings, expected, fingerprint if "fingerprint" in header else None
