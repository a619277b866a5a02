"""Scores of all documents of some items: the options of questions, the documents of queries."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from segue.model.heads import SequenceScorer
from segue.tasks.reader import Reader
from segue.tasks.task import Item


def scores(model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Tensor]:
    """Return the scores of each item's documents."""
    assert isinstance(model, SequenceScorer)
    documents = [document for item in items for document in item.documents]
    found = model.logits(reader.whole(model.trunk, documents))
    return list(torch.split(found, [len(item.documents) for item in items]))
