"""A desk learns again, with what people accepted on the page, and switches only if that is no worse.

A fifth of all conversations is held back, those that were reviewed among them. What was known before, and what is known
now, are each learned without it and asked the same questions. Then a model of everything is made; it goes into use if
the new knowledge answered at least as many of the questions rightly.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from segue.apps.desk import reviews
from segue.apps.desk.build import build
from segue.apps.desk.confidence import Counts, Outcomes
from segue.apps.desk.folder import CONVERSATION, read_model
from segue.apps.desk.knowledge import Asked, Knowledge, Topic, short_name
from segue.apps.desk.report import counted
from segue.apps.desk.store import DESK
from segue.apps.folder import MODELS, next_name, read_about
from segue.errors import ConfigError

HELD = 5
"""One conversation of so many is held back."""
AGENTS = "agents"
"""Source of topics whose answer was accepted on the page."""
LEAST = 1
"""Accepted answers from which learning again makes sense."""


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """What came of learning again."""

    model: str
    """Name of the new model."""
    learned: int
    """Accepted answers that it knows and the one before did not."""
    asked: int
    """Questions that were held back."""
    right_before: float
    right_now: float
    """Share of them whose best topic was right."""
    error: float
    """Share of wrong answers that is accepted."""
    before: Counts
    now: Counts
    """How many of them were answered, and how many of these wrongly, with the threshold that each model chose for that
    error without them."""
    switched: bool


Reviewed = tuple[int, str, str, str | None, str]
"""As `reviews.accepted` gives them: message, question, answer, topic, conversation."""


def improve(desk: Path, *, seed: int, told: Callable[[str], object]) -> Improvement:
    """Learns from what was accepted since the model in use was made."""
    before = DESK.current_model(desk)
    about = read_about(desk / MODELS / before)
    known = read_model(desk / MODELS / before).knowledge
    new = _accepted(desk, before)
    if len(new) < LEAST:
        raise ConfigError(
            f"{desk} must have accepted answers that it has not learned yet; got none. Review agents' answers on the "
            "page first."
        )
    more = with_reviewed(known, new)
    chosen = {**about["asked_for"], "seed": seed}
    held = _held(more, seed=seed)
    right, counts = [], []
    for knowledge in (known, more):
        told(f"learning without {len(held):,} questions, to ask them")
        share, count = _asked(knowledge, more, held, chosen)
        right.append(share)
        counts.append(count)
    told("learning from everything")
    built = build(more, **chosen, told=told)
    built.about["improved"] = {"from": before, "asked": len(held), "right_before": right[0], "right_now": right[1]}
    built.about["improved"] |= {"before": counted(counts[0]), "now": counted(counts[1])}
    name = next_name(desk)
    DESK.write_model(desk, name, built.write)
    switched = right[1] >= right[0]
    if switched:
        DESK.use_model(desk, name)
        with DESK.opened(desk) as database:
            database.do(lambda connection: reviews.learned(connection, [message for message, *_ in new], name))
    return Improvement(
        model=name,
        learned=len(new),
        asked=len(held),
        right_before=right[0],
        right_now=right[1],
        error=chosen["error"],
        before=counts[0],
        now=counts[1],
        switched=switched,
    )


def with_reviewed(known: Knowledge, reviewed: Sequence[Reviewed]) -> Knowledge:
    """The knowledge with accepted answers: questions of a topic that is named, or of a new one with this answer. An
    accepted answer replaces the one that its topic had: a person looked at it later."""
    topics = list(known.topics)
    by_name = {topic.name: place for place, topic in enumerate(topics)}
    by_answer = {topic.answer: place for place, topic in reversed(list(enumerate(topics))) if topic.answer}
    asked = {one.text: one for one in known.asked}
    for _, question, answer, name, conversation in reviewed:
        place = by_name.get(name) if name else by_answer.get(answer)
        if place is None:
            place = len(topics)
            topics.append(Topic(name=name or short_name(answer), answer=answer, source=AGENTS))
            by_name[topics[place].name] = by_answer[answer] = place
        elif topics[place].answer != answer:
            by_answer.setdefault(answer, place)
            topics[place] = Topic(name=topics[place].name, answer=answer, source=AGENTS)
        asked[question] = Asked(text=question, topics=(place,), group=f"{CONVERSATION}{conversation}")
    return Knowledge(topics=tuple(topics), asked=tuple(asked.values()))


def _accepted(desk: Path, model: str) -> list[Reviewed]:
    """What was accepted, and has not been learned by the model in use or one before it."""
    with DESK.opened(desk) as database:
        return database.do(lambda connection: reviews.accepted(connection, model))


def _held(knowledge: Knowledge, *, seed: int) -> list[Asked]:
    """Questions of a part of the conversations, whose topics keep others."""
    groups = list(dict.fromkeys(one.group for one in knowledge.asked))
    order = np.random.default_rng(seed).permutation(len(groups))
    away = {groups[place] for place in order[: max(1, len(groups) // HELD)].tolist()}
    counts: dict[int, int] = {}
    for one in knowledge.asked:
        if one.group not in away:
            for topic in one.topics:
                counts[topic] = counts.get(topic, 0) + 1
    return [one for one in knowledge.asked if one.group in away and any(counts.get(topic) for topic in one.topics)]


def _asked(
    knowledge: Knowledge, newest: Knowledge, held: Sequence[Asked], chosen: Mapping[str, Any]
) -> tuple[float, Counts]:
    """What is learned without the held-back questions is asked them: the share whose best topic is right, and how many
    are answered, and how many of these wrongly."""
    away = {one.text for one in held}
    rest = Knowledge(topics=knowledge.topics, asked=tuple(one for one in knowledge.asked if one.text not in away))
    learned = build(rest, **{**chosen, "finetune": False}, told=lambda _: None).model
    found = [learned.ask(one.text) for one in held]
    right_N = np.array(
        [
            one.candidates[0].topic.name in {newest.topics[topic].name for topic in ask.topics}
            for one, ask in zip(found, held, strict=True)
        ],
        dtype=bool,
    )
    outcomes = Outcomes(
        confidence_N=np.array([one.confidence for one in found]),
        right_N=right_N,
        inside_N=np.ones(len(held), dtype=bool),
        weight_N=np.ones(len(held)),
    )
    answered_N = np.array([one.reason is None for one in found], dtype=bool)
    return float(right_N.mean()) if len(held) else 0.0, outcomes.counts(answered_N)
