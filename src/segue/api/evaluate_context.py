"""Relative effective context length (RECL): how much context each model of a group uses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segue.api.errors import python_errors
from segue.api.evaluate import check_tokenizer, open_store
from segue.api.models import ModelLike, with_folder
from segue.api.progress import Progress, progress_callback
from segue.arguments import Positive
from segue.checkpoint.folder import parameters_of
from segue.data.store import Store
from segue.errors import ConfigError
from segue.evaluation.recl import (
    CONTEXTS,
    SHARES,
    EffectiveLength,
    check_contexts,
    context_losses,
    effective_lengths,
    reads_windows,
)
from segue.model import LanguageModel

TOKENS, TOKENS_BY_WINDOW = 10_000, 1_000
"""Default number of tokens to predict; fewer if each needs a window of its own."""


@dataclass(frozen=True, kw_only=True)
class ContextReader:
    """A model of the group, and how it was evaluated."""

    parameters: int
    by_window: bool
    """True if a separate window was evaluated for every token; otherwise memory supplied the context."""
    learned_positions: int | None
    """Maximum context length, if its positions are learned."""


@dataclass(frozen=True, kw_only=True)
class ContextEvaluation:
    """Losses of a group of models at several context lengths."""

    contexts: Sequence[Positive]
    losses_NCT: NDArray[np.float64]
    """Negative log-likelihoods in nats, of shape [models, contexts, tokens]."""
    lengths: Mapping[float, Sequence[EffectiveLength]]
    """Effective lengths of the models, by the share r of hardest tokens."""
    readers: Sequence[ContextReader]

    @property
    def perplexities(self) -> NDArray[np.float64]:
        """Perplexities, of shape [models, contexts]."""
        return np.asarray(np.exp(self.losses_NCT.mean(axis=2)))


@python_errors
def evaluate_context(
    models: ModelLike | Sequence[ModelLike],
    data: str | Path | Store,
    *,
    contexts: Sequence[Positive] | None = None,
    limit: Positive | None = None,
    exact: bool = False,
    clamp_distance: Positive | None = None,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> ContextEvaluation:
    """Measure the relative effective context length (RECL) of a group of models, as defined in the Transformer-XL
    paper.

    Args:
        models: One or more models to compare: names, folders, or loaded models, all with the same tokeniser.
        data: A store prepared with that tokeniser.
        contexts: Context lengths, in ascending order. Default: 100, 200, ..., 1000.
        limit: Number of tokens of the store to evaluate. Default: the longest context plus 10,000, or plus 1,000 if a
            model needs a window for every token.
        exact: Whether to evaluate a separate window for every token, even with memory. Slow.
        clamp_distance: Clamp relative distances at this value. Default: no limit.
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        Losses and perplexities of every model at every length, and the effective `lengths`.

    Raises:
        ConfigError: If a setting is not valid for one of the models.
        DataError: If the store is damaged, too short, or was prepared with another tokeniser.

    Examples:
        >>> store = segue.prepare("texts.txt", "corpus", tokenizer="model/tokenizer", progress=False)
        >>> found = segue.evaluate_context("model", store, contexts=[4, 8, 16], limit=40, progress=False)
        >>> found.losses_NCT.shape[:2], [length.context for length in found.lengths[1.0]] <= [16]
        ((1, 3), True)
    """
    chosen = CONTEXTS if contexts is None else tuple(contexts)
    check_contexts(chosen)
    several = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    if not several:
        raise ConfigError("models must have at least one model; got none. Add one.")
    group, folders = zip(*(with_folder(model) for model in several), strict=True)
    store = data if isinstance(data, Store) else open_store(Path(data), folders[0])
    for folder, model in zip(folders, group, strict=True):
        check_tokenizer(store, folder, model)
    if clamp_distance is not None:
        group = tuple(model.adjusted(positions={"clamp_distance": clamp_distance}) for model in group)
    windows = [exact or reads_windows(model) for model in group]
    stop = limit or min(store.length, chosen[-1] + (TOKENS_BY_WINDOW if any(windows) else TOKENS))
    losses = []
    for number, model in enumerate(group, start=1):
        what = f"model {number} of {len(group)}"
        with progress_callback(what, unit="tokens", progress=progress, on_event=on_event) as tell:
            losses.append(context_losses(model, store, contexts=chosen, limit=stop, exact=exact, progress=tell))
    losses_NCT = np.stack(losses)
    return ContextEvaluation(
        contexts=chosen,
        losses_NCT=losses_NCT,
        lengths={share: effective_lengths(losses_NCT, chosen, share=share) for share in SHARES},
        readers=[_reader(model, by_window) for model, by_window in zip(group, windows, strict=True)],
    )


def _reader(model: LanguageModel, by_window: bool) -> ContextReader:
    return ContextReader(
        parameters=parameters_of(model),
        by_window=by_window,
        learned_positions=model.config.learned_positions,
    )
