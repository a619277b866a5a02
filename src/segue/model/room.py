"""Whether a model fits into the memory of the machine: asked before anything is allocated for it.

A system that promises more memory than it has lets the allocation pass and ends the process later, without a word.
"""

import os
import resource
from pathlib import Path

import torch

from segue.errors import ConfigError

ALWAYS = 2**28
"""Bytes that any machine has on which torch runs: less is not checked."""
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def machine_memory() -> int:
    """Bytes that the process may have at most: what the machine has, or less where a limit is set."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            found.append(soft)
    try:
        limit = _CGROUP.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        limit = "max"
    return min(found + ([int(limit)] if limit.isdigit() else []))


def check_room(numbers: int, *, what: str, remedy: str, device: torch.device | None = None) -> None:
    """Refuses what needs more than there is; `numbers` are of torch's default type, and on its default device if no
    other is named."""
    device = torch.get_default_device() if device is None else device
    needed = numbers * torch.get_default_dtype().itemsize
    if device.type == "meta" or needed < ALWAYS:
        return
    there = machine_memory()
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    if needed > there:
        raise ConfigError(
            f"{what} must fit into the {there / 2**30:,.1f} GiB of available memory; got {numbers / 1e6:,.0f} million "
            f"numbers, {needed / 2**30:,.1f} GiB. {remedy}"
        )
