"""BLEU and chrF of a corpus, by sacrebleu.

In: predicted sentences and the references of each, as plain text (not tokenised). Out: the scores from 0 to 100, their
intervals, and the signatures to publish with them. Intervals resample the sentences' n-gram counts, which are extracted
once; every resample is scored by sacrebleu's own formula.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, SEED, Floats, Metric, measure
from segue.evaluation.metrics.inputs import check_lengths

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as Scorer

Tokenize = Literal["13a", "intl", "zh", "char", "none"]
"""Tokenisation for BLEU: 13a for languages with spaces, zh for Chinese. chrF needs none."""


@dataclass(frozen=True, kw_only=True)
class Translation:
    """Metrics and signatures with the keys bleu and chrf."""

    metrics: dict[str, Metric]
    signatures: dict[str, str]


def translation(
    predicted: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: Tokenize = "13a",
    resamples: int | None = RESAMPLES,
    seed: int = SEED,
) -> Translation:
    """Return BLEU and chrF. `references` holds one list for each sentence: all its references, at least one."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    check_lengths(references, predicted, names=("references", "predicted"))
    for number, row in enumerate(references):
        if isinstance(row, str) or not row:
            raise DataError(
                f"the references of a sentence must be a list of at least one text; got {row!r} in row {number}."
            )
    if tokenize not in get_args(Tokenize):
        raise DataError(f"tokenize must be one of {', '.join(get_args(Tokenize))}; got {tokenize!r}.")
    # sacrebleu takes the first references of all sentences, then the second ones, with None where there is none.
    streams = [list(stream) for stream in zip_longest(*references)]
    scorers: dict[str, Scorer] = {"bleu": BLEU(tokenize=tokenize, force=True), "chrf": CHRF()}
    metrics: dict[str, Metric] = {}
    for name, scorer in scorers.items():
        metrics |= _measure(name, scorer, predicted, streams, resamples=resamples, seed=seed)
    signatures = {name: scorer.get_signature().format() for name, scorer in scorers.items()}
    return Translation(metrics=metrics, signatures=signatures)


def _measure(
    name: str,
    scorer: "Scorer",
    predicted: Sequence[str],
    streams: list[list[str]],
    *,
    resamples: int | None,
    seed: int,
) -> dict[str, Metric]:
    # sacrebleu uses these two private steps of corpus_score in its own significance tests; tests/ compares.
    counts_NS = np.array(scorer._extract_corpus_statistics(predicted, streams), dtype=np.float64)

    def formula(weights_RN: Floats) -> dict[str, Floats]:
        totals_RS = np.rint(weights_RN @ counts_NS).astype(np.int64)
        return {name: np.array([scorer._compute_score_from_stats(row).score for row in totals_RS.tolist()])}

    return measure(formula, np.ones(len(predicted), dtype=np.int64), resamples=resamples, seed=seed)
