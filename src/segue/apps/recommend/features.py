"""Item features: popularity, price, tags, and text embeddings of a language model.

In: items. Out: `Features`, which also computes the features of new items, and the features of the given ones. The first
column is the popularity, to be filled in from training counts; 0 is the mean, for new items.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.apps.encoder import Encoder, Reader, fit_whitening, raw_vectors, whitened
from segue.apps.recommend.tables import Item
from segue.infer.text_model import load_text_model
from segue.text.unicode import is_chinese

Floats = NDArray[np.float32]
MOST_TAGS = 200
"""Maximum number of tags that are features."""
RAREST = 2
"""Minimum number of items with a tag."""
ENGLISH, CHINESE = "xlnet-mini-en", "xlnet-mini-zh"


@dataclass(frozen=True, kw_only=True)
class Features:
    """Computation of item features."""

    tags: tuple[str, ...]
    price: tuple[float, float] | None
    """Mean and standard deviation of log prices; None if no item has a price."""
    encoder: Encoder | None
    """Encoder of the texts; None if texts are not used."""

    @property
    def width(self) -> int:
        return 1 + (self.price is not None) + len(self.tags) + (self.encoder.width if self.encoder is not None else 0)

    def of(self, items: Sequence[Item], vectors_NE: Floats | None = None) -> Floats:
        """Return the features of items, with popularity 0: [N, F]. `vectors_NE` are text embeddings of the items with
        texts, if already computed."""
        found_NF = np.zeros((len(items), self.width), dtype=np.float32)
        column = 1
        if self.price is not None:
            mean, deviation = self.price
            for row, item in enumerate(items):
                if item.price is not None:
                    found_NF[row, column] = (_log(item.price) - mean) / deviation
            column += 1
        places = {tag: place for place, tag in enumerate(self.tags, start=column)}
        for row, item in enumerate(items):
            own = [places[tag] for tag in item.tags if tag in places]
            found_NF[row, own] = 1 / math.sqrt(max(1, len(own)))
        column += len(self.tags)
        if self.encoder is not None:
            telling = [row for row, item in enumerate(items) if item.text]
            if telling:
                texts = [items[row].text for row in telling]
                found_NF[telling, column:] = self.encoder.vectors(texts) if vectors_NE is None else vectors_NE
        return found_NF


def learn_features(items: Sequence[Item], *, texts: bool, model: str | None) -> tuple[Features, Floats]:
    """Return the computation of features, and the features of items. With `texts`, tags and texts are used; `model` is
    the name or folder of the language model that embeds the texts. Default: the packaged one of the language."""
    prices = [_log(item.price) for item in items if item.price is not None]
    price = (float(np.mean(prices)), max(float(np.std(prices)), 1e-3)) if prices else None
    if not texts:
        found = Features(tags=(), price=price, encoder=None)
        return found, found.of(items)
    counted = Counter(tag for item in items for tag in item.tags)
    tags = tuple(tag for tag, count in counted.most_common(MOST_TAGS) if count >= RAREST)
    encoder, vectors_NE = _encoder([item.text for item in items if item.text], model)
    found = Features(tags=tags, price=price, encoder=encoder)
    return found, found.of(items, vectors_NE)


def popularity(counts_V: NDArray[np.int64]) -> Floats:
    """Return the standardized log counts of items: [V]; 0 at place 0."""
    logs = np.log1p(counts_V[1:].astype(np.float64))
    found = np.zeros(len(counts_V), dtype=np.float32)
    found[1:] = (logs - logs.mean()) / max(float(logs.std()), 1e-3) if len(logs) else logs
    return found


def _log(price: float) -> float:
    return math.log1p(max(0.0, price))


def _encoder(texts: Sequence[str], model: str | None) -> tuple[Encoder | None, Floats | None]:
    """Return an encoder fitted to texts, and their embeddings; each text is read once."""
    if not texts:
        return None, None
    is_other = [model is not None or not is_chinese(text) for text in texts]
    readers: dict[bool, Reader] = {}
    parts: dict[bool, tuple[list[int], Floats]] = {}
    for other, name in ((True, model or ENGLISH), (False, CHINESE)):
        rows = [row for row, one in enumerate(is_other) if one == other]
        if rows:
            source = load_text_model(name)
            raw_NE = raw_vectors(source, [texts[row] for row in rows])
            readers[other] = Reader(name=name, model=source, whitening=fit_whitening(raw_NE))
            parts[other] = rows, whitened(raw_NE, readers[other].whitening)
    encoder = Encoder(other=readers.get(True), chinese=readers.get(False))
    vectors_NE = np.zeros((len(texts), encoder.width), dtype=np.float32)
    start = 0
    for rows, own_NE in parts.values():
        vectors_NE[rows, start : start + own_NE.shape[1]] = own_NE
        start += own_NE.shape[1]
    return encoder, vectors_NE
