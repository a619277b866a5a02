"""Memory of the machine and of the process."""

import os
import resource
import sys

import torch


def peak_memory() -> int:
    """Return the peak memory of the process in bytes, on the GPU if it uses one."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available_memory() -> int:
    """Return the free memory in bytes, on the GPU if there is one."""
    if torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return int(free)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
