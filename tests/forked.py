"""A verb, or a function, in a process of its own that is forked from this one: a real process, with signals and an exit
code, that has imported everything already. What is imported, and what a shell does, is tested with
`tests.command.script`, torchrun itself in test_resume (make test-long), and what it tells its processes in
test_pretrain."""

import contextlib
import gc
import importlib
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
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

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout or 600)
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(["segue"], timeout or 600)
            time.sleep(0.005)
        return code

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Waits for its end; what it wrote on standard output and standard error."""
        self.wait(timeout)
        return _read(self._output), _read(self._errors)


def forked(
    *arguments: str, environment: Mapping[str, str] | None = None, preexec_fn: Callable[[], object] | None = None
) -> Forked:
    """Starts a verb."""
    importlib.import_module("segue.cli.app")
    return forked_call(lambda: verb(arguments, preexec_fn), environment=environment)


def ranks(count: int) -> list[dict[str, str]]:
    """What torchrun puts into the environment of each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def together(processes: Sequence[Forked], *, timeout: float = 240) -> tuple[str, str]:
    """Waits for processes that work together, which must all end well; what the first one wrote."""
    written = [process.communicate(timeout) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), [
        errors[-3000:] for _, errors in written
    ]
    return written[0]


def forked_call(work: Callable[[], int | None], *, environment: Mapping[str, str] | None = None) -> Forked:
    """Starts a function, which may return an exit code."""
    importlib.import_module("torch._dynamo")  # an optimizer does, which takes seconds: once here, not in every process
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (read by the caller)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = _run(work, output, errors, environment or {})
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    return Forked(pid, output, errors)


def _run(work: Callable[[], int | None], output: IO[bytes], errors: IO[bytes], environment: Mapping[str, str]) -> int:
    """In the new process: the exit code."""
    os.dup2(output.fileno(), 1)
    os.dup2(errors.fileno(), 2)
    gc.freeze()  # objects of the other process never close what is opened here
    for name in os.listdir("/proc/self/fd"):  # its connections end when it closes them
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.close(int(name))
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(environment)
    try:
        return work() or 0
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()


def verb(arguments: Sequence[str], preexec_fn: Callable[[], object] | None = None) -> int:
    """Runs a verb in this process, with its exit code."""
    sys.argv = ["segue", *arguments]
    if preexec_fn is not None:
        preexec_fn()
    from segue.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def _read(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode("utf-8", errors="replace")
