"""Scores of all documents of some items: the options of questions, the documents of queries."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from segue.model.heads import SequenceScorer
from segue.tasks.reader import Reader
from segue.tasks.task import Item

TOGETHER = 32
"""Documents read at once, at most."""
PADDING = 0.05
"""Of what is read at once, less than this is padding."""


def scores(model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Tensor]:
    """For each item the scores of its documents, as many as it has.

    Documents of about the same length are read together, whichever item they belong to: so little is padding, and a
    query may have any number of documents.
    """
    assert isinstance(model, SequenceScorer)
    documents = [document for item in items for document in item.documents]
    groups = alike([len(document) for document in documents])
    read = [model.logits(reader.whole(model.trunk, [documents[n] for n in group])) for group in groups]
    found = torch.cat(read)
    back = torch.tensor([n for group in groups for n in group], device=found.device).argsort()
    return list(torch.split(found[back], [len(item.documents) for item in items]))


def alike(lengths: Sequence[int]) -> list[list[int]]:
    """Numbers of documents of about the same length, longest first: a group ends where padding the next one would
    take its share of `PADDING`."""
    groups: list[list[int]] = []
    tokens = 0
    for n in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        if groups and len(groups[-1]) < TOGETHER:
            longest = lengths[groups[-1][0]]
            if tokens + lengths[n] > (1 - PADDING) * longest * (len(groups[-1]) + 1):
                groups[-1].append(n)
                tokens += lengths[n]
                continue
        groups.append([n])
        tokens = lengths[n]
    return groups
