"""Check that a model fits into the machine's memory, before anything is allocated for it.

A system that overcommits memory lets the allocation pass and kills the process later, without a message.
"""

import os
import resource
from pathlib import Path

import torch

from segue.errors import ConfigError

ALWAYS = 2**28
"""Bytes that any machine running torch has: smaller needs are not checked."""
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def machine_memory() -> int:
    """Return the maximum memory of the process in bytes: that of the machine, or a lower limit if one is set."""
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
    """Raise ConfigError if this many numbers need more memory than there is. They have torch's default dtype and are on
    its default device, if no other is given."""
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
