"""Relative effective context length: how much context each model of a group makes use of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from segue.api.errors import python_errors
from segue.api.evaluate import check_tokenizer, open_store
from segue.api.models import ModelLike, with_folder
from segue.api.progress import Progress, told
from segue.checkpoint.folder import parameters_of
from segue.data.store import Store
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
"""How many are predicted where no limit is given: fewer where each takes a window."""


@dataclass(frozen=True, kw_only=True)
class ContextReader:
    """A model of the group, and how it read."""

    parameters: int
    by_window: bool
    """Whether a window was read from nothing for every token; otherwise memory gave the context."""
    learned_positions: int | None
    """The longest context that it can read, where its positions are learned."""


@dataclass(frozen=True, kw_only=True)
class ContextEvaluation:
    """Losses of a group of models at several context lengths."""

    contexts: Sequence[int]
    losses_NCT: NDArray[np.float64]
    """-log p in nats: [models, contexts, tokens]."""
    lengths: Mapping[float, Sequence[EffectiveLength]]
    """Effective lengths of the models, by the share of hard tokens that is looked at."""
    readers: Sequence[ContextReader]

    @property
    def perplexities(self) -> NDArray[np.float64]:
        """[models, contexts]."""
        return np.asarray(np.exp(self.losses_NCT.mean(axis=2)))


@python_errors
def evaluate_context(
    models: ModelLike | Sequence[ModelLike],
    data: str | Path | Store,
    *,
    contexts: Sequence[int] | None = None,
    limit: int | None = None,
    exact: bool = False,
    clamp_distance: int | None = None,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> ContextEvaluation:
    """Measure the relative effective context length (RECL) of a group of models, as the Transformer-XL paper has it.

    Args:
        models: A model, or several that are compared: names, folders, or loaded models with one tokeniser.
        data: A store that was prepared with that tokeniser.
        contexts: Context lengths, rising. Default: 100, 200, ..., 1000.
        limit: Number of tokens of the store to read. Default: the longest context and 10,000 more, or 1,000 where a
            model reads a window for every token.
        exact: Whether to read a window from nothing for every token, also with memory. Slow.
        clamp_distance: Largest relative distance; longer ones count as it. Default: no limit.
        progress: Whether progress is shown on standard error.
        on_event: Called with a `Progress` as the work goes on.

    Returns:
        Losses and perplexities of every model at every length, and the effective `lengths`.

    Raises:
        ConfigError: If a setting is not possible for a model.
        DataError: If the store is damaged, too short, or has another tokeniser.

    Examples:
        >>> store = segue.prepare("texts.txt", "corpus", tokenizer="model/tokenizer", progress=False)
        >>> found = segue.evaluate_context("model", store, contexts=[4, 8, 16], limit=40, progress=False)
        >>> found.losses_NCT.shape[:2], [length.context for length in found.lengths[1.0]] <= [16]
        ((1, 3), True)
    """
    chosen = CONTEXTS if contexts is None else tuple(contexts)
    check_contexts(chosen)
    several = models if isinstance(models, Sequence) and not isinstance(models, str) else [models]
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
        with told(what, unit="tokens", progress=progress, on_event=on_event) as tell:
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
