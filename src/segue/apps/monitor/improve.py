"""A monitor learns again, with labels that people corrected and others accepted, and switches only if that is no worse.

A fifth of all rows is held back. What was known before, and what is known now, are each learned without it and asked
the same rows. Then a model of everything is made; it goes into use if it told at least as many of them rightly.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from segue.apps.monitor import reviews
from segue.apps.monitor.build import build
from segue.apps.monitor.folder import (
    CORRECTIONS,
    DATABASE,
    MODELS,
    current_model,
    model_names,
    read_about,
    read_model,
    read_rows,
    use_model,
)
from segue.apps.monitor.labelled import SENTIMENTS, Labelled, gathered
from segue.apps.monitor.learn import fit
from segue.apps.monitor.linear import learn_vocabulary
from segue.apps.monitor.reading import open_database
from segue.apps.monitor.terms import terms_of
from segue.errors import ConfigError
from segue.files import write_folder

HELD = 5
"""One row of so many is held back."""


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


def improve(monitor: Path, *, seed: int, told: Callable[[str], object]) -> MonitorImprovement:
    """Learns from what was accepted since the model in use was made."""
    before = current_model(monitor)
    new = _accepted(monitor, before)
    if not new:
        raise ConfigError(
            f"{monitor} must have accepted corrections that it has not learned yet; got none. Correct labels on the "
            "page, and review them."
        )
    known = read_rows(monitor / MODELS / before)
    more = gathered([*known, *(row for _, row in new)])
    held = _held(more.rows, seed=seed)
    penalty = float(read_about(monitor / MODELS / before)["inverse_penalties"]["sentiment"])
    right = []
    for rows in (known, more.rows):
        told(f"learning without {len(held):,} rows, to ask them")
        right.append(_right(rows, held, inverse_penalty=penalty))
    built = build(more, read_model(monitor / MODELS / before).entities, seed=seed, told=told)
    built.about["improved"] = {"from": before, "asked": len(held), "right_before": right[0], "right_now": right[1]}
    name = f"{int(model_names(monitor)[-1]) + 1:04d}"
    write_folder(monitor / MODELS / name, built.write, kind="monitor-model")
    switched = right[1] >= right[0]
    if switched:
        use_model(monitor, name)
        database = open_database(monitor, alone=False)
        try:
            database.do(lambda connection: reviews.learned(connection, [number for number, _ in new], name))
        finally:
            database.close()
    return MonitorImprovement(
        model=name, learned=len(new), asked=len(held), right_before=right[0], right_now=right[1], switched=switched
    )


def roll_back(monitor: Path, name: str | None) -> str:
    """Puts an earlier model into use: the one before the one in use, or the one named."""
    names, now = model_names(monitor), current_model(monitor)
    earlier = [one for one in names if one < now]
    if name is None and not earlier:
        raise ConfigError(f"{monitor} must have an earlier model to go back to; got {now} alone.")
    chosen = earlier[-1] if name is None else name
    if chosen not in names:
        raise ConfigError(f"--to must be one of the models {', '.join(names)}; got {chosen!r}.")
    read_model(monitor / MODELS / chosen)  # whole, or it raises and nothing changes
    use_model(monitor, chosen)
    return chosen


def _accepted(monitor: Path, model: str) -> list[tuple[int, Labelled]]:
    if not (monitor / DATABASE).is_file():
        return []
    database = open_database(monitor, alone=False)
    try:
        found = database.do(lambda connection: reviews.accepted(connection, model))
    finally:
        database.close()
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


def _right(rows: Sequence[Labelled], held: Sequence[Labelled], *, inverse_penalty: float) -> float:
    """Share of the held-back rows that are told rightly by what is learned without them."""
    away = {row.text for row in held}
    rest = [row for row in rows if row.text not in away and row.sentiment is not None]
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
