"""The processing of batches: classify, count and watch texts. Replay and live reading use the same code.

A batch is one transaction: its texts, their counts, the position in the source, the alarms and their notifications are
all written, or nothing is. So nothing is lost or duplicated whenever the process is killed.

The rule for late texts: the watermark is `lateness` seconds behind the newest time. Texts are judged in the order of
their own times when the watermark passes them, so texts that arrive in another order within that time are judged the
same. Texts that arrive even later are late: they are stored and counted, but raise no alarm. No judgement depends on a
text with a time after the watermark. A time that is ahead of the clock moves the watermark no farther than the clock
does, so that one source with a wrong time zone does not make the texts of all others late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from segue.apps import webhooks
from segue.apps.database import Connection
from segue.apps.monitor import store
from segue.apps.monitor.describe import alarm_mail, alarm_reason
from segue.apps.monitor.model import MonitorModel, Reading
from segue.apps.monitor.names import NameFinder
from segue.apps.monitor.repeats import Known, Near, fingerprint, known
from segue.apps.monitor.texts import Text
from segue.apps.monitor.watch import (
    AGAIN,
    DAY,
    ENOUGH,
    FARTHEST,
    HISTORY,
    MOST_HISTORY,
    Seen,
    Subject,
    learn_usual,
    usual_of,
)

TRIED_AGAIN = 3 * DAY
"""Seconds until the baseline of a subject with too little history is estimated again."""
NEWEST, JUDGED = "newest", "judged"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules that the operator sets."""

    lateness: float
    budget: float
    """Budget of false alarms per subject in 30 days."""
    cool_down: float
    near_texts: int
    """Number of recent texts that a new one is compared with."""
    pairs: bool = False
    """Whether to watch each entity within each topic too."""
    find_names: str = ""
    """How to find names that are missing from the list (`names`); empty to turn the search off."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of texts from a source."""

    source: str
    texts: Sequence[Text]
    refused: Sequence[tuple[str, Any]] = ()
    """Rejected rows, each after its reason."""
    place: Mapping[str, Any] | None = None
    """Position in the source after the batch."""
    arrived: float


@dataclass(frozen=True, kw_only=True)
class Looked:
    """The new texts of a batch, and what is stored about them."""

    texts: list[Text]
    """New texts."""
    known: int
    prints: list[str]
    originals: dict[str, tuple[int, Reading]]


@dataclass(frozen=True, kw_only=True)
class Read:
    """A classified batch."""

    batch: Batch
    looked: Looked
    readings: list[tuple[Reading, Known] | None]
    """Predictions and features for near-duplicates; None for texts with the words of an earlier one."""
    model: str
    names: list[str] = field(default_factory=list)
    """Names that are missing from the list."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """Result of a batch."""

    numbers: list[int] = field(default_factory=list)
    known: int = 0
    alarms: list[int] = field(default_factory=list)


class Stream:
    """The state between batches, which can be rebuilt from the database."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._near: Near | None = None
        self._subjects: dict[tuple[str, str], Subject] = {}
        self._tried: dict[tuple[str, str], float] = {}
        self._finder = NameFinder(rules.find_names) if rules.find_names else None
        if self._finder is not None:
            self._finder.check()

    def forget(self) -> None:
        """Discard the state after a failed transaction, because it may be ahead of the database."""
        self._near, self._subjects, self._tried = None, {}, {}

    def look(self, connection: Connection, batch: Batch) -> Looked:
        """First step: find out which texts are new."""
        there = store.known_ids(connection, [one.id for one in batch.texts])
        new: dict[str, Text] = {}
        for one in batch.texts:
            if one.id not in there:
                new.setdefault(one.id, one)
        texts = list(new.values())
        prints = [fingerprint(one.whole) for one in texts]
        found = store.originals(connection, list(dict.fromkeys(prints)))
        return Looked(texts=texts, known=len(batch.texts) - len(texts), prints=prints, originals=found)

    def read(self, batch: Batch, looked: Looked, model: MonitorModel, name: str) -> Read:
        """Second step, without the database: classify new texts."""
        firsts: dict[str, int] = {}
        for place, print in enumerate(looked.prints):
            if print not in looked.originals:
                firsts.setdefault(print, place)
        new = list(firsts.values())
        found = dict(zip(new, model.read_all([looked.texts[place].whole for place in new]), strict=True))
        readings: list[tuple[Reading, Known] | None] = []
        for place, one in enumerate(looked.texts):
            reading = found.get(place)
            if reading is None:
                readings.append(None)
                continue
            readings.append((reading, known(one.whole, list(reading.entities))))
        names = []
        if self._finder is not None:
            given = [(looked.texts[place], bool(reading.entities)) for place, reading in found.items()]
            names = self._finder.find([(one.whole, one.language, named) for one, named in given], model.entities)
        return Read(batch=batch, looked=looked, readings=readings, model=name, names=names)

    def write(self, connection: Connection, read: Read) -> Written:
        """Third step: write the batch, and judge the texts that the watermark has passed."""
        near = self._near_texts(connection)
        judged = store.get_state(connection, JUDGED)
        newest = store.get_state(connection, NEWEST)
        originals = dict(read.looked.originals)
        written = []
        for one, print, found in zip(read.looked.texts, read.looked.prints, read.readings, strict=True):
            original: int | None = None
            if found is None:
                original, reading = originals[print]
            else:
                reading, compared = found
                original = near.find(compared)
                if original is not None:
                    reading = store.reading_of(connection, original)
            row = store.Row(
                text=one,
                reading=reading,
                fingerprint=print,
                original=original,
                late=judged is not None and one.time <= judged,
                model=read.model,
                arrived=read.batch.arrived,
            )
            number = store.add_text(connection, row)
            originals.setdefault(print, (number if original is None else original, reading))
            if original is None and found is not None:
                near.add(number, found[1])
            written.append((number, row))
            reached = min(one.time, read.batch.arrived)
            newest = reached if newest is None else max(newest, reached)
        store.count_texts(connection, written)
        store.count_names(connection, read.names, max((one.time for one in read.looked.texts), default=0.0))
        for reason, refused in read.batch.refused:
            store.refuse(connection, read.batch.source, reason, refused)
        store.note_source(
            connection,
            read.batch.source,
            place=read.batch.place,
            taken=len(written),
            known=read.looked.known,
            refused=len(read.batch.refused),
        )
        alarms = [] if newest is None else self.move(connection, newest)
        return Written(numbers=[number for number, _ in written], known=read.looked.known, alarms=alarms)

    def move(self, connection: Connection, newest: float) -> list[int]:
        """Move the watermark with the newest time, judge the texts that it passes, and return the new alarms."""
        before = store.get_state(connection, NEWEST)
        if before is None or newest > before:
            store.set_state(connection, NEWEST, newest)
        judged, watermark = store.get_state(connection, JUDGED), newest - self.rules.lateness
        if judged is not None and watermark <= judged:
            return []
        alarms = []
        touched: set[tuple[str, str]] = set()
        for number, time, reading in store.to_judge(connection, -1e18 if judged is None else judged, watermark):
            said = store.subjects_of(reading)
            subjects = {(entity, ""): one for entity, one in said.items()}
            if reading.topic:
                subjects["", reading.topic] = reading.sentiment
                if self.rules.pairs:
                    subjects |= {(entity, reading.topic): one for entity, one in reading.entities.items()}
            for key, sentiment in subjects.items():
                one = Seen(time=time, number=number, negative=sentiment.negative, positive=sentiment.positive)
                alarm = self._judge(connection, key, one)
                touched.add(key)
                if alarm is not None:
                    alarms.append(alarm)
        store.set_state(connection, JUDGED, watermark)
        for key in sorted(touched):
            self._remember(connection, key)
        return alarms

    # ------------------------------------------------------------------------------------------------------- subjects

    def _judge(self, connection: Connection, key: tuple[str, str], one: Seen) -> int | None:
        subject = self._subject(connection, key, one)
        self._learn(connection, key, subject, one)
        alarm = subject.see(one)
        if alarm is None or one.time < subject.quiet_until:
            return None
        subject.quiet_until = one.time + self.rules.cool_down
        entity, topic = key
        number, incident = store.add_alarm(connection, entity, topic, alarm, near=self.rules.cool_down)
        reason = alarm_reason(entity, topic, alarm.kind, alarm.figures)
        values = {"alarm": number, "incident": incident, "entity": entity, "topic": topic, "kind": alarm.kind}
        values |= {"time": alarm.time, "since": alarm.since, "figures": alarm.figures, "reason": reason}
        shown = store.texts_of(connection, alarm.numbers[-5:])
        webhooks.put(connection, "alarm", f"incident {incident}", {**values, "texts": shown})
        if incident == number:
            store.add_mail(connection, f"alarm-{number}", *alarm_mail(reason, alarm, shown))
        return number

    def _subject(self, connection: Connection, key: tuple[str, str], now: Seen) -> Subject:
        """Return the detector of a subject; after a restart it processes the texts since its last reset again."""
        if key in self._subjects:
            return self._subjects[key]
        state = store.subject_state(connection, *key)
        subject = Subject()
        if state is not None and state["usual"] is not None:
            subject.usual, subject.quiet_until = usual_of(state["usual"]), state["quiet_until"]
            subject.begin(state["begun"], state["first"])
            past = store.history(connection, *key, start=subject.begun, end=now.time, most=1_000_000)
            subject.look_again(past)
        self._tried[key] = -1e18 if state is None else state["tried"]
        self._subjects[key] = subject
        return subject

    def _learn(self, connection: Connection, key: tuple[str, str], subject: Subject, now: Seen) -> None:
        """Estimate the baseline of a subject from its past, if it is due."""
        due = now.time - subject.usual.learned >= AGAIN if subject.usual is not None else now.time >= self._tried[key]
        if not due or now.time == subject.last:  # texts of one moment are judged with the same
            return
        self._tried[key] = now.time + TRIED_AGAIN
        past = store.history(connection, *key, start=now.time - HISTORY, end=now.time, most=MOST_HISTORY)
        if len(past) < ENOUGH:
            past = store.history(connection, *key, start=now.time - FARTHEST, end=now.time, most=ENOUGH)
        start = min(now.time - HISTORY, past[0].time) if past else now.time
        by_hour, texts = store.negatives(connection, *key, start=start, end=now.time)
        usual = learn_usual(
            past, by_hour, texts=texts, now=now.time, budget=self.rules.budget, cool_down=self.rules.cool_down
        )
        if usual is not None:
            subject.renew(usual, past)

    def _remember(self, connection: Connection, key: tuple[str, str]) -> None:
        subject = self._subjects[key]
        state = {
            "usual": None if subject.usual is None else subject.usual.to_values(),
            "begun": subject.begun,
            "first": subject.first,
            "quiet_until": subject.quiet_until,
            "tried": self._tried[key],
        }
        store.set_subject_state(connection, *key, state)

    # --------------------------------------------------------------------------------------------------------- repeats

    def _near_texts(self, connection: Connection) -> Near:
        """Return the index of the last texts that are not repeats."""
        if self._near is None:
            self._near = Near(self.rules.near_texts)
            for number, whole, entities in store.last_originals(connection, self.rules.near_texts):
                self._near.add(number, known(whole, entities))
        return self._near
