"""Replies of a desk to messages.

In: the model, the conversation and a message. Out: a `Reply`, with the changes of the conversation. Storing and sending
it is left to `service`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from segue.apps.desk.decide import is_angry, small_talk, wants_person
from segue.apps.desk.knowledge import Topic
from segue.apps.desk.model import DeskModel, Finding, is_follow_up
from segue.apps.desk.phrases import follow_up, phrase
from segue.apps.desk.settings import DeskSettings
from segue.apps.desk.slots import SLOT, filled, told_value
from segue.apps.desk.writer import Writer
from segue.text.unicode import is_chinese

Kind = Literal["answer", "suggestion", "generated", "follow_up", "small_talk", "handed_over"]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A reply of the desk."""

    text: str
    about: Mapping[str, Any]
    """Kind; topic, source and confidence of an answer; suggestions; candidates; reason for not answering."""
    changes: Mapping[str, Any]
    """Changed fields of the conversation."""


def reply(
    model: DeskModel,
    conversation: Mapping[str, Any],
    before: Sequence[str],
    text: str,
    settings: DeskSettings,
    *,
    chosen: str | None,
    writer: Writer | None = None,
) -> Reply:
    """Reply to a message in a conversation led by the desk. `before` are the visitor's earlier messages, `chosen` is
    the topic of a suggestion that the visitor took, and `writer`, if the operator allows one, generates a text to go
    with suggestions."""
    started = time.perf_counter()
    memory, language = dict(conversation["memory"]), str(conversation["language"])
    pending = memory.pop("pending", None)
    if wants_person(text):
        return _handed_over("asked_for_person", language, memory, text, None)
    if is_angry(text, cues=(*settings.anger_en, *settings.anger_zh), shouting=settings.anger_shouting):
        return _handed_over("anger", language, memory, text, None)
    talk = None if chosen is not None or model.has_question(text) else small_talk(text)
    if talk is not None and (pending is None or talk == "goodbye"):
        said = getattr(settings, f"{talk}_{'zh' if is_chinese(text) or language == 'zh' else 'en'}")
        return Reply(text=said, about={"kind": "small_talk"}, changes={"memory": memory})
    before = [one for one in before if small_talk(one) is None]
    if pending is not None and (topic := model.named(pending["topic"])) is not None:
        if talk is not None:  # the question stays open
            memory["pending"] = pending
            asks = follow_up(language, pending["missing"][0])
            return Reply(text=asks, about={"kind": "follow_up", "topic": topic.name}, changes={"memory": memory})
        value = told_value(text, pending["missing"][0])
        told = value is not None and any(map(str.isdigit, value)) and is_follow_up(text)
        other = None if told else model.ask(text)
        if other is None or other.reason is not None or other.candidates[0].topic == topic:
            about = _about(topic)
            asked = str(pending.get("question", text))
            if value is not None:
                values = {**pending["values"], pending["missing"][0]: value}
                return _answer(topic, language, memory, values, pending["missing"][1:], about, asked)
            if pending.get("again"):
                return _handed_over("repeated_failure", language, memory, asked, about)
            memory["pending"] = {**pending, "again": True}
            asks = follow_up(language, pending["missing"][0], again=True)
            return Reply(text=asks, about={**about, "kind": "follow_up"}, changes={"memory": memory})
    if chosen is not None and (topic := model.named(chosen)) is not None and topic.answer is not None:
        slots = model.slots(topic, text)
        about = {**_about(topic), "template": topic.answer}
        return _answer(topic, language, memory, dict(slots.values), slots.missing, about, text)
    finding = model.ask(text, before=before)
    about = {
        **described(model, finding, text, memory.get("values", {})),
        "seconds": round(time.perf_counter() - started, 4),
    }
    if finding.reason is None:
        topic, slots = finding.candidates[0].topic, finding.slots
        about |= _about(topic)
        return _answer(topic, language, memory, dict(slots.values), slots.missing, about, text)
    about |= {"question": text}
    failures = int(conversation["failures"]) + 1
    if failures >= settings.failures and finding.reason == "low_confidence" and failures > 1:
        return _handed_over("repeated_failure", language, memory, text, about)
    if settings.suggest and finding.suggestions:
        offered = [{"topic": one.topic.name, "question": model.sample(one.topic, text)} for one in finding.suggestions]
        about |= {"kind": "suggestion", "suggestions": offered, "reason": finding.reason}
        written = (
            None
            if writer is None
            else writer(text, [SLOT.sub("…", one.topic.answer or "") for one in finding.suggestions])
        )
        if written is not None:
            sources = [
                {"topic": one.topic.name, "source": one.topic.source, "cited": one.topic.cited}
                for one in finding.suggestions
            ]
            about |= {"kind": "generated", "sources": sources}
        return Reply(
            text=phrase(language, "did_you_mean") if written is None else written,
            about=about,
            changes={"failures": failures, "memory": memory},
        )
    return _handed_over(finding.reason, language, memory, text, about)


def described(model: DeskModel, finding: Finding, question: str, known: Mapping[str, str]) -> dict[str, Any]:
    """Return what is stored of a result. Answers of candidates are filled in as far as values are known."""
    candidates = []
    for one in finding.candidates:
        values = {**known, **model.slots(one.topic, question).values}
        answer = None if one.topic.answer is None else filled(one.topic.answer, values)
        candidates.append(
            {
                "topic": one.topic.name,
                "probability": round(one.probability, 4),
                "answer": answer,
                "source": one.topic.source,
                "missing": [name for name in dict.fromkeys(SLOT.findall(one.topic.answer or "")) if name not in values],
            }
        )
    return {
        "confidence": round(finding.confidence, 4),
        "inside": round(finding.inside, 4),
        "with_before": finding.with_before,
        "candidates": candidates,
    }


def _about(topic: Topic) -> dict[str, Any]:
    """Describe an answer: `source` is its file, for agents, and `cited` the source that visitors see, if any."""
    about = {"kind": "answer", "topic": topic.name, "source": topic.source}
    return about if topic.cited is None else {**about, "cited": topic.cited}


def _answer(
    topic: Topic,
    language: str,
    memory: dict[str, Any],
    values: dict[str, str],
    missing: Sequence[str],
    about: dict[str, Any],
    question: str,
) -> Reply:
    """Return the answer, or a question for its first open slot. Values are remembered for the conversation."""
    known = {**memory.get("values", {}), **values}
    missing = [slot for slot in missing if slot not in known]
    memory["values"] = known
    if missing:
        memory["pending"] = {"topic": topic.name, "missing": missing, "values": values, "question": question}
        text = follow_up(language, missing[0])
        return Reply(text=text, about={**about, "kind": "follow_up"}, changes={"memory": memory})
    return Reply(text=filled(topic.answer or "", known), about=about, changes={"failures": 0, "memory": memory})


def _handed_over(reason: str, language: str, memory: dict[str, Any], text: str, about: dict[str, Any] | None) -> Reply:
    return Reply(
        text=phrase(language, reason),
        about={"question": text, **(about or {}), "kind": "handed_over", "reason": reason},
        changes={"state": "waiting", "reason": reason, "memory": memory},
    )
