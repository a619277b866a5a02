"""Distributed training with torchrun: ranks, collective operations, and DDP or FSDP2 models.

Either each process has all weights and gradients are averaged (DDP), or each has a shard of every weight, gradient and
moment, and gathers a layer only while it computes it (FSDP2). Both give the numbers of a single process. Everything
here also works, and does nothing, in a single process.
"""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from segue.errors import SegueError
from segue.model import LanguageModel
from segue.model.build import shapes_only

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

T = TypeVar("T")
TIMEOUT = timedelta(minutes=5)
"""Time that a process waits for the others before it gives up."""


class LostProcessError(SegueError):
    """Raised when another process of the run ended or stopped responding."""

    exit_at_once = True  # PyTorch frees the process group under the GIL, for which one of its threads may wait


@contextmanager
def processes() -> Iterator[torch.device]:
    """Join the process group that torchrun started, if it did; yield the device of this process. If another process is
    lost, those that wait for it end with a `LostProcessError`."""
    device = _device()
    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield device
        return
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    except (RuntimeError, ValueError) as error:  # a process that torchrun started is gone, or its variables are wrong
        raise LostProcessError(
            "the processes of a run must find each other, as torchrun says in WORLD_SIZE, RANK, MASTER_ADDR and "
            f"MASTER_PORT; got {str(error).splitlines()[0][:200]}. Start the command again with torchrun, or unset "
            "WORLD_SIZE."
        ) from None
    own = rank()
    try:
        yield device
    except RuntimeError as error:
        if not _is_connection_error(error):
            raise
        if threading.current_thread() is threading.main_thread():
            # torchrun sends SIGTERM to all others as soon as one is gone; they must still report why they end.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise LostProcessError(
            f"all processes of a run must keep running; process {own} lost the connection to another one, which was "
            "killed or failed with a message of its own. Start the same command again; what was saved before is "
            "untouched."
        ) from None
    finally:
        dist.destroy_process_group()


def _is_connection_error(error: RuntimeError) -> bool:
    """Return True for errors of NCCL, which have a class of their own, and of gloo, which only name its source file."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def sum_over_processes(value: Tensor) -> Tensor:
    """Return the sum of the values of all processes."""
    if dist.is_initialized():
        value = value.clone()
        dist.all_reduce(value)
    return value


def largest_of_processes(value: int) -> int:
    """Return the largest of the values of all processes."""
    if not dist.is_initialized():
        return value
    largest = torch.tensor([value])
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return int(largest)


@contextmanager
def first_of_machine_first() -> Iterator[None]:
    """Run a block in the first process of a machine before the others, which find its files on disk."""
    first = int(os.environ.get("LOCAL_RANK", "0")) == 0
    if dist.is_initialized() and not first:
        dist.barrier()
    yield
    if dist.is_initialized() and first:
        dist.barrier()


def _device() -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


# -------------------------------------------------------------------------------------------------- shared models


def shared(module: nn.Module) -> nn.Module:
    """Wrap a module for all processes; gradients are averaged over them during the backward pass."""
    if not dist.is_initialized():
        return module
    if any(is_divided_module(part) for part in module.modules()):
        return Divided(module)
    # A bin without tokens, a segment term without segments or an inactive auxiliary loss has no gradient to wait for.
    return nn.parallel.DistributedDataParallel(module, find_unused_parameters=True)


def add_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum all gradients over the processes. A weight that no process used keeps no gradient, so that Adam skips it."""
    if not dist.is_initialized():
        return
    every = list(parameters)
    used = torch.tensor([float(one.grad is not None) for one in every], device=every[0].device)
    dist.all_reduce(used, op=dist.ReduceOp.MAX)
    under_way = []
    for one, any_used in zip(every, used.tolist(), strict=True):
        if any_used:
            one.grad = torch.zeros_like(one) if one.grad is None else one.grad
            under_way.append(dist.all_reduce(one.grad, async_op=True))
    for work in under_way:
        work.wait()


def weights_of_first(module: nn.Module) -> None:
    """Broadcast the weights of the first process."""
    if dist.is_initialized():
        for value in module.state_dict().values():
            dist.broadcast(value, src=0)


def own_share(values: Sequence[T]) -> Sequence[T]:
    """Return the share of this process; `collected` merges the results of all."""
    return values[rank() :: world()]


def collected(part: list[T]) -> list[T]:
    """Return the results of all processes for their shares, in the original order."""
    if not dist.is_initialized():
        return part
    parts: list[Any] = [None] * world()
    dist.all_gather_object(parts, part)
    return [parts[n % world()][n // world()] for n in range(sum(map(len, parts)))]


class Divided(nn.Module):
    """A module whose weights `place` sharded. As with DDP, a weight that no process used has no gradient.

    FSDP2 gives such a weight a gradient of zeros, with which Adam would move it.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._used: set[str] = set()
        for part in module.modules():
            if is_divided_module(part):
                divided = cast("FSDPModule", part)
                divided.unshard()  # the tensors that autograd sees: the same ones in every step
                for name, parameter in module.named_parameters():
                    if not is_divided(parameter):
                        mark = partial(self._mark, name)
                        parameter.register_post_accumulate_grad_hook(mark)  # type: ignore[no-untyped-call]
                divided.reshard()

    def forward(self, *arguments: Any) -> Any:
        return self.module(*arguments)

    def _mark(self, name: str, _: Tensor) -> None:
        self._used.add(name)

    def drop_unused(self) -> None:
        """Remove the gradients of unused weights; every process must call this after the last backward pass of an
        update."""
        named = list(self.module.named_parameters())
        used = torch.tensor([float(name in self._used) for name, _ in named], device=named[0][1].device)
        dist.all_reduce(used, op=dist.ReduceOp.MAX)
        for (_, parameter), any_used in zip(named, used.tolist(), strict=True):
            if not any_used:
                parameter.grad = None
        self._used.clear()


# -------------------------------------------------------------------------------------------------- sharded weights


def is_divided(value: object) -> "TypeGuard[DTensor]":
    """Return True if a tensor is sharded. There is none before torch.distributed.tensor is imported, which takes a
    second that a single process need not spend."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def is_divided_module(value: object) -> bool:
    """Return True if the weights of a module are sharded; torch.distributed.fsdp is not imported for it."""
    module = sys.modules.get("torch.distributed.fsdp")
    return module is not None and isinstance(value, module.FSDPModule)


def place(model: LanguageModel, device: torch.device, *, sharded: bool) -> LanguageModel:
    """Move a model to the device; with `sharded`, each process keeps a shard of every weight. Create the optimizer and
    the weight average afterwards."""
    if not sharded or not dist.is_initialized():
        return model.to(device)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (world(),))
    for stack in (model.trunk.reader, model.trunk.backward_reader):
        for layer in stack.layers if stack is not None else ():
            fully_shard(layer, mesh=mesh)
    # Everything else is one group, including the tables, which both embedding and softmax use. It is resharded after
    # each forward pass, also without a backward pass, so that `parameters()` are always shards between two steps.
    root = fully_shard(model, mesh=mesh, reshard_after_forward=True)
    root.set_reduce_scatter_unused_params(True)
    # The nll is a view; it is not changed in place.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view tensor")
    return model


def full_tensor(value: Tensor) -> Tensor:
    """Return the full tensor, assembled from all processes if it is sharded; every process must call this."""
    return value.full_tensor() if is_divided(value) else value


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return full tensors in the memory of the first process, nothing in the others. Every process must call this."""
    result = {}
    for name, value in tensors.items():
        full = full_tensor(value.detach())
        if rank() == 0:
            result[name] = full.cpu()
    return result


def whole_model(model: LanguageModel) -> LanguageModel:
    """Return the unsharded model, to be saved by the first process; the others get one without weights. Every process
    must call this."""
    if not is_divided_module(model):
        return model
    weights = gathered(model.state_dict())
    with shapes_only():
        result = LanguageModel(model.config)
    if rank() == 0:
        result.load_state_dict(weights, assign=True)
    return result


def divided_like(value: Tensor, pattern: Tensor) -> Tensor:
    """Return the shard of a full tensor for this process, if `pattern` is sharded; on the device of `pattern`."""
    if not is_divided(pattern):
        return value.to(pattern.device)
    # Every process has the full tensor, so nothing is sent; the shard is a view of it until it is cloned.
    from torch.distributed.tensor import distribute_tensor

    whole_value, mesh = value.to(pattern.device), pattern.device_mesh
    return distribute_tensor(whole_value, mesh, pattern.placements, src_data_rank=None).clone()
