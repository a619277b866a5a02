"""Atomic writing of folders, one or several together.

A folder NAME is written in `.NAME.writing` beside it, which is locked while its writer lives. When all folders that
belong together are complete and on disk, a journal that names them is written: from then on they count as replaced, and
the next process after a killed writer completes its moves. Before that, nothing has changed.

    .NAME.writing/lock          marks the folder as segue's; locked by its owner
    .NAME.writing/new           the folder that replaces NAME
    .NAME.writing/old           the replaced folder, before it is deleted
    .NAME.writing/journal.json  the names of all folders to move, in the staging folder of the first of them
    .NAME.writing/leader.json   in those of the others: the name of the first
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from segue.errors import DataError, SegueError
from segue.files.rule import MANIFEST, Failure, Kind, check_folder, everything_in, is_own, written_files
from segue.files.single import sha256, sync, try_lock, unwritable

Fill: TypeAlias = Callable[[Path], None]
"""Writes files into an empty folder."""
Place: TypeAlias = Callable[[Path, Fill], None]
"""Has a folder filled, and moves it to its path."""

_LOCK, _NEW, _OLD, _JOURNAL, _LEADER = "lock", "new", "old", "journal.json", "leader.json"
_MARK = b"segue\n"
_PATIENCE = 10.0  # seconds that a reader waits for a living writer between its moves


def write_folder(
    target: Path,
    write: Fill,
    *,
    kind: Kind,
    replace: bool = False,
    keep_others: bool = False,
    inputs: Iterable[str | Path] = (),
    failure: Failure = DataError,
) -> None:
    """Call `write` with an empty folder, add the manifest, then replace `target` with that folder."""
    inputs = list(inputs)

    def check() -> None:
        check_folder(target, kind=kind, replace=replace, keep_others=keep_others, inputs=inputs, failure=failure)

    _unless_others_write(check, target)
    with Staging(target, failure=failure) as staging:
        check()  # the folder of a killed writer may have been moved to it
        try:
            staging.new.mkdir()
            write(staging.new)
            files = [path for path in everything_in(staging.new) if path.is_file()]
            hashes = {path.relative_to(staging.new).as_posix(): sha256(path) for path in files}
            (staging.new / MANIFEST).write_text(manifest_text(hashes), encoding="utf-8")
            for path in everything_in(staging.new):
                if path.is_file():
                    path.chmod(0o644)
                sync(path)
            sync(staging.new)
        except OSError as error:
            raise unwritable(target, error, failure) from error
        check()
        staging.publish()


def _unless_others_write(check: Callable[[], None], target: Path) -> None:
    """Check a folder before anything is done. While another writer replaces it, its files do not belong together, and
    only the check under the lock is reliable."""
    for last in (False, False, True):
        try:
            return check()
        except SegueError:
            if target.name and staging_folder(target).exists():
                return None
            if last:
                raise
    return None


def manifest_text(hashes: dict[str, str]) -> str:
    """Return the sha256 of each file by its name, as in `manifest.json`."""
    return json.dumps(dict(sorted(hashes.items())), indent=1)


class Staging:
    """The hidden folder beside a target, created and locked. Leaving the `with` block without `publish` leaves nothing
    behind."""

    def __init__(self, target: Path, *, failure: Failure = DataError) -> None:
        self.target, self._failure = target, failure
        self.folder = staging_folder(target)
        self.new, self._old = self.folder / _NEW, self.folder / _OLD
        self._handle: int | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            leader = _leader(target)
            if leader != target and _is_pending(leader):
                Staging(leader, failure=failure).remove()
            self._take()
            if _is_pending(target):
                for other in self._finish()[1:]:
                    with suppress(SegueError):  # another process may clean up first
                        Staging(other, failure=failure).remove()
            self._sweep()
        except OSError as error:
            self._release()
            raise unwritable(target, error, failure) from None
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def publish(self, *partners: "Staging") -> None:
        """Move the new folders to their paths, all or none, even if the process is killed. Files of others in a
        replaced folder are kept in the new one."""
        try:
            for partner in partners:
                _write_json(partner.folder / _LEADER, self.target.name)
            _write_json(self.folder / _JOURNAL, [one.target.name for one in (self, *partners)])
            try:
                self._finish()
            except BaseException:
                self._undo()
                raise
            for one in (self, *partners):
                one._sweep()
        except OSError as error:
            raise unwritable(self.target, error, self._failure) from None

    def remove(self) -> None:
        """Remove the hidden folder and release the lock; may be called twice."""
        if self._handle is not None:
            with suppress(OSError):
                if not _is_pending(_leader(self.target)):
                    self._sweep()
                    for name in (_LEADER, _LOCK):
                        (self.folder / name).unlink(missing_ok=True)
                    self.folder.rmdir()
            self._release()

    # -------------------------------------------------------------------------------------------------------- lock

    def _take(self) -> None:
        while self._handle is None:
            with suppress(FileExistsError):
                self.folder.mkdir()
            try:
                flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | (0 if self._has_files() else os.O_CREAT)
                handle = os.open(self.folder / _LOCK, flags, 0o644)
            except FileNotFoundError:
                if self._has_files(without_lock=True):
                    raise self._foreign() from None
                continue  # its owner removed the folder between two of the lines above
            try:
                self._handle = self._owned(handle)
            finally:
                if self._handle is None:
                    os.close(handle)

    def _has_files(self, *, without_lock: bool = False) -> bool:
        """Return True if the folder has anything but a lock; or anything, and no lock."""
        try:
            names = set(os.listdir(self.folder))
        except FileNotFoundError:
            return False
        return bool(names) and _LOCK not in names if without_lock else bool(names - {_LOCK})

    def _owned(self, handle: int) -> int | None:
        """Return the handle, if its lock is ours; None if the file is no longer the one in the folder."""
        if not try_lock(handle):
            raise self._failure(
                f"{self.target} must be written by one process at a time; another one is writing it. "
                "Wait for it, or choose another place."
            )
        try:
            if not os.path.samestat(os.fstat(handle), os.stat(self.folder / _LOCK)):
                return None
        except FileNotFoundError:
            return None
        mark = os.read(handle, len(_MARK) + 1)
        if mark != _MARK and (mark or self._has_files()):
            raise self._foreign()
        if not mark:
            try:
                os.write(handle, _MARK)
            except OSError:  # a full disk
                (self.folder / _LOCK).unlink()
                self.folder.rmdir()
                raise
        return handle

    def _foreign(self) -> SegueError:
        return self._failure(
            f"{self.folder} must be free, for segue to write in; got files of others. Move it away, or choose another "
            "place."
        )

    def _release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    # ------------------------------------------------------------------------------------------------------- moves

    def _finish(self) -> list[Path]:
        """Complete the moves of the journal, from any state between the first and the last of them; return the
        targets."""
        targets = _journal(self.target)
        for target in targets:
            new, old = staging_folder(target) / _NEW, staging_folder(target) / _OLD
            if not new.exists():
                continue
            if os.path.lexists(target):
                empty = target.is_dir() and not target.is_symlink() and not any(target.iterdir())
                if not empty and (old.exists() or target.is_symlink() or written_files(target) is None):
                    raise self._failure(
                        f"{target} must be as it was when its replacement was interrupted; got something else. Move it "
                        "away, and try again."
                    )
                if not empty:
                    os.rename(target, old)
            os.rename(new, target)
        sync(self.target.parent)
        (self.folder / _JOURNAL).unlink()
        sync(self.folder)
        return targets

    def _undo(self) -> None:
        """Restore the previous state after an error between the moves, as far as possible."""
        with suppress(OSError):
            for target in _journal(self.target):
                new, old = staging_folder(target) / _NEW, staging_folder(target) / _OLD
                if not new.exists():
                    os.rename(target, new)
                if old.exists():
                    os.rename(old, target)
            (self.folder / _JOURNAL).unlink()

    def _sweep(self) -> None:
        """Remove what is left of moves that were made, and of those that will not be made."""
        if self._old.is_dir():
            _discard(self._old, keep_in=self.target)
        if self.new.is_dir():
            shutil.rmtree(self.new)
        for name in (_JOURNAL, _LEADER):
            (self.folder / f"{name}.new").unlink(missing_ok=True)


def locate(target: Path) -> Path:
    """Return the current path of the complete folder: its own, or one beside it if a writer was killed between two
    moves."""
    if os.path.exists(target) or not target.name:  # Path.exists raises if a name is too long
        return target
    new, old = staging_folder(target) / _NEW, target.with_name(f".{target.name}.old")
    if os.path.isfile(new / MANIFEST) and _is_pending(_leader(target)):
        return new
    return old if os.path.isfile(old / MANIFEST) else target  # as earlier versions moved it aside


def settle(target: Path, *, failure: Failure = DataError) -> None:
    """Complete the moves of a killed writer, before a folder is read. A living writer is not disturbed, but waited for
    while it moves its folders."""
    if not target.name or not os.path.isdir(staging_folder(target)):
        return
    leader, until = _leader(target), time.monotonic() + _PATIENCE
    while _is_pending(leader):
        try:
            Staging(leader, failure=failure).remove()
        except SegueError:
            if _is_pending(leader) and time.monotonic() > until:
                raise
            time.sleep(0.05)


def sweep(target: Path) -> None:
    """Remove what a dead writer left beside a target that is not being written; a living one is not disturbed."""
    if target.name and os.path.isdir(staging_folder(target)):
        with suppress(SegueError):
            Staging(target).remove()


def staging_folder(target: Path) -> Path:
    """Return the hidden folder in which the replacement of `target` is written."""
    return target.with_name(f".{target.name}.writing")


def remove_folder(folder: Path) -> None:
    """Remove a folder that segue wrote; files of others stay, and so does the folder then."""
    written = written_files(folder)
    if written is None or folder.is_symlink():
        return
    for path in list(everything_in(folder)):  # follows no link out of it
        if is_own(path, written.get(path.relative_to(folder).as_posix()), thorough=False):
            path.unlink()
    (folder / MANIFEST).unlink()  # last: without it nothing here is known to be segue's
    for path in [*everything_in(folder), folder]:
        if path.is_dir() and not path.is_symlink():
            with suppress(OSError):  # not empty
                path.rmdir()


def _discard(old: Path, *, keep_in: Path) -> None:
    """Remove a replaced folder; files that segue did not write are moved to the new one."""
    remove_folder(old)
    if old.is_dir():
        for path in [path for path in everything_in(old) if path.is_symlink() or not path.is_dir()]:
            _move_into(path, keep_in / path.relative_to(old))
        shutil.rmtree(old)  # only folders are left


def _move_into(path: Path, place: Path) -> None:
    """Move a file to a path, or, if that is taken, to one beside it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    free, number = place, 1
    while os.path.lexists(free):
        free, number = place.with_name(f"{place.name}.{number}"), number + 1
    os.rename(path, free)


def _journal(leader: Path) -> list[Path]:
    path = staging_folder(leader) / _JOURNAL
    try:
        return [leader.with_name(name) for name in json.loads(path.read_bytes())]
    except (ValueError, TypeError):
        raise OSError(f"{path}, which is broken") from None


def _leader(target: Path) -> Path:
    """Return the target whose staging folder has the journal: another one, or itself."""
    try:
        return target.with_name(json.loads((staging_folder(target) / _LEADER).read_bytes()))
    except (OSError, ValueError, TypeError):
        return target


def _is_pending(leader: Path) -> bool:
    return os.path.isfile(staging_folder(leader) / _JOURNAL)


def _write_json(path: Path, content: object) -> None:
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(json.dumps(content).encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync(path.parent)
