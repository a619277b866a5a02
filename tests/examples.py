"""How many examples a property test tries: some in `make test`, all of them in `make test-long` (ALL_EXAMPLES=1)."""

import os

ALL = os.environ.get("ALL_EXAMPLES") == "1"


def examples(count: int, *, part: int = 4) -> int:
    """All of them, or a quarter, or another part."""
    return count if ALL else count // part
