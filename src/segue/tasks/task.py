"""The task protocol that training, prediction and reports rely on, and the values that pass between them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from segue.checkpoint.heads import HeadConfig
from segue.config import ReadConfig, Section
from segue.data.tables import Row
from segue.evaluation.metrics.bootstrap import RESAMPLES, Metric
from segue.model.reading import TokenDocument
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader


class UnusableRowError(Exception):
    """A row that cannot be used as an example; the message is the rule it breaks. Such rows are counted and
    reported."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column that a task reads."""

    role: str
    """Name of the column in the task."""
    names: tuple[str, ...]
    """Usual names of the column in tables, in order of preference."""
    answer: bool = False
    """True if it holds the target, which prediction does not need."""
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row converted to an example of the task."""

    number: int
    """Number of the record in its file."""
    texts: tuple[str, ...]
    """The texts, for display."""
    gold: Any = None
    """The target, in the form of the task; None if unknown."""
    extra: Any = None
    """Further values that the task needs to build documents."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A unit that is read at once: all options of a question, all documents of a query, or a window of a long text."""

    documents: tuple[TokenDocument, ...]
    gold: Any = None
    """The target, in the form of the loss."""
    extra: Any = None
    """Values needed to turn the model's output into an answer, e.g. the offsets of tokens in the text."""
    weight: int = 1
    """Weight in the mean loss: the number of tokens, if every token has a loss."""

    @property
    def length(self) -> int:
        """Number of tokens of the longest document: items of similar length are batched."""
        return max(len(document) for document in self.documents)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The prediction for one example."""

    value: Any
    """The prediction, in the form that `measure` compares with gold."""
    columns: Mapping[str, Any]
    """The prediction as columns of a table."""
    confidence: float | None = None
    """Probability of the prediction, if there is one: reports list the most confident mistakes first."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Gold and prediction of one example for display; what they have in common may be omitted."""

    gold: str
    predicted: str
    badness: float
    """0 if the prediction is correct; reports show the worst first. The probability of a wrong prediction, if there is
    one, so that the most confident mistakes come first; otherwise the size of the error."""


class Task(Protocol):
    """A task with known labels and settings."""

    def to_values(self) -> dict[str, Any]:
        """Return everything that `TaskKind.restore` needs, as plain values; saved beside the weights."""

    def describe(self, examples: Sequence[Example]) -> list[str]:
        """Return a summary of the examples for display: classes and their shares, lengths of answers."""

    @property
    def metric(self) -> str:
        """Name of the metric that selects the best weights; higher is better."""

    def head(self, read: ReadConfig, summary: str) -> HeadConfig | None:
        """Return the config of the head on the trunk; None for the softmax of the language model."""

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        """Convert a row, or raise UnusableRowError."""

    def items(self, example: Example, layout: Layout) -> list[Item]:
        """Return the items that the model reads for an example."""

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        """Return the training loss: the weighted mean over the items."""

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        """Return weights that balance the classes; None for tasks without classes."""

    def chance(self, examples: Sequence[Example]) -> float | None:
        """Return the loss of the best constant prediction; None if unknown."""

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        """Return the model's output for each item, without gradient."""

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        """Return the prediction for an example, from the outputs for its items."""

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        """Return the metrics of the predictions; `resamples=None` omits the intervals."""

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        """Return a prediction beside its gold value, for the list of mistakes in a report."""


@dataclass(frozen=True, kw_only=True)
class TaskKind:
    """A kind of task before it has seen examples, as listed in `table`."""

    name: str
    help: str
    """Description for users."""
    columns: tuple[Column, ...]
    settings: type[Section]
    """Settings class of `task.KEY=VALUE`."""
    learn: Callable[[Sequence[tuple[int, Row]], Any], Task]
    """Creates the task from the training rows and checks its labels. Rows have the roles of `columns` as keys."""
    restore: Callable[[Mapping[str, Any]], Task]
    """Restores the task from what `to_values` saved."""
    gather: Callable[[Sequence[tuple[int, Row]]], Sequence[tuple[int, Row]]] | None = None
    """For training and evaluation: merges the rows that form one example; None if each row is an example."""
