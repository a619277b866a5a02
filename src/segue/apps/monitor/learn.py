"""Training of linear models, with calibration and evaluation by cross-validation.

Rows are divided into five parts, whole periods if the rows have times. Each part is predicted by models of the other
parts; these predictions determine the penalty, the temperature and the biases, and are what the report shows, each part
with the calibration of the others. The model itself is trained on all rows.

If rows have labels of single entities, separate weights are trained for them, on what rows say about each entity
(`targets`) and on the sentiments of all texts. They are evaluated separately, and all labels of a text are held out
together.

A network, if one is asked for, is fine-tuned on the first four parts and evaluated on the last one (`joining`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from segue.apps.monitor.calibrate import Calibration, calibration_error, fit_calibration, macro_f1
from segue.apps.monitor.joining import Tried, try_network
from segue.apps.monitor.labelled import SENTIMENTS, Labelled, LabelledRows
from segue.apps.monitor.linear import Linear, Sparse, fit_weights, learn_vocabulary, with_marks
from segue.apps.monitor.network import Trainer
from segue.apps.monitor.targets import Target
from segue.apps.monitor.terms import terms_of

FOLDS = 5
INVERSE_PENALTIES = (1.0, 4.0, 16.0, 64.0)
MOST_HELD = 20_000
"""Approximate maximum number of held-out rows; of larger tables only every n-th row is evaluated."""
NEVER = -30.0
"""Bias of a class that no row has."""

Tell = Callable[[str], object]


@dataclass(frozen=True, kw_only=True)
class Held:
    """Predictions of held-out rows."""

    labels: tuple[int, ...]
    probabilities_NC: NDArray[np.float64]

    def numbers(self) -> dict[str, Any]:
        """Return accuracy, macro F1 and expected calibration error."""
        answers = self.probabilities_NC.argmax(axis=1).tolist()
        right = sum(one == gold for one, gold in zip(answers, self.labels, strict=True))
        return {
            "held_back": len(self.labels),
            "accuracy": round(right / max(1, len(self.labels)), 4),
            "macro_f1": round(macro_f1(answers, self.labels), 4),
            "calibration_error": round(calibration_error(self.probabilities_NC, self.labels), 4),
        }


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A trained model without its list of entities."""

    linear: Linear
    topics: tuple[str, ...]
    sentiment: Calibration
    topic: Calibration | None
    held: dict[str, Held]
    """Held-out predictions by task: "sentiment", "topic" and "entity"."""
    inverse_penalties: dict[str, float]
    tried: Tried | None = None
    """Evaluation of the network; None if none was asked for."""
    entity: Calibration | None = None
    """Calibration of the weights for single entities; None if rows have too few labels of them."""


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A classification task: texts, their terms, and their classes."""

    whole: list[str]
    texts: list[list[str]]
    labels: list[int]
    classes: int
    in_time: bool
    groups: list[tuple[list[int], list[int]]]
    """Texts that are evaluated together, and those that are held out then; texts in no group are only trained on."""


def learn(
    rows: LabelledRows,
    *,
    seed: int,
    told: Tell,
    trainer: Trainer | None = None,
    targets: Sequence[Target] = (),
) -> Learned:
    """Train and evaluate all tasks. `trainer` fine-tunes a network for sentiment, which is used if it improves the
    predictions; `targets` are the labels of single entities in the rows."""
    told("reading the rows")
    terms = [terms_of(row.text) for row in rows.rows]
    in_time = sum(row.time is not None for row in rows.rows) > len(rows.rows) / 2
    topics = tuple(sorted({row.topic for row in rows.rows if row.topic is not None}))
    jobs = {"sentiment": _job(rows.rows, terms, lambda row: row.sentiment, len(SENTIMENTS), in_time)}
    if len(topics) > 1:
        place = {topic: number for number, topic in enumerate(topics)}
        jobs["topic"] = _job(
            rows.rows, terms, lambda row: None if row.topic is None else place[row.topic], len(topics), in_time
        )
    else:
        topics = ()
    if targets:
        jobs["entity"] = _entity_job(rows.rows, terms, targets, in_time)
    held, penalties, calibrations = {}, {}, {}
    tried = None
    for name, job in jobs.items():
        penalties[name], parts, last = _held_back(job, seed=seed, told=partial(_tell_of, name, told))
        held[name], calibrations[name] = _calibrated(parts, in_time=in_time)
        if name == "sentiment" and trainer is not None:
            tried = _tried(job, trainer, last, parts[-1][0])
            held[name] = _with_network(held[name], tried)
    told("learning from all rows")
    return Learned(
        linear=_linear(terms, targets, jobs, penalties),
        topics=topics,
        sentiment=calibrations["sentiment"],
        topic=calibrations.get("topic"),
        held=held,
        inverse_penalties=penalties,
        tried=tried,
        entity=calibrations.get("entity"),
    )


def learn_sentiments(rows: Sequence[Labelled], targets: Sequence[Target], penalties: Mapping[str, float]) -> Linear:
    """Train the weights of sentiment, and of entities if there are targets, with known penalties; without evaluation
    and calibration."""
    terms = [terms_of(row.text) for row in rows]
    jobs = {"sentiment": _job(rows, terms, lambda row: row.sentiment, len(SENTIMENTS), False)}
    if targets:
        jobs["entity"] = _entity_job(rows, terms, targets, False)
    return _linear(terms, targets, jobs, {"entity": penalties["sentiment"], **penalties})


def _linear(
    terms: Sequence[list[str]], targets: Sequence[Target], jobs: Mapping[str, _Job], penalties: Mapping[str, float]
) -> Linear:
    """Train the weights of all tasks on all rows."""
    vocabulary = learn_vocabulary(terms)
    if targets:
        vocabulary = with_marks(vocabulary, [terms_of(one.text) for one in targets])
    weights, biases = [], []
    for name, job in jobs.items():
        vectors = [vocabulary.vector(one) for one in job.texts]
        weight_VC, bias_C = fit(
            vectors, job.labels, width=len(vocabulary.terms), classes=job.classes, inverse_penalty=penalties[name]
        )
        weights.append(weight_VC)
        biases.append(bias_C)
    return Linear(
        vocabulary=vocabulary,
        weight_VC=np.ascontiguousarray(np.concatenate(weights, axis=1)),
        bias_C=np.concatenate(biases),
    )


def _tell_of(name: str, told: Tell, said: str) -> None:
    told(f"{name}: {said}")


def _tried(job: _Job, trainer: Trainer, last: NDArray[np.int64], linear_NC: NDArray[np.float64]) -> Tried:
    """Fine-tune a network on the rows outside of the last part, and evaluate it on the last part."""
    away = set(last.tolist())
    rest = [(job.whole[n], job.labels[n]) for n in range(len(job.labels)) if n not in away]
    return try_network(trainer, rest, [(job.whole[n], job.labels[n]) for n in last.tolist()], linear_NC)


def _with_network(held: Held, tried: Tried) -> Held:
    """Return the predictions of the combination for the last part, the only one that both models predicted; rows that
    the network does not read keep those of the linear model. Return `held` if no network is used."""
    if tried.joined is None or tried.measured is None or tried.read_N is None:
        return held
    count = len(tried.read_N)
    probabilities_NC = held.probabilities_NC[-count:].copy()
    probabilities_NC[tried.read_N] = tried.measured.both_NC
    return Held(labels=held.labels[-count:], probabilities_NC=probabilities_NC)


def _job(
    rows: Sequence[Labelled],
    terms: Sequence[list[str]],
    label: Callable[[Labelled], int | None],
    classes: int,
    in_time: bool,
) -> _Job:
    kept = [(row.text, one, gold) for row, one in zip(rows, terms, strict=True) if (gold := label(row)) is not None]
    return _Job(
        whole=[text for text, _, _ in kept],
        texts=[one for _, one, _ in kept],
        labels=[gold for _, _, gold in kept],
        classes=classes,
        in_time=in_time,
        groups=[([place], [place]) for place in range(len(kept))],
    )


def _entity_job(rows: Sequence[Labelled], terms: Sequence[list[str]], targets: Sequence[Target], in_time: bool) -> _Job:
    """Return the task of labels of entities, which are held out text by text, and of the sentiments of all texts; the
    text of a held-out label is held out as well."""
    together: dict[int, list[int]] = {}
    for place, one in enumerate(targets):
        together.setdefault(one.row, []).append(place)
    labelled = [(number, row.sentiment) for number, row in enumerate(rows) if row.sentiment is not None]
    beside = {number: [len(targets) + place] for place, (number, _) in enumerate(labelled)}
    return _Job(
        whole=[*(one.text for one in targets), *(rows[number].text for number, _ in labelled)],
        texts=[*(terms_of(one.text) for one in targets), *(terms[number] for number, _ in labelled)],
        labels=[*(one.sentiment for one in targets), *(sentiment for _, sentiment in labelled)],
        classes=len(SENTIMENTS),
        in_time=in_time,
        groups=[(some, [*some, *beside.get(number, [])]) for number, some in sorted(together.items())],
    )


def fit(
    rows: Sequence[Sparse], labels: Sequence[int], *, width: int, classes: int, inverse_penalty: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return weights and biases of all classes; a class that no row has is never predicted."""
    present = sorted(set(labels))
    place = {label: number for number, label in enumerate(present)}
    weight_VP, bias_P = fit_weights(
        rows, [place[one] for one in labels], width=width, classes=len(present), inverse_penalty=inverse_penalty
    )
    weight_VC = np.zeros((width, classes), dtype=np.float32)
    bias_C = np.full(classes, NEVER, dtype=np.float32)
    weight_VC[:, present], bias_C[present] = weight_VP, bias_P
    return weight_VC, bias_C


_Part = tuple[NDArray[np.float64], list[int]]
"""Scores of rows that were held out together, and their labels."""


def _held_back(job: _Job, *, seed: int, told: Tell) -> tuple[float, list[_Part], NDArray[np.int64]]:
    """Return the best penalty, scores and labels of each held-out part, and the indices of the last part's texts."""
    count = len(job.groups)
    order = np.arange(count) if job.in_time else np.random.default_rng(seed).permutation(count)
    folds = min(FOLDS, count)
    parts = [part[:: max(1, count // MOST_HELD)] for part in np.array_split(order, folds)]
    last = parts[-1]
    tried = {}
    for inverse_penalty in INVERSE_PENALTIES:
        told(f"penalty 1/{inverse_penalty:g}")
        tried[inverse_penalty] = _scores_without(job, order, last, inverse_penalty)
    asked = _asked(job, last)
    losses = {one: _loss(scores_NC, [job.labels[n] for n in asked]) for one, scores_NC in tried.items()}
    best = min(losses, key=lambda one: losses[one])
    found = []
    for number, part in enumerate(parts[:-1], start=1):
        told(f"learning without part {number} of {folds}")
        found.append((_scores_without(job, order, part, best), [job.labels[n] for n in _asked(job, part)]))
    return best, [*found, (tried[best], [job.labels[n] for n in asked])], np.array(asked, dtype=np.int64)


def _asked(job: _Job, part: NDArray[np.int64]) -> list[int]:
    """Return the indices of the texts of some groups that are evaluated."""
    return [number for group in part.tolist() for number in job.groups[group][0]]


def _scores_without(
    job: _Job, order: NDArray[np.int64], part: NDArray[np.int64], inverse_penalty: float
) -> NDArray[np.float64]:
    away = {number for group in part.tolist() for number in job.groups[group][1]}
    grouped = [number for group in order.tolist() for number in job.groups[group][1]]
    inside = set(grouped)
    everything = [*grouped, *(number for number in range(len(job.texts)) if number not in inside)]
    rest = [number for number in everything if number not in away] or everything
    vocabulary = learn_vocabulary([job.texts[n] for n in rest])
    weight_VC, bias_C = fit(
        [vocabulary.vector(job.texts[n]) for n in rest],
        [job.labels[n] for n in rest],
        width=len(vocabulary.terms),
        classes=job.classes,
        inverse_penalty=inverse_penalty,
    )
    rows = [vocabulary.vector(job.texts[n]) for n in _asked(job, part)]
    scores = [values @ weight_VC[columns] + bias_C for columns, values in rows]
    return np.array(scores, dtype=np.float64).reshape(len(rows), job.classes)


def _loss(scores_NC: NDArray[np.float64], labels: Sequence[int]) -> float:
    """Return the loss after calibration, because the temperature is fitted later."""
    probabilities_NC = fit_calibration(scores_NC, labels).probabilities(scores_NC)
    return float(-np.log(np.maximum(probabilities_NC[np.arange(len(labels)), list(labels)], 1e-12)).mean())


def _calibrated(parts: Sequence[_Part], *, in_time: bool) -> tuple[Held, Calibration]:
    """Return the predictions of each part with the calibration of the others, and the calibration of all. If parts are
    periods, each has twice the weight of the one before it: the next months are most like the last ones."""
    counts = [2.0**place if in_time else 1.0 for place in range(len(parts))]

    def fitted(places: Sequence[int]) -> Calibration:
        labels = [one for place in places for one in parts[place][1]]
        weights = [counts[place] for place in places for _ in parts[place][1]]
        return fit_calibration(np.concatenate([parts[place][0] for place in places]), labels, weights)

    everything = list(range(len(parts)))
    found = [
        fitted([other for other in everything if other != place] or everything).probabilities(scores_NC)
        for place, (scores_NC, _) in enumerate(parts)
    ]
    labels = tuple(one for _, some in parts for one in some)
    return Held(labels=labels, probabilities_NC=np.concatenate(found)), fitted(everything)
