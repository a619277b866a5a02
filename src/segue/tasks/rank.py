"""Ranking of documents by their relevance to a query: search, frequently asked questions.

Each document is read with the query before it and gets a score (a cross-encoder). `pointwise` learns whether a document
is relevant; `pairwise` learns which of two documents of a query is more relevant.

A table has a row for each query and document (query, document, relevance), or a row for each query with lists
(documents and relevance, or positives and negatives). For training and evaluation, the rows of a query are gathered; in
prediction, each row is answered separately: a single document with its score, lists with their order.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from segue.checkpoint.heads import HeadConfig
from segue.config import ReadConfig, Section
from segue.config.schema import PositiveInt
from segue.data.tables import Row
from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, Metric
from segue.evaluation.metrics.ranking import MAX_GRADE, ranking
from segue.model.heads import SequenceScorer
from segue.tasks.classify import text_of
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader
from segue.tasks.scores import scores
from segue.tasks.task import Column, Comparison, Example, Item, Prediction, TaskKind, UnusableRowError

QUERY = ("query", "question", "text_a", "sentence1", "title")
QUERY_ID = ("query_id", "qid", "question_id")
DOCUMENT = ("document", "passage", "answer", "candidate", "text_b", "sentence2", "text")
DOCUMENTS = ("documents", "passages", "candidates")
POSITIVES = ("positives", "positive", "positive_passages")
NEGATIVES = ("negatives", "negative", "negative_passages")
RELEVANCE = ("relevance", "relevances", "label", "labels", "grade", "grades", "score", "target")


class RankSettings(Section):
    """Settings of `rank`."""

    loss: Literal["pointwise", "pairwise"] = "pairwise"
    """Training loss: whether a document is relevant (pointwise), or which of two is more relevant (pairwise)."""
    documents: Annotated[int, Field(ge=2, le=2**11)] = 10
    """Maximum number of documents per query in an update: relevant ones, leaving room for at least one other, and
    others sampled anew each time. All documents are ranked in evaluation and prediction."""
    cut: PositiveInt = 10
    """Number of ranks that ndcg and err consider."""
    metric: Literal["ndcg", "err", "mrr", "map", "precision_at_1"] = "ndcg"
    """Metric that selects the best weights."""


@dataclass(frozen=True, kw_only=True)
class Rank:
    """The task `rank`."""

    highest_grade: int
    """Highest grade among the training examples, for expected reciprocal rank."""
    settings: RankSettings

    def to_values(self) -> dict[str, Any]:
        return {"highest_grade": self.highest_grade, "settings": self.settings.model_dump(exclude_none=True)}

    def describe(self, examples: Sequence[Example]) -> list[str]:
        counts = sorted(len(example.gold) for example in examples)
        relevant = sum(grade > 0 for example in examples for grade in example.gold)
        lines = [
            f"{len(counts):,} queries with {sum(counts):,} documents (median {counts[len(counts) // 2]}, at most "
            f"{counts[-1]}), of which {relevant:,} ({relevant / sum(counts):.1%}) are relevant; grades up to "
            f"{self.highest_grade}"
        ]
        alike = sum(len(set(example.gold)) == 1 for example in examples)
        if alike:
            lines.append(f"{alike:,} queries have documents of one grade only: no order of them is better than another")
        return lines

    @property
    def metric(self) -> str:
        return self.settings.metric

    def head(self, read: ReadConfig, summary: str) -> HeadConfig:
        return HeadConfig(
            kind="sequence_scorer",
            loss=self.settings.loss,
            summary=summary,  # type: ignore[arg-type]
            pool=read.pool or "last",
        )

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        """Convert a row. `texts` are the query and its documents, `gold` their grades; `extra` is True if they came as
        a list."""
        return _example(number, row, labelled=labelled)

    def items(self, example: Example, layout: Layout) -> list[Item]:
        query, *documents = (layout.tokenizer.encode_with_offsets(text) for text in example.texts)
        read = tuple(layout.arrange_encoded([query, document]).document for document in documents)
        return [Item(documents=read, gold=example.gold)]

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        """Return the mean over the queries of the mean over their documents, or over their pairs."""
        assert isinstance(model, SequenceScorer)
        drawn = [self._drawn(item) for item in items]
        losses = [
            model.cost(scores_G[None], torch.tensor(item.gold, device=scores_G.device)[None])
            for item, scores_G in zip(drawn, scores(model, drawn, reader), strict=True)
        ]
        return torch.stack(losses).mean()

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        return None

    def chance(self, examples: Sequence[Example]) -> float | None:
        if self.settings.loss == "pairwise":  # log(1 + exp(0)) for each pair; a query without pairs costs nothing
            return math.log(2) * float(np.mean([len(set(example.gold)) > 1 for example in examples]))
        counts = [_counts(example.gold, self.settings.documents) for example in examples]
        share = float(np.mean([relevant / (relevant + others) for relevant, others in counts]))
        return -sum(part * math.log(part) for part in (share, 1 - share) if part > 0)

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        return [scores_G.double().cpu().numpy() for scores_G in scores(model, items, reader)]

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        found = parts[0]
        shown = [float(f"{score:.6g}") for score in found]
        if not example.extra:
            return Prediction(value=found, columns={"score": shown[0]})
        order = [int(place) + 1 for place in np.argsort(-found, kind="stable")]
        return Prediction(value=found, columns={"prediction": order, "scores": shown})

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        grades = [example.gold for example in examples]
        highest = max(self.highest_grade, math.ceil(max(map(max, grades))))
        found = ranking(
            grades,
            [prediction.value for prediction in predictions],
            k=self.settings.cut,
            highest_grade=highest,
            resamples=resamples,
        )
        return found.metrics

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        """Compare the document that should be first with the one that is; the badness is the difference of their
        scores."""
        scores_of, grades = prediction.value, example.gold
        first = int(np.argmax(scores_of))
        best = max(range(len(grades)), key=lambda place: (grades[place], scores_of[place]))
        wrong = grades[first] < grades[best]
        return Comparison(
            gold=example.texts[1 + best],
            predicted=example.texts[1 + first],
            badness=max(float(scores_of[first] - scores_of[best]), 1e-12) if wrong else 0.0,
        )

    def _drawn(self, item: Item) -> Item:
        """Return an item with the documents that are sampled for one update."""
        if len(item.documents) <= self.settings.documents:
            return item
        relevant, others = _counts(item.gold, self.settings.documents)
        drawn = torch.randperm(len(item.documents)).tolist()
        kept = [place for place in drawn if item.gold[place] > 0][:relevant]
        kept += [place for place in drawn if not item.gold[place] > 0][:others]
        return replace(
            item,
            documents=tuple(item.documents[place] for place in kept),
            gold=tuple(item.gold[place] for place in kept),
        )


def _counts(grades: Sequence[float], most: int) -> tuple[int, int]:
    """Return the numbers of relevant and of other documents of a query that are read in an update."""
    relevant = sum(grade > 0 for grade in grades)
    others = len(grades) - relevant
    kept = min(relevant, most - 1 if others else most)
    return kept, min(others, most - kept)


def learn(rows: Sequence[tuple[int, Row]], settings: RankSettings) -> Rank:
    """Create the task with the highest grade of the training rows."""
    golds: list[tuple[float, ...]] = []
    for number, row in rows:
        with suppress(UnusableRowError):  # counted when the row becomes an example
            golds.append(_example(number, row, labelled=True).gold)
    if golds and all(len(set(gold)) == 1 for gold in golds):
        raise DataError(
            f"the task rank needs queries with documents of different relevance; got none among {len(golds):,} queries "
            "with a relevant document. Add documents that are not relevant; if each row is a query, see that the "
            "same query has the same text or id."
        )
    return Rank(highest_grade=math.ceil(max(map(max, golds), default=0)), settings=settings)


def restore(values: Mapping[str, Any]) -> Rank:
    """Restore the task from saved values."""
    return Rank(highest_grade=int(values["highest_grade"]), settings=RankSettings.model_validate(values["settings"]))


def gather(rows: Sequence[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Return one row with lists for each query, if a query has a row for each document. Queries are identified by their
    id, or else by their text; their rows need not be adjacent. Unusable rows stay as they are, to be counted."""
    gathered: list[tuple[int, Row]] = []
    by_query: dict[str, Row] = {}
    for number, row in rows:
        try:
            if _has_list(row):
                raise UnusableRowError("a row with lists")
            query, document = text_of(row.get("query")), _document_of(row.get("document"))
            grade = _grade_of(row.get("relevance"))
        except UnusableRowError:
            gathered.append((number, row))
            continue
        key = str(row["id"]) if row.get("id") is not None else query
        if key not in by_query:
            by_query[key] = {"query": query, "documents": [], "relevance": []}
            gathered.append((number, by_query[key]))
        by_query[key]["documents"].append(document)
        by_query[key]["relevance"].append(grade)
    return gathered


RANK = TaskKind(
    name="rank",
    help="Rank documents for a query: search, frequently asked questions.",
    columns=(
        Column(role="query", names=QUERY),
        Column(role="id", names=QUERY_ID, optional=True),
        Column(role="documents", names=DOCUMENTS, optional=True),
        Column(role="positives", names=POSITIVES, optional=True),
        Column(role="negatives", names=NEGATIVES, optional=True),
        Column(role="document", names=DOCUMENT, optional=True),
        Column(role="relevance", names=RELEVANCE, answer=True, optional=True),
    ),
    settings=RankSettings,
    learn=learn,
    restore=restore,
    gather=gather,
)


def _example(number: int, row: Row, *, labelled: bool) -> Example:
    query = text_of(row["query"])
    documents: list[Any]
    grades: list[Any]
    if row.get("documents") is not None:
        documents, grades = _list_of(row["documents"]), _list_of(row.get("relevance")) if labelled else []
        if labelled and len(documents) != len(grades):
            raise UnusableRowError("not one relevance for each document of a query")
    elif _has_list(row):
        positives, negatives = _list_of(row.get("positives")), _list_of(row.get("negatives"))
        documents, grades = [*positives, *negatives], [1] * len(positives) + [0] * len(negatives)
    elif "document" in row:
        documents, grades = [row["document"]], [row.get("relevance")]
    else:
        raise DataError(
            "a table for the task rank must have documents; got no column for them. Name one with --column "
            "document=NAME, or one that holds lists with --column documents=NAME, or two with --column positives=NAME "
            "--column negatives=NAME."
        )
    if not documents:
        raise UnusableRowError("a query without documents")
    texts = (query, *map(_document_of, documents))
    if not labelled:
        return Example(number=number, texts=texts, extra=_has_list(row))
    gold = tuple(map(_grade_of, grades))
    if not any(gold):
        raise UnusableRowError("a query without a relevant document")
    return Example(number=number, texts=texts, gold=gold, extra=_has_list(row))


def _has_list(row: Row) -> bool:
    return any(row.get(role) is not None for role in ("documents", "positives", "negatives"))


def _list_of(value: Any) -> list[Any]:
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return list(value)
    raise DataError(
        f"the documents of a query and their relevance must be lists; got {str(value)[:80]!r}. Write lists in JSON, or "
        "a row for each document with --column document=NAME."
    )


def _document_of(value: Any) -> str:
    """Return the text of a document, which may be an object with a title and a text."""
    if isinstance(value, dict):
        value = "\n".join(str(value[name]) for name in ("title", "text") if value.get(name))
    return text_of(value)


def _grade_of(value: Any) -> float:
    if isinstance(value, str | int | float):
        with suppress(ValueError, OverflowError):
            grade = float(value)
            if 0 <= grade <= MAX_GRADE:
                return grade
    raise UnusableRowError(f"a relevance that is not a number from 0 to {MAX_GRADE}")
