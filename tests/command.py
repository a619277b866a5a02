"""The command line for tests: in this process, which saves the start of another; or the installed script.

What a process of its own adds (signals, streams that are closed, what is imported) is tested with `script`; all else
with `command`, through the same `main`.
"""

import io
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from segue.cli import main

SCRIPT = Path(sys.executable).parent / "segue"


def command(
    *arguments: object, width: int = 80, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a verb in this process, in a folder, with its output and its exit code."""
    argv = ["segue", *map(str, arguments)]
    output, errors = _stream(), _stream()
    code: object = None
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.object(sys, "stdout", output),
        mock.patch.object(sys, "stderr", errors),
        mock.patch.dict(os.environ, {"COLUMNS": str(width), **(environment or {})}),
        warnings.catch_warnings(),
        _inside(folder),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    returncode = code if isinstance(code, int) else 0
    return subprocess.CompletedProcess(argv, returncode, _text(output), _text(errors))


@contextmanager
def standard_input(text: str) -> Iterator[None]:
    """The text on standard input, also for what reads its descriptor."""
    kept = os.dup(0)
    with tempfile.TemporaryFile() as file:
        file.write(text.encode("utf-8"))
        file.seek(0)
        os.dup2(file.fileno(), 0)
        try:
            with open(0, encoding="utf-8", closefd=False) as stream, mock.patch.object(sys, "stdin", stream):
                yield
        finally:
            os.dup2(kept, 0)
            os.close(kept)


def script(
    *arguments: object, width: int = 80, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the installed script in a process of its own, with no more of the environment than it needs."""
    own = {"COLUMNS": str(width), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    own |= {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **(environment or {})}
    return subprocess.run(
        [str(SCRIPT), *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=own,
        timeout=300,
    )


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("utf-8")


@contextmanager
def _inside(folder: Path | None) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(before if folder is None else folder)
    try:
        yield
    finally:
        os.chdir(before)
