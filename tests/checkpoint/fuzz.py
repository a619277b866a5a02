"""Broken files for readers: each is read, or refused with a CheckpointError, quickly, in little memory and with no act.

A reader is a function of a path. `run` makes cases out of samples, calls the reader and raises on the first case that
breaks a rule, naming the seed and the number of the case, so that it can be made again.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from segue.errors import CheckpointError

Reader = Callable[[Path], object]
# Numbers at which lengths and offsets go wrong, in the widths and orders that files have.
EDGES = [
    value.to_bytes(width, order)
    for width in (1, 2, 4, 8)
    for value in (0, 1, 2 ** (8 * width - 1) - 1, 2 ** (8 * width - 1), 2 ** (8 * width) - 1)
    for order in ("little", "big")
]
# Acts no reader may do. `open` is judged by its mode.
FORBIDDEN = {"pickle.find_class", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "subprocess.Popen"}
FORBIDDEN |= {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
FORBIDDEN |= {"socket.connect", "socket.bind", "ctypes.dlopen", "marshal.loads", "shutil.rmtree", "tempfile.mkstemp"}


@dataclass(kw_only=True)
class Report:
    """What a run gave."""

    cases: int = 0
    read: int = 0
    refused: int = 0
    slowest: float = 0.0
    memory: int = 0
    """Bytes by which the process grew at most, where the system says so."""

    def __str__(self) -> str:
        return (
            f"{self.cases} cases: {self.read} read, {self.refused} refused; slowest {self.slowest * 1000:.0f} ms, "
            f"memory {self.memory / 2**20:.0f} MiB"
        )


def run(
    reader: Reader,
    samples: Sequence[bytes],
    *,
    cases: int,
    seed: int = 0,
    wrap: Callable[[bytes], bytes] = bytes,
    suffix: str = "",
    beside: Mapping[str, bytes] = MappingProxyType({}),
    seconds: float = 5.0,
    memory: int = 2**28,
) -> Report:
    """Reads `cases` files made of the samples. `wrap` puts what was broken into a whole file, so that a checksum around
    it does not hide it; `beside` are whole files in the same folder; `seconds` is for one case, `memory` bytes for
    all."""
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"case{suffix}"
        for name, content in beside.items():
            (Path(folder) / name).write_bytes(content)
        before = _reset_peak()
        for number, data in enumerate(mutations(samples, cases=cases, seed=seed)):
            path.unlink(missing_ok=True)  # to write over a file waits for the disk
            path.write_bytes(wrap(data))
            start = time.perf_counter()
            try:
                with no_acts(), _time_limit(seconds):
                    reader(path)
                report.read += 1
            except CheckpointError as error:
                str(error).encode("utf-8")  # can be printed
                report.refused += 1
            except BaseException as error:
                error.add_note(f"case {number} of seed {seed}, {len(data)} bytes: {data[:200]!r}")
                raise
            report.cases += 1
            report.slowest = max(report.slowest, time.perf_counter() - start)
        assert {file.name for file in Path(folder).iterdir()} == {path.name, *beside}, "a reader wrote a file"
        report.memory = max(0, _peak() - before)
    assert report.memory < memory, f"the process grew by {report.memory} bytes"
    return report


def mutations(samples: Sequence[bytes], *, cases: int, seed: int) -> Iterator[bytes]:
    """The samples cut, flipped, spliced and overwritten; the same for the same seed."""
    generator = random.Random(seed)
    kinds = [_truncate, _flip_bits, _overwrite, _overwrite_edge, _splice, _delete, _duplicate]
    for _ in range(cases):
        data = bytearray(generator.choice(samples))
        for _ in range(generator.choice([1, 1, 1, 2, 4])):
            generator.choice(kinds)(data, samples, generator)
        yield bytes(data)


def _place(data: bytearray, generator: random.Random) -> int:
    """A place, more often near an end: headers and directories are there."""
    span = len(data) if generator.random() < 0.5 else min(len(data), 256)
    place = generator.randrange(span + 1)
    return place if generator.random() < 0.5 else len(data) - place


def _truncate(data: bytearray, _: Sequence[bytes], generator: random.Random) -> None:
    del data[_place(data, generator) :]


def _flip_bits(data: bytearray, _: Sequence[bytes], generator: random.Random) -> None:
    for _ in range(generator.choice([1, 2, 8])):
        if data:
            data[min(_place(data, generator), len(data) - 1)] ^= 1 << generator.randrange(8)


def _overwrite(data: bytearray, _: Sequence[bytes], generator: random.Random) -> None:
    place, length = _place(data, generator), generator.choice([1, 2, 4, 16])
    data[place : place + length] = generator.randbytes(length)


def _overwrite_edge(data: bytearray, _: Sequence[bytes], generator: random.Random) -> None:
    place, edge = _place(data, generator), generator.choice(EDGES)
    data[place : place + len(edge)] = edge


def _splice(data: bytearray, samples: Sequence[bytes], generator: random.Random) -> None:
    other = bytearray(generator.choice(samples))
    start, length = _place(other, generator), generator.choice([1, 4, 16, 64])
    place = _place(data, generator)
    data[place : place + generator.choice([0, length])] = other[start : start + length]


def _delete(data: bytearray, _: Sequence[bytes], generator: random.Random) -> None:
    place = _place(data, generator)
    del data[place : place + generator.choice([1, 2, 4, 32])]


def _duplicate(data: bytearray, _: Sequence[bytes], generator: random.Random) -> None:
    place, length = _place(data, generator), generator.choice([1, 2, 8, 32])
    data[place:place] = data[place : place + length] * generator.choice([1, 2, 20])


class Act(BaseException):
    """A reader did something that it may not."""


_watching = False
_installed = False


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if not _watching:
        return
    if event == "open":
        flags = arguments[2] if len(arguments) > 2 and isinstance(arguments[2], int) else 0
        writes = isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if writes or flags & 3 or flags & 0o100:  # O_WRONLY, O_RDWR, O_CREAT
            raise Act(f"opened {arguments[0]!r} for writing")
    elif event in FORBIDDEN:
        raise Act(f"{event} {arguments!r}")


@contextmanager
def no_acts() -> Iterator[None]:
    """Raises `Act` inside where a file is written, a program started, a class looked up for a pickle, and the like."""
    global _watching, _installed
    if not _installed:
        sys.addaudithook(_watch)  # cannot be taken away again
        _installed = True
    _watching = True
    try:
        yield
    finally:
        _watching = False


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Act(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _reset_peak() -> int:
    """The memory of the process now, from which its peak counts. Where the system does not tell, both are 0."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return _peak()
    return _peak()


def _peak() -> int:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def main(runs: dict[str, Callable[[int, int], Report]]) -> None:
    """The command of a fuzzer: `--cases` for each of its readers, `--seed`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(runs))
    options = parser.parse_args()
    for name, call in runs.items():
        if options.only in (None, name):
            start = time.perf_counter()
            report = call(options.cases, options.seed)
            print(f"{name}: {report}, {time.perf_counter() - start:.0f} s", flush=True)
