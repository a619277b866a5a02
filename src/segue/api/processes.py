"""Several processes that train together."""

from segue.train.distributed import rank


def is_first_process() -> bool:
    """Whether this process is the one that speaks, where several train together: all of them get the events."""
    return rank() == 0
