"""Explanations: attention, the terms of its scores, and the words behind a prediction."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from segue.api.errors import python_errors
from segue.api.models import ModelLike, text_model, with_folder
from segue.api.predict import FinetunedLike, FinetunedModel, only_column, task_model_of
from segue.api.progress import Progress, progress_callback
from segue.api.tables import memory_table
from segue.arguments import Index, OneText, Positive, Seed
from segue.data.decode import check_encoding
from segue.errors import DataError
from segue.explain.decision import decide
from segue.explain.faithful import WordReport
from segue.explain.faithful import explain_words as words_of
from segue.explain.page import explanation_page
from segue.explain.picture import head_map
from segue.explain.report import Explanation
from segue.explain.report import explain_text as explanation_of
from segue.explain.scores import AttentionReading, Stream
from segue.explain.scores import attention as attention_of
from segue.explain.text import read_text
from segue.files import new_text_file
from segue.infer.score import Order
from segue.infer.text_model import TextModel
from segue.model import Batch, Memory
from segue.tasks.examples import column_names
from segue.tasks.folder import TaskModel


@python_errors
def attention(
    model: ModelLike | FinetunedModel | TaskModel | nn.Module, batch: Batch, memory: Memory | None = None
) -> AttentionReading:
    """Read a batch and keep the attention of each layer: scores, the terms they are made of, and probabilities.

    Use this to get attention weights. Scores are computed on demand, by layer and head, so that long segments take
    little memory. Columns are the memory, then the segment.

    Args:
        model: A name, a folder, or a loaded model, fine-tuned or not.
        batch: The batch to read; for both streams of a permutation model, one with predictions.
        memory: Memory of earlier segments. Default: none.

    Returns:
        An `AttentionReading`; its `scores(layer, heads=..., stream=...)` has the terms as named tensors.

    Raises:
        ConfigError: If the model is not a segue model.
        DataError: If the batch or the memory does not fit the model.

    Examples:
        >>> import torch
        >>> model = segue.load("model")
        >>> reading = segue.attention(model, segue.Batch(ids_BQ=torch.arange(10, 16)[None]))
        >>> scores = reading.scores(0, heads=1)
        >>> list(scores.terms)
        ['content', 'position', 'content_bias', 'position_bias']
        >>> scores.probability.shape
        torch.Size([1, 1, 6, 6])
    """
    if isinstance(model, FinetunedModel | TaskModel):
        model = task_model_of(model).model
    elif isinstance(model, str | Path | TextModel):
        model = with_folder(model)[0]
    return attention_of(model, batch, memory)


@python_errors
def explain_text(
    model: ModelLike,
    text: OneText,
    *,
    name: str | None = None,
    order: Order | Sequence[Index] = "forward",
    seed: Seed = 0,
    layers: Sequence[int] | None = None,
    ablate: bool = True,
    segment_length: Positive | None = None,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> Explanation:
    """Explain how a language model reads a text: what its heads attend to, the share of each term of the score, and the
    loss without each term, head, or memory.

    The text is read in segments with memory, as `score` reads it.

    Args:
        model: A name, a folder, or a loaded model.
        text: The text, of at most 16,384 tokens.
        name: Title of this explanation on the page. Default: the name of the model.
        order: Factorisation order of a permutation model: "forward", "backward", "random", or a list of positions.
        seed: Seed for random orders. Default: 0.
        layers: Layers whose attention maps to show. Default: all.
        ablate: Whether to compute the losses without each term, each head and the memory. Each takes another forward
            pass.
        segment_length: Segment length in tokens. Default: as in training.
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        An `Explanation`: `statistics`, `changes`, `losses_T`, and for a permutation model `order`. `save_explanation`
        writes it as a page.

    Raises:
        ConfigError: If a setting is not valid for this kind of model.
        DataError: If the text has no tokens, or too many.

    Examples:
        >>> found = segue.explain_text("model", "The room was clean.", progress=False)
        >>> stream, statistics = found.statistics[0]
        >>> statistics.terms, statistics.share_LHC.shape
        (('content', 'position', 'content_bias', 'position_bias'), (2, 2, 4))
        >>> found.changes[0].ablation.term
        'content'
        >>> segue.save_explanation("page.html", found).name
        'page.html'
    """
    source = text_model(model)
    done = 0
    with progress_callback("explain", unit="readings", progress=progress, on_event=on_event) as tell:

        def count(what: str) -> None:
            nonlocal done
            done += 1
            tell(done, None)

        return explanation_of(
            source,
            text,
            name=name or (Path(model).name if isinstance(model, str | Path) else "model"),
            order=order,
            seed=seed,
            layers=layers,
            ablate=ablate,
            segment_length=segment_length,
            progress=count,
        )


@python_errors
def explain_answer(
    model: FinetunedLike,
    row: str | Mapping[str, Any],
    *,
    columns: Mapping[str, str] | None = None,
    seed: Seed = 0,
) -> WordReport:
    """Explain which words decided a prediction of a fine-tuned model, and how faithful the explanation is.

    Words are ranked in three ways: by integrated gradients and by leave-one-out, through all segments and the memory,
    and by the attention they receive. Comprehensiveness and sufficiency measure the faithfulness of each ranking: one
    that is no better than a random ranking explains nothing. N-gram features combined with the model are not included.

    Args:
        model: The result of `finetune` or `load_finetuned`, or a folder; for classify, pair, regress, tag, answer,
            choose or rank.
        row: A text, or a dict of texts by role or by column: {"first": ..., "second": ...}.
        columns: Columns by role, where column names do not match: {"text": "review"}.
        seed: Seed for the random rankings. Default: 0.

    Returns:
        A `WordReport`: the prediction, the words, `attributions` and `faithfulness`.

    Raises:
        ConfigError: If the task does not support word explanations.
        DataError: If the row lacks a text that the task requires.

    Examples:
        >>> report = segue.explain_answer("sentiment", "The room was clean and kind.")
        >>> report.answer, [one.method for one in report.faithfulness]
        ('good', ['integrated_gradients', 'leave_one_out', 'attention', 'random'])
        >>> len(report.first(count=2))
        2
    """
    made = task_model_of(model)
    given = {only_column(made.kind): row} if isinstance(row, str) else _by_role(made, row, columns or {})
    return words_of(decide(made, given), seed=seed)


def _by_role(made: TaskModel, row: Mapping[str, Any], columns: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the cells of a row by the roles of the task; columns are found as `predict` finds them."""
    roles = {column.role for column in made.kind.columns}
    if not columns and row.keys() <= roles:
        return row
    table = memory_table([row], name="row")
    given = {role: role for role in roles if role in row} | dict(columns)
    return {role: row[name] for role, name in column_names(made.kind, table, given, labelled=False).items()}


@python_errors
def save_explanation(
    out: str | Path,
    explanation: Explanation | WordReport,
    *,
    beside: Explanation | WordReport | None = None,
    replace: bool = False,
) -> Path:
    """Write an explanation, or two side by side, as a single self-contained HTML file.

    Args:
        out: The file to write.
        explanation: The result of `explain_text` or of `explain_answer`; or
            `segue.Explanation(name=..., text=..., words=...)`, for a title and a text of your own.
        beside: A second explanation, of another model or another text. Default: none.
        replace: Whether to overwrite an existing file.

    Returns:
        The path of the file.

    Raises:
        DataError: If the file exists, or cannot be written.

    Examples:
        >>> report = segue.explain_answer("sentiment", "The room was clean.")
        >>> segue.save_explanation("answer.html", report).stat().st_size > 1000
        True
    """
    sides = [explanation] if beside is None else [explanation, beside]
    page = explanation_page([one if isinstance(one, Explanation) else _words_alone(one) for one in sides])
    with new_text_file(Path(out), replace=replace) as file:
        file.write(page)
    return Path(out)


def _words_alone(report: WordReport) -> Explanation:
    """Return the words behind a prediction as an explanation with the task as its title."""
    return Explanation(name=report.task, text=" ".join(unit.text for unit in report.units), words=report)


def head_picture(
    model: ModelLike,
    text: str,
    *,
    layer: int,
    head: int,
    stream: Stream,
    shown: str,
    order: Order | Sequence[int],
    seed: int,
    segment_length: int | None,
) -> NDArray[np.float32]:
    """Return the attention of one head over a text, as a matrix of queries by keys, for an image."""
    reading = read_text(text_model(model), text, order=order, seed=seed, segment_length=segment_length)
    return head_map(reading, layer=layer, head=head, stream=stream, shown=shown)


def text_file(path: Path, *, encoding: str, most_bytes: int) -> str:
    """Return the text of a file; raise DataError if it is too large to explain."""
    check_encoding(encoding)
    with path.open("rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise DataError(f"{path} must have at most {most_bytes:,} bytes to be explained; got more. Give a part of it.")
    try:
        return data.decode("utf-8-sig" if encoding.lower() in ("utf-8", "utf8") else encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} must be text in {encoding}; got an invalid byte at {error.start:,}. Name its --encoding."
        ) from None
