"""One training step in a process of its own: the memory that it adds to the process, printed as JSON.

    .venv/bin/python -m benchmarks.one_step --rows 1 --length 1024 --recompute

Before it, the model is built and a step of one row of 8 tokens is made, so that libraries and threads are set up;
gradients are dropped and free memory is returned to the system. Then the peak resident size is reset (5 to
/proc/self/clear_refs); the step runs; the peak resident size is read again (VmHWM). The memory that the step added is
that, minus the resident size before it (VmRSS): activations and gradients, not weights and libraries.
"""

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.peers import base_xlnet, permutation_batch, probe, random_ids, transformers_xlnet
from segue.config import ModelConfig, TrainConfig
from segue.model import Batch, LanguageModel, Trunk
from segue.train.optim import make_optimizer

PREDICTED_ONE_IN = 6
Measurement = dict[str, float]


def resident(name: str) -> int:
    """Return VmRSS (current) or VmHWM (peak), in bytes."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        raise SystemExit(
            f"peak memory is read from /proc/self/status; got no such file on {sys.platform}. Run it on Linux."
        ) from None
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def forget_peak() -> None:
    """Return free memory to the system and reset the peak resident size."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only; elsewhere, free memory stays
    if trim is not None:
        trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def encoder_step(side: str, config: ModelConfig, *, recompute: bool) -> tuple[nn.Module, Callable[[int, int], Tensor]]:
    """Return a model in training mode, and its loss for a number of rows and a length: a weighting of the hidden
    states."""
    if side == "theirs":
        theirs = transformers_xlnet("XLNetModel", config).train()

        def their_loss(rows: int, length: int) -> Tensor:
            hidden_BQD = theirs(random_ids(config, rows=rows, length=length), use_mems=False).last_hidden_state
            loss: Tensor = (hidden_BQD * probe(config, rows=rows, length=length)).sum()
            return loss

        return theirs, their_loss
    trunk = Trunk(config).train()
    trunk.reader.recompute = recompute

    def our_loss(rows: int, length: int) -> Tensor:
        hidden_BQD = trunk(Batch(ids_BQ=random_ids(config, rows=rows, length=length))).hidden_BQD
        loss: Tensor = (hidden_BQD * probe(config, rows=rows, length=length)).sum()
        return loss

    return trunk, our_loss


def pretraining_step(config: ModelConfig, *, recompute: bool) -> tuple[nn.Module, Callable[[int, int], Tensor]]:
    """Return our language model and its permutation loss, one token in six predicted."""
    model = LanguageModel(config).train()
    model.trunk.reader.recompute = recompute

    def loss(rows: int, length: int) -> Tensor:
        predicted = max(1, length // PREDICTED_ONE_IN)
        value: Tensor = model(permutation_batch(config, rows=rows, length=length, predicted=predicted)).loss
        return value

    return model, loss


def measure(
    model: nn.Module, loss: Callable[[int, int], Tensor], *, rows: int, length: int, update: bool
) -> Measurement:
    """Run forward and backward, with `update` also AdamW as in `segue pretrain`."""
    loss(1, 8).backward()
    model.zero_grad(set_to_none=True)
    optimizer = make_optimizer(model, TrainConfig()) if update else None
    forget_peak()
    before, began = resident("VmRSS"), time.perf_counter()
    loss(rows, length).backward()
    if optimizer is not None:
        optimizer.step()
    seconds, peak = time.perf_counter() - began, resident("VmHWM")
    return {"before_bytes": before, "peak_bytes": peak, "added_bytes": peak - before, "seconds": seconds}


def in_own_process(
    *, rows: int, length: int, side: str = "ours", recompute: bool = False, pretraining: bool = False
) -> Measurement:
    """Run `measure` in a new process of the same Python."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.one_step",
        "--rows",
        str(rows),
        "--length",
        str(length),
        "--side",
        side,
    ]
    command += ["--recompute"] if recompute else []
    command += ["--pretraining"] if pretraining else []
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(
            f"a step of {rows} x {length} must run in a process of its own; it ended with {result.returncode}:\n"
            f"{result.stderr[-2000:]}\nIf it was killed, the machine has too little memory."
        )
    measurement: Measurement = json.loads(result.stdout.splitlines()[-1])
    return measurement


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--side", choices=["ours", "theirs"], default="ours", help="segue's encoder, or transformers'")
    parser.add_argument("--recompute", action="store_true", help="compute the inside of layers again going back")
    parser.add_argument("--pretraining", action="store_true", help="a whole update of our permutation language model")
    options = parser.parse_args()
    torch.manual_seed(0)
    config = base_xlnet()
    if options.pretraining:
        model, loss = pretraining_step(config, recompute=options.recompute)
    else:
        model, loss = encoder_step(options.side, config, recompute=options.recompute)
    print(json.dumps(measure(model, loss, rows=options.rows, length=options.length, update=options.pretraining)))


if __name__ == "__main__":
    main()
