"""Scores of minimal pairs: the log-probabilities of both sentences.

In: a model, its tokeniser, pairs of sentences. Out: the log-probability of each sentence (`segue.infer.score`), each as
a separate document.

- causal: each token given those before it, the first one given eod, as at the beginning of a document. If the
  tokeniser has no eod, the first token does not count.
- masked: pseudo-likelihood, each token given all others (Salazar et al. 2020).
- permutation: also pseudo-likelihood, or, with `orders`, the mean log-probability over that many random factorisation
  orders. Eod comes before the sentence in both. The sentences of a pair are predicted in the same orders if they have
  the same number of tokens, so that only the sentences differ.

Sentences with the same ids get the same number, to the bit: they are read once, or the number is copied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from segue.errors import ConfigError, DataError
from segue.infer.score import ScoreSettings, TextScore, score_texts
from segue.model import LanguageModel
from segue.text.tokenizer import Tokenizer

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class PairSettings:
    """Settings for scoring pairs."""

    orders: int | None = None
    """Number of random orders of a permutation model. Default: pseudo-likelihood instead."""
    seed: int = 0
    """Random seed of the orders."""
    segment_length: int = 512
    batch_tokens: int = 4096
    """Tokens read at a time; affects only speed and memory."""

    def __post_init__(self) -> None:
        if self.orders is not None and self.orders < 1:
            raise ConfigError(f"orders must be at least 1; got {self.orders}. Leave it out for pseudo-likelihood.")


@dataclass(frozen=True, kw_only=True)
class PairScores:
    """Natural log-probabilities, a row for each pair."""

    values_N2: NDArray[np.float64]
    """Scores of the first and the second sentence."""
    tokens_N2: NDArray[np.int64]
    """Number of tokens of each sentence."""
    unknown: int
    """Number of unknown tokens in all sentences."""


def score_pairs(
    model: LanguageModel,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    settings: PairSettings = PairSettings(),  # noqa: B008  (it is frozen)
    *,
    progress: Progress | None = None,
) -> PairScores:
    """Return the scores of all pairs. `progress` is called with the number of sentences read and the total."""
    objective = model.config.objective
    if settings.orders is not None and objective != "permutation":
        raise ConfigError(
            f'random orders need objective "permutation"; got {settings.orders} for "{objective}". Leave them out.'
        )
    texts, index_N2, tokens, unknown = _distinct(tokenizer, pairs)
    common = ScoreSettings(segment_length=settings.segment_length, batch_tokens=settings.batch_tokens)
    if settings.orders is None:
        way = replace(common, pseudo=objective == "permutation")
        counted = _Counted(progress, total=len(texts))
        values_N2 = _values(model, tokenizer, texts, way, counted)[index_N2]
    else:
        values_N2 = np.zeros(index_N2.shape)
        counted = _Counted(progress, total=2 * len(pairs) * settings.orders)
        for number in range(settings.orders):
            way = replace(common, order="random", seed=settings.seed * settings.orders + number)
            for side in (0, 1):  # document n of both sides has the same orders
                sentences = [texts[index] for index in index_N2[:, side]]
                values_N2[:, side] += _values(model, tokenizer, sentences, way, counted)
        values_N2 /= settings.orders
        same_N = index_N2[:, 0] == index_N2[:, 1]
        values_N2[same_N, 1] = values_N2[same_N, 0]
    return PairScores(values_N2=values_N2, tokens_N2=tokens[index_N2], unknown=unknown)


class _Counted:
    """Counter of the sentences read, which reports progress."""

    def __init__(self, progress: Progress | None, *, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)


def _distinct(
    tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64], int]:
    """Return the sentences that differ in their ids; their indices in each pair; their numbers of tokens; and the
    number of unknown tokens in all pairs."""
    unk = tokenizer.specials.get("unk")
    texts: list[str] = []
    tokens: list[int] = []
    strange: list[int] = []
    found: dict[bytes, int] = {}
    index_N2 = np.zeros((len(pairs), 2), dtype=np.int64)
    for number, pair in enumerate(pairs):
        for side, text in enumerate(pair):
            ids = tokenizer.encode(text)
            if not len(ids):
                raise DataError(
                    f"every sentence must have a token; got {text[:40]!r} in pair {number + 1}, which has none for "
                    "this tokeniser. Remove the pair."
                )
            key = ids.tobytes()
            if key not in found:
                found[key] = len(texts)
                texts.append(text)
                tokens.append(len(ids))
                strange.append(0 if unk is None else int((ids == unk).sum()))
            index_N2[number, side] = found[key]
    return texts, index_N2, np.array(tokens, dtype=np.int64), int(np.array(strange, dtype=np.int64)[index_N2].sum())


def _values(
    model: LanguageModel, tokenizer: Tokenizer, texts: Sequence[str], settings: ScoreSettings, counted: _Counted
) -> NDArray[np.float64]:
    values = np.zeros(len(texts))
    for number, row in enumerate(score_texts(model, tokenizer, texts, settings)):
        assert isinstance(row, TextScore)
        values[number] = row.log_probability
        counted()
    return values
