"""A real PostgreSQL, on a free port of this machine, with its files in a temporary folder."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

OPTIONS = "-c fsync=off -c shared_buffers=16MB -c unix_socket_directories= -c listen_addresses=127.0.0.1"


def programs() -> Path | None:
    """The folder of initdb: Debian has it outside of PATH."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((one for one in reversed(folders) if (one / "initdb").is_file()), None)


class Postgres:
    """A server. It refuses to run as root, so that root starts it as somebody else."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._programs, self._folder, self._databases = programs, folder, count(1)
        self._as: dict[str, Any] = {"cwd": folder}
        if os.getuid() == 0:
            known = {one.pw_name: one for one in pwd.getpwall()}
            other = known.get("postgres") or known["nobody"]
            self._as |= {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
            os.chown(folder, other.pw_uid, other.pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        words = (
            "-D",
            str(folder / "data"),
            "-U",
            "segue",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        )
        self._run("initdb", *words, "--no-instructions")
        self.start()

    def start(self) -> None:
        log = str(self._folder / "log")
        self._run(
            "pg_ctl", "start", "-w", "-D", str(self._folder / "data"), "-l", log, "-o", f"-p {self.port} {OPTIONS}"
        )

    def stop(self) -> None:
        """At once: connections break."""
        self._run("pg_ctl", "stop", "-w", "-D", str(self._folder / "data"), "-m", "immediate")

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **self._as)
        assert done.returncode == 0, done.stdout

    def url(self, name: str) -> str:
        return f"postgresql://segue@127.0.0.1:{self.port}/{name}"

    def new(self, encoding: str = "UTF8") -> str:
        """The URL of an empty database."""
        import psycopg

        name = f"test_{next(self._databases)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'"
                               if encoding != "UTF8" else f"CREATE DATABASE {name}")  # fmt: skip
        return self.url(name)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Skips the test where there is none."""
    pytest.importorskip("psycopg", reason="the package psycopg is not installed")
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="segue-postgres-"))
    server = None
    try:
        server = Postgres(folder, found)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
