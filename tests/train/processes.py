"""The work of the processes of test_distributed: tiny models in float64; what the first one saw is printed as JSON."""

import json
from pathlib import Path

import torch

from segue.config import Config, TrainConfig, changed
from segue.model import LanguageModel
from segue.train.distributed import place, processes, rank, world
from segue.train.loop import TrainState, train
from segue.train.optim import WeightAverage, make_optimizer
from segue.train.state import load_state, save_state
from tests.tiny import MODELS
from tests.train.source import RandomBatches

CONFIGS = MODELS | {"memory-gradient": changed(MODELS["transformer-xl-enwik8-base"], memory={"backprop_segments": 1})}


def work(name: str, last: Path, stop: int, settings: TrainConfig, device: torch.device) -> list[float]:
    config = CONFIGS[name]
    batches = RandomBatches(config, lanes=4, rank=rank(), world=world())
    if (last / "config.toml").exists():
        state, position = load_state(last, settings, device=device)
        batches.seek(position)
    else:
        torch.manual_seed(0)
        model = place(LanguageModel(config).double(), device, sharded=settings.sharded)
        average = None if settings.average_decay is None else WeightAverage(model, settings.average_decay)
        state = TrainState(model=model, optimizer=make_optimizer(model, settings), average=average)
    if settings.sharded:
        total = sum(parameter.numel() for parameter in state.model.parameters())
        assert sum(parameter.to_local().numel() for parameter in state.model.parameters()) < 0.6 * total
    losses = []
    for report in train(state, batches, settings):
        losses.append(report.loss)
        if report.step == stop:
            break
    save_state(state, last, config=Config(model=config), tokenizer=None, position=batches.position)
    return losses


Job = tuple[str, str, int, dict[str, object]]
"""Name of the model, folder to go on from (if it is there) and to save into, step to stop at, and settings of training
besides those below."""


def main(jobs: list[Job]) -> None:
    """Done one after the other."""
    with processes() as device:
        results = []
        for name, last, stop, changes in jobs:
            settings = TrainConfig(steps=6, learning_rate=1e-2, clip_norm=0.25, **changes)
            results.append(work(name, Path(last), stop, settings, device))
        if rank() == 0:
            print("RESULT " + json.dumps(results))
