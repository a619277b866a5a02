"""Alarms in words: the reason with its figures, and the mail. They contain no advice."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from segue.apps.monitor.watch import Alarm

HOURS = " at these hours and weekdays"
LONGEST_SUBJECT = 69
"""Maximum number of characters in the subject of a mail: a longer header is folded before its first word, and shown
with a space before it."""


def subject_name(entity: str, topic: str) -> str:
    """Return the name of a subject: an entity, a topic, both, or all texts."""
    return ", ".join(filter(None, (entity, topic))) or "all texts"


def alarm_reason(entity: str, topic: str, kind: str, figures: Mapping[str, float]) -> str:
    """Return the reason of an alarm, with its figures."""
    name = subject_name(entity, topic)
    mean = f"mean sentiment {figures['mean']:+.2f}, usually {figures['usual_mean']:+.2f}"
    if kind == "surge":
        return (
            f"{name}: {_texts(figures['negative'], 'negative text')}, usually "
            f"{figures['expected_negative']:.1f}{HOURS}; {mean}."
        )
    return f"{name}: {mean}; {_texts(figures['texts'], 'text')}, {figures['negative']:.0f} negative."


def _texts(count: float, noun: str) -> str:
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def alarm_mail(reason: str, alarm: Alarm, texts: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the subject and the body of a mail."""
    lines = [
        reason,
        "",
        f"From {moment(alarm.since)} to {moment(alarm.time)}; statistic {alarm.figures['statistic']:.1f}, threshold "
        f"{alarm.figures['threshold']:.1f}.",
        "",
        "Last texts behind it:",
        *(f"- {moment(one['time'])} {one['sentiment']}: {shortened(one)}" for one in texts),
    ]
    subject = " ".join(f"Alarm: {reason.partition(';')[0]}".split()).removesuffix(HOURS)
    if len(subject) > LONGEST_SUBJECT:
        subject = subject[: LONGEST_SUBJECT - 3] + "..."
    return subject, "\n".join(lines) + "\n"


def moment(seconds: float) -> str:
    """Format a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def shortened(text: Mapping[str, Any], most: int = 200) -> str:
    """Return the beginning of a text, in one line."""
    line = " ".join(f"{text['title']} {text['text']}".split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
