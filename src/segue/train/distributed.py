"""Several processes, started by torchrun: who is who, and what they must agree on.

Everything here also works, and does nothing, in a single process.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

TIMEOUT = timedelta(minutes=5)
"""How long a process waits for the others before it gives up."""


@contextmanager
def processes() -> Iterator[torch.device]:
    """Joins the group that torchrun started, if it did; yields the device of this process."""
    device = _device()
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield device
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_processes(value: Tensor) -> Tensor:
    """All get the sum of what each of them gives."""
    if dist.is_initialized():
        value = value.clone()
        dist.all_reduce(value)
    return value


def any_process(flag: bool) -> bool:
    """Whether it holds in any of them: all get the same answer."""
    if not dist.is_initialized():
        return flag
    value = torch.tensor([float(flag)])
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return bool(value)


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device
