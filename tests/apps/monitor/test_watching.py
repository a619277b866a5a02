"""When a subject turns: detectors, thresholds, the rule for late texts; the past never hangs on the future."""

import itertools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.apps.database import Database
from segue.apps.monitor import names, queries, reviews, store
from segue.apps.monitor.levels import Drawn, Past, alarms, draw_days, levels
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.reading import made_batch, take
from segue.apps.monitor.stream import Batch, Rules, Stream
from segue.apps.monitor.texts import Rows
from segue.apps.monitor.watch import (
    DAY,
    HOUR,
    TILTS,
    TIMES,
    WEEK,
    Seen,
    Subject,
    Usual,
    learn_usual,
    usual_of,
)
from tests.apps.monitor.news import START, stream

RULES = Rules(lateness=3600.0, budget=2.0, cool_down=86_400.0, near_texts=500)
ROWS = Rows(source="test")


def texts_of(scores: Any, times: Any) -> list[Seen]:
    """Texts that are negative above 0."""
    return [
        Seen(time=float(time), number=n, negative=max(float(score), 0.0), positive=max(-float(score), 0.0))
        for n, (score, time) in enumerate(zip(scores, times, strict=True))
    ]


def past_of(texts: list[Seen], usual: Usual) -> Past:
    shifts = np.outer([one.score for one in texts], TILTS) - np.array(usual.normal)
    surges = np.array([math.log(TIMES) * one.is_negative for one in texts])
    clock = np.array([(TIMES - 1) * usual.expected(texts[0].time, one.time) for one in texts])
    return Past(times_N=np.array([one.time for one in texts]), shifts_NM=shifts, surges_N=surges, clock_N=clock)


def plain(**changed: Any) -> Usual:
    values: dict[str, Any] = {
        "learned": 0.0, "rate": 14.0, "weekdays": (1.0,) * 7, "hours": (1.0,) * 24, "mean": 0.0,
        "normal": (0.2, 0.8, 2.5), "shift": 3.0, "surge": 3.0, "texts": 1,
    }  # fmt: skip
    return Usual(**{**values, **changed})


def test_alarms_that_are_counted_for_a_threshold_are_those_of_the_watch() -> None:
    draw = np.random.default_rng(3)
    times = np.sort(draw.uniform(0, 60 * DAY, 900))
    texts = texts_of(np.clip(draw.normal(-0.1, 0.3, 900) + 0.5 * (times > 50 * DAY), -1, 1), times)
    usual = plain(shift=6.0, surge=2.5)
    past = past_of(texts, usual)
    steps = np.concatenate([[0.0], past.surges_N[:-1]]) - np.diff(past.clock_N, prepend=0.0)
    drawn = Drawn(
        times_N=past.times_N,
        steps_NK=np.column_stack([past.shifts_NM, steps]),
        peaks_NK=np.column_stack([np.zeros_like(past.shifts_NM), past.surges_N]),
        seconds=60 * DAY,
    )
    subject = Subject(usual=usual)
    subject.begin(texts[0].time, -1)
    raised = [found for one in texts if (found := subject.see(one)) is not None]
    assert {one.kind for one in raised} == {"shift", "surge"}
    assert alarms(drawn, shift=6.0, surge=2.5, cool_down=0.0) == len(raised)
    quiet, told = -1.0, 0
    for one in raised:
        if one.time >= quiet:
            quiet, told = one.time + DAY, told + 1
    assert alarms(drawn, shift=6.0, surge=2.5, cool_down=DAY) == told < len(raised)


def test_thresholds_keep_the_budget_on_days_that_were_not_seen() -> None:
    draw = np.random.default_rng(1)

    def some(days: int) -> list[Seen]:
        """Bursts: most days have two texts, some thirty that are much alike."""
        found: list[tuple[float, float]] = []
        for day in range(days):
            many, centre = (30, draw.normal(0.05, 0.1)) if draw.random() < 0.1 else (2, draw.normal(-0.1, 0.2))
            found += [(day * DAY + second, centre + draw.normal(0, 0.2)) for second in draw.uniform(0, DAY, many)]
        found.sort()
        return texts_of(np.clip([score for _, score in found], -1, 1), [time for time, _ in found])

    usual = plain(normal=tuple(np.log(np.exp(np.outer([one.score for one in some(300)], TILTS)).mean(axis=0)).tolist()))
    past = past_of(some(56), usual)
    found = [levels(past, shift=budget, surge=budget, cool_down=DAY, seed=0) for budget in (4.0, 2.0, 0.5, 0.001)]
    assert [one[0] for one in found] == sorted(one[0] for one in found)
    assert found[0][0] < found[1][0] < found[2][0] < found[3][0]
    fresh = draw_days(past_of(some(600), usual), seed=1)
    raised = alarms(fresh, shift=found[1][0], surge=math.inf, cool_down=DAY) / (fresh.seconds / (30 * DAY))
    assert 0.5 <= raised <= 3.0


def test_hours_without_texts_count_when_days_are_drawn() -> None:
    texts = texts_of(np.full(40, 0.9), np.arange(40) * DAY)
    past = past_of(texts, plain(rate=7.0))
    drawn = draw_days(past, seed=0)
    assert len(drawn.times_N) == pytest.approx(drawn.seconds / DAY, rel=0.05)
    assert (np.diff(drawn.times_N) > 0).all()
    taken = math.log(TIMES) - drawn.steps_NK[1:, -1]
    assert taken.mean() == pytest.approx(TIMES - 1, rel=0.05)  # one text is expected in a day


def test_a_subject_looks_at_the_last_week_again_when_something_else_is_usual() -> None:
    texts = texts_of([0.3] * 40, np.arange(40) * 6 * HOUR)
    subject = Subject()
    subject.renew(plain(learned=texts[-1].time, shift=100.0, surge=100.0), texts)
    again = Subject(usual=subject.usual)
    again.begin(subject.begun, subject.first)
    again.look_again(texts)
    assert again == subject
    assert subject.begun == texts[-1].time - WEEK
    assert len(subject._kept) == 29


def test_what_is_expected_adds_up_over_hours_and_weeks() -> None:
    usual = plain(weekdays=(2.0, *(5 / 6,) * 6), hours=(13.0, *(11 / 23,) * 23))
    monday = 345_600.0 + 100 * WEEK
    assert usual.expected(monday, monday + WEEK) == pytest.approx(14.0)
    assert usual.expected(monday, monday + DAY) == pytest.approx(4.0)
    assert usual.expected(monday, monday + HOUR) == pytest.approx(4.0 * 13 / 24)
    whole = sum(usual.expected(monday + n * 1234.5, monday + (n + 1) * 1234.5) for n in range(800))
    assert whole == pytest.approx(usual.expected(monday, monday + 800 * 1234.5))


def test_nothing_is_usual_without_enough_history() -> None:
    few = [Seen(time=n * HOUR, number=n, negative=0.1, positive=0.1) for n in range(39)]
    hours = [(one.time, 0) for one in few]

    def usual(texts: int, now: float) -> Usual | None:
        return learn_usual(few, hours, texts=texts, now=now, budget=2.0, cool_down=DAY)

    assert usual(19, 20 * DAY) is None
    assert usual(39, 13 * DAY) is None
    found = usual(39, 15 * DAY)
    assert found is not None
    values = json.loads(json.dumps(found.to_values()))
    assert usual_of(values) == found
    assert usual_of({**values, "another": 1}) is None


# --------------------------------------------------------------------------------------------------------- the stream


class Fed:
    """A database that takes rows in batches, with a stream that may be built again at any moment."""

    def __init__(self, folder: Path, model: MonitorModel, rules: Rules = RULES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.database: Database = store.MONITOR.database_at(folder / store.MONITOR.sqlite, alone=True)
        self.database.open()
        self.model, self.rules = model, rules
        self.stream = Stream(rules)

    def feed(self, rows: list[dict[str, Any]], *, size: int = 50) -> None:
        for start in range(0, len(rows), size):
            self.take(made_batch("test", rows[start : start + size], ROWS))

    def take(self, batch: Batch) -> None:
        take(self.database, self.stream, self.model, "0001", batch)

    def forget(self) -> None:
        """As after a kill."""
        self.stream = Stream(self.rules)

    def alarms(self) -> list[tuple[Any, ...]]:
        found = self.database.do(lambda connection: queries.alarms(connection, limit=1000))
        return [(one["entity"], one["topic"], one["kind"], one["time"], one["since"], tuple(one["figures"].items()))
                for one in reversed(found)]  # fmt: skip

    def counts(self) -> dict[Any, Any]:
        rows = self.database.do(lambda connection: connection.execute("SELECT * FROM hours").fetchall())
        return {row[:3]: tuple(round(value, 6) for value in row[3:]) for row in rows if row[3]}


@pytest.fixture(scope="module")
def model(learned: Path) -> MonitorModel:
    return segue.open_monitor(learned)


@pytest.fixture(scope="module")
def turned() -> list[dict[str, Any]]:
    return stream(days=50, bad_from=40)


@pytest.fixture(scope="module")
def whole(model: MonitorModel, turned: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Fed:
    fed = Fed(tmp_path_factory.mktemp("whole"), model)
    fed.feed(turned)
    return fed


def test_a_turn_raises_an_alarm_soon_with_reasons(whole: Fed) -> None:
    found = [one for one in whole.alarms() if one[0] == "ACME"]
    assert found
    before = [one for one in found if one[3] < START + 40 * DAY]
    after = [one for one in found if one[3] >= START + 40 * DAY]
    assert len(before) <= 2
    first = after[0]
    assert first[3] < START + 43 * DAY
    figures = dict(first[5])
    assert figures["negative"] >= 2
    assert figures["mean"] < figures["usual_mean"]
    others = [one for one in whole.alarms() if one[0] in ("GLBX", "600001")]
    assert len(others) <= 4


def test_alarms_of_the_same_texts_are_one_incident_and_cool_down(whole: Fed) -> None:
    found = whole.database.do(lambda connection: queries.alarms(connection, limit=1000))
    late = [one for one in found if one["time"] >= START + 40 * DAY]
    assert len({one["incident"] for one in late}) < len(late)
    for entity in ("ACME", ""):
        times = sorted(one["time"] for one in found if one["entity"] == entity and not one["topic"])
        assert all(b - a >= RULES.cool_down for a, b in itertools.pairwise(times))
    detail = whole.database.do(lambda connection: queries.one_alarm(connection, late[-1]["number"]))
    assert detail is not None
    assert detail["texts"]
    assert all(one["time"] <= detail["time"] for one in detail["texts"])


def test_a_stream_that_is_built_again_after_every_batch_says_the_same(
    whole: Fed, model: MonitorModel, turned: list[dict[str, Any]], tmp_path: Path
) -> None:
    fed = Fed(tmp_path, model)
    for start in range(0, len(turned), 37):
        fed.feed(turned[start : start + 37])
        fed.forget()
        fed.feed(turned[max(0, start - 20) : start + 37])  # what was taken is sent again
    assert fed.alarms() == whole.alarms()
    assert fed.counts() == whole.counts()


def test_the_order_of_arrival_within_the_lateness_changes_nothing(
    whole: Fed, model: MonitorModel, turned: list[dict[str, Any]], tmp_path: Path
) -> None:
    draw = random.Random(5)
    shaken = sorted(turned, key=lambda row: row["time"] + draw.uniform(0, 3500))
    assert shaken != turned
    fed = Fed(tmp_path, model)
    fed.feed(shaken)

    def plain(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return sorted(one[:5] for one in found)

    assert plain(fed.alarms()) == plain(whole.alarms())
    assert fed.counts() == whole.counts()


@pytest.mark.parametrize("seed", [1])
def test_shuffling_the_future_never_changes_the_past(
    model: MonitorModel, turned: list[dict[str, Any]], tmp_path: Path, seed: int
) -> None:
    cut = int(len(turned) * 0.86)
    past, future = turned[:cut], turned[cut:]
    draw = random.Random(seed)
    shuffled = [{**row, "text": draw.choice(future)["text"], "id": f"s{n}"} for n, row in enumerate(future)]
    draw.shuffle(shuffled)
    alone, going_on = Fed(tmp_path / "a", model), Fed(tmp_path / "b", model)
    alone.feed(past)
    before = alone.alarms()
    assert before
    going_on.feed(past)
    going_on.feed(shuffled)
    assert going_on.alarms()[: len(before)] == before

    def read(fed: Fed) -> list[Any]:
        query = "SELECT id, topic, sentiment, negative, positive, entities, original, late FROM texts ORDER BY number"
        return fed.database.do(lambda connection: connection.execute(query).fetchall())

    assert read(going_on)[: len(past)] == read(alone)


def test_late_texts_are_counted_but_raise_no_alarm(model: MonitorModel, tmp_path: Path) -> None:
    fed = Fed(tmp_path, model)
    fed.feed([{"text": "Acme holds its meeting", "time": START + 10 * DAY}])
    fed.feed([{"text": "Acme posts a heavy loss", "time": START}, {"text": "Acme wins", "time": START + 10 * DAY - 60}])
    found = fed.database.do(lambda connection: queries.texts(connection, entity="ACME"))
    assert [one["late"] for one in found] == [False, False, True]
    points = fed.database.do(
        lambda connection: queries.timeline(connection, entity="ACME", topic="", start=START, end=START + DAY)
    )["points"]
    assert sum(point["negative"] for point in points) == 1
    judged = fed.database.do(lambda connection: store.to_judge(connection, -1e18, 1e18))
    assert len(judged) == 2


def test_a_repeat_is_counted_and_not_read_again(
    model: MonitorModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = MonitorModel.read_all
    monkeypatch.setattr(MonitorModel, "read_all", lambda self, texts: read.extend(texts) or original(self, texts))
    fed = Fed(tmp_path, model)
    text = "Acme posts a heavy loss and cuts many jobs in its plant, the company said on Monday"
    rows = [{"text": text, "time": START}, {"text": f"RT @bob: {text.upper()}!", "time": START + 60}]
    fed.feed(rows[:1])
    fed.feed([rows[1], {"text": text.replace("many", "most"), "time": START + 120}])
    found = fed.database.do(lambda connection: queries.texts(connection, entity="ACME"))
    assert [one["original"] for one in found] == [1, 1, None]
    assert len(read) == 2  # the near one had to be looked at
    sums = fed.counts()["ACME", found[0]["topic"], int(START)]
    assert sums[:3] == (3, 2, 3)


def test_a_person_is_deleted_from_all_counts(model: MonitorModel, tmp_path: Path) -> None:
    rows = stream(days=4)
    kept = [row for row in rows if row["author"] != "writer-3"]
    both, without = Fed(tmp_path / "a", model), Fed(tmp_path / "b", model)
    both.feed(rows)
    without.feed(kept)
    gone = both.database.do(lambda connection: reviews.forget(connection, "writer-3"))
    assert gone == len(rows) - len(kept) > 0
    assert both.database.do(lambda connection: reviews.of_person(connection, "writer-3"))["texts"] == []
    assert both.counts() == without.counts()
    mentions = [
        fed.database.do(lambda connection: connection.execute("SELECT count(*) FROM mentions").fetchone())
        for fed in (both, without)
    ]
    assert mentions[0] == mentions[1]


def test_rows_that_are_no_text_are_kept_to_be_looked_at(model: MonitorModel, tmp_path: Path) -> None:
    fed = Fed(tmp_path, model)
    fed.feed([{"text": ""}, {"text": "fine", "time": START}, {"text": "x", "time": "never"}])
    found = fed.database.do(lambda connection: queries.refused(connection, limit=10))
    assert [one["reason"][:20] for one in found] == ["a time must be one t", "a row must have a te"]
    [source] = fed.database.do(queries.sources)
    assert (source["taken"], source["refused"]) == (1, 2)


def test_a_failed_transaction_leaves_nothing(
    model: MonitorModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = Fed(tmp_path, model)
    rows = stream(days=3)
    fed.feed(rows[:20])
    with monkeypatch.context() as patch:
        patch.setattr(store, "note_source", lambda *given, **more: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fed.feed(rows[20:30])
    before = fed.counts()
    fed.feed(rows[20:])
    whole = Fed(tmp_path / "whole", model)
    whole.feed(rows)
    assert fed.counts() == whole.counts() != before


def test_organisations_that_are_not_in_the_list_are_counted(
    model: MonitorModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "SURE", 0.2)  # how sure the packaged tagger is changes with it
    fed = Fed(tmp_path, model, replace(RULES, find_names="entities-zh"))
    text = "新华社记者报道，外交部发言人在北京表示，国务院总理访问日本。"
    fed.feed([
        {"text": text, "time": START},
        {"text": f"长江电力：{text}", "time": START + 60},
        {"text": "Xinhua reports", "time": START + 120},
    ])  # fmt: skip
    found = fed.database.do(lambda connection: queries.names(connection, limit=10))
    assert {one["name"]: one["texts"] for one in found}["新华社"] == 1
