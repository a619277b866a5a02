"""Lookup of models by path, by name of a packaged model, or by name on the hub. The one place where that is decided.

In: the user's text. Out: a folder on this machine, or the model in it. In this order:

1. a path that exists: a model folder, a run folder (its `best/`, else its `last/`), a checkpoint of another library;
2. a name that `segue models` lists: a model of the package or of the folder SEGUE_MODELS (`checkpoint.packaged`);
3. `owner/name`, from a mirror (SEGUE_MIRROR, or an argument) or else from the hub (`checkpoint.hub`).

A folder with the name of a packaged model is preferred to it, because paths come first, and a note says so.

Anything but a complete model folder of segue is made into one, once: a checkpoint of another library is converted, and
differences from a packaged model (`checkpoint.differences`) are added to it. The result is stored in the cache folder
($XDG_CACHE_HOME or ~/.cache, then segue), keyed by its sources.
"""

import glob
import hashlib
import os
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from segue.checkpoint.card import Facts
from segue.checkpoint.differences import put_together, read_trunk
from segue.checkpoint.files import CARD, MANIFEST, locate
from segue.checkpoint.folder import CONFIG, TOKENIZER, TRUNK, is_model_folder, model_of_run
from segue.checkpoint.folder import load as load_folder
from segue.checkpoint.hub import NAME, SMALL_FILES, Found, in_mirror, is_offline, new_card, on_hub
from segue.checkpoint.packaged import ALIASES, nearest_name, packaged_model
from segue.checkpoint.source import readable
from segue.errors import CheckpointError, SegueWarning, kind_of
from segue.files import sha256
from segue.model import LanguageModel

FILE = "FILE is its spiece.model, its vocab.txt, or the folder of a tokeniser."
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


def load(
    source: str | Path, *, revision: str | None = None, offline: bool | None = None, mirror: str | Path | None = None
) -> LanguageModel:
    """Load the model of a model folder, a run folder (its `best/`, else its `last/`), a checkpoint of another library,
    a packaged model by its name, or a name on the hub. `revision` is a branch, a tag or a commit; `offline` uses only
    the cache of the hub."""
    return load_folder(model_folder(find(source, revision=revision, offline=offline, mirror=mirror)))


def find(
    source: str | Path, *, revision: str | None = None, offline: bool | None = None, mirror: str | Path | None = None
) -> Found:
    """Return the location of a model's files and its commit; download them if needed. Files of a packaged model are
    compared with their sha256."""
    if not isinstance(source, str | Path):
        raise CheckpointError(
            f'a model must be a path or a name; got {kind_of(source)}. Use "run/best" or "owner/name", for example.'
        )
    here = _path(source)
    packaged = packaged_model(str(source))
    if here is not None and packaged is not None:
        warnings.warn(
            f"{source} is a path here and a packaged model: the path is taken. Rename it, or work in another folder, "
            "to use the packaged one.",
            SegueWarning,
            stacklevel=3,
        )
    if here is None and packaged is not None:
        packaged.verify()
        here = packaged.folder
    if here is not None:
        if revision is not None:
            raise CheckpointError(f"{here} is on this machine and has no revisions; got {revision!r}. Leave it out.")
        return Found(path=here)
    given = str(source)
    name = ALIASES.get(given, given)
    if not NAME.fullmatch(name) or ".." in name:
        raise CheckpointError(
            f"a model must be a folder, a name that `segue models` lists, or owner/name on the Hub; got {given!r}. "
            f"{nearest_name(given, others=ALIASES)}"
        )
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise CheckpointError(
            f"a revision must be a branch, a tag or a commit; got {revision!r}. Use main, for example."
        )
    mirror = mirror or os.environ.get("SEGUE_MIRROR")
    if mirror:
        return in_mirror(Path(mirror), name, given, revision)
    return on_hub(name, given, revision, offline=is_offline() if offline is None else offline)


def path_of(source: str | Path) -> Path:
    """Return the local path of a model given by name or path; other text is returned as a path to nothing. Nothing is
    read or checked: this serves the check of what may be replaced."""
    packaged = packaged_model(str(source))
    return _path(source) or (Path(source) if packaged is None else packaged.folder)


def local_folder(source: str | Path) -> Path:
    """Return the local files of a model, in any format: those of a path or of a packaged model, which is completed if
    it holds differences. Other text is returned as a path to nothing."""
    if not is_here(source):
        return Path(source)
    found = find(source)
    return model_folder(found) if (found.path / TRUNK).is_file() else found.path


def is_here(source: str | Path) -> bool:
    """Return True for an existing path or the name of a packaged model."""
    return _path(source) is not None or packaged_model(str(source)) is not None


def _path(source: str | Path) -> Path | None:
    with readable(Path(source)):
        path = locate(Path(source))
        there = bool(str(source)) and (_exists(path) or os.path.isfile(f"{path}.index"))  # or a TensorFlow prefix
        return model_of_run(path) if there else None


def _exists(path: Path) -> bool:
    """Return True if the path exists. Raises PermissionError if that cannot be known: a folder without access is not a
    name on the hub."""
    try:
        os.stat(path)
    except PermissionError:
        raise
    except (OSError, ValueError):  # missing, or not a valid file name
        return False
    return True


# --------------------------------------------------------------------------------------------------- whole folders


def model_folder(found: Found) -> Path:
    """Return the model folder itself; or the converted foreign checkpoint, with its notes as warnings; or the packaged
    trunk with the differences added."""
    with readable(found.path):
        if (found.path / TRUNK).is_file():
            return _put_together(found.path)
        return found.path if (found.path / CONFIG).is_file() else _converted(found)


def _put_together(path: Path) -> Path:
    trunk = read_trunk(path)
    parts = f"{sha256(path / MANIFEST)}{trunk.sha256}"
    place = _cache_folder() / "put-together" / path.resolve().name / hashlib.sha256(parts.encode()).hexdigest()[:40]
    _keep(place, lambda made: put_together(path, made))
    return place


def _converted(found: Found) -> Path:
    from segue.checkpoint.convert import VERSION, convert

    source = found.name.replace("/", "--") if found.name else found.path.resolve().name
    place = _cache_folder() / "converted" / source / f"{found.commit or _fingerprint(found.path)}-v{VERSION}"
    notes: list[str] = []

    def make(made: Path) -> None:
        notes.extend(convert(found.path, made, compare=False).notes)
        if found.name:
            at = f" at commit {found.commit}" if found.commit else ""
            (made / CARD).write_text(new_card(made, Facts(origin=f"{found.name}{at}")), encoding="utf-8")

    _keep(place, make)
    if notes:
        text = f"{found.name or found.path}, converted into {place}: {' '.join(notes)}"
        warnings.warn(text, SegueWarning, stacklevel=4)
    return place


def _keep(place: Path, make: Callable[[Path], None]) -> None:
    """Make a folder in the cache if it is not there."""
    if is_model_folder(place):
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".making.") as work:
            made = Path(work) / "model"
            make(made)
            try:
                made.rename(place)
            except OSError:
                if not is_model_folder(place):  # another process was faster
                    raise
    except OSError as error:
        raise CheckpointError(
            f"{place.parent} must be writable; got {error}. Set XDG_CACHE_HOME to a folder that is."
        ) from None


def tokenizer_folder(source: str | Path, folder: Path) -> Path:
    """Return the tokeniser of a model folder. `source`: the model as the user wrote it, for the error message."""
    if (folder / TOKENIZER).is_dir():
        return folder / TOKENIZER
    raise CheckpointError(
        f"{source} must have a tokeniser to read text; got none.",
        remedy=f"Convert it with one: segue.convert({str(source)!r}, OUT, vocabulary=FILE). {FILE}",
        option=f"Convert it with one: segue convert {source} OUT --vocabulary FILE. {FILE}",
    )


def _fingerprint(path: Path) -> str:
    """Return a hash that changes when a file used by the conversion changes its size or time: the files of a folder, or
    those whose names begin with the name of the file, and small files beside it."""
    if path.is_dir():
        files = {inner for inner in path.iterdir() if inner.is_file()}
    else:
        patterns = [f"{glob.escape(path.name)}*", *(name for name in SMALL_FILES if "/" not in name)]
        files = {inner for pattern in patterns for inner in path.parent.glob(pattern) if inner.is_file()}
    states = [(str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns) for file in sorted(files)]
    return hashlib.sha256(repr((str(path.resolve()), states)).encode()).hexdigest()[:40]


def _cache_folder() -> Path:
    configured = os.environ.get("XDG_CACHE_HOME")
    base = Path(configured) if configured and Path(configured).is_absolute() else Path.home() / ".cache"
    return base / "segue"
