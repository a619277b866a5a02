"""Broken and hostile TensorFlow checkpoints: each is read or refused with a CheckpointError, quickly, in little memory.

python -m tests.checkpoint.test_fuzz_tensorflow [CASES] [SEED]
"""

import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from segue.checkpoint.tensorflow import open_tensorflow, write_tensorflow
from segue.checkpoint.tensorflow.crc32c import crc32c, masked
from segue.checkpoint.tensorflow.entries import Entry, slice_key, write_entry, write_header
from segue.checkpoint.tensorflow.table import FOOTER_SIZE, MAGIC, TRAILER_SIZE, write_table
from segue.checkpoint.tensorflow.wire import MalformedError, unsnappy, varint
from segue.errors import CheckpointError
from tests.originals import FIXTURES

CASES_IN_TESTS = 4000
SLOWEST = 2.0  # seconds for a case that takes milliseconds, on a machine that does other things too
MORE_MEMORY = 200 << 20
NAME = "m"
DATA = ".data-00000-of-00001"
NUMBERS = (
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    (1 << 62) + 1,
    (1 << 63) - 1,
)
HUGE = (*NUMBERS, 1 << 63, (1 << 64) - 1, (1 << 64) - 8)


def seal(content: bytes, kind: int = 0) -> bytes:
    return content + bytes([kind]) + masked(crc32c(bytes([kind]), crc32c(content))).to_bytes(4, "little")


def handle(offset: int, size: int) -> bytes:
    return varint(offset) + varint(size)


def table(data: bytes, kind: int, index: bytes | None = None) -> bytes:
    """A file of one data block with right checksums, whatever it holds."""
    place = handle(0, len(data))
    index = index if index is not None else b"\0\1" + bytes([len(place)]) + b"\xff" + place + bytes(4) + b"\1\0\0\0"
    empty = bytes(4) + b"\1\0\0\0"
    start = len(data) + TRAILER_SIZE
    footer = handle(start, len(empty)) + handle(start + len(empty) + TRAILER_SIZE, len(index))
    return seal(data, kind) + seal(empty) + seal(index) + footer.ljust(FOOTER_SIZE - len(MAGIC), b"\0") + MAGIC


def mutated(data: bytes, random: random.Random) -> bytes:
    """Cut, flipped, spliced, or with a number put somewhere."""
    result = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(len(result) + 1)
        match random.randrange(6):
            case 0:
                del result[at:]
            case 1 if result:
                result[at % len(result)] ^= 1 << random.randrange(8)
            case 2:
                result[at:at] = random.randbytes(random.randrange(20))
            case 3:
                start = random.randrange(len(data))
                result[at : at + random.randrange(40)] = data[start : start + random.randrange(40)]
            case 4:
                number = varint(random.choice(HUGE))
                result[at : at + random.randrange(len(number) + 1)] = number
            case _:
                result[at : at + 4] = random.choice(HUGE).to_bytes(8, "little")[:4]
    return bytes(result)


def random_entry(random: random.Random, number: int, data: bytes) -> Entry:
    """Right, or with one number that is not."""
    size, offset = random.randrange(40), number * 40
    checksum = masked(crc32c(data[offset : offset + size]))
    fields: dict = {"type_number": 4, "shape": (size,), "offset": offset, "size": size}
    if random.random() < 0.2:
        value = random.choice(HUGE)
        field = random.choice(("type_number", "shape", "shard", "offset", "size", "slices"))
        fields[field] = {
            "shape": tuple(random.choice(HUGE) for _ in range(random.randrange(40))),
            "slices": (((random.choice((0, 3, value)), random.choice((None, 2, value))),) * random.randrange(3),) * 2,
        }.get(field, value)
    return Entry(**fields, checksum=checksum)


class Files:
    """The folder that every case writes its files into, and what they are made of."""

    def __init__(self, folder: Path) -> None:
        self.prefix = folder / NAME
        self.written: dict[Path, bytes] = {}
        tensors = {"a/kernel": torch.randn(9, 4), "a/bias": torch.arange(6), "b": torch.tensor([True, False])}
        write_tensorflow(self.prefix, tensors, global_step=3)
        original = FIXTURES / "xlnet" / "A1_gelu_untied" / "model.ckpt.index"
        self.small, self.real = self.read(".index"), original.read_bytes()
        self.data, self.state = self.read(DATA), (folder / "checkpoint").read_bytes()
        sliced = {b"": write_header(), b"w": write_entry(Entry(type_number=4, shape=(4, 5), slices=self.cuts()))}
        for number, cut in enumerate(self.cuts()):
            raw = self.data[number * 10 : number * 10 + 10]
            entry = Entry(type_number=4, shape=(2, 5), offset=number * 10, size=10, checksum=masked(crc32c(raw)))
            sliced[slice_key(b"w", cut)] = write_entry(entry)
        self.sliced = write_table(sorted(sliced.items()))

    @staticmethod
    def cuts() -> tuple[tuple[tuple[int, int | None], ...], ...]:
        return ((0, 2), (0, None)), ((2, 2), (0, None))

    def path(self, suffix: str) -> Path:
        return self.prefix.with_name(NAME + suffix)

    def read(self, suffix: str) -> bytes:
        return self.path(suffix).read_bytes()

    def write(self, *, index: bytes | None = None, data: bytes | None = None, state: bytes | None = None) -> None:
        self._put(self.path(".index"), self.small if index is None else index)
        self._put(self.path(DATA), self.data if data is None else data)
        self._put(self.prefix.with_name("checkpoint"), self.state if state is None else state)

    def _put(self, path: Path, content: bytes) -> None:
        if self.written.get(path) != content:
            with path.open("r+b") as file:  # in place: some file systems sync a file that is made anew
                file.write(content)
                file.truncate()
            self.written[path] = content


def broken_index(files: Files, random: random.Random) -> None:
    files.write(index=mutated(random.choice((files.small, files.real, files.sliced)), random), data=bytes(70_000))


def broken_data(files: Files, random: random.Random) -> None:
    files.write(data=mutated(files.data, random))


def broken_state(files: Files, random: random.Random) -> None:
    files.write(state=mutated(files.state, random))


def resealed_block(files: Files, random: random.Random) -> None:
    """A data block that is broken inside, with the right checksum: what only the checks of its content can stop."""
    source = random.choice((files.small, files.real, files.sliced))
    size = source[:-FOOTER_SIZE].rindex(bytes(4) + b"\1\0\0\0\0" + b"\xc0\xf2\xa1\xb0") - TRAILER_SIZE
    data = bytes(70_000) if source is files.real else None
    files.write(index=table(mutated(source[:size], random), random.choice((0, 0, 0, 0, 0, 0, 1, 2))), data=data)


def resealed_index(files: Files, random: random.Random) -> None:
    """Blocks that are said to be anywhere, many times, in the index block or the footer."""
    places = [handle(random.choice((0, 5, *HUGE)), random.choice((10, *HUGE))) for _ in range(random.randrange(1, 4))]
    index = b"".join(b"\0\1" + bytes([len(place)]) + bytes([97 + i]) + place for i, place in enumerate(places))
    whole = table(files.small[: random.randrange(len(files.small))], 0, index + bytes(4) + b"\1\0\0\0")
    if random.random() < 0.5:
        numbers = b"".join(varint(random.choice((0, 8, 15, *HUGE))) for _ in range(4))
        whole = whole[:-FOOTER_SIZE] + numbers[:40].ljust(40, b"\0") + MAGIC
    files.write(index=whole)


def hostile_entries(files: Files, random: random.Random) -> None:
    """Well-formed messages that lie."""
    count = random.randrange(1, 6)
    entries = {bytes([97 + i]): write_entry(random_entry(random, i, files.data)) for i in range(count)}
    header = random.choice((write_header(), write_header(), mutated(write_header(), random), write_header(1 << 31)))
    if random.random() < 0.3:
        key = random.choice(list(entries))
        entries[key] = mutated(entries[key], random)
    files.write(index=write_table([(b"", header), *entries.items()], block_size=random.choice((1, 60, 4096))))


def hostile_block(files: Files, random: random.Random) -> None:
    """Entries with lengths that do not fit, keys that grow on each other, and restarts that are no places."""
    block = bytearray()
    for _ in range(random.randrange(60)):
        lengths = [random.choice((0, 1, 3, 50, random.choice(HUGE))) for _ in range(3)]
        block += b"".join(map(varint, lengths)) + random.randbytes(min(lengths[1] + lengths[2], 60))
    restarts = [random.choice(HUGE) & 0xFFFFFFFF for _ in range(random.randrange(5))]
    for number in (*restarts, random.choice((len(restarts), len(restarts), 0xFFFFFFFF, 1 << 30))):
        block += number.to_bytes(4, "little")
    files.write(index=table(bytes(block), 0))


def compressed_noise(files: Files, random: random.Random) -> None:
    size = random.choice((10, 100, 5000, *HUGE))
    noise = random.randbytes(random.randrange(200))
    with suppress(MalformedError):
        assert len(unsnappy(varint(size) + b"\x0cabcd" + noise, limit=10_000)) == size
    files.write(index=table(varint(size) + b"\x0cabcd" + noise, 1))


KINDS: tuple[Callable[[Files, random.Random], None], ...] = (
    broken_index,
    broken_data,
    broken_state,
    resealed_block,
    resealed_block,
    resealed_index,
    hostile_entries,
    hostile_block,
    compressed_noise,
)


def fuzz(cases: int, seed: int) -> dict[str, int]:
    """How many were read and how many refused, by kind; anything else fails."""
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        files = Files(Path(name))
        folder = sorted(path.name for path in files.prefix.parent.iterdir())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(cases):
            generator = random.Random(f"{seed}/{number}")
            kind = generator.choice(KINDS)
            kind(files, generator)
            start = time.process_time()
            try:
                source = open_tensorflow(files.prefix.parent if kind is broken_state else files.prefix)
                for tensor, info in source.tensors.items():
                    assert tuple(source.read(tensor).shape) == info.shape
                outcome = "read"
            except CheckpointError:
                outcome = "refused"
            except BaseException:
                sys.stderr.write(f"case {number} of seed {seed}: {kind.__name__}\n")
                raise
            assert time.process_time() - start < SLOWEST, f"case {number} of seed {seed}: {kind.__name__} is slow"
            counts[f"{kind.__name__} {outcome}"] = counts.get(f"{kind.__name__} {outcome}", 0) + 1
        assert sorted(path.name for path in files.prefix.parent.iterdir()) == folder
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown << 10 < MORE_MEMORY, f"{grown} KB more memory"
    return counts


def test_only_checkpoint_errors() -> None:
    counts = fuzz(CASES_IN_TESTS, seed=0)
    for kind in {kind.__name__ for kind in KINDS}:
        assert counts[f"{kind} refused"] > 50
    for kind in ("broken_state", "resealed_block", "hostile_entries"):
        assert counts[f"{kind} read"] > 5, "cases should be almost right, or they are refused before the last check"


if __name__ == "__main__":
    begin = time.perf_counter()
    result = fuzz(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for outcome, count in sorted(result.items()):
        print(f"{count:8} {outcome}")
    print(f"{sum(result.values()):8} cases in {time.perf_counter() - begin:.0f} s")
