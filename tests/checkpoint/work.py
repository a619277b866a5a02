"""How much work something takes, counted and not timed: a busy machine does not change it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooMuchWorkError(AssertionError):
    """The bound was passed; what ran has been stopped there."""


@contextmanager
def at_most(calls: int) -> Iterator[list[int]]:
    """Stops what makes more calls of functions, of Python or built in, than these. Gives their number, in a list."""
    made = [0]

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            made[0] += 1
            if made[0] > calls:
                sys.setprofile(None)
                raise TooMuchWorkError(f"at most {calls:,} calls may be made; this one goes beyond")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield made
    finally:
        sys.setprofile(before)
