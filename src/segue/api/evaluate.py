"""Perplexity of a model on a store, and bits per token, character and byte."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from segue.api.errors import python_errors
from segue.api.models import ModelLike, path_of, with_folder
from segue.api.progress import Progress, progress_callback
from segue.arguments import Positive
from segue.checkpoint.find import find, model_folder
from segue.checkpoint.folder import CONFIG, TASK, TOKENIZER
from segue.config import load as load_config
from segue.data.store import Store
from segue.errors import ConfigError, DataError
from segue.evaluation.perplexity import (
    Order,
    Score,
    evaluate_causal,
    evaluate_order,
    evaluate_pseudo,
    evaluate_window,
)
from segue.model import LanguageModel
from segue.text.coverage import ENOUGH, LanguageWatch
from segue.text.files import load_tokenizer


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Perplexity and bits of a model on a text."""

    nll: float
    """Negative log-likelihood of the text, in nats."""
    tokens: int
    """Number of predicted tokens."""
    characters: float
    bytes: float
    """Number of bytes of text evaluated; estimated from the share of tokens if only part of the store was."""
    exact: bool
    """True if the whole store was evaluated."""
    memory_length: int | None
    """Memory length in tokens; None for a model without memory."""

    def __repr__(self) -> str:
        memory = "without memory" if self.memory_length is None else f"memory of {self.memory_length:,}"
        bits = f"{self.bits_per_character:.4f} bits per character"
        return f"<Evaluation: perplexity {self.perplexity:,.3f}, {bits}, {self.tokens:,} tokens, {memory}>"

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood per token, in nats."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """Perplexity per token."""
        return math.exp(min(self.loss, 700.0))

    @property
    def bits_per_token(self) -> float:
        return self.loss / math.log(2)

    @property
    def bits_per_character(self) -> float:
        return self.nll / math.log(2) / max(1.0, self.characters)

    @property
    def bits_per_byte(self) -> float:
        return self.nll / math.log(2) / max(1.0, self.bytes)


@python_errors
def evaluate(
    model: ModelLike,
    data: str | Path | Store,
    *,
    segment_length: Positive | None = None,
    memory_length: Positive | None = None,
    attention_span: Positive | None = None,
    clamp_distance: Positive | None = None,
    window: Positive | None = None,
    stride: Positive = 1,
    order: Order = "forward",
    pseudo: bool = False,
    lanes: Positive = 8,
    limit: Positive | None = None,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> Evaluation:
    """Measure the perplexity of a model on a store, and its bits per token, character and byte. For a fine-tuned model,
    use `evaluate_task`.

    Args:
        model: A name, a folder, or a loaded model.
        data: A store prepared with the tokeniser of the model.
        segment_length: Segment length in tokens. Default: as in training.
        memory_length: Memory length in tokens. Default: as in training.
        attention_span: Number of positions that each token attends to, itself included. Default: no limit.
        clamp_distance: Clamp relative distances at this value. Default: no limit.
        window: Length of a sliding window, evaluated without memory. Default: no window.
        stride: Number of tokens to advance per window.
        order: Factorisation order of a permutation model: "forward", "backward" or "random".
        pseudo: Whether to measure pseudo-likelihood, for masked and permutation models.
        lanes: Number of parts of the text to read in parallel. Affects speed, not the result.
        limit: Number of tokens to evaluate. Default: all.
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        The loss over all predicted tokens, with `perplexity`, `bits_per_character` and others.

    Raises:
        ConfigError: If a setting is not valid for this model.
        DataError: If the store is damaged, or was prepared with another tokeniser.

    Examples:
        >>> store = segue.prepare("texts.txt", "corpus", tokenizer="model/tokenizer", progress=False)
        >>> found = segue.evaluate("model", store, segment_length=32, progress=False)
        >>> found.perplexity == math.exp(found.loss), found.tokens == store.length - 1
        (True, True)
    """
    check_no_task(model, data)
    whole, folder = with_folder(model)
    store = data if isinstance(data, Store) else open_store(Path(data), folder)
    check_tokenizer(store, folder, whole)
    segment = min(segment_length or _trained_segment(folder), max(1, store.length))
    reader = _adjusted(whole, memory_length=memory_length, attention_span=attention_span, clamp_distance=clamp_distance)
    with progress_callback("evaluate", unit="steps", progress=progress, on_event=on_event) as tell:
        score: Score
        if pseudo:
            mask = store.specials.get("mask")
            score = evaluate_pseudo(reader, store, segment_length=segment, mask=mask, limit=limit, progress=tell)
        elif reader.config.objective == "permutation":
            score = evaluate_order(reader, store, segment_length=segment, order=order, limit=limit, progress=tell)
        elif window is not None:
            score = evaluate_window(reader, store, window=window, stride=stride, rows=lanes, limit=limit, progress=tell)
        else:
            score = evaluate_causal(reader, store, segment_length=segment, lanes=lanes, limit=limit, progress=tell)
    share = score.targets / max(1, store.length)
    return Evaluation(
        nll=score.nll,
        tokens=score.targets,
        characters=store.manifest.characters * share,
        bytes=store.manifest.bytes * share,
        exact=limit is None or limit >= store.length,
        memory_length=reader.config.memory.length if reader.config.memory else None,
    )


def check_no_task(model: object, data: object) -> None:
    """Raise ConfigError for a model that was fine-tuned on a task, and say how to evaluate it."""
    if isinstance(model, str | Path) and (path_of(model) / TASK).is_file():
        raise ConfigError(
            f"perplexity needs a language model; got {model}, which is fine-tuned on a task.",
            remedy=f"Evaluate it on labelled examples: segue.evaluate_task({str(model)!r}, {str(data)!r}).",
            option=f"Evaluate it on labelled examples: segue evaluate {quote(str(model))} --table {quote(str(data))}.",
        )


def store_for(model: str, data: Path) -> Store:
    """Return the store in a folder, for a model that is not loaded yet."""
    check_no_task(model, data)
    return open_store(data, model_folder(find(model)) if data.is_file() else None)


def open_store(data: Path, folder: Path | None) -> Store:
    """Open and verify a store. If the path is a text file, the error says how to prepare a store from it for the model
    in `folder`."""
    own = None if folder is None or not (folder / TOKENIZER).is_dir() else folder / TOKENIZER
    if data.is_file():
        out = data.with_suffix(".store")
        option = "" if own is None else f" --tokenizer {quote(str(own))}"
        argument = "" if own is None else f", tokenizer={str(own)!r}"
        raise DataError(
            f"a model is evaluated on a store; got the file {data}. Prepare a store from it first:",
            remedy=f"segue.prepare({str(data)!r}, {str(out)!r}{argument}).",
            option=f"segue prepare {quote(str(data))} --out {quote(str(out))}{option}.",
        )
    return Store.open(data)


def check_tokenizer(store: Store, folder: Path | None, model: LanguageModel) -> None:
    """Raise an error if the ids of a store do not belong to the model, and warn about text in another language. For a
    folder without a tokeniser, only the vocabulary size is compared."""
    own = None if folder is None or not (folder / TOKENIZER).is_dir() else folder / TOKENIZER
    size = model.config.vocabulary.size
    if store.vocabulary_size != size:
        got = f"{store.vocabulary_size} tokens for {size}"
    elif own is not None and load_tokenizer(own).fingerprint() != store.manifest.tokenizer:
        got = f"another than {own}"
    else:
        if own is not None:
            LanguageWatch(load_tokenizer(own)).read(store.read(0, min(store.length, ENOUGH)))
        return
    remedy = option = "Use the store it was trained on."
    if own is not None:
        remedy = f"Prepare the text with tokenizer={str(own)!r}."
        option = f"Prepare the text with --tokenizer {own}."
    raise DataError(
        f"the store {store.path} must have the tokeniser of the model; got {got}.", remedy=remedy, option=option
    )


def _trained_segment(folder: Path | None) -> int:
    data = None if folder is None else load_config(folder / CONFIG).data
    if data is None:
        raise ConfigError(
            "the segment length must be given for this model, which does not record one; got none. Give "
            "--segment-length."
        )
    return data.segment_length


def _adjusted(
    model: LanguageModel, *, memory_length: int | None, attention_span: int | None, clamp_distance: int | None
) -> LanguageModel:
    settings: dict[str, object] = {}
    if memory_length is not None:
        settings["memory"] = {"length": memory_length}
    if attention_span is not None:
        settings["attention_span"] = attention_span
    if clamp_distance is not None:
        settings["positions"] = {"clamp_distance": clamp_distance}
    return model.adjusted(**settings) if settings else model
