"""Discovery of input files: files, folders and globs named by the user become the files to read, each once, in a fixed
order.

- A folder is read recursively, sorted by name; hidden files and folders and prepared stores are skipped. Of its files
  those with a known extension or none at all are read, the others counted as skipped.
- A file that is named explicitly is read whatever its name: as text unless its extension indicates another format.
- Files with the same real path or the same bytes are read once.
"""

import glob
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from segue.data.manifest import NAME
from segue.data.problems import Problems
from segue.errors import DataError

Format = Literal["text", "jsonl", "csv", "tsv", "parquet"]
Compression = Literal["gz", "xz", "zst", "bz2"]

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
COMPRESSIONS: dict[str, Compression] = {".gz": "gz", ".xz": "xz", ".zst": "zst", ".bz2": "bz2"}


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file, and how to read it."""

    path: Path
    format: Format
    compression: Compression | None
    size: int
    """Size on disk in bytes."""
    state: tuple[int, ...] = ()
    """File status when it was found, to detect a change; empty if there is no file."""

    def check_unchanged(self) -> None:
        """Raise DataError if the file was replaced or modified since it was found."""
        try:
            same = not self.state or _state(self.path.stat()) == self.state
        except OSError:
            same = False
        if not same:
            raise DataError(
                f"{self.path} must not change while it is read; it was written to, replaced or removed. Wait until it "
                "is complete, or read a copy."
            )


def find_inputs(inputs: Sequence[str | Path], problems: Problems) -> list[InputFile]:
    """Return all files to read; raise one DataError for all missing or unreadable ones."""
    wrong: list[str] = []
    paths: list[Path] = []
    for given in inputs:
        found = list(_expand(given, problems, wrong))
        if not found and not wrong:
            wrong.append(f"{given} must hold files of text; got none (known endings: {' '.join(FORMATS)}, none at all)")
        paths += found
    files = [file for path in paths if (file := _examine(path, wrong)) is not None]
    if not inputs:
        wrong.append("at least one input is needed; got none")
    if wrong:
        raise DataError("the inputs must be readable:\n  " + "\n  ".join(wrong) + "\nCheck paths and permissions.")
    return list(_distinct(files, problems))


def _expand(given: str | Path, problems: Problems, wrong: list[str]) -> Iterator[Path]:
    path = Path(given)
    if path.is_dir():
        yield from _walk(path, problems, wrong, set())
    elif path.exists():
        yield path
    elif glob.has_magic(str(given)):
        matches = sorted(glob.glob(str(given), recursive=True))
        if not matches:
            wrong.append(f"{given} must match a file; got no match")
        for match in matches:
            # `**` matches folders and their content: a folder counts only if nothing below it matches.
            below = os.path.join(match, "")
            if not os.path.isdir(match):
                yield Path(match)
            elif not any(other.startswith(below) and other != below for other in matches):
                yield from _walk(Path(match), problems, wrong, set())
    else:
        wrong.append(f"{given} must exist; got no such file or folder")


def _walk(folder: Path, problems: Problems, wrong: list[str], seen: set[str]) -> Iterator[Path]:
    real = os.path.realpath(folder)
    if real in seen:  # a cyclic link
        return
    seen.add(real)
    if (folder / NAME).is_file() and (folder / "documents.bin").is_file():
        return
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        wrong.append(f"{folder} must be a readable folder; got {error.strerror}")
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(entry, problems, wrong, seen)
        elif _endings(entry)[0] is None:
            problems.count("skipped_files", str(entry))
        else:
            yield entry


def _endings(path: Path) -> tuple[Format | None, Compression | None]:
    compression = COMPRESSIONS.get(path.suffix.lower())
    suffix = (Path(path.stem) if compression else path).suffix.lower()
    return FORMATS.get(suffix) if suffix else "text", compression


def _examine(path: Path, wrong: list[str]) -> InputFile | None:
    try:
        if not path.is_file():
            wrong.append(f"{path} must be a regular file; got something else")
            return None
        with path.open("rb"):
            found = path.stat()
    except OSError as error:
        wrong.append(f"{path} must be readable; got {error.strerror}")
        return None
    known, compression = _endings(path)
    return InputFile(
        path=path, format=known or "text", compression=compression, size=found.st_size, state=_state(found)
    )


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _distinct(files: Iterable[InputFile], problems: Problems) -> Iterator[InputFile]:
    """Yield each distinct content once. Only files of equal size are hashed."""
    once: dict[str, InputFile] = {}
    for file in files:
        real = os.path.realpath(file.path)
        if real in once:
            problems.count("duplicate_files", str(file.path))
        else:
            once[real] = file
    sizes: dict[int, int] = {}
    for file in once.values():
        sizes[file.size] = sizes.get(file.size, 0) + 1
    seen: set[str] = set()
    for file in once.values():
        if file.size and sizes[file.size] > 1:
            try:
                with file.path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError as error:
                raise DataError(f"{file.path} must be readable; got {error.strerror}. Check the disk.") from None
            if digest in seen:
                problems.count("duplicate_files", str(file.path))
                continue
            seen.add(digest)
        yield file
