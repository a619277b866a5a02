"""Distributed training: which process reports."""

from segue.train.distributed import rank


def is_first_process() -> bool:
    """Whether this process is the one that prints when several train together; all of them receive events."""
    return rank() == 0
