"""SHA-256 digests of the files of a checkpoint, to compare with those published by its author.

In: files and expected digests. Out: the digests of all files; an error if one differs. Foreign formats carry no
checksum, so a flipped bit in a weight would go unnoticed otherwise.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from segue.checkpoint.files import shortened
from segue.checkpoint.source import readable
from segue.errors import CheckpointError


class Expected:
    """Expected digests of the files of a checkpoint: `DIGEST` for its only weights file, `NAME=DIGEST` for any file."""

    def __init__(self, digests: Sequence[str]) -> None:
        self._by_name: dict[str, str] = {}
        for text in digests:
            name, _, digest = text.rpartition("=")
            if not re.fullmatch("[0-9a-fA-F]{64}", digest):
                raise CheckpointError(
                    "a SHA-256 must have the form DIGEST or NAME=DIGEST, with 64 hexadecimal digits; got "
                    f"{shortened(text)!r}. Copy all of it."
                )
            self._by_name[name] = digest.lower()

    def digests(self, files: Sequence[Path]) -> dict[str, str]:
        """Return the sha256 of each file by name; raise CheckpointError if an expected digest differs."""
        weights = [file for file in files if file.suffix not in (".json", ".toml")]
        found = {}
        for path in files:
            with readable(path), path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
            wanted = self._by_name.pop(path.name, None)
            if wanted is None and weights == [path]:
                wanted = self._by_name.pop("", None)
            if wanted not in (None, found[path.name]):
                raise CheckpointError(
                    f"{path} must have the sha256 {wanted}; got {found[path.name]}. Its bytes are not those that you "
                    "expect: copy it again, and do not use this one."
                )
        return found

    def check_all_met(self) -> None:
        """Raise CheckpointError if a digest was given for a file that was not read."""
        for name in self._by_name:
            what = f"{name}, which was not read" if name else "no file of weights, or several"
            raise CheckpointError(f"a sha256 must be of a file that is read; got one for {what}. Write NAME=DIGEST.")
