"""Retraining of a desk with reviewed answers, and switching to the new model if it is no worse.

A fifth of all conversations is held out, reviewed ones among them. Two models, with the old and with the new knowledge,
are trained without it and asked the same questions. Then a model is trained on everything; it is put into use if the
new knowledge ranked the correct topic first for no fewer of the questions, and there was any question to ask.

Answers that were accepted and later rejected are removed again. If people are deleted meanwhile, training starts again
without them.
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
"""One in this many conversations is held out."""
AGENTS = "agents"
"""Source of topics whose answer was accepted in a review."""
TRIES = 5
"""Maximum number of attempts, as people may be deleted meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """Result of retraining."""

    model: str
    """Name of the new model."""
    learned: int
    """Number of reviewed questions that it has learned and the previous model had not."""
    outside: int
    """Number of these that are out of scope."""
    withdrawn: int
    """Number of questions that the previous model had learned and that are no longer accepted."""
    asked: int
    """Number of held-out questions."""
    right_before: float
    right_now: float
    """Share of held-out questions whose first topic is correct, for the old and the new knowledge."""
    error: float
    """Accepted share of wrong answers."""
    before: Counts
    now: Counts
    """Counts of answers, and of wrong ones, among the held-out questions, with the threshold that each model chose for
    that error without them."""
    switched: bool
    """Whether the new model is in use."""


Reviewed = tuple[int, str, str | None, str | None, str]
"""A reviewed question as in `reviews.accepted`: message, question, answer, topic, conversation."""


def improve(desk: Path, *, seed: int, told: Callable[[str], object]) -> Improvement:
    """Retrain a desk with what was reviewed since the model in use was trained."""
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
    """Retrain once; return None, and leave nothing behind, if people were deleted meanwhile."""
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
        # A deletion from here on finds the new model in its folder; an earlier one is detected here.
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
    """Return the knowledge without questions that are no longer accepted.

    `agreed` are the accepted pairs of conversation and question, `refused` the pairs of topic and answer to withdraw. A
    topic with a refused answer gets back its last earlier answer, found by its name in `earlier`; a topic that had none
    keeps its other questions, which go to a person, or is removed if there are none.
    """
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
    """Return the knowledge without topics from agents that have no question."""
    used = {topic for one in known.asked for topic in one.topics}
    kept = [place for place, topic in enumerate(known.topics) if place in used or topic.source != AGENTS]
    places = {topic: place for place, topic in enumerate(kept)}
    return Knowledge(
        topics=tuple(known.topics[topic] for topic in kept),
        asked=tuple(replace(one, topics=tuple(places[topic] for topic in one.topics)) for one in known.asked),
    )


def _earlier_topics(desk: Path, model: str) -> dict[str, list[Topic]]:
    """Return the topics of earlier models by name, latest first."""
    found: dict[str, list[Topic]] = {}
    for name in reversed([one for one in model_names(desk) if one < model]):
        with suppress(CheckpointError):  # a damaged one tells nothing
            for topic in read_knowledge_of(desk / MODELS / name).topics:
                found.setdefault(topic.name, []).append(topic)
    return found


def _held(knowledge: Knowledge, *, seed: int) -> list[Asked]:
    """Return the questions of a random part of the groups, if their topics keep other questions."""
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
    """Train a model without the held-out questions and evaluate it on them: return the share whose first topic is
    correct, and the counts of answers."""
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
