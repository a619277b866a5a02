"""A verb in a process of its own that is forked from this one: a real process, with signals and an exit code, that has
imported everything already. What is imported, and what a shell does, is tested with `tests.command.script`."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from typing import IO


class Forked:
    """What tests use of `subprocess.Popen`."""

    def __init__(self, pid: int, output: IO[bytes], errors: IO[bytes]) -> None:
        self.pid, self._output, self._errors = pid, output, errors
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Waits for its end; what it wrote on standard output and standard error."""
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(["segue"], timeout)
            time.sleep(0.005)
        return _read(self._output), _read(self._errors)


def forked(
    *arguments: str, environment: Mapping[str, str] | None = None, preexec_fn: Callable[[], object] | None = None
) -> Forked:
    """Starts a verb."""
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (read by the caller)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = _run(arguments, output, errors, environment or {}, preexec_fn)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    return Forked(pid, output, errors)


def _run(
    arguments: tuple[str, ...],
    output: IO[bytes],
    errors: IO[bytes],
    environment: Mapping[str, str],
    preexec_fn: Callable[[], object] | None,
) -> int:
    """In the new process: the exit code."""
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(environment)
    sys.argv = ["segue", *arguments]
    if preexec_fn is not None:
        preexec_fn()
    from segue.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    return 0


def _read(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode("utf-8", errors="replace")
