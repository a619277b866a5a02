"""A monitor learns again, with labels that people corrected and others accepted, and switches only if that is no worse.

A fifth of all rows is held back. What was known before, and what is known now, are each learned without it and asked
the same rows, with a network if the model in use was learned with one. Then a model of everything is made; it goes into
use if it told at least as many of them rightly.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segue.apps.folder import MODELS, next_name, read_about
from segue.apps.monitor import reviews
from segue.apps.monitor.build import build
from segue.apps.monitor.entities import Entities
from segue.apps.monitor.folder import CORRECTIONS, read_model, read_rows
from segue.apps.monitor.labelled import SENTIMENTS, Labelled, gathered
from segue.apps.monitor.learn import fit
from segue.apps.monitor.linear import learn_vocabulary
from segue.apps.monitor.network import NO_MODEL
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.terms import terms_of
from segue.errors import ConfigError

HELD = 5
"""One row of so many is held back."""
TRIES = 5
"""How often it begins again because people were deleted meanwhile."""


@dataclass(frozen=True, kw_only=True)
class MonitorImprovement:
    """What came of learning again."""

    model: str
    """Name of the new model."""
    learned: int
    """Accepted corrections that it knows and the one before did not."""
    asked: int
    """Rows that were held back."""
    right_before: float
    right_now: float
    """Share of them whose sentiment was right."""
    switched: bool


def improve(monitor: Path, *, seed: int, told: Callable[[str], object], model: str | None = None) -> MonitorImprovement:
    """Learns from what was accepted since the model in use was made. `model` is the network to be tried; None for what
    the model in use was learned with. Where people are deleted meanwhile, it learns again without their texts."""
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
    """None where people were deleted meanwhile; then nothing is left of it."""
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
            penalty = float(about["inverse_penalties"]["sentiment"])
            right.append(_right_of_linear(rest, held, inverse_penalty=penalty))
        else:
            right.append(_right(rest, held, entities, model=name, seed=seed, told=told))
    built = build(more, entities, seed=seed, told=told, model=now)
    built.about["improved"] = {"from": before, "asked": len(held), "right_before": right[0], "right_now": right[1]}
    name = next_name(monitor)
    MONITOR.write_model(monitor, name, built.write)
    switched = bool(held) and right[1] >= right[0]
    numbers = [number for number, _ in new]
    with MONITOR.opened(monitor) as database:
        # From here on whoever deletes a person finds the new model in its folder; who did so before is found here.
        if not set(numbers) <= database.do(reviews.all_accepted):
            shutil.rmtree(monitor / MODELS / name)
            return None
        if switched:
            MONITOR.use_model(monitor, name, instead_of=before)
            database.do(lambda connection: reviews.learned(connection, numbers, name))
    return MonitorImprovement(
        model=name, learned=len(new), asked=len(held), right_before=right[0], right_now=right[1], switched=switched
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
            ),
        )
        for one in found
    ]


def _held(rows: Sequence[Labelled], *, seed: int) -> list[Labelled]:
    """Rows with a sentiment, drawn."""
    fitting = [row for row in rows if row.sentiment is not None]
    order = np.random.default_rng(seed).permutation(len(fitting))
    return [fitting[place] for place in order[: max(1, len(fitting) // HELD)].tolist()]


def _without(rows: Sequence[Labelled], held: Sequence[Labelled]) -> list[Labelled]:
    away = {row.text for row in held}
    return [row for row in rows if row.text not in away and row.sentiment is not None]


def _right(
    rest: Sequence[Labelled],
    held: Sequence[Labelled],
    entities: Entities,
    *,
    model: str,
    seed: int,
    told: Callable[[str], object],
) -> float:
    """Share of the held-back rows that are told rightly by what is learned without them, with a network if it helps."""
    built = build(gathered(rest), entities, seed=seed, told=told, model=model)
    found = built.model.read_all([row.text for row in held])
    right = sum(SENTIMENTS.index(one.sentiment.label) == row.sentiment for one, row in zip(found, held, strict=True))
    return right / max(1, len(held))


def _right_of_linear(rest: Sequence[Labelled], held: Sequence[Labelled], *, inverse_penalty: float) -> float:
    """The same for the linear model alone, which is quicker."""
    terms = [terms_of(row.text) for row in rest]
    vocabulary = learn_vocabulary(terms)
    labels = [int(row.sentiment or 0) for row in rest]
    weight_VC, bias_C = fit(
        [vocabulary.vector(one) for one in terms],
        labels,
        width=len(vocabulary.terms),
        classes=len(SENTIMENTS),
        inverse_penalty=inverse_penalty,
    )
    right = 0
    for row in held:
        columns, values = vocabulary.vector(terms_of(row.text))
        right += int(np.argmax(values @ weight_VC[columns] + bias_C)) == row.sentiment
    return right / max(1, len(held))
