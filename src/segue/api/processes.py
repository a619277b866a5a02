"""Distributed training: the process that reports."""

from segue.train.distributed import rank


def is_first_process() -> bool:
    """Return True in the process that prints when several train together; all of them receive events."""
    return rank() == 0
