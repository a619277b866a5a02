"""Trends, alarms and proposed names, in Python and on the command line."""

import json
import shutil
from pathlib import Path

import pytest

import segue
from segue.apps.monitor import queries
from segue.apps.monitor.store import MONITOR
from segue.errors import ConfigError
from tests.apps.monitor.news import DAY, START, stream
from tests.command import command

PERIOD = {"start": "2023-12-24", "end": "2024-01-03"}


@pytest.fixture(scope="module")
def filled(learned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A monitor whose ACME turns bad after 40 days; only looked at."""
    folder = tmp_path_factory.mktemp("filled") / "monitor"
    shutil.copytree(learned, folder)
    names = [{"text": f"a heavy loss at Wonka Sweets {n}", "time": START + 45 * DAY + n} for n in range(2)]
    segue.feed_monitor(folder, [*stream(days=50, bad_from=40), *names], progress=False)
    return folder


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    days = [f"2023-{month}-{day:02d},ACME,{100 + day % 7}\n" for month in (11, 12) for day in range(1, 31)]
    (tmp_path / "prices.csv").write_text("date,symbol,close\n" + "".join(days) + "2023-12-31,ACME,nan\n")
    return tmp_path / "prices.csv"


def segue_monitor(*arguments: object) -> str:
    done = command("monitor", *arguments, width=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_entities_of_a_period_and_its_topics_add_up(filled: Path) -> None:
    found = segue.trends_in_monitor(filled, **PERIOD)
    assert [row["entity"] for row in found["entities"]] != []
    with MONITOR.opened(filled) as database:
        line = database.do(
            lambda connection: queries.timeline(
                connection, entity="ACME", topic="", start=found["start"], end=found["end"]
            )
        )["points"]
    [acme] = segue.trends_in_monitor(filled, entities=["ACME"], **PERIOD)["entities"]
    assert acme["texts"] == sum(point["texts"] for point in line) > 0
    assert {key: value for key, value in acme.items() if key != "alarms"} == next(
        row for row in found["entities"] if row["entity"] == "ACME"
    )
    assert acme["mean"] < acme["before"]["mean"] - 0.3
    own = segue.trends_in_monitor(filled, entities=["ACME"], **PERIOD)["topics"]
    assert sum(row["texts"] for row in own) == acme["texts"]
    assert found["all"]["texts"] == sum(row["texts"] for row in found["topics"])
    within = segue.trends_in_monitor(filled, topic="law", **PERIOD)
    assert within["all"] == {key: value for key, value in within["topics"][0].items() if key != "topic"}
    assert sum(row["texts"] for row in within["entities"]) <= within["topics"][0]["texts"]
    [both] = segue.trends_in_monitor(filled, entities=["ACME"], topic="law", **PERIOD)["entities"]
    assert both["texts"] == next(row["texts"] for row in own if row["topic"] == "law")
    assert segue.trends_in_monitor(filled, entities=["NONE"])["entities"][0]["mean"] is None


def test_entities_are_compared_with_their_alarms_and_prices(filled: Path, prices: Path) -> None:
    found = segue.trends_in_monitor(filled, entities=["ACME", "GLBX"], start="2023-11-01", prices=prices)
    acme, globex = found["entities"]
    assert acme["alarms"] == len(segue.alarms_in_monitor(filled, entity="ACME")) > 0
    assert globex["price"] is None
    assert 0 < acme["price"]["same_day"]["p_value"] <= 1
    assert found["topics"] == []
    text = segue_monitor(
        "trends", filled, "--entity", "ACME", "--entity", "GLBX", "--from", "2023-11-01", "--prices", prices
    )
    assert "ACME" in text
    assert "(p = " in text
    assert "not investment advice" in " ".join(text.split())
    assert "GLBX: no price in this period." in text
    assert "before" in segue_monitor("trends", filled, "--topic", "law")
    assert json.loads(segue_monitor("trends", filled, "--json"))["entities"]
    refused = command("monitor", "trends", filled, "--prices", prices)
    assert refused.returncode == 2
    assert "Give --entity CODE" in refused.stderr
    with pytest.raises(ConfigError, match="before its end"):
        segue.trends_in_monitor(filled, start="2024-01-02", end="2024-01-01")


def test_an_alarm_is_listed_shown_commented_and_acknowledged(filled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "monitor"
    shutil.copytree(filled, folder)
    listed = segue.alarms_in_monitor(folder, entity="ACME", state="open")
    number = listed[0]["number"]
    assert f"\n{number}  " in "\n" + segue_monitor("alarms", folder, "--open", "--entity", "ACME")
    one = segue.alarm_in_monitor(folder, number, comment=" a recall ", by="ann")
    assert (one["state"], [said["text"] for said in one["comments"]]) == ("open", ["a recall"])
    assert sum(len(group["texts"]) for group in one["groups"]) == len(one["texts"]) > 0
    text = segue_monitor("alarms", folder, number, "--acknowledge", "--by", "bob")
    assert "Acknowledged by bob" in text
    assert "ann, " in text
    incident = one["incident"]
    assert not [other for other in segue.alarms_in_monitor(folder, state="open") if other["incident"] == incident]
    assert json.loads(segue_monitor("alarms", folder, number, "--json"))["state"] == "acknowledged"
    for given in ({"comment": "  "}, {"comment": "x" * 5000}):
        with pytest.raises(ConfigError, match="comment must have"):
            segue.alarm_in_monitor(folder, number, **given)
    with pytest.raises(ConfigError, match="open or acknowledged"):
        segue.alarms_in_monitor(folder, state="closed")
    for arguments in (["99999"], ["--acknowledge"]):
        assert command("monitor", "alarms", folder, *arguments).returncode == 2


def test_names_are_listed_taken_and_dismissed(filled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "monitor"
    shutil.copytree(filled, folder)
    assert "Wonka Sweets" in segue_monitor("names", folder)
    assert "No names are proposed." in segue_monitor("names", folder, "--dismiss", "Wonka Sweets")
    assert [one["name"] for one in segue.names_in_monitor(folder, propose=["Wonka Sweets"])] == ["Wonka Sweets"]
    text = segue_monitor("names", folder, "--take", "Wonka Sweets=WNKA")
    assert "Model 0002 is now in use" in text
    assert list(segue.open_monitor(folder).read("Wonka Sweets wins an order").entities) == ["WNKA"]
    for arguments, said in ((["--take", "Hooli"], "with its code"), (["--dismiss", "Nobody"], "that texts mention")):
        done = command("monitor", "names", folder, *arguments)
        assert done.returncode == 2
        assert said in " ".join(done.stderr.split())
