"""Accuracy on minimal pairs: how often a model gives the good sentence the higher probability."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from segue.api.errors import python_errors
from segue.api.models import ModelLike, text_model
from segue.api.progress import Progress, progress_callback
from segue.arguments import Positive, Seed
from segue.data.pairs import Pair, read_pairs
from segue.errors import DataError
from segue.evaluation.metrics.pairs import PairAccuracy, pair_accuracy
from segue.infer.pairs import PairScores, PairSettings, score_pairs
from segue.infer.text_model import TextModel


@dataclass(frozen=True, kw_only=True)
class PairEvaluation:
    """Results of a model on minimal pairs."""

    accuracy: PairAccuracy
    """Accuracy over all pairs, by phenomenon and by paradigm: `accuracy.accuracy.value`, `accuracy.phenomena`."""
    pairs: Sequence[Pair]
    """The pairs that were scored."""
    scores: PairScores
    """Log-probabilities of both sentences of each pair."""
    scored_by: str
    """Description of how the sentences were scored."""


@python_errors
def evaluate_pairs(
    model: ModelLike,
    pairs: str | Path | Sequence[Sequence[str]],
    *,
    columns: Mapping[str, str] | None = None,
    orders: Positive | None = None,
    seed: Seed = 0,
    segment_length: Positive | None = None,
    progress: bool = True,
    on_event: Callable[[Progress], object] | None = None,
) -> PairEvaluation:
    """Measure how often a model prefers the good sentence of a minimal pair to the bad one, as BLiMP does.

    Args:
        model: A name, a folder, or a loaded model.
        pairs: A jsonl file (also compressed), a folder of them, or (good, bad) sentences.
        columns: Columns by role, where column names do not match: {"good": "grammatical"}.
        orders: Number of random factorisation orders to average over, for a permutation model. Default:
            pseudo-likelihood.
        seed: Seed for random orders. Default: 0.
        segment_length: Segment length in tokens. Default: as in training.
        progress: Whether to show progress on standard error.
        on_event: Called with `Progress` events as the work proceeds.

    Returns:
        The accuracy over all pairs with its confidence interval, the accuracy of each phenomenon, and the scores of
        every pair.

    Raises:
        ConfigError: If `orders` is given for a model other than a permutation model.
        DataError: If the pairs cannot be read.

    Examples:
        >>> found = segue.evaluate_pairs("model", [("The room was clean.", "The was clean room.")], progress=False)
        >>> found.accuracy.pairs, found.scores.values_N2.shape
        (1, (1, 2))
    """
    chosen = read_pairs(Path(pairs), columns) if isinstance(pairs, str | Path) else _given(pairs)
    source = text_model(model)
    settings = PairSettings(
        orders=orders,
        seed=seed,
        segment_length=source.segment_length if segment_length is None else segment_length,
    )
    sentences = [(pair.good, pair.bad) for pair in chosen]
    with progress_callback("evaluate", unit="sentences", progress=progress, on_event=on_event) as tell:
        scores = score_pairs(source.model, source.tokenizer, sentences, settings, progress=tell)
    accuracy = pair_accuracy(
        *scores.values_N2.T,
        paradigms=[pair.paradigm for pair in chosen],
        phenomena=[pair.phenomenon for pair in chosen],
    )
    return PairEvaluation(accuracy=accuracy, pairs=chosen, scores=scores, scored_by=_way(source, settings))


def _given(pairs: Sequence[Sequence[str]]) -> list[Pair]:
    if not pairs:
        raise DataError("at least one minimal pair is needed; got none. Give (good, bad) sentences.")
    for number, pair in enumerate(pairs, start=1):
        if len(pair) != 2:
            raise DataError(f"a pair must have two sentences, (good, bad); pair {number} has {len(pair)}. Correct it.")
    return [Pair(good=good, bad=bad, paradigm="pairs", phenomenon="pairs") for good, bad in pairs]


def _way(source: TextModel, settings: PairSettings) -> str:
    eod = "eod" in source.tokenizer.specials
    match source.model.config.objective:
        case "causal":
            first = "the first from the end of a document" if eod else "the first not counted"
            return f"log-probability, each token from those before it, {first}"
        case "masked":
            return "pseudo-likelihood, each token from all others"
    after = ", after the end of a document" if eod else ""
    if settings.orders is None:
        return f"pseudo-likelihood, each token from all others{after}"
    return f"mean log-probability over {settings.orders} random orders{after}"
