"""Joining of n-grams to a classifier during training: at every validation that is the best so far, and at the end.

In: fitted n-grams, and the model's predictions for the validation examples. Out: a Wide to be saved with the weights,
metrics for the model card, and the end of a run with three sets of predictions: of the model, of the n-grams and of
both combined.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from segue.checkpoint.card import Facts
from segue.checkpoint.card import Metric as CardMetric
from segue.errors import ConfigError
from segue.evaluation.baselines import Floats, NgramClassifier, probabilities
from segue.evaluation.metrics.bootstrap import FEWEST, Metric
from segue.evaluation.metrics.classification import multilabel
from segue.tasks.classify import Classify
from segue.tasks.predict import join_ngrams
from segue.tasks.task import Example, Prediction, Task
from segue.tasks.wide import Wide, fit_wide
from segue.train.events import Compared, Ended, Judged, Request, Validated
from segue.train.keeper import Keeper

ALONE = "model alone"
REMARK = "N-grams are joined to this model: `segue predict` answers with both, `load_head` loads the model alone."


def has_class(task: Classify, examples: Sequence[Example]) -> NDArray[np.bool_]:
    """Return [N, C]: True where an example has a class."""
    gold_NC = np.zeros((len(examples), len(task.labels)), dtype=np.bool_)
    for row, example in enumerate(examples):
        gold_NC[row, list(example.gold) if task.settings.multiple else example.gold] = True
    return gold_NC


def quality(task: Classify, gold_NC: NDArray[np.bool_], found_NC: Floats) -> float:
    """Return the metric that selects the best weights, without its interval."""
    if task.settings.multiple:
        found = multilabel(gold_NC.astype(int), found_NC, threshold=task.settings.threshold, resamples=None)
        return found[task.metric].value
    return float((found_NC.argmax(axis=1) == gold_NC.argmax(axis=1)).mean())


def check_wide(request: Request, task: Task) -> None:
    """Raise ConfigError if n-grams are requested but cannot be used."""
    if request.wide and not isinstance(task, Classify):
        raise ConfigError(f"--wide applies only to the tasks classify and pair; got {request.kind.name}. Leave it out.")
    if request.wide and not request.baselines:
        raise ConfigError(
            "--wide combines the classifier with the TF-IDF baseline; got --no-baselines too. Leave one of them out."
        )


class Joiner:
    """Fitted n-grams, and the validation examples to which their weight beside a model is fitted."""

    def __init__(
        self, task: Classify, classifier: NgramClassifier, valid: Sequence[Example], scores_NC: Floats
    ) -> None:
        """`scores_NC` are the scores of the classifier for the validation examples."""
        self.task, self._classifier, self._valid, self._scores_NC = task, classifier, valid, scores_NC
        self._gold_NC = has_class(task, valid)

    def fit(self, predictions: Sequence[Prediction], *, wanted: bool | None) -> Wide | None:
        """Fit the weights for a model with these predictions of the validation examples. With `wanted` None, only if
        there are enough of them to tell, and the n-grams alone are better than the model alone."""
        if wanted is False:
            return None
        network_NC = np.stack([one.value for one in predictions])
        ngrams_NC = probabilities(self._scores_NC, multiple=self.task.settings.multiple)
        enough = len(network_NC) >= FEWEST
        if wanted is None and not (enough and self._measure(ngrams_NC) > self._measure(network_NC)):
            return None
        return fit_wide(self._classifier, network_NC, self._scores_NC, self._gold_NC, score=self._measure)

    def measures(self, wide: Wide, predictions: Sequence[Prediction]) -> dict[str, Metric]:
        """Return the metrics of both combined on the validation examples."""
        found_NC = wide.combined([one.value for one in predictions], self._scores_NC)
        return self.task.measure(self._valid, [Prediction(value=row_C, columns={}) for row_C in found_NC])

    def _measure(self, found_NC: Floats) -> float:
        return quality(self.task, self._gold_NC, found_NC)


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The baselines and n-grams beside the model of a run, in its first process."""

    compared: Compared | None
    joiner: Joiner | None
    wanted: bool | None
    facts: Facts
    """Facts of the model card other than the metrics."""

    def keep(self, keeper: Keeper, event: Validated, judged: Judged, *, metric: str) -> str | None:
        """Save the weights with the n-grams that are joined to them; return why they could not be written, or None."""
        wide, together = None, None
        if self.joiner is not None:
            wide = self.joiner.fit(judged.predictions, wanted=self.wanted)
            together = None if wide is None else self.joiner.measures(wide, judged.predictions)
        facts = facts_of(self.facts, event, metric, compared=self.compared, together=together)
        return keeper.keep(event.step, facts, wide)


def facts_of(
    facts: Facts, event: Validated, metric: str, *, compared: Compared | None, together: dict[str, Metric] | None
) -> Facts:
    """Return the facts of the model card: validation metrics of the saved model, and of the baselines."""
    own = [
        CardMetric(name=name, value=found.value, step=event.step) for name, found in (together or event.metrics).items()
    ]
    if together is not None:
        own.append(CardMetric(name=f"{metric}, {ALONE}", value=event.metrics[metric].value, step=event.step))
    for method in compared.methods if compared is not None else []:
        own += [
            CardMetric(name=f"{metric}, {method.name}", value=found[metric].value)
            for part, found in method.metrics.items()
            if part == "valid"
        ]
    return replace(facts, metrics=own, remark=None if together is None else REMARK)


def with_ngrams(ended: Ended, wide: Wide, compared: Compared, *, wanted: bool | None) -> Ended:
    """Return the end of a run whose model was saved with n-grams, with their joint predictions."""
    task = ended.task
    judged = []
    for part in ended.judged:
        predictions = join_ngrams(task, wide, part.examples, part.predictions)
        metrics = task.measure(part.examples, predictions)
        judged.append(Judged(name=part.name, examples=part.examples, predictions=predictions, metrics=metrics))
    values = [
        found[task.metric].value
        for found in (compared.methods[-1].metrics["valid"], ended.judged[0].metrics, judged[0].metrics)
    ]
    why = "as --wide asks" if wanted else "because they alone are better than the model alone"
    joined = (
        f"chosen: n-grams answer with the model, {why}: {task.metric} {values[0]:.4f} on the validation examples by "
        f"n-grams alone, {values[1]:.4f} by the model alone, {values[2]:.4f} together. Log-probabilities of the model "
        f"count {wide.network:.2g}, those of the n-grams {wide.ngrams:.2g}, fitted to these examples."
    )
    return replace(ended, judged=judged, alone=ended.judged, joined=joined)
