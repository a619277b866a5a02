"""When a subject turns: detectors, thresholds, the rule for late texts; the past never hangs on the future."""

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.apps.database import Database
from segue.apps.monitor import queries, reviews, store
from segue.apps.monitor.levels import FORGET, THRESHOLDS, WARM, alarms, threshold_for
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.reading import made_batch, take
from segue.apps.monitor.stream import Batch, Rules, Stream
from segue.apps.monitor.texts import Rows
from segue.apps.monitor.watch import DAY, HOUR, WEEK, Seen, Usual, learn_usual
from tests.apps.monitor.news import START, stream

drift = pytest.importorskip("river.drift", reason="river is not installed: pip install 'segue[monitor]'")
RULES = Rules(lateness=3600.0, budget=2.0, cool_down=86_400.0, near_texts=500)
ROWS = Rows(source="test")


def test_the_detectors_side_by_side_are_rivers() -> None:
    draw = np.random.default_rng(3)
    values = draw.normal(size=(4, 300)) + np.linspace(0, 0.6, 300)
    thresholds = np.array([3.0, 8.0, 20.0])
    expected = np.zeros((4, 3))
    for row in range(4):
        for place, threshold in enumerate(thresholds):
            test = None
            for value in values[row].tolist():
                if test is None:
                    test = drift.PageHinkley(min_instances=1, delta=0.2, threshold=threshold, alpha=FORGET, mode="up")
                    for _ in range(WARM):
                        test.update(0.0)
                test.update(value)
                if test.drift_detected:
                    expected[row, place] += 1
                    test = None
    assert expected.sum() > 5
    np.testing.assert_array_equal(alarms(values, thresholds, 0.2), expected)


def test_thresholds_keep_the_budget_on_history_and_rise_with_a_smaller_one() -> None:
    history = np.random.default_rng(1).normal(size=600)
    found = [threshold_for(history, delta=0.2, a_month=200, budget=budget, seed=0) for budget in (4.0, 1.0, 0.1)]
    assert found == sorted(found)
    assert found[0] < found[-1]
    fresh = np.random.default_rng(2).normal(size=(40, 200))
    assert alarms(fresh, np.array([found[1]]), 0.2).mean() <= 2.0
    assert threshold_for(np.full(50, 100.0), delta=0.2, a_month=50, budget=0.01, seed=0) <= THRESHOLDS[-1]


def test_what_is_expected_adds_up_over_hours_and_weeks() -> None:
    usual = Usual(
        learned=0.0, rate=14.0, weekdays=(2.0, *(5 / 6,) * 6), hours=(13.0, *(11 / 23,) * 23), mean=0.0,
        share=0.1, centre=-0.1, deviation=1.0, surge=1.0, shift=1.0, cautious=0.1, texts=1,
    )  # fmt: skip
    monday = 345_600.0 + 100 * WEEK
    assert usual.expected(monday, monday + WEEK) == pytest.approx(14.0)
    assert usual.expected(monday, monday + DAY) == pytest.approx(4.0)
    assert usual.expected(monday, monday + HOUR) == pytest.approx(4.0 * 13 / 24)
    whole = sum(usual.expected(monday + n * 1234.5, monday + (n + 1) * 1234.5) for n in range(800))
    assert whole == pytest.approx(usual.expected(monday, monday + 800 * 1234.5))


def test_nothing_is_usual_without_enough_history() -> None:
    few = [Seen(time=n * HOUR, number=n, negative=0.1, positive=0.1) for n in range(39)]
    hours = [(one.time, 0) for one in few]
    assert learn_usual(few, hours, texts=39, now=20 * DAY, budget=2.0) is None
    assert learn_usual(few, hours, texts=50, now=13 * DAY, budget=2.0) is None
    assert learn_usual(few, hours, texts=50, now=15 * DAY, budget=2.0) is not None


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
    assert figures["negative"] >= 3
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
    original = MonitorModel.read
    monkeypatch.setattr(MonitorModel, "read", lambda self, text: read.append(text) or original(self, text))
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


def test_organisations_that_are_not_in_the_list_are_counted(model: MonitorModel, tmp_path: Path) -> None:
    fed = Fed(tmp_path, model, replace(RULES, find_names="entities-zh"))
    text = "新华社记者报道，外交部发言人在北京表示，国务院总理访问日本。"
    fed.feed([
        {"text": text, "time": START},
        {"text": f"长江电力：{text}", "time": START + 60},
        {"text": "Xinhua reports", "time": START + 120},
    ])  # fmt: skip
    found = fed.database.do(lambda connection: queries.names(connection, limit=10))
    assert {one["name"]: one["texts"] for one in found}["新华社"] == 1
