"""The trunk that all models share: a Batch and a Memory in, an Output with the next Memory out.

`Trunk` joins the vocabulary with a reader (`stack`), and with a second one if the config asks for both directions.
Heads and losses are elsewhere.
"""

from dataclasses import replace

import torch
from torch import nn

from segue.config import ModelConfig, trunk_parameter_count
from segue.errors import DataError, kind_of
from segue.model import build
from segue.model.batch import Batch, Output
from segue.model.embeddings import Vocabulary
from segue.model.memory import Memory
from segue.model.room import check_room
from segue.model.stack import Stack

TOO_LARGE = "Use fewer or narrower layers or a smaller vocabulary, or another machine."


class Trunk(nn.Module):
    """Vocabulary and reader: ids and a memory to hidden states and the next memory."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        check_room(trunk_parameter_count(config), what="the model", remedy=TOO_LARGE)
        self.config = config
        words = config.vocabulary
        self.vocabulary = Vocabulary(
            size=words.size,
            width=config.width,
            table_width=words.width or config.width,
            cutoffs=words.cutoffs,
            shrink=words.shrink,
            project_first_bin=words.project_first_bin,
            scale=words.scale,
        )
        self.reader = Stack(config)
        # The backward reader never has a memory: it would come from the future.
        alone = config.model_copy(update={"memory": None})
        self.backward_reader = Stack(alone) if config.directions == "both" else None
        build.initialise(self, config)

    def forward(self, batch: Batch, memory: Memory | None = None, *, remember: bool = True) -> Output:
        """Return the output. Without a memory, rows start anew. Without `remember`, no memory is returned."""
        _check_types(batch, memory)
        output: Output = self.reader(self.vocabulary(batch.ids_BQ), batch, memory, remember=remember)
        if self.backward_reader is None:
            return output
        other = batch.backwards()
        backward: Output = self.backward_reader(self.vocabulary(other.ids_BQ), other, None, remember=False)
        layers = tuple(
            torch.cat([ahead, back.flip(1)], dim=-1) for ahead, back in zip(output.layers, backward.layers, strict=True)
        )
        hidden_BQD = torch.cat([output.hidden_BQD, backward.hidden_BQD.flip(1)], dim=-1)
        return replace(output, hidden_BQD=hidden_BQD, layers=layers)

    def new_memory(self, rows: int) -> Memory | None:
        """Return the initial memory of `rows` rows; None if the model has no memory."""
        return self.reader.new_memory(rows)


def _check_types(batch: object, memory: object) -> None:
    """Raise DataError for arguments of other types, before they fail inside the layers."""
    if not isinstance(batch, Batch):
        raise DataError(
            f"a model reads a Batch; got {kind_of(batch)}. Use segue.Batch(ids_BQ=ids), with ids of shape "
            "[rows, positions]."
        )
    if memory is not None and not isinstance(memory, Memory):
        raise DataError(
            f"a memory must be the output memory of the previous segment; got {kind_of(memory)}. Pass output.memory on."
        )
