"""Comparison of models on the same data, with confidence intervals of their differences."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from segue.api.errors import python_errors
from segue.api.evaluate_task import labelled_rows
from segue.api.models import ModelLike, text_model
from segue.api.predict import FinetunedModel, task_model_of
from segue.api.progress import Progress, Tell, progress_callback
from segue.api.score import score
from segue.api.texts import documents_of
from segue.arguments import Positive
from segue.checkpoint.find import find, model_folder
from segue.checkpoint.folder import HEAD, TASK
from segue.data.readers import DocumentRule
from segue.data.tables import TableSettings
from segue.errors import ConfigError, DataError
from segue.evaluation.metrics.bootstrap import Metric, divide
from segue.evaluation.metrics.bootstrap import measure as measured
from segue.evaluation.metrics.paired import Measure, paired_differences
from segue.infer.documents import TextPart
from segue.tasks.examples import understand
from segue.tasks.folder import TaskModel
from segue.tasks.predict import answers_in_order
from segue.tasks.task import Example, Prediction, Task

ComparedLike: TypeAlias = ModelLike | FinetunedModel | TaskModel
LANGUAGE = "language modelling"


@dataclass(frozen=True, kw_only=True)
class ComparedModel:
    """One model of a comparison."""

    name: str
    metrics: dict[str, Metric]
    """Metrics with confidence intervals."""
    differences: dict[str, Metric]
    """Metrics minus those of the first model, with confidence intervals of the difference; empty for the first
    model."""


@dataclass(frozen=True, kw_only=True)
class ModelComparison:
    """Results of several models on the same examples."""

    task: str
    """The task of fine-tuned models, or "language modelling"."""
    examples: int
    """Number of examples, or documents, that all models were evaluated on."""
    models: tuple[ComparedModel, ...]
    notes: tuple[str, ...] = ()
    """Caveats about comparing the numbers."""


@python_errors
def compare(
    models: Sequence[ComparedLike],
    data: Any,
    *,
    columns: dict[str, str] | None = None,
    tables: TableSettings | None = None,
    field: str = "text",
    documents: DocumentRule | None = None,
    batch_size: Positive = 32,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> ModelComparison:
    """Compare models on the same data, with confidence intervals of their differences to the first (paired bootstrap).

    Fine-tuned models of one task are compared by the metrics of the task on labelled rows; language models by bits per
    character and per byte of texts, which do not depend on the tokeniser. A masked model assigns no probability to a
    text, so it can only be compared after fine-tuning.

    Args:
        models: Two or more models: names, folders, or loaded models; either all fine-tuned on one task, or none.
        data: For fine-tuned models, labelled rows, a table or a file; for language models, texts or
            files (`Path`).
        columns: Columns by role, where column names do not match: {"text": "review"}.
        tables: Format of a file of rows. Default: inferred from its name.
        field: Field of the text in records, for language models. Default: "text".
        documents: Unit of a document in a file of texts. Default: blocks in text files, records in others.
        batch_size: Number of rows per batch. Affects only speed.
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        The metrics of each model, and their differences to those of the first.

    Raises:
        ConfigError: If there are fewer than two models, or models of different kinds.
        DataError: If no example can be used by all models.

    Examples:
        >>> rows = [{"text": "The room was clean.", "label": "good"}, {"text": "A dull film.", "label": "bad"}]
        >>> found = segue.compare(["sentiment", "sentiment"], rows, progress=False)
        >>> found.task, found.examples, found.models[1].differences["accuracy"].value
        ('classify', 2, 0.0)
    """
    if len(models) < 2:
        raise ConfigError(f"a comparison needs two or more models; got {len(models)}. Add another one.")
    finetuned = [_is_finetuned(model) for model in models]
    names = [_name(model, number) for number, model in enumerate(models, start=1)]
    if any(finetuned) and not all(finetuned):
        other = names[finetuned.index(False)]
        raise ConfigError(
            f"compared models must either all be fine-tuned or none; got {other}, which is not. Fine-tune it too."
        )
    with progress_callback("compare", unit="models", progress=progress, on_event=on_event) as tell:
        if all(finetuned):
            return _tasks(models, names, data, columns or {}, tables or TableSettings(), batch_size, tell)
        return _texts(models, names, data, field=field, documents=documents, tell=tell)


def _is_finetuned(model: object) -> bool:
    if isinstance(model, str | Path):
        folder = model_folder(find(model))
        return (folder / TASK).is_file() or (folder / HEAD).is_file()
    return isinstance(model, FinetunedModel | TaskModel)


def _name(model: object, number: int) -> str:
    if isinstance(model, FinetunedModel):
        return str(model.folder)
    return str(model) if isinstance(model, str | Path) else f"model {number}"


# ------------------------------------------------------------------------------------------------ fine-tuned models


@dataclass(frozen=True, kw_only=True)
class _Answers:
    task: Task
    examples: list[Example]
    predictions: list[Prediction]

    def measure(self, chosen: NDArray[np.int64]) -> dict[str, float]:
        examples = [self.examples[number] for number in chosen]
        predictions = [self.predictions[number] for number in chosen]
        found = self.task.measure(examples, predictions, resamples=None)
        return {name: metric.value for name, metric in found.items()}


def _tasks(
    models: Sequence[Any],
    names: Sequence[str],
    data: Any,
    columns: dict[str, str],
    tables: TableSettings,
    batch_size: int,
    tell: Tell,
) -> ModelComparison:
    made = [task_model_of(model) for model in models]
    kind = made[0].kind
    for name, other in zip(names, made, strict=True):
        if other.kind.name != kind.name:
            raise ConfigError(
                f"compared models must have the same task; got {kind.name} and, in {name}, {other.kind.name}. Compare "
                "the models of each task separately."
            )
    table, rows = labelled_rows(kind, data, columns, tables)
    found = [understand(one.task, table, rows, labelled=True) for one in made]
    understood = [{example.number: example for example in one.examples} for one in found]
    common = [number for number in understood[0] if all(number in examples for examples in understood)]
    if not common:
        raise DataError(f"{table.source} must have examples that all models can use; got none. Check the labels.")
    answers = []
    for done, (one, examples) in enumerate(zip(made, understood, strict=True), start=1):
        chosen = [examples[number] for number in common]
        predictions = answers_in_order(one, chosen, batch_size=batch_size)
        answers.append(_Answers(task=one.task, examples=chosen, predictions=predictions))
        tell(done, len(made))
    metrics = [one.task.measure(one.examples, one.predictions) for one in answers]
    left = len(rows) - len(common)
    notes = [f"{left:,} of {len(rows):,} rows were left out: not every model can use them."] if left else []
    notes += dict.fromkeys(problem for one in found for problem in one.problems())
    return _comparison(kind.name, len(common), names, metrics, [one.measure for one in answers], notes)


# -------------------------------------------------------------------------------------------------- language models


@dataclass(frozen=True, kw_only=True)
class _Bits:
    bits_D: NDArray[np.float64]
    sizes: dict[str, NDArray[np.float64]]
    """Number of characters and bytes of each document."""

    def formula(self, weights_RD: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        bits_R = weights_RD @ self.bits_D
        return {f"bits_per_{unit}": divide(bits_R, weights_RD @ size_D) for unit, size_D in self.sizes.items()}

    def measure(self, chosen: NDArray[np.int64]) -> dict[str, float]:
        weights = np.bincount(chosen, minlength=len(self.bits_D)).astype(np.float64)
        return {name: float(value[0]) for name, value in self.formula(weights[None]).items()}


def _texts(
    models: Sequence[Any],
    names: Sequence[str],
    data: Any,
    *,
    field: str,
    documents: DocumentRule | None,
    tell: Tell,
) -> ModelComparison:
    texts = [text for text in _joined(documents_of(data, field=field, documents=documents)) if text]
    if not texts:
        raise DataError("language models are compared on texts; got none. Give a file with text.")
    sizes = {
        "character": np.array([len(text) for text in texts], dtype=np.float64),
        "byte": np.array([len(text.encode("utf-8", errors="replace")) for text in texts], dtype=np.float64),
    }
    found, notes = [], []
    for done, (name, model) in enumerate(zip(names, models, strict=True), start=1):
        reader = text_model(model)
        if reader.model.config.objective == "masked":
            raise ConfigError(
                f"{name} must assign probabilities to texts; got a masked model, which gives only pseudo-likelihoods. "
                "Compare it after fine-tuning."
            )
        scores = score(reader, texts, likeliest=False, progress=False)
        bits_D = np.array([-one.log_probability / math.log(2) for one in scores])
        found.append(_Bits(bits_D=bits_D, sizes=sizes))
        notes += _notes(name, texts, reader.tokenizer, sum(one.tokens - one.scored for one in scores))
        tell(done, len(models))
    ones = np.ones(len(texts), dtype=np.int64)
    metrics = [measured(one.formula, ones) for one in found]
    return _comparison(LANGUAGE, len(texts), names, metrics, [one.measure for one in found], notes)


def _joined(parts: Iterable[TextPart]) -> list[str]:
    texts: list[list[str]] = []
    for part in parts:
        if part.begins or not texts:
            texts.append([])
        texts[-1].append(part.text)
    return ["".join(text) for text in texts]


def _notes(name: str, texts: Sequence[str], tokenizer: Any, unscored: int) -> list[str]:
    """Return caveats that make the bits of a model look too low."""
    notes = []
    unk = tokenizer.specials.get("unk")
    unknown = 0 if unk is None else sum(int((tokenizer.encode(text) == unk).sum()) for text in texts)
    if unknown:
        notes.append(f"{name}: {unknown:,} tokens are unknown; what they stand for costs no bits.")
    if unscored:
        notes.append(f"{name}: {unscored:,} tokens have no probability: the first of each text.")
    return notes


def _comparison(
    task: str,
    examples: int,
    names: Sequence[str],
    metrics: Sequence[dict[str, Metric]],
    measures: Sequence[Measure],
    notes: Sequence[str],
) -> ModelComparison:
    differences = [{}, *paired_differences(measures, examples=examples)]
    models = [
        ComparedModel(name=name, metrics=own, differences=difference)
        for name, own, difference in zip(names, metrics, differences, strict=True)
    ]
    return ModelComparison(task=task, examples=examples, models=tuple(models), notes=tuple(notes))
