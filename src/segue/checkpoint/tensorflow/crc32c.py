"""CRC-32C (Castagnoli), the checksum of TensorFlow's files, with numpy alone.

The checksum is the remainder of a polynomial over GF(2) whose coefficients are the bits of the data. Two facts of its
divisor P make it quick without a loop over bytes:

- `x^5685 = x^1362 + x^426 + 1` modulo P. Squaring three times makes every exponent a whole number of bytes, and
  squaring again doubles the distances. So the first bytes of the data may be added (exclusive or) to what stands 4323,
  5259 and 5685 bytes later, or 2, 4, 8, ... times as far, and dropped: three wide operations that are pure addition.
- What is left, at most 5685 bytes, is the sum of the remainders of its single bits, which are in a table.
"""

import functools
from typing import Final

import numpy as np
from numpy.typing import NDArray

REVERSED_DIVISOR: Final = 0x82F63B78
LAGS: Final = (5685 - 1362, 5685 - 426, 5685)
SCALES: Final = (16, 4, 1)
PIECE: Final = 1 << 20  # bytes at a time, so that the work stays in the cache


def crc32c(data: bytes | bytearray | memoryview | NDArray[np.uint8], before: int = 0) -> int:
    """Return the checksum of `data`, or of data with the checksum `before` followed by `data`."""
    array = np.frombuffer(data, dtype=np.uint8)
    for start in range(0, len(array), PIECE):
        before = _extend(before, array[start : start + PIECE])
    return before


def masked(checksum: int) -> int:
    """Return the stored form, rotated and shifted: checksums of data that holds its own checksum are weak."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _extend(before: int, data: NDArray[np.uint8]) -> int:
    state = (before ^ 0xFFFFFFFF).to_bytes(4, "little")
    work = np.zeros(max(len(data), 4), dtype=np.uint8)
    work[: len(data)] = data
    work[:4] ^= np.frombuffer(state, dtype=np.uint8)  # the remainder so far is added to the next four bytes
    if len(data) < 4:  # the remainder extends beyond the data: there are no bytes to divide
        rest = int.from_bytes(work[len(data) :].tobytes(), "little")
        return _remainder(work[: len(data)]) ^ rest ^ 0xFFFFFFFF
    for scale in SCALES:
        work = _fold(work, scale)
    return _remainder(work) ^ 0xFFFFFFFF


def _fold(work: NDArray[np.uint8], scale: int) -> NDArray[np.uint8]:
    """Return the last bytes of `work`, at most `scale * 5685`, with the same remainder. Changes `work`."""
    lags = [lag * scale for lag in LAGS]
    stop = max(len(work) - lags[-1], 0)
    for start in range(0, stop, lags[0]):  # additions within the shortest lag do not depend on each other
        head = work[start : min(start + lags[0], stop)]
        for lag in lags:
            work[start + lag : start + lag + len(head)] ^= head
    return work[stop:]


def _remainder(data: NDArray[np.uint8]) -> int:
    if not len(data):
        return 0
    bits = np.unpackbits(data, bitorder="little")
    return int(np.bitwise_xor.reduce(_bit_remainders()[-len(bits) :] * bits))


@functools.cache
def _bit_remainders() -> NDArray[np.uint32]:
    """Return the remainder of a single bit at each bit position of 5685 bytes, in the order of the data."""
    remainders = np.empty(LAGS[-1] * 8, dtype=np.uint32)
    value = 1
    for place in range(len(remainders) - 1, -1, -1):
        value = value >> 1 ^ (REVERSED_DIVISOR if value & 1 else 0)
        remainders[place] = value
    return remainders
