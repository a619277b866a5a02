"""Baselines of a classifier, which show whether the model is better than counting words.

In: a task with its examples. Out: the most frequent class and tuned n-grams, evaluated like the model, and the data
that joining the n-grams to the model needs.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from segue.evaluation.baselines import (
    MOST_LETTERS,
    Floats,
    class_shares,
    probabilities,
    sample,
    tuned_ngrams,
)
from segue.tasks.classify import Classify
from segue.tasks.task import Example, Prediction, Task
from segue.train.events import Compared, SimpleMethod
from segue.train.joining import Joiner, has_class, quality

MAJORITY = "most frequent class"
SHARES = "shares of the labels"


def compare(
    task: Task, train: Sequence[Example], parts: Mapping[str, Sequence[Example]]
) -> tuple[Compared | None, Joiner | None]:
    """Evaluate the baselines on the parts on which the model is evaluated, the validation examples first. Return None
    for tasks without classes, and no n-grams to join if training has a single class."""
    if not isinstance(task, Classify):
        return None, None
    began = time.perf_counter()
    parts = {name: part for name, part in parts.items() if part}
    gold_NC = has_class(task, train)
    shares_C = class_shares(gold_NC)
    name = SHARES if task.settings.multiple else MAJORITY
    methods = [_measured(task, name, parts, [np.tile(shares_C, (len(part), 1)) for part in parts.values()])]
    remark, joiner = None, None
    if len(np.unique(gold_NC, axis=0)) < 2:
        remark = "All training examples have the same class, so there is no TF-IDF to compare with."
    else:
        method, joiner = _ngrams(task, train, gold_NC, parts)
        methods.append(method)
    return Compared(methods=methods, remark=remark, seconds=time.perf_counter() - began), joiner


def _ngrams(
    task: Classify, train: Sequence[Example], gold_NC: NDArray[np.bool_], parts: Mapping[str, Sequence[Example]]
) -> tuple[SimpleMethod, Joiner]:
    valid = next(iter(parts.values()))
    asked = [valid[n] for n in sample([e.texts for e in valid], letters=min(MOST_LETTERS.values()))]
    asked_NC = has_class(task, asked)

    def score(found_NC: Floats) -> float:
        """Return the metric of the task; in a tie, the higher log-probability of the gold labels wins."""
        right_NC = np.where(asked_NC, found_NC, 1 - found_NC)
        return quality(task, asked_NC, found_NC) + float(np.log(np.clip(right_NC, 1e-6, 1)).mean()) * 1e-6

    made = tuned_ngrams(
        [example.texts for example in train],
        gold_NC,
        [example.texts for example in asked],
        score=score,
        multiple=task.settings.multiple,
    )
    remarks = [f"C = {made.inverse_penalty:g}"]
    if made.trained_on < len(train):
        remarks.append(f"fitted on {made.trained_on:,} of {len(train):,} training examples")
    if len(asked) < len(valid):
        remarks.append(f"C chosen by {len(asked):,} of {len(valid):,} validation examples")
    scores = [made.classifier.scores([example.texts for example in part]) for part in parts.values()]
    answers = [probabilities(found_NC, multiple=task.settings.multiple) for found_NC in scores]
    name = f"TF-IDF of {made.classifier.ngrams.counted}, logistic regression"
    method = replace(_measured(task, name, parts, answers), detail="; ".join(remarks))
    return method, Joiner(task, made.classifier, valid, scores[0])


def _measured(
    task: Classify, name: str, parts: Mapping[str, Sequence[Example]], answers: Sequence[Floats]
) -> SimpleMethod:
    metrics = {
        part: task.measure(examples, [Prediction(value=value, columns={}) for value in found_NC])
        for (part, examples), found_NC in zip(parts.items(), answers, strict=True)
    }
    return SimpleMethod(name=name, metrics=metrics)
