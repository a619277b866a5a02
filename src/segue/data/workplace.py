"""A hidden folder beside a target, in which the target is written: locked while its owner lives, swept when it is dead.

The lock is one of the operating system, so a killed owner never keeps it, whatever was left on disk.
"""

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from segue.errors import DataError

if sys.platform != "win32":
    import fcntl


class Workplace:
    """`.NAME.writing` beside NAME. What an earlier, dead owner left in it is removed, but for what stood at the target
    and was already moved aside: that goes back."""

    def __init__(self, target: Path) -> None:
        self.folder = target.parent / f".{target.name}.writing"
        self._lock: int | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._take(target)
            if self.aside.is_dir() and not target.exists():
                self.aside.rename(target)
            for left in self.folder.iterdir():
                if left.name != "lock":
                    _remove(left)
        except OSError as error:
            self.remove()
            raise DataError(
                f"{target.parent} must be a folder that can be written to; got {error}. Choose another place for --out."
            ) from None

    @property
    def aside(self) -> Path:
        """Where what stands at the target goes while it is replaced."""
        return self.folder / "old"

    def _take(self, target: Path) -> None:
        while self._lock is None:
            self.folder.mkdir(exist_ok=True)
            path = self.folder / "lock"
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:  # its owner removed the folder between the two lines above
                continue
            if sys.platform != "win32":
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(handle)
                    raise DataError(
                        f"{target} must be written by one process at a time; another one is writing it. "
                        "Wait for it, or choose another place."
                    ) from None
            try:
                mine = os.path.samestat(os.fstat(handle), path.stat())
            except FileNotFoundError:
                mine = False
            if mine:
                self._lock = handle
            else:
                os.close(handle)

    def remove(self) -> None:
        """The folder and the lock; may be called twice."""
        if self._lock is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def sweep(target: Path) -> None:
    """Puts right what a dead owner left beside a target that is not written now; a living one is not disturbed."""
    if (target.parent / f".{target.name}.writing").is_dir():
        with suppress(DataError):
            Workplace(target).remove()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def sync_folder(folder: Path) -> None:
    """Makes names in a folder last; systems that cannot do it for folders keep their own promises."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
