"""Run by torchrun in test_distributed: trains a tiny model in float64 and prints what the first process saw as JSON.

Arguments: name of the model, folder, steps to do, "fresh" or "resume", and a folder to save into.
"""

import json
import sys
from pathlib import Path

import torch

from segue.config import Config, TrainConfig
from segue.model import LanguageModel
from segue.train.distributed import processes, rank, world
from segue.train.loop import TrainState, train
from segue.train.optim import make_optimizer
from segue.train.state import load_state, save_state
from tests.tiny import MODELS
from tests.train.source import RandomBatches

SETTINGS = TrainConfig(steps=6, learning_rate=1e-2, clip_norm=0.25)


def main(name: str, last: Path, stop: int) -> None:
    torch.set_num_threads(1)
    config = MODELS[name]
    with processes() as device:
        batches = RandomBatches(config, lanes=4, rank=rank(), world=world())
        if (last / "config.toml").exists():
            state, position = load_state(last, SETTINGS, device=device)
            batches.seek(position)
        else:
            torch.manual_seed(0)
            model = LanguageModel(config).double()
            state = TrainState(model=model, optimizer=make_optimizer(model, SETTINGS), average=None)
        losses = []
        for report in train(state, batches, SETTINGS):
            losses.append(report.loss)
            if report.step == stop:
                break
        save_state(state, last, config=Config(model=config), tokenizer=None, position=batches.position)
        if rank() == 0:
            print("RESULT " + json.dumps(losses))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
