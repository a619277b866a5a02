"""The loss of predictions that are probabilities or numbers, computed without running the model again: for validation
curves."""

from collections.abc import Sequence

import numpy as np

from segue.tasks.choose import Choose
from segue.tasks.classify import Classify
from segue.tasks.regress import Regress
from segue.tasks.task import Example, Prediction, Task

SMALLEST = 1e-12


def mean_loss(task: Task, examples: Sequence[Example], predictions: Sequence[Prediction]) -> float | None:
    """Return the loss without class weights: the mean negative log-probability, or the mean squared error of standard
    scores; None for tasks whose predictions do not determine it."""
    if isinstance(task, Regress):
        errors = [(one.value - example.gold) / task.scale for example, one in zip(examples, predictions, strict=True)]
        return float(np.mean(np.square(errors)))
    if isinstance(task, Classify) and task.settings.multiple:
        found_NC = np.clip(np.stack([one.value for one in predictions]).astype(np.float64), SMALLEST, 1 - SMALLEST)
        gold_NC = np.zeros(found_NC.shape, dtype=np.bool_)
        for row, example in enumerate(examples):
            gold_NC[row, list(example.gold)] = True
        return float(-np.log(np.where(gold_NC, found_NC, 1 - found_NC)).mean())
    if isinstance(task, Classify | Choose):
        right = [float(one.value[example.gold]) for example, one in zip(examples, predictions, strict=True)]
        return float(-np.log(np.maximum(right, SMALLEST)).mean())
    return None
