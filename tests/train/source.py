"""Batches of random ids for the tests of training: any step can be made again from its number."""

from collections.abc import Mapping

import torch

from segue.config import ModelConfig
from segue.model import Batch
from segue.model.language_model import order_batch
from tests.tiny import random_ids


class RandomBatches:
    """Rows of this process out of `lanes`; batch n is a function of n."""

    def __init__(self, config: ModelConfig, *, lanes: int = 4, length: int = 5, rank: int = 0, world: int = 1) -> None:
        self.config, self.lanes, self.length, self.rank, self.world = config, lanes, length, rank, world
        self.step = 0

    @property
    def position(self) -> Mapping[str, int]:
        return {"step": self.step}

    def seek(self, position: Mapping[str, int]) -> None:
        self.step = position["step"]

    def __next__(self) -> Batch:
        ids = random_ids(self.lanes, self.length + 1, seed=1000 + self.step)
        self.step += 1
        generator = torch.Generator().manual_seed(self.step)
        match self.config.objective:
            case "causal":
                batch = Batch(ids_BQ=ids[:, :-1], targets=ids[:, 1:])
            case "masked":
                at_BP = torch.tensor([[0, 3]] * self.lanes)
                mask = torch.rand(at_BP.shape, generator=generator) < 0.7
                batch = Batch(ids_BQ=ids, predicted_BP=at_BP, targets=ids.gather(1, at_BP), target_mask=mask)
            case "permutation":
                batch = order_batch(ids, torch.rand(ids.shape, generator=generator).argsort(dim=1))
        rows = self.lanes // self.world
        return batch.rows(self.rank * rows, (self.rank + 1) * rows)
