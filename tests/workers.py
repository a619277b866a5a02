"""Runs the tests in processes that are forked once all are collected: `pytest -p tests.workers --workers 3`.

Workers that start by themselves each import torch and collect thousands of tests, which takes as long as a tenth of all
tests. Here this is done once, and a worker that dies is replaced at once: its test has failed, the others go on.

Each worker gets files of tests, large parts first and single tests at the end, so that most fixtures of a session are
set up in one worker only.
"""

import contextlib
import gc
import importlib
import os
import selectors
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

LARGE = (
    *("torch._dynamo", "torch.onnx", "onnxscript", "onnxruntime", "sklearn.linear_model", "matplotlib.pyplot"),
    *("fastapi", "uvicorn", "openai", "optuna", "schemathesis", "tokenizers", "psycopg", "faiss", "pyarrow.parquet"),
)
"""What tests import while they run, where it is installed: once, and not in each worker."""
AT_ONCE = 12
"""At least so many tests are handed out, until few are left."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=None, help="Number of processes, forked after collection.")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    count = session.config.getoption("--workers")
    if count is None or session.config.option.collectonly or session.testsfailed:
        return None
    if len(session.items) > 1000:
        for name in LARGE:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    Workers(session, count).run()
    return True


@dataclass
class Worker:
    """What the first process knows of one."""

    pid: int
    connection: Connection
    waiting: list[int] = field(default_factory=list)
    """Tests that were handed out and have not ended, the current one first."""


class Workers:
    """Hands out tests, and passes their reports on."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session, self._count, self._started = session, count, 0
        self._left = list(range(len(session.items)))
        self._working: list[Worker] = []
        _folders(session.config).getbasetemp()  # that of each worker is inside

    def run(self) -> None:
        try:
            for _ in range(self._count):
                self._start()
            while self._working:
                self._listen()
        finally:
            for worker in self._working:
                os.kill(worker.pid, signal.SIGINT)
            for worker in self._working:
                os.waitpid(worker.pid, 0)

    def _start(self) -> None:
        here, there = Pipe()
        self._started += 1
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                here.close()
                for worker in self._working:
                    worker.connection.close()
                work(self._session, there, number=self._started)
                code = 0
            finally:
                os._exit(code)
        there.close()
        worker = Worker(pid, here)
        self._working.append(worker)
        self._hand_out(worker)

    def _hand_out(self, worker: Worker) -> None:
        """Whole files, a share of what is left; at the end one test after the other. Nothing, if none is left."""
        items, left = self._session.items, self._left
        size = max(1, len(left) // (4 * self._count))
        if size >= AT_ONCE:
            while size < len(left) // self._count and items[left[size]].path == items[left[size - 1]].path:
                size += 1
        some, self._left = left[:size], left[size:]
        worker.waiting += some
        with contextlib.suppress(OSError):  # it died, which is noticed when it is listened to
            worker.connection.send(some)
        if len(worker.waiting) == 1 and some:  # it must know the next test to decide which fixtures end
            self._hand_out(worker)

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in self._working:
                selector.register(worker.connection, selectors.EVENT_READ, worker)
            ready = [key.data for key, _ in selector.select()]
        for worker in ready:
            try:
                index, reports = worker.connection.recv()
            except (EOFError, OSError):
                self._ended(worker)
                continue
            worker.waiting.remove(index)
            self._log(index, reports)
            if self._session.shouldfail:
                raise self._session.Failed(self._session.shouldfail)
            if self._session.shouldstop:
                raise self._session.Interrupted(self._session.shouldstop)
            if len(worker.waiting) == 1:
                self._hand_out(worker)

    def _log(self, index: int, reports: list[Any]) -> None:
        item, hook = self._session.items[index], self._session.config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in reports:
            report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _ended(self, worker: Worker) -> None:
        """As it should, or it died in a test, and another one goes on."""
        self._working.remove(worker)
        worker.connection.close()
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if not worker.waiting:
            return
        first, *others = worker.waiting
        item = self._session.items[first]
        report = pytest.TestReport(
            nodeid=item.nodeid,
            location=item.location,
            keywords={},
            outcome="failed",
            longrepr=f"the worker ended with exit code {status} while it ran {item.nodeid}",
            when="call",
        )
        hook = self._session.config.hook
        self._log(first, [hook.pytest_report_to_serializable(config=self._session.config, report=report)])
        self._left = others + self._left
        if self._left:
            self._start()


def work(session: pytest.Session, connection: Connection, *, number: int) -> None:
    """In a worker: runs what it is given."""
    gc.freeze()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it, and would never end
    config = session.config
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()  # into a file that all processes would share
    capture.start_global_capturing()
    folders = _folders(config)
    folders._basetemp = folders.mktemp(f"worker-{number}", numbered=False)
    serializable = config.hook.pytest_report_to_serializable
    given = _given(connection)
    current = next(given, None)
    try:
        while current is not None:
            following = next(given, None)
            after = None if following is None else session.items[following]
            reports = runtestprotocol(session.items[current], log=False, nextitem=after)
            connection.send((current, [serializable(config=config, report=report) for report in reports]))
            current = following
    finally:
        session._setupstate.teardown_exact(None)  # what is left after an interrupt


def _given(connection: Connection) -> Iterator[int]:
    """The tests that come, until nothing does."""
    while some := connection.recv():
        yield from some


def _folders(config: pytest.Config) -> Any:
    """What makes temporary folders."""
    return config._tmp_path_factory  # type: ignore[attr-defined]
