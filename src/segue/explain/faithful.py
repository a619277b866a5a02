"""Faithfulness of a ranking of words (DeYoung et al. 2020): the answer without the first words, and with them alone.

In: versions of a text and rankings of its words. Out: for each ranking the loss in probability without its first words
(comprehensiveness: high is good) and with nothing but them (sufficiency: low is good), beside the mean of random
rankings: a method that is no better than those explains nothing.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.arguments import Positive, checks_arguments
from segue.errors import ConfigError
from segue.explain.decision import Decision
from segue.explain.words import (
    Attribution,
    Floats,
    Unit,
    Versions,
    integrated_gradients,
    leave_one_out,
    received_attention,
    versions_of,
)

SHARES = (0.05, 0.1, 0.2, 0.5)
"""Shares of the words that count as the first ones; the results are means over these."""
RANDOM_RANKINGS = 10


@dataclass(frozen=True, kw_only=True)
class Faithfulness:
    """Faithfulness of a ranking. For predictions with a probability, both values are differences of probabilities;
    otherwise of scores."""

    method: str
    comprehensiveness: float
    sufficiency: float


@dataclass(frozen=True, kw_only=True)
class WordReport:
    """The words behind a prediction, by several methods, and the faithfulness of each."""

    task: str
    answer: str
    """Answer of the network alone, which is explained."""
    whole: str | None
    """Answer of the network combined with its n-grams; None if there are none."""
    value: float
    """Probability of the answer, or its score."""
    baseline: str
    """Token that replaces words."""
    probability: bool
    units: tuple[Unit, ...]
    attributions: tuple[Attribution, ...]
    faithfulness: tuple[Faithfulness, ...]
    """Faithfulness of each method, then of random rankings."""

    def __repr__(self) -> str:
        first = ", ".join(repr(word) for word, _ in self.first(count=3))
        answer = f"{self.answer!r} ({self.value:.4f})"
        return f"<WordReport: {self.task}, answer {answer}, first of {len(self.units)} words: {first}>"

    @checks_arguments
    def first(self, method: str = "integrated_gradients", count: Positive = 5) -> list[tuple[str, float]]:
        """Return the words with the highest values, and these values."""
        values = {one.method: one.values_N for one in self.attributions}
        if method not in values:
            raise ConfigError(f"method must be one of {', '.join(values)}; got {method!r:.80}. Use one of them.")
        values_N = values[method]
        return [(self.units[n].text, float(values_N[n])) for n in np.argsort(-values_N, kind="stable")[:count]]


def explain_words(decision: Decision, *, seed: int = 0) -> WordReport:
    """Return the words by all methods, with the faithfulness of each."""
    work = explaining_words(decision, seed=seed)
    while True:
        try:
            next(work)
        except StopIteration as end:
            found: WordReport = end.value
            return found


def explaining_words(decision: Decision, *, seed: int = 0) -> Generator[str, None, WordReport]:
    """Run `explain_words` step by step: yield the name of each finished step, with the model unchanged in between, so
    that others can use it."""
    versions = versions_of(decision)
    attributions = []
    for method in (integrated_gradients, leave_one_out, received_attention):
        attributions.append(method(versions))
        yield attributions[-1].method
    random = np.random.default_rng(seed)
    rankings = {one.method: [np.argsort(-one.values_N, kind="stable")] for one in attributions}
    rankings["random"] = [random.permutation(len(versions.units)) for _ in range(RANDOM_RANKINGS)]
    value = _certainty(versions, [versions.ids_N])[0]
    faithfulness = []
    for name, orders in rankings.items():
        faithfulness.append(_measured(name, versions, orders, float(value)))
        yield f"how true {name} is"
    tokenizer = decision.made.tokenizer
    names = {index: f"<{name}>" for name, index in tokenizer.specials.items()}
    return WordReport(
        task=decision.made.kind.name,
        answer=decision.answer,
        whole=decision.whole,
        value=float(value),
        baseline=names[versions.baseline],
        probability=decision.probability,
        units=versions.units,
        attributions=tuple(attributions),
        faithfulness=tuple(faithfulness),
    )


def _measured(name: str, versions: Versions, rankings: Sequence[NDArray[np.int64]], value: float) -> Faithfulness:
    """Return the mean over the rankings and over the shares of words."""
    lacking, alone = [], []
    for ranking in rankings:
        for share in SHARES:
            count = max(1, round(share * len(ranking)))
            lacking.append(versions.without(ranking[:count].tolist()))
            alone.append(versions.without(ranking[count:].tolist()))
    return Faithfulness(
        method=name,
        comprehensiveness=value - float(_certainty(versions, lacking).mean()),
        sufficiency=value - float(_certainty(versions, alone).mean()),
    )


def _certainty(versions: Versions, some: Sequence[NDArray[np.int64]]) -> Floats:
    values = versions.values(some)
    return np.exp(values) if versions.decision.probability else values
