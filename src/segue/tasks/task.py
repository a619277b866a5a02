"""What a task is: the protocol that training, prediction and reports rely on, and the values that pass between them."""

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
    """A row that cannot serve as an example; the message is the rule it breaks. Such rows are counted and reported."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column that a task reads."""

    role: str
    """What the task calls it."""
    names: tuple[str, ...]
    """What tables usually call it, best first."""
    answer: bool = False
    """Whether it holds what is to be learned, so that prediction does without."""
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row as the task understands it."""

    number: int
    """Number of the record in its file."""
    texts: tuple[str, ...]
    """What a person reads."""
    gold: Any = None
    """What is to be answered, in the task's own form; None where it is not known."""
    extra: Any = None
    """What else the task needs to make documents of it."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """What is read at once: all options of a question, all documents of a query, a window of a long text."""

    documents: tuple[TokenDocument, ...]
    gold: Any = None
    """As the loss needs it."""
    extra: Any = None
    """What makes an answer out of the model's: where tokens stand in the text, for example."""
    weight: int = 1
    """What it counts in the mean that is the loss: so many tokens, where every token has a loss."""

    @property
    def length(self) -> int:
        """Tokens of the longest document: items of about the same length are read together."""
        return max(len(document) for document in self.documents)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The answer to one example."""

    value: Any
    """As `measure` compares it with gold."""
    columns: Mapping[str, Any]
    """As a table shows it."""
    confidence: float | None = None
    """Probability of the answer, where there is one: reports list the surest mistakes first."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Gold and answer of one example as a person reads them; what they have in common may be left out."""

    gold: str
    predicted: str
    badness: float
    """0 where the answer is right; reports show the worst first. The probability of a wrong answer, where there is one,
    so that the surest mistakes come first; else how far off it is."""


class Task(Protocol):
    """One job, its labels and settings known."""

    def to_values(self) -> dict[str, Any]:
        """All that `TaskKind.restore` needs, as plain values: it is saved beside the weights."""

    def describe(self, examples: Sequence[Example]) -> list[str]:
        """What a person should know of the examples: classes and their shares, lengths of answers."""

    @property
    def metric(self) -> str:
        """The name of the measure that decides which weights are best; higher is better."""

    def head(self, read: ReadConfig, summary: str) -> HeadConfig | None:
        """What stands on the trunk; None is the softmax of the language model."""

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        """A row understood, or UnusableRowError."""

    def items(self, example: Example, layout: Layout) -> list[Item]:
        """What the model reads for it."""

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        """What training minimises, the mean over the items by their weight."""

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        """What each class counts if all should count the same; None where there are no classes."""

    def chance(self, examples: Sequence[Example]) -> float | None:
        """The loss of the best answer that does not look at the text; None where that is not known."""

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        """What the model makes of each item; no gradient."""

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        """The answer to an example from those to its items."""

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        """How good the answers are; `resamples=None` leaves the intervals out."""

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        """One answer beside what it should be, for the list of mistakes in a report."""


@dataclass(frozen=True, kw_only=True)
class TaskKind:
    """A task before it has seen examples: what `table` lists."""

    name: str
    help: str
    """For people who choose one."""
    columns: tuple[Column, ...]
    settings: type[Section]
    """What `task.KEY=VALUE` may set."""
    learn: Callable[[Sequence[tuple[int, Row]], Any], Task]
    """The task as the training rows show it: its labels, checked. Rows have the roles of `columns` as keys."""
    restore: Callable[[Mapping[str, Any]], Task]
    """As `to_values` saved it."""
    gather: Callable[[Sequence[tuple[int, Row]]], Sequence[tuple[int, Row]]] | None = None
    """To learn and to measure: makes one row of rows that are one example together; None where each row is one."""
