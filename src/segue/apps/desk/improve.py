"""A desk learns again, with what people accepted on the page, and switches only if that is no worse.

A fifth of all conversations is held back, those that were reviewed among them. What was known before, and what is known
now, are each learned without it and asked the same questions. Then a model of everything is made; it goes into use if
the new knowledge answered at least as many of the questions rightly, and there was a question to ask.

What was accepted once and rejected later is taken out again. People may be deleted while this runs: then it learns
again without them.
"""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from segue.apps.desk import reviews
from segue.apps.desk.build import build
from segue.apps.desk.confidence import Counts, Outcomes
from segue.apps.desk.folder import CONVERSATION, conversations_of, read_knowledge_of, read_model
from segue.apps.desk.knowledge import Asked, Knowledge, Topic, new_name
from segue.apps.desk.report import counted
from segue.apps.desk.store import DESK
from segue.apps.folder import MODELS, model_names, next_name, read_about
from segue.errors import CheckpointError, ConfigError

HELD = 5
"""One conversation of so many is held back."""
AGENTS = "agents"
"""Source of topics whose answer was accepted on the page."""
TRIES = 5
"""How often it begins again because people were deleted meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """What came of learning again."""

    model: str
    """Name of the new model."""
    learned: int
    """Number of reviewed questions that it has learned and the previous model had not."""
    outside: int
    """Number of these that are out of scope."""
    withdrawn: int
    """Questions that the one before knew, and that are no longer accepted."""
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


Reviewed = tuple[int, str, str | None, str | None, str]
"""As `reviews.accepted` gives them: message, question, answer, topic, conversation."""


def improve(desk: Path, *, seed: int, told: Callable[[str], object]) -> Improvement:
    """Learns from what was accepted since the model in use was made."""
    with DESK.changing(desk):
        for _ in range(TRIES):
            found = _improve(desk, seed=seed, told=told)
            if found is not None:
                return found
            told("people were deleted meanwhile; training again without their questions")
    raise ConfigError(
        f"no person may be deleted from {desk} while it learns; it happened {TRIES} times in a row. Try again later."
    )


def _improve(desk: Path, *, seed: int, told: Callable[[str], object]) -> Improvement | None:
    """None where people were deleted meanwhile; then nothing is left of it."""
    before = DESK.current_model(desk)
    about = read_about(desk / MODELS / before)
    in_use = read_model(desk / MODELS / before).knowledge
    with DESK.opened(desk) as database:
        new = database.do(lambda connection: reviews.accepted(connection, before))
        agreed = database.do(reviews.agreed)
        refused = database.do(reviews.refused)
    known = without_withdrawn(in_use, agreed, refused, lambda: _earlier_topics(desk, before))
    withdrawn = len({one.text for one in in_use.asked} - {one.text for one in known.asked})
    if not new and known is in_use:
        raise ConfigError(
            f"{desk} must have accepted answers that it has not learned yet; got none. Review agents' answers on the "
            "page first."
        )
    more = with_reviewed(known, new)
    chosen = {**about["asked_for"], "seed": seed}
    held = _held(more, seed=seed)
    right, counts = [], []
    for knowledge in (in_use, more):
        told(f"training without {len(held):,} questions, and testing on them")
        share, count = _asked(knowledge, more, held, chosen)
        right.append(share)
        counts.append(count)
    told("training on everything")
    built = build(more, **chosen, told=told)
    built.about["improved"] = {"from": before, "asked": len(held), "right_before": right[0], "right_now": right[1]}
    built.about["improved"] |= {"before": counted(counts[0]), "now": counted(counts[1])}
    name = next_name(desk)
    DESK.write_model(desk, name, built.write)
    switched = bool(held) and right[1] >= right[0]
    with DESK.opened(desk) as database:
        # From here on whoever deletes a person finds the new model in its folder; who did so before is found here.
        if not conversations_of(more) <= database.do(reviews.conversations):
            shutil.rmtree(desk / MODELS / name)
            return None
        if switched:
            DESK.use_model(desk, name, instead_of=before)
            database.do(lambda connection: reviews.learned(connection, [message for message, *_ in new], name))
    return Improvement(
        model=name,
        learned=len(new),
        outside=sum(answer is None and topic is None for _, _, answer, topic, _ in new),
        withdrawn=withdrawn,
        asked=len(held),
        right_before=right[0],
        right_now=right[1],
        error=chosen["error"],
        before=counts[0],
        now=counts[1],
        switched=switched,
    )


def with_reviewed(known: Knowledge, reviewed: Sequence[Reviewed]) -> Knowledge:
    """Return the knowledge with reviewed questions added: to the named topic, or to a new one with this answer. An
    accepted answer replaces that of its topic, because a person has looked at it since; without an answer, the topic
    keeps its own. A question with neither topic nor answer is out of scope."""
    topics = list(known.topics)
    by_name = {topic.name: place for place, topic in enumerate(topics)}
    by_answer: dict[str | None, int] = {
        topic.answer: place for place, topic in reversed(list(enumerate(topics))) if topic.answer
    }
    asked = {one.text: one for one in known.asked}
    for _, question, answer, name, conversation in reviewed:
        group = f"{CONVERSATION}{conversation}"
        if answer is None and name is None:
            if question not in asked or asked[question].topics:
                asked[question] = Asked(text=question, topics=(), group=group)
            continue
        place = by_name.get(name) if name else by_answer.get(answer)
        if place is None and answer is None:
            continue  # the topic is gone, and nothing is known of it but its name
        if place is None:
            place = len(topics)
            topics.append(Topic(name=name or new_name(answer or "", by_name), answer=answer, source=AGENTS))
            by_name[topics[place].name] = by_answer[answer] = place
        elif answer is not None and topics[place].answer != answer:
            by_answer.setdefault(answer, place)
            topics[place] = Topic(name=topics[place].name, answer=answer, source=AGENTS)
        if question not in asked or asked[question].topics != (place,):
            asked[question] = Asked(text=question, topics=(place,), group=group)
    return with_used_topics(Knowledge(topics=tuple(topics), asked=tuple(asked.values())))


def without_withdrawn(
    known: Knowledge,
    agreed: Collection[tuple[str, str]],
    refused: Collection[tuple[str | None, str]],
    earlier: Callable[[], Mapping[str, Sequence[Topic]]],
) -> Knowledge:
    """The knowledge without questions that are no longer accepted, in `agreed` with their conversation. Topics whose
    answer is among the `refused` ones, with their topic, are as they were the last time before that, as `earlier` tells
    by their names; those that were not there before stay only if they have other questions, and a person answers."""
    asked = [
        one
        for one in known.asked
        if not one.group.startswith(CONVERSATION) or (one.group.removeprefix(CONVERSATION), one.text) in agreed
    ]
    texts = {answer for _, answer in refused}
    wrong = {
        place
        for place, topic in enumerate(known.topics)
        if topic.source == AGENTS and ((topic.name, topic.answer) in refused or (None, topic.answer) in refused)
    }
    if len(asked) == len(known.asked) and not wrong:
        return known
    former = earlier() if wrong else {}
    topics = list(known.topics)
    for place in wrong:
        name = topics[place].name
        fitting = (one for one in former.get(name, ()) if one.answer not in texts)
        topics[place] = next(fitting, Topic(name=name, answer=None, source=AGENTS))
    return with_used_topics(Knowledge(topics=tuple(topics), asked=tuple(asked)))


def with_used_topics(known: Knowledge) -> Knowledge:
    """Without topics that came from agents and have no question."""
    used = {topic for one in known.asked for topic in one.topics}
    kept = [place for place, topic in enumerate(known.topics) if place in used or topic.source != AGENTS]
    places = {topic: place for place, topic in enumerate(kept)}
    return Knowledge(
        topics=tuple(known.topics[topic] for topic in kept),
        asked=tuple(replace(one, topics=tuple(places[topic] for topic in one.topics)) for one in known.asked),
    )


def _earlier_topics(desk: Path, model: str) -> dict[str, list[Topic]]:
    """Topics by their names, as they were in the models before one, the latest first."""
    found: dict[str, list[Topic]] = {}
    for name in reversed([one for one in model_names(desk) if one < model]):
        with suppress(CheckpointError):  # a damaged one tells nothing
            for topic in read_knowledge_of(desk / MODELS / name).topics:
                found.setdefault(topic.name, []).append(topic)
    return found


def _held(knowledge: Knowledge, *, seed: int) -> list[Asked]:
    """Questions of a part of the conversations, whose topics keep others."""
    groups = list(dict.fromkeys(one.group for one in knowledge.asked))
    groups_of: dict[int, set[str]] = {}
    for one in knowledge.asked:
        for topic in one.topics:
            groups_of.setdefault(topic, set()).add(one.group)
    fitting = {
        one.group for one in knowledge.asked if any(len(groups_of[topic]) > 1 for topic in one.topics)
    }  # the others have nothing that could be asked
    order = [groups[place] for place in np.random.default_rng(seed).permutation(len(groups)).tolist()]
    away = set(order[: max(1, len(groups) // HELD)])
    if not away & fitting:
        away |= set([group for group in order if group in fitting][:1])
    counts: dict[int, int] = {}
    for one in knowledge.asked:
        if one.group not in away:
            for topic in one.topics:
                counts[topic] = counts.get(topic, 0) + 1
    return [one for one in knowledge.asked if one.group in away and any(counts.get(topic) for topic in one.topics)]


def _asked(
    knowledge: Knowledge, newest: Knowledge, held: Sequence[Asked], chosen: Mapping[str, Any]
) -> tuple[float, Counts]:
    """Evaluates a model trained without the held-out questions on them: the share whose best topic is right, and how
    many are answered, and how many of these wrongly."""
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
