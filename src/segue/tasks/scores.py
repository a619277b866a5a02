"""Scores of all documents of some items: the options of questions, the documents of queries."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from segue.model.heads import SequenceScorer
from segue.tasks.reader import Reader
from segue.tasks.task import Item

TOGETHER = 32
"""Documents read at once."""


def scores(model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Tensor]:
    """For each item the scores of its documents, as many as it has.

    Documents of about the same length are read together, whichever item they belong to: so little is padding, and a
    query may have any number of documents.
    """
    assert isinstance(model, SequenceScorer)
    documents = [document for item in items for document in item.documents]
    order = sorted(range(len(documents)), key=lambda n: len(documents[n]))
    read = [
        model.logits(reader.whole(model.trunk, [documents[n] for n in order[start : start + TOGETHER]]))
        for start in range(0, len(order), TOGETHER)
    ]
    found = torch.cat(read)
    back = torch.tensor(order, device=found.device).argsort()
    return list(torch.split(found[back], [len(item.documents) for item in items]))
