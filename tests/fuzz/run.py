"""Runs cases, each in a process of its own, and says which broke a rule.

    python -m tests.fuzz.run --seconds 1800 --seed 0

A case must end by itself with an exit code of 0, 1, 2 or 130, without a traceback, without a signal, and in the memory
that is given; a process that waits for something that never comes is a finding as well. Only a case that is still busy
after its time is no finding: it is interrupted, and must then end.
"""

import argparse
import codecs
import contextlib
import ctypes
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.cases import NOBODY, Case, lay_out, make_case
from tests.fuzz.world import make

SECONDS = 60.0
MEMORY = 3 * 2**30
ALLOWED = {0, 1, 2, 130}


@dataclass
class Outcome:
    """What became of a case."""

    case: Case
    code: int | None
    """None: it was ended by a signal."""
    output: str
    errors: str
    seconds: float
    memory: int
    wrong: list[str] = field(default_factory=list)
    interrupted: bool = False


def attempt(case: Case, world: Path, work: Path, *, seconds: float = SECONDS) -> Outcome:
    """Tries one case in a fresh copy of the world."""
    place = work / f"case-{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    lay_out(case, world, place)
    streams = {name: work / f"{name}-{os.getpid()}" for name in ("in", "out", "errors")}
    streams["in"].write_bytes(case.stdin)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _child(case, place, streams)
    status, usage, interrupted, stuck = _wait(child, seconds)
    outcome = Outcome(
        case=case,
        code=os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else None,
        output=streams["out"].read_text(errors="replace") if streams["out"].is_file() else "",
        errors=streams["errors"].read_text(errors="replace"),
        seconds=time.monotonic() - started,
        memory=usage.ru_maxrss * 1024,
        interrupted=interrupted,
    )
    _judge(outcome, status, stuck=stuck)
    for path in [place, *place.rglob("*")]:
        with contextlib.suppress(OSError):
            if not path.is_symlink() and path.is_dir():
                path.chmod(0o755)
    shutil.rmtree(place, ignore_errors=True)
    return outcome


def _child(case: Case, place: Path, streams: dict[str, Path]) -> None:
    """In the new process: never returns."""
    code = 99
    try:
        os.setsid()
        os.chdir(place)
        target = os.open(
            "/dev/full" if case.stdout == "full" else streams["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        )
        if case.stdout == "pipe":
            reader, target = os.pipe()
            os.close(reader)
        for number, descriptor in (
            (0, os.open(streams["in"], os.O_RDONLY)),
            (1, target),
            (2, os.open(streams["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)),
        ):
            os.dup2(descriptor, number)
        if case.stdout == "closed":
            os.close(1)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = None if case.stdout == "closed" else open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, errors="backslashreplace", buffering=1)  # noqa: SIM115
        if case.file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (case.file_limit, case.file_limit))
        if case.memory_limit is not None:
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + case.memory_limit, size + case.memory_limit))
        if os.getuid() == 0:
            become_powerless(case.user or NOBODY, may_read=case.user is None)
        sys.argv = ["segue", *case.arguments]
        tempfile.tempdir = str(place.parent)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from segue.cli import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        import traceback

        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def become_powerless(user: int, *, may_read: bool) -> None:
    """From root to a user who can change nothing outside the copy: a hostile path must not be able to do harm, whatever
    a verb makes of it. With `may_read`, all files can be read, as root can, since Python may be in a home of root."""
    libc = ctypes.CDLL(None, use_errno=True)
    if may_read:
        libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    if may_read:
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        reading = 1 << 2  # CAP_DAC_READ_SEARCH
        data = (ctypes.c_uint32 * 6)(reading, reading, 0, 0, 0, 0)
        libc.capset(header, data)
    os.environ["HOME"] = "/nonexistent"
    if os.access("/dev", os.W_OK) or os.getuid() == 0:
        raise AssertionError("a case must not run with the rights of root")


def _wait(child: int, seconds: float) -> tuple[int, resource.struct_rusage, bool, bool]:
    """Status and usage; whether it was interrupted; whether it did nothing meanwhile."""
    end, interrupted, stuck = time.monotonic() + seconds, False, False
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            with contextlib.suppress(OSError):  # what it started itself
                os.killpg(child, signal.SIGKILL)
            return status, usage, interrupted, stuck
        if time.monotonic() > end:
            if interrupted:
                os.kill(child, signal.SIGKILL)
                stuck = True
            else:
                ticks = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:15]
                stuck = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") < 0.1 * seconds
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGINT)
                interrupted, end = True, time.monotonic() + seconds
        time.sleep(0.005)


def _judge(outcome: Outcome, status: int, *, stuck: bool) -> None:
    starved = outcome.case.memory_limit is not None and os.WIFSIGNALED(status)
    if starved and os.WTERMSIG(status) == signal.SIGABRT:
        return  # libraries in C++ end the process where they get no memory; nothing in Python can prevent it
    if outcome.code is None:
        outcome.wrong.append(f"ended by signal {os.WTERMSIG(status)}")
    elif outcome.code not in ALLOWED and not (outcome.interrupted and outcome.code == 143):
        outcome.wrong.append(f"exit code {outcome.code}")
    if "Traceback (most recent call last)" in outcome.errors + outcome.output:
        outcome.wrong.append("a traceback")
    if stuck:
        outcome.wrong.append("it waits for what never comes, or does not hear an interrupt")
    if outcome.memory > MEMORY:
        outcome.wrong.append(f"{outcome.memory / 2**30:.1f} GiB of memory")
    if outcome.case.user is not None and "No module named" in outcome.errors:
        outcome.wrong = []  # Python itself, in the home of another user, cannot be read
    if outcome.code == 2 and not outcome.errors.strip() and outcome.case.file_limit is None:
        outcome.wrong.append("exit code 2 without a message")


def imports() -> None:
    """All that the verbs import, once, so that a case begins at once."""
    from importlib import import_module

    import segue.cli

    for path in sorted(Path(segue.cli.__path__[0]).glob("*.py")):
        import_module(f"segue.cli.{path.stem}")
    for encoding in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be", "gb18030", "latin-1", "ascii"):
        codecs.lookup(encoding)
    for name in ("pyarrow.compute", "matplotlib.figure", "matplotlib.backends.backend_agg", "optuna"):
        with contextlib.suppress(ImportError):
            import_module(name)


def campaign(seconds: float, *, seed: int, world: Path, work: Path, verbs: list[str] | None = None) -> list[Outcome]:
    """Cases until the time is up; prints and returns what broke a rule."""
    end, number, found = time.monotonic() + seconds, seed, []
    counts: dict[str, int] = {}
    while time.monotonic() < end:
        case = make_case(number, None if verbs is None else verbs[number % len(verbs)])
        outcome = attempt(case, world, work)
        counts[case.verb] = counts.get(case.verb, 0) + 1
        if outcome.wrong:
            found.append(outcome)
            print(f"WRONG {', '.join(outcome.wrong)}\n  {case}\n  {outcome.errors[-3000:]}", flush=True)
            for report in work.glob("segue-fault-*"):
                print(report.read_text()[-2500:], flush=True)
        elif outcome.interrupted:
            print(f"long: {case}", flush=True)
        for report in work.glob("segue-fault-*"):
            report.unlink()
        number += 1
        if number % 200 == 0:
            print(f"{number - seed} cases", flush=True)
    print(f"{sum(counts.values())} cases, {len(found)} findings; {counts}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--world", type=Path)
    parser.add_argument("--verb", action="append")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        work.chmod(0o777)
        world = given.world or work / "world"
        imports()
        if not world.exists():
            make(world)
        sys.exit(bool(campaign(given.seconds, seed=given.seed, world=world, work=work, verbs=given.verb)))


if __name__ == "__main__":
    main()
