"""Retraining with accepted corrections, and switching to the new model only if it is no worse.

A fifth of all rows is held out. Two models are trained without it, on the previous and on the new set of rows, with a
network if the model in use has been trained with one, and evaluated on the held-out rows. Then a model is trained on
everything; it is put into use if accuracy is no lower, both for texts and for single entities.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from segue.apps.folder import MODELS, next_name, read_about
from segue.apps.monitor import reviews
from segue.apps.monitor.build import build
from segue.apps.monitor.calibrate import Calibration
from segue.apps.monitor.entities import Entities
from segue.apps.monitor.folder import CORRECTIONS, read_model, read_rows
from segue.apps.monitor.labelled import SENTIMENTS, Labelled, gathered
from segue.apps.monitor.learn import learn_sentiments
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.network import NO_MODEL
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.targets import labels_by_code, targets_of
from segue.errors import ConfigError

HELD = 5
"""One row in this many is held out."""
TRIES = 5
"""Maximum number of attempts if people are deleted meanwhile."""


@dataclass(frozen=True, kw_only=True)
class MonitorImprovement:
    """Result of retraining."""

    model: str
    """Name of the new model."""
    learned: int
    """Number of accepted corrections that the previous model had not been trained on."""
    asked: int
    """Number of held-out rows."""
    right_before: float
    right_now: float
    """Accuracy on the held-out rows, before and now."""
    entities_asked: int
    """Number of held-out labels of single entities."""
    entities_before: float
    entities_now: float
    """Accuracy on the held-out labels of entities, before and now."""
    switched: bool


@dataclass(frozen=True, kw_only=True)
class _Right:
    """Accuracy on held-out rows, for texts and for single entities."""

    texts: float
    entities: float
    asked: int
    """Number of labels of entities."""


def improve(monitor: Path, *, seed: int, told: Callable[[str], object], model: str | None = None) -> MonitorImprovement:
    """Retrain with the corrections that were accepted since the model in use was trained. `model` is the network to
    try; None for that of the model in use. If people are deleted meanwhile, start again without their texts."""
    with MONITOR.changing(monitor):
        for _ in range(TRIES):
            found = _improve(monitor, seed=seed, told=told, model=model)
            if found is not None:
                return found
            told("people were deleted meanwhile; learning again without their texts")
    raise ConfigError(
        f"{monitor} must be left alone for a while to learn; people were deleted each of {TRIES} times. Try again "
        "later."
    )


def _improve(
    monitor: Path, *, seed: int, told: Callable[[str], object], model: str | None
) -> MonitorImprovement | None:
    """Retrain once; return None, and leave no trace, if people were deleted meanwhile."""
    before = MONITOR.current_model(monitor)
    new = _accepted(monitor, before)
    if not new:
        raise ConfigError(
            f"{monitor} must have accepted corrections that it has not learned yet; got none. Correct labels on the "
            "page, and review them."
        )
    known = read_rows(monitor / MODELS / before)
    more = gathered([*known, *(row for _, row in new)])
    held = _held(more.rows, seed=seed)
    about = read_about(monitor / MODELS / before)
    entities = read_model(monitor / MODELS / before).entities
    was = str(about.get("asked_for", {}).get("model", NO_MODEL))
    now = was if model is None else model
    right = []
    for rows, name in ((known, was), (more.rows, now)):
        told(f"learning without {len(held):,} rows, to ask them")
        rest = _without(rows, held)
        if NO_MODEL == was == now:
            made = _linear_model(rest, entities, penalties=about["inverse_penalties"])
        else:
            made = build(gathered(rest), entities, seed=seed, told=told, model=name).model
        right.append(_right(made, held))
    built = build(more, entities, seed=seed, told=told, model=now)
    built.about["improved"] = {
        "from": before,
        "asked": len(held),
        "right_before": right[0].texts,
        "right_now": right[1].texts,
        "entities_asked": right[0].asked,
        "entities_before": right[0].entities,
        "entities_now": right[1].entities,
    }
    if (current := MONITOR.current_model(monitor)) != before:  # names were taken into the list in the meantime
        built = replace(built, model=replace(built.model, entities=read_model(monitor / MODELS / current).entities))
    name = next_name(monitor)
    MONITOR.write_model(monitor, name, built.write)
    switched = bool(held) and right[1].texts >= right[0].texts and right[1].entities >= right[0].entities
    numbers = [number for number, _ in new]
    with MONITOR.opened(monitor) as database:
        # From here on whoever deletes a person finds the new model in its folder; who did so before is found here.
        if not set(numbers) <= database.do(reviews.all_accepted):
            shutil.rmtree(monitor / MODELS / name)
            return None
        if switched:
            MONITOR.use_model(monitor, name, instead_of=current)
            database.do(lambda connection: reviews.learned(connection, numbers, name))
    return MonitorImprovement(
        model=name,
        learned=len(new),
        asked=len(held),
        right_before=right[0].texts,
        right_now=right[1].texts,
        entities_asked=right[0].asked,
        entities_before=right[0].entities,
        entities_now=right[1].entities,
        switched=switched,
    )


def _accepted(monitor: Path, model: str) -> list[tuple[int, Labelled]]:
    with MONITOR.opened(monitor) as database:
        found = database.do(lambda connection: reviews.accepted(connection, model))
    return [
        (
            one["number"],
            Labelled(
                text=one["text"],
                sentiment=None if one["sentiment"] is None else SENTIMENTS.index(one["sentiment"]),
                topic=one["topic"],
                time=one["time"],
                source=CORRECTIONS,
                entities=tuple((code, SENTIMENTS.index(label)) for code, label in one["entities"].items()),
            ),
        )
        for one in found
    ]


def _held(rows: Sequence[Labelled], *, seed: int) -> list[Labelled]:
    """Draw the held-out rows from those with a sentiment of the text or of an entity."""
    fitting = [row for row in rows if row.sentiment is not None or row.entities]
    order = np.random.default_rng(seed).permutation(len(fitting))
    return [fitting[place] for place in order[: max(1, len(fitting) // HELD)].tolist()]


def _without(rows: Sequence[Labelled], held: Sequence[Labelled]) -> list[Labelled]:
    away = {row.text for row in held}
    return [row for row in rows if row.text not in away and (row.sentiment is not None or row.entities)]


def _right(model: MonitorModel, held: Sequence[Labelled]) -> _Right:
    """Return the accuracy of a model on held-out rows."""
    found = model.read_all([row.text for row in held])
    texts, entities = [], []
    for one, row in zip(found, held, strict=True):
        if row.sentiment is not None:
            texts.append(one.sentiment.label == SENTIMENTS[row.sentiment])
        for code, sentiment in labels_by_code(row, model.entities).items():
            if code in one.entities:
                entities.append(one.entities[code].label == SENTIMENTS[sentiment])
    return _Right(
        texts=sum(texts) / max(1, len(texts)), entities=sum(entities) / max(1, len(entities)), asked=len(entities)
    )


def _linear_model(rest: Sequence[Labelled], entities: Entities, *, penalties: Mapping[str, float]) -> MonitorModel:
    """Train a linear model of sentiment alone, uncalibrated and with known penalties, which is faster."""
    targets, _ = targets_of(rest, entities)
    plain = Calibration(scale=1.0, bias_C=np.zeros(len(SENTIMENTS)))
    return MonitorModel(
        linear=learn_sentiments(rest, targets, penalties),
        topics=(),
        sentiment=plain,
        topic=None,
        entities=entities,
        entity=plain if targets else None,
    )
