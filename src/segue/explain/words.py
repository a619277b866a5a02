"""Attribution of an answer to words: integrated gradients and leave-one-out, through all segments and the memory.

In: a Decision. Out: WordReport: a number for each word and method, and the faithfulness of each method (`faithful`).

Both methods compare the text with one whose words are replaced by a neutral token (mask, else pad, else unk); special
tokens stay. Integrated gradients (Sundararajan et al. 2017) integrate the gradient along the straight path from there
to the text, so that the numbers of all words add up to the difference between both answers; `gap` is the remaining
error. Leave-one-out is the change when one word is replaced. Attention is shown beside them, and is not an explanation
unless its faithfulness says so.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.config import changed
from segue.errors import DataError
from segue.explain.decision import ALL_SEGMENTS, Decision
from segue.explain.scores import attention
from segue.model import Batch, Memory, Trunk
from segue.model.reading import TokenDocument
from segue.model.segmenting import segments_from_end
from segue.tasks.folder import TaskModel
from segue.tasks.task import Item
from segue.text.tokenizer import Tokenizer

MOST_UNITS = 256
"""Maximum number of units; in a longer text, several words form one."""
FEWEST_STEPS, MOST_STEPS = 16, 256
"""Points on the path of integrated gradients: doubled until the gap is small."""
SMALL_GAP = 0.01
"""Maximum gap, relative to the sum of the absolute values."""
AT_ONCE = 16
"""Versions of a text read together."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A word, or several, at all its places in the documents of an answer."""

    text: str
    document: int
    """Index of the first document that contains it: options have one each; all share their common prefix."""
    places: tuple[int, ...]
    """Its token positions, counted over all documents one after the other."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The attribution of each unit, by one method."""

    method: str
    values_N: Floats
    gap: float | None = None
    """Integrated gradients: difference between the sum of the values and the difference between the answers."""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The documents of a decision with some of their words replaced, and the value of each version."""

    decision: Decision
    units: tuple[Unit, ...]
    ids_N: NDArray[np.int64]
    """Tokens of all documents, concatenated."""
    baseline: int
    """The token that replaces others."""

    @property
    def trunk(self) -> Trunk:
        trunk = self.decision.made.model.get_submodule("trunk")
        assert isinstance(trunk, Trunk)
        return trunk

    def item(self, ids_N: NDArray[np.int64]) -> Item:
        """Return the item with other tokens."""
        lengths = [len(document) for document in self.decision.item.documents]
        parts = np.split(ids_N, np.cumsum(lengths)[:-1])
        documents = zip(self.decision.item.documents, parts, strict=True)
        return replace(self.decision.item, documents=tuple(replace(one, ids=part) for one, part in documents))

    def without(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        """Return the tokens with these units replaced."""
        ids_N = self.ids_N.copy()
        for number in numbers:
            ids_N[list(self.units[number].places)] = self.baseline
        return ids_N

    @torch.no_grad()
    def values(self, versions: Sequence[NDArray[np.int64]]) -> Floats:
        """Return the log-probability (or score) of the answer for each version."""
        parts = (versions[start : start + AT_ONCE] for start in range(0, len(versions), AT_ONCE))
        found = [self.decision.values([self.item(ids_N) for ids_N in some]) for some in parts]
        return torch.cat(found).double().cpu().numpy() if found else np.zeros(0)


def versions_of(decision: Decision) -> Versions:
    """Return the words of a decision's documents, and their replacement."""
    tokenizer = decision.made.tokenizer
    baseline = next((tokenizer.specials[name] for name in ("mask", "pad", "unk") if name in tokenizer.specials), None)
    if baseline is None:
        raise DataError(
            "words are replaced by the special token mask, pad or unk; got a tokeniser with none of them. Train the "
            "model with a unigram or bpe tokeniser."
        )
    ids_N = np.concatenate([document.ids for document in decision.item.documents])
    return Versions(
        decision=decision,
        units=_units(decision.item.documents, tokenizer),
        ids_N=ids_N,
        baseline=baseline,
    )


def _units(documents: Sequence[TokenDocument], tokenizer: Tokenizer) -> tuple[Unit, ...]:
    """Return the words of the documents; the common prefix of all documents is one text that is in each."""
    shortest = min(map(len, documents))
    differs = np.flatnonzero([len({int(one.ids[n]) for one in documents}) > 1 for n in range(shortest)])
    shared = 0 if len(documents) == 1 else int(differs[0]) if len(differs) else shortest
    begins = np.cumsum([0] + [len(document) for document in documents])
    starts, special = tokenizer.word_starts(), set(tokenizer.specials.values())
    words: list[tuple[int, list[int]]] = []
    for number, document in enumerate(documents):
        after_special = True
        for place in range(0 if number == 0 else shared, len(document)):
            index = int(document.ids[place])
            if index in special:
                after_special = True
                continue
            if after_special or starts[index] or _ideographs(tokenizer.token(index)) or place == shared:
                words.append((number, []))
            words[-1][1].append(place)
            after_special = False
    if not words:
        raise DataError("a text to explain must have at least one word; got none. Give another text.")
    size = -(-len(words) // MOST_UNITS)
    found = []
    for some in _length_groups(words, size):
        number, places = some[0][0], [place for _, own in some for place in own]
        text = tokenizer.decode(documents[number].ids[places])
        copies = range(len(documents)) if number == 0 and places[-1] < shared else [number]
        found.append(
            Unit(text=text, document=number, places=tuple(int(begins[d]) + place for d in copies for place in places))
        )
    return tuple(found)


def _length_groups(words: list[tuple[int, list[int]]], size: int) -> Iterator[list[tuple[int, list[int]]]]:
    """Yield groups of up to `size` words of one document."""
    some: list[tuple[int, list[int]]] = []
    for word in words:
        if some and (len(some) == size or some[0][0] != word[0]):
            yield some
            some = []
        some.append(word)
    yield some


def _ideographs(token: str) -> bool:
    return any("\u3040" <= character <= "\u9fff" for character in token)


# ------------------------------------------------------------------------------------------------------------ methods


def leave_one_out(versions: Versions) -> Attribution:
    """Return the decrease in the value of the answer without each unit."""
    every = [versions.ids_N, *(versions.without([number]) for number in range(len(versions.units)))]
    values = versions.values(every)
    return Attribution(method="leave_one_out", values_N=values[0] - values[1:])


def integrated_gradients(versions: Versions, *, steps: int | None = None) -> Attribution:
    """Return the mean gradient on the path from a text without words to the text, times the path. `steps`: number of
    points. Default: as many as needed."""
    trunk = versions.trunk
    device = next(trunk.parameters()).device
    nothing = versions.without(range(len(versions.units)))
    with torch.no_grad():
        here_ND, there_ND = (
            trunk.vocabulary(torch.from_numpy(ids)[None].to(device))[0] for ids in (versions.ids_N, nothing)
        )
    value, without = versions.values([versions.ids_N, nothing])
    wanted = float(value - without)
    count = steps or FEWEST_STEPS
    while True:
        total_ND = _integral(versions, here_ND, there_ND, count)
        each_N = (total_ND * (here_ND - there_ND)).sum(dim=-1).double().cpu().numpy()
        values_N = np.array([each_N[list(unit.places)].sum() for unit in versions.units])
        gap = wanted - float(values_N.sum())
        if steps is not None or count >= MOST_STEPS or abs(gap) <= SMALL_GAP * np.abs(values_N).sum():
            return Attribution(method="integrated_gradients", values_N=values_N, gap=gap)
        count *= 2


def _integral(versions: Versions, here_ND: Tensor, there_ND: Tensor, count: int) -> Tensor:
    """Return the mean gradient on the straight path, by Gauss-Legendre quadrature."""
    points, weights = np.polynomial.legendre.leggauss(count)
    numbered = versions.item(np.arange(len(versions.ids_N)))
    total_ND = torch.zeros_like(here_ND)
    with _through_memory(versions.trunk):
        for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
            table_ND = (there_ND + float(point) * (here_ND - there_ND)).requires_grad_()
            with _embedded_as(versions.trunk, table_ND), torch.enable_grad():
                value = versions.decision.values([numbered]).sum()
                (gradient_ND,) = torch.autograd.grad(value, table_ND)
            total_ND += float(weight) * gradient_ND
    return total_ND


@contextmanager
def _embedded_as(trunk: Trunk, table_ND: Tensor) -> Iterator[None]:
    """Treat ids as row indices of this table: every token has a separate embedding."""
    embed = trunk.vocabulary.forward
    trunk.vocabulary.forward = lambda ids_BQ: table_ND[ids_BQ]  # type: ignore[method-assign]
    try:
        yield
    finally:
        trunk.vocabulary.forward = embed  # type: ignore[method-assign]


@contextmanager
def _through_memory(trunk: Trunk) -> Iterator[None]:
    """Let gradients flow back through the memory of all segments."""
    reader, config = trunk.reader, trunk.reader.config
    if config.memory is not None:
        reader.config = changed(config, memory={"backprop_segments": ALL_SEGMENTS})
    try:
        yield
    finally:
        reader.config = config


def received_attention(versions: Versions) -> Attribution:
    """Return the probability that each unit receives, summed over layers, heads and queries. Not an explanation."""
    found = [
        _received(versions.trunk, document, versions.decision.made) for document in versions.decision.item.documents
    ]
    received_N = np.concatenate(found)
    return Attribution(
        method="attention", values_N=np.array([received_N[list(unit.places)].sum() for unit in versions.units])
    )


def _received(trunk: Trunk, document: TokenDocument, made: TaskModel) -> Floats:
    """Return the probability that each token receives while the document is read."""
    received_T = np.zeros(len(document))
    memory: Memory | None = None
    before = np.zeros(0, dtype=np.int64)
    device = next(trunk.parameters()).device
    for span in segments_from_end(len(document), made.segment_length, overlap=made.read.overlap or 0):
        segments = torch.from_numpy(document.segments[span.start : span.stop])[None].to(device)
        batch = Batch(
            ids_BQ=torch.from_numpy(document.ids[span.start : span.stop])[None].to(device),
            segments_BQ=None if trunk.config.segments is None else segments,
        )
        reading = attention(trunk, batch, memory)
        for layer in range(reading.num_layers):
            for head in range(reading.num_heads):
                for _, scores in reading.bands(layer, head):
                    given_K = scores.probability[0, 0].sum(dim=0).double().cpu().numpy()
                    past = reading.memory_length
                    received_T[span.start : span.stop] += given_K[past:]
                    if past and len(before):
                        kept = before[-past:]
                        received_T[kept] += given_K[past - len(kept) : past]
        memory = reading.memory
        before = np.arange(span.stop) if memory is not None else before
    return received_T
