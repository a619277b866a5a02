"""Similarity of texts by their embeddings: each text is read by itself, and two texts are as similar as the cosine of
their vectors.

The vector of a text is what `segue embed` computes: the mean of the last hidden states of its tokens, normalised. So a
fine-tuned model remains a language model that embeds texts, without a head of its own.

With scores, pairs are trained to be in the order of their scores (CoSENT): a pair with a higher score than another one
shall have a higher cosine. Without scores, every row is a pair of similar texts, and the second texts of the other rows
of a batch are what they are told apart from (in-batch negatives).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from segue.checkpoint.heads import HeadConfig
from segue.config import ReadConfig, Section
from segue.data.tables import Row
from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, Metric, measure_means
from segue.evaluation.metrics.regression import CONSTANT, regression
from segue.model import LanguageModel
from segue.model.reading import TokenDocument
from segue.tasks.classify import text_of
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader
from segue.tasks.regress import NUMBER, SECOND, number_of
from segue.tasks.task import Column, Comparison, Example, Item, Prediction, TaskKind, UnusableRowError

FIRST = ("text_a", "sentence1", "text1", "question1", "first", "query", "question", "anchor", "text", "sentence")
OTHER = (*SECOND, "positive", "answer", "document", "response")
RANKED_AT_ONCE = 2048
"""Number of texts whose similarities to all others are in memory at a time."""


class SimilaritySettings(Section):
    """Settings of `similarity`."""

    temperature: Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)] = 0.05
    """Temperature of the softmax over cosines: the lower, the more the most similar texts count."""


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """The cosine of a pair, and both vectors."""

    cosine: float
    first_D: NDArray[np.float32]
    second_D: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Similarity:
    """The task `similarity`."""

    scored: bool
    """Whether the training examples have scores."""
    settings: SimilaritySettings

    def to_values(self) -> dict[str, Any]:
        return {"scored": self.scored, "settings": self.settings.model_dump(exclude_none=True)}

    def describe(self, examples: Sequence[Example]) -> list[str]:
        if not self.scored:
            different = len({example.texts[1] for example in examples})
            return [f"{len(examples):,} pairs of similar texts, {different:,} different second texts"]
        scores = [example.gold for example in examples]
        return [
            f"{len(scores):,} pairs with scores from {min(scores):g} to {max(scores):g}, mean {np.mean(scores):.4g}"
        ]

    @property
    def metric(self) -> str:
        return "spearman" if self.scored else "mrr"

    def head(self, read: ReadConfig, summary: str) -> HeadConfig | None:
        return None

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        return _example(number, row, scored=labelled and self.scored)

    def items(self, example: Example, layout: Layout) -> list[Item]:
        documents = tuple(_document(text, layout) for text in example.texts)
        return [Item(documents=documents, gold=example.gold, extra=_has_start(layout))]

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        first_BD, second_BD = self._vectors(model, items, reader)
        if self.scored:
            gold_B = torch.tensor([item.gold for item in items], device=first_BD.device)
            return cosent((first_BD * second_BD).sum(dim=-1), gold_B, temperature=self.settings.temperature)
        ids = [item.documents[1].ids for item in items]
        same_BB = torch.tensor([[np.array_equal(one, other) for other in ids] for one in ids], device=first_BD.device)
        return contrastive(first_BD, second_BD, same_BB, temperature=self.settings.temperature)

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        return None

    def chance(self, examples: Sequence[Example]) -> float | None:
        return None

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        first_BD, second_BD = (part.float().cpu().numpy() for part in self._vectors(model, items, reader))
        return [
            _Compared(cosine=float(np.clip(one @ other, -1, 1)), first_D=one, second_D=other)
            for one, other in zip(first_BD, second_BD, strict=True)
        ]

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        return Prediction(value=parts[0], columns={"prediction": float(f"{parts[0].cosine:.6g}")})

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        """Return the correlations with the scores; without scores, how well the second text of each pair is found among
        the second texts of all pairs."""
        found = [prediction.value for prediction in predictions]
        if self.scored:
            measured = regression(
                [example.gold for example in examples], [one.cosine for one in found], resamples=resamples
            )
            return {name: measured[name] for name in ("spearman", "pearson")}
        ranks_N = _ranks(
            np.stack([one.first_D for one in found]),
            np.stack([one.second_D for one in found]),
            [example.texts[1] for example in examples],
        )
        scores = {"mrr": 1 / ranks_N, "recall_at_1": ranks_N <= 1, "recall_at_10": ranks_N <= 10}
        return measure_means({name: one.astype(np.float64) for name, one in scores.items()}, resamples=resamples)

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        cosine = prediction.value.cosine
        if not self.scored:
            return Comparison(gold="similar", predicted=f"{cosine:.4f}", badness=max(0.0, 1 - cosine))
        return Comparison(gold=f"{example.gold:.6g}", predicted=f"{cosine:.4f}", badness=0.0)

    def _vectors(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> tuple[Tensor, Tensor]:
        """Return the vectors of the first and of the second texts, [B, D] each."""
        assert isinstance(model, LanguageModel)
        documents = [document for item in items for document in item.documents]
        hidden_BTD, real_BT = reader.whole(model.trunk, documents).tokens()
        pooled_BT = real_BT.to(hidden_BTD.dtype)
        if items[0].extra:  # the end of document before a text is not part of it
            pooled_BT = torch.cat([torch.zeros_like(pooled_BT[:, :1]), pooled_BT[:, 1:]], dim=1)
        vectors_BD = F.normalize(torch.einsum("bt,btd->bd", pooled_BT, hidden_BTD), dim=-1)
        return vectors_BD[0::2], vectors_BD[1::2]


# ------------------------------------------------------------------------------------------------------------- losses


def contrastive(first_BD: Tensor, second_BD: Tensor, same_BB: Tensor, *, temperature: float) -> Tensor:
    """Return the mean cross-entropy of finding the second text of a pair by the first, and the first by the second,
    among all of the batch. `same_BB` is True where the second texts of two pairs are the same: such a pair is not a
    negative."""
    logits_BB = first_BD @ second_BD.T / temperature
    other_BB = same_BB & ~torch.eye(len(same_BB), dtype=torch.bool, device=same_BB.device)
    logits_BB = logits_BB.masked_fill(other_BB, float("-inf"))
    own_B = torch.arange(len(logits_BB), device=logits_BB.device)
    return (F.cross_entropy(logits_BB, own_B) + F.cross_entropy(logits_BB.T, own_B)) / 2


def cosent(cosine_B: Tensor, gold_B: Tensor, *, temperature: float) -> Tensor:
    """Return log(1 + sum of exp((cosine of j - cosine of i) / temperature)) over all i, j where i has the higher
    score."""
    higher_BB = gold_B[:, None] > gold_B[None, :]
    difference_BB = (cosine_B[None, :] - cosine_B[:, None]) / temperature
    terms = difference_BB[higher_BB]
    return torch.logsumexp(torch.cat([terms.new_zeros(1), terms]), dim=0)


# ------------------------------------------------------------------------------------------------------------- texts


def _has_start(layout: Layout) -> bool:
    """Return True if a text begins with the token of a document's end, as in `segue embed`."""
    return layout.config.objective != "masked" and "eod" in layout.tokenizer.specials


def _document(text: str, layout: Layout) -> TokenDocument:
    """Return a text as `segue embed` reads it: after the end of another document, or between CLS and SEP in a BERT."""
    specials, config = layout.tokenizer.specials, layout.config
    before: list[int] = []
    after: list[int] = []
    if _has_start(layout):
        before = [specials["eod"]]
    elif config.objective == "masked" and config.segments == "absolute" and {"cls", "sep"} <= specials.keys():
        before, after = [specials["cls"]], [specials["sep"]]
    own = layout.tokenizer.encode(text)
    if layout.max_length is not None and len(own) > layout.max_length - len(before) - len(after):
        layout.truncated += 1
        own = own[: max(1, layout.max_length - len(before) - len(after))]
    ids = np.concatenate([before, own, after]).astype(np.int64)
    return TokenDocument(ids=ids, segments=np.zeros_like(ids))


def _ranks(first_ND: NDArray[np.float32], second_ND: NDArray[np.float32], texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the rank of the second text of each pair among all different second texts, by their cosine to the first;
    equally similar texts come first."""
    known: dict[str, int] = {}
    own_N = np.array([known.setdefault(text, len(known)) for text in texts])
    places = np.unique(own_N, return_index=True)[1]
    candidates_MD = second_ND[places]
    ranks = []
    for begin in range(0, len(first_ND), RANKED_AT_ONCE):
        cosine_BM = first_ND[begin : begin + RANKED_AT_ONCE] @ candidates_MD.T
        own_B = own_N[begin : begin + RANKED_AT_ONCE]
        gold_B1 = cosine_BM[np.arange(len(own_B)), own_B][:, None]
        ranks.append((cosine_BM >= gold_B1).sum(axis=1))
    return np.concatenate(ranks)


def learn(rows: Sequence[tuple[int, Row]], settings: SimilaritySettings) -> Similarity:
    """Create the task: with scores, if the training table has a column for them."""
    scored = any("score" in row for _, row in rows[:1])
    usable = []
    for number, row in rows:
        with suppress(UnusableRowError):  # counted when the row becomes an example
            usable.append(_example(number, row, scored=scored))
    scores = [example.gold for example in usable]
    if scored and usable and np.std(scores) <= CONSTANT * max(map(abs, scores)):
        raise DataError(
            f"the task similarity needs pairs of different scores; got {scores[0]:g} for all {len(scores):,} pairs. "
            "Add other pairs; if all of them are similar, leave the column of scores out."
        )
    if not scored and len({example.texts[1] for example in usable}) < 2:
        raise DataError(
            f"the task similarity needs pairs with different second texts; got {len(usable):,} usable pairs with one "
            "second text or none. Add other pairs."
        )
    return Similarity(scored=scored, settings=settings)


def restore(values: Mapping[str, Any]) -> Similarity:
    """Restore the task from saved values."""
    if not isinstance(values["scored"], bool):
        raise ValueError(f"scored must be true or false, and is {values['scored']!r}")
    return Similarity(scored=values["scored"], settings=SimilaritySettings.model_validate(values["settings"]))


SIMILARITY = TaskKind(
    name="similarity",
    help="Embed texts so that similar ones are close: search, duplicates, semantic similarity.",
    columns=(
        Column(role="first", names=FIRST),
        Column(role="second", names=OTHER),
        Column(role="score", names=NUMBER, answer=True, optional=True),
    ),
    settings=SimilaritySettings,
    learn=learn,
    restore=restore,
)


def _example(number: int, row: Row, *, scored: bool) -> Example:
    texts = (text_of(row["first"]), text_of(row["second"]))
    if scored and "score" not in row:
        raise DataError(
            "this model is trained with scores, and the table must have them; got no column of scores. Name it with "
            "--column score=NAME."
        )
    return Example(number=number, texts=texts, gold=number_of(row["score"]) if scored else None)
