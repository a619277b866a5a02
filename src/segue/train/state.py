"""The saved state of a run: the model folder, and beside the weights everything that a bit-exact resume needs.

`last/training/` contains the optimizer's tensors, the memory of all lanes, the averaged weights and the random state as
safetensors, and the numbers (step, data position, ...) as JSON. Memory, and sharded weights and moments, are gathered
from all processes when they are saved and split again when they are loaded, so that the number of processes and
`train.sharded` may change in between.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from segue.checkpoint.card import Facts
from segue.checkpoint.files import locate, verify
from segue.checkpoint.folder import load, read_tensors, save, write_tensors
from segue.config import Config, TrainConfig
from segue.errors import CheckpointError
from segue.model import Memory
from segue.train.distributed import divided_like, gathered, place, rank, whole_model, world
from segue.train.loop import TrainState
from segue.train.optim import WeightAverage, make_optimizer

TRAINING, NUMBERS = "training", "state.json"
AVERAGE = f"{TRAINING}/average.safetensors"


def save_state(
    state: TrainState,
    folder: Path,
    *,
    config: Config,
    tokenizer: Path | None,
    position: Mapping[str, int],
    facts: Facts | None = None,
    origin: Mapping[str, Any] | None = None,
) -> None:
    """Save a state; called by all processes, of which the first one writes. `facts` are for the model card, `origin` is
    the record of the model that the run started from."""
    memory, random = _gathered(state.memory), _random_states()
    model, moments = whole_model(state.model), gathered(_optimizer_tensors(state))
    average = None if state.average is None else gathered(state.average.weights)
    if rank() != 0:
        dist.barrier()
        return

    def also(new: Path) -> None:
        inner = new / TRAINING
        inner.mkdir()
        write_tensors(moments, inner / "optimizer.safetensors")
        if memory is not None:
            tensors = {"hidden": memory.hidden_LBMD, "valid": memory.valid_BM, "position": memory.position_B}
            write_tensors(tensors, inner / "memory.safetensors")
        if average is not None:
            write_tensors(average, new / AVERAGE)
        write_tensors(random, inner / "random.safetensors")
        numbers = {
            "step": state.step,
            "tokens": state.tokens,
            "best": state.best,
            "position": dict(position),
            "origin": origin,
        }
        (inner / NUMBERS).write_text(json.dumps(numbers, indent=1), encoding="utf-8")

    save(model, folder, config=config, tokenizer=tokenizer, facts=facts, also=also)
    if dist.is_initialized():
        dist.barrier()


def load_state(folder: Path, settings: TrainConfig, *, device: torch.device) -> tuple[TrainState, dict[str, int]]:
    """Return the saved state and the position in the data; raise CheckpointError if the folder is damaged or
    incomplete."""
    folder = locate(folder)
    verify(folder)
    inner = folder / TRAINING
    if not (inner / NUMBERS).is_file():
        raise CheckpointError(
            f"{folder} must hold the saved state of a run; got only a model. Start a new run from it."
        )
    numbers: dict[str, Any] = json.loads((inner / NUMBERS).read_text(encoding="utf-8"))
    model = place(load(folder), device, sharded=settings.sharded)
    optimizer = make_optimizer(model, settings)
    state = TrainState(
        model=model,
        optimizer=optimizer,
        average=None if settings.average_decay is None else WeightAverage(model, settings.average_decay),
        step=numbers["step"],
        tokens=numbers["tokens"],
        best=numbers["best"],
    )
    _restore_optimizer(state, read_tensors(inner / "optimizer.safetensors"))
    if state.average is not None and (folder / AVERAGE).is_file():
        for name, value in read_tensors(folder / AVERAGE).items():
            state.average.weights[name].copy_(divided_like(value, state.average.weights[name]))
    if (inner / "memory.safetensors").is_file():
        tensors = read_tensors(inner / "memory.safetensors")
        whole = Memory(hidden_LBMD=tensors["hidden"], valid_BM=tensors["valid"], position_B=tensors["position"])
        state.memory = _own_rows(whole).to(device)
    _restore_random(read_tensors(inner / "random.safetensors"), step=state.step)
    return state, numbers["position"]


def _optimizer_tensors(state: TrainState) -> dict[str, Tensor]:
    """Return Adam's moments and step counts by the names of their parameters."""
    return {
        f"{name}/{key}": value
        for name, parameter in state.model.named_parameters()
        for key, value in state.optimizer.state.get(parameter, {}).items()
    }


def _restore_optimizer(state: TrainState, tensors: dict[str, Tensor]) -> None:
    for name, parameter in state.model.named_parameters():
        own = {key.rpartition("/")[2]: value for key, value in tensors.items() if key.rpartition("/")[0] == name}
        if own:
            moved = {key: divided_like(value, parameter) if value.dim() else value for key, value in own.items()}
            state.optimizer.state[parameter] = moved


def _random_states() -> dict[str, Tensor]:
    """Return the random states of all processes, one row each; every process must call this."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return {name: _all_rows(value[None]) for name, value in states.items()}


def _restore_random(states: dict[str, Tensor], *, step: int) -> None:
    """Restore the random state of each process; with another number of processes, seed by the step and the rank."""
    if len(states["cpu"]) != world():
        torch.manual_seed(step * 1_000_003 + rank())
        return
    # Cloned: PyTorch 2.13 reads a state from the beginning of its storage, and crashes on a row of a larger tensor.
    torch.set_rng_state(states["cpu"][rank()].clone())
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"][rank()].clone())


def _all_rows(own: Tensor, *, dim: int = 0) -> Tensor:
    """Concatenate the parts of all processes."""
    if not dist.is_initialized():
        return own
    gathered = [torch.empty_like(own) for _ in range(world())]
    dist.all_gather(gathered, own.contiguous())
    return torch.cat(gathered, dim=dim)


def _gathered(memory: Memory | None) -> Memory | None:
    """Return the memory of all lanes, in order; every process must call this."""
    if memory is None:
        return None
    return Memory(
        hidden_LBMD=_all_rows(memory.hidden_LBMD, dim=1),
        valid_BM=_all_rows(memory.valid_BM),
        position_B=_all_rows(memory.position_B),
    )


def _own_rows(memory: Memory) -> Memory:
    """Return the rows of this process: processes hold equal blocks of lanes, in order."""
    rows = memory.rows // world()
    return memory.select(range(rank() * rows, (rank() + 1) * rows))
