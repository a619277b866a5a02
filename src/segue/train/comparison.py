"""Simple methods beside a classifier, so that nobody takes for progress what counting words does too.

In: a task with its examples. Out: the most frequent class and a tuned TF-IDF, measured as the model is.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from segue.errors import ConfigError
from segue.evaluate.baselines import MOST_LETTERS, Floats, class_shares, sample, tuned_tfidf
from segue.evaluate.metrics.classification import multilabel
from segue.tasks.classify import Classify
from segue.tasks.task import Example, Prediction, Task
from segue.train.events import Compared, SimpleMethod

MAJORITY = "most frequent class"
SHARES = "shares of the labels"


def compare(task: Task, train: Sequence[Example], parts: Mapping[str, Sequence[Example]]) -> Compared | None:
    """The parts are those that the model is measured on, the validation examples first; None where the task has no
    classes."""
    if not isinstance(task, Classify):
        return None
    began = time.perf_counter()
    parts = {name: part for name, part in parts.items() if part}
    gold_NC = has_class(task, train)
    shares_C = class_shares(gold_NC)
    name = SHARES if task.settings.multiple else MAJORITY
    methods = [_measured(task, name, parts, [np.tile(shares_C, (len(part), 1)) for part in parts.values()])]
    remark = None
    if len(np.unique(gold_NC, axis=0)) < 2:
        remark = "All training examples have the same class, so there is no TF-IDF to compare with."
    else:
        try:
            methods.append(_tfidf(task, train, gold_NC, parts))
        except ConfigError:
            remark = "Without scikit-learn there is no TF-IDF to compare with: pip install scikit-learn."
        except Exception as error:  # of another library, whatever it is: the run is about the model
            remark = f"TF-IDF could not be fitted: {type(error).__name__}: {str(error)[:200]}"
    return Compared(methods=methods, remark=remark, seconds=time.perf_counter() - began)


def has_class(task: Classify, examples: Sequence[Example]) -> NDArray[np.bool_]:
    """[N, C]: whether each example has each class."""
    gold_NC = np.zeros((len(examples), len(task.labels)), dtype=np.bool_)
    for row, example in enumerate(examples):
        gold_NC[row, list(example.gold) if task.settings.multiple else example.gold] = True
    return gold_NC


def _tfidf(
    task: Classify, train: Sequence[Example], gold_NC: NDArray[np.bool_], parts: Mapping[str, Sequence[Example]]
) -> SimpleMethod:
    some = {
        name: [part[n] for n in sample([e.texts for e in part], letters=min(MOST_LETTERS.values()))]
        for name, part in parts.items()
    }
    valid, *others = some.values()
    valid_NC = has_class(task, valid)

    def score(found_NC: Floats) -> float:
        """The measure of the task; of equals, what is surer of what is right."""
        right_N = np.where(valid_NC, found_NC, 1 - found_NC)
        surety = float(np.log(np.clip(right_N, 1e-6, 1)).mean()) * 1e-6
        if task.settings.multiple:
            found = multilabel(valid_NC.astype(int), found_NC, threshold=task.settings.threshold, resamples=None)
            return found[task.metric].value + surety
        return float((found_NC.argmax(axis=1) == valid_NC.argmax(axis=1)).mean()) + surety

    made = tuned_tfidf(
        [example.texts for example in train],
        gold_NC,
        [example.texts for example in valid],
        [[example.texts for example in part] for part in others],
        score=score,
        multiple=task.settings.multiple,
    )
    remarks = [f"C = {made.inverse_penalty:g}"]
    if made.trained_on < len(train):
        remarks.append(f"fitted on {made.trained_on:,} of {len(train):,} training examples")
    remarks += [
        f"measured on {len(part):,} of {len(parts[name]):,} {name} examples"
        for name, part in some.items()
        if len(part) < len(parts[name])
    ]
    name = f"TF-IDF of {made.counted}, logistic regression"
    return replace(_measured(task, name, some, made.answers), detail="; ".join(remarks))


def _measured(
    task: Classify, name: str, parts: Mapping[str, Sequence[Example]], answers: Sequence[Floats]
) -> SimpleMethod:
    metrics = {
        part: task.measure(examples, [Prediction(value=value, columns={}) for value in found_NC])
        for (part, examples), found_NC in zip(parts.items(), answers, strict=True)
    }
    return SimpleMethod(name=name, metrics=metrics)
