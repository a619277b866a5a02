"""The checksum CRC-32C."""

import random
import time

import numpy as np
import pytest

from segue.checkpoint.tensorflow.crc32c import crc32c


def slow_crc32c(data: bytes, before: int = 0) -> int:
    value = before ^ 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_crc32c_of_rfc_3720() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"") == 0


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 1000, 5684, 5685, 5686, 22_740, 22_741, 90_960, 90_961, 200_003])
def test_crc32c_is_the_slow_one(size: int) -> None:
    data = random.Random(size).randbytes(size)
    expected = slow_crc32c(data)
    assert crc32c(data) == crc32c(memoryview(data)) == crc32c(np.frombuffer(data, dtype=np.uint8)) == expected
    for cut in {0, 1, 2, 3, size // 2, size}:
        assert crc32c(data[cut:], crc32c(data[:cut])) == expected


def test_crc32c_of_several_pieces_is_quick() -> None:
    data = random.Random(1).randbytes(1 << 16) * 1000 + b"end"
    start = time.process_time()
    whole = crc32c(data)
    assert len(data) / (time.process_time() - start) > 100e6  # bytes a second; 2e9 to 4e9 is usual
    assert crc32c(data[1 << 25 :], crc32c(data[: 1 << 25])) == whole
