"""Names that are not in the list: found, counted, taken into it by an operator, or dismissed."""

from pathlib import Path
from typing import Any

import httpx
import pytest

import segue
from segue.apps.monitor import names, queries, reviews, store
from segue.apps.monitor.entities import entities_of
from segue.apps.monitor.listing import take_names
from segue.apps.monitor.names import NameFinder, names_by_rule
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.store import MONITOR
from segue.errors import ConfigError
from tests.serve.running import Server


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Shares of Initech rose after Globex Energy bought Bank of Utopia.",
            ["Initech", "Globex Energy", "Bank of Utopia"],
        ),
        (
            "Profit rose at Hooli, Inc. on Monday. Analysts at Procter & Gamble agree",
            ["Hooli, Inc", "Procter & Gamble"],
        ),
        ("$HOOLI and $ STRK up 3%", ["HOOLI", "STRK"]),
        ("Massive posts a loss. Dynamic too", []),
        ("Massive Dynamic posts a loss", ["Massive Dynamic"]),
        ("The company said Vandelay Industries' profit fell", ["Vandelay Industries"]),
        ("In January, the U.S. said Umbrella's loss widened", ["Umbrella"]),
        ("Profit Rises At Big Company As Sales Grow Fast", []),
        ("ORDER FOR ACME WON BY HOOLI CORP", ["HOOLI CORP"]),
        ("see https://Foo.com/Bar and #Tag by @Handle", []),
        ("thanks to AT_USER AT_USER and Bank of AT_USER, said Hooli", ["Hooli"]),
        ("", []),
    ],
)
def test_the_rule_for_english(text: str, expected: list[str]) -> None:
    assert names_by_rule(text) == expected
    assert all(name in text for name in names_by_rule(text))


class Tagged:
    """In place of a network: every text has an organisation and a person."""

    def predict(self, rows: list[dict[str, str]], progress: bool) -> list[dict[str, Any]]:
        one = {"probability": 0.9, "text": "紫金银行", "type": "ORG"}
        return [{"entities": [one, one, {**one, "text": "王五", "type": "PER"}]} for _ in rows]


def test_ways_are_for_their_languages(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    monkeypatch.setattr(names, "load_finetuned", lambda name: loaded.append(name) or Tagged())
    texts = [("长江银行上涨", "zh", False), ("shares of Initech and Acme", "en", True), ("紫金", "zh", True)]
    known = entities_of([("ACME", ["Acme"])])
    assert NameFinder("rule-en").find(texts, known) == ["Initech"]
    assert not loaded
    assert NameFinder("rule-en, entities-zh").find(texts, known) == ["Initech", "紫金银行"]
    assert NameFinder("en=mine").find(texts, known) == []  # its text names a known entity
    assert NameFinder("mine").find([("x", "other", False)], known) == ["紫金银行"]
    assert NameFinder("entities-zh").find(texts, entities_of([("601", ["紫金银行"])])) == []
    assert NameFinder("").find(texts, known) == []
    assert loaded == ["entities-zh", "mine", "entities-zh"]
    with pytest.raises(ConfigError, match="must name a folder"):
        NameFinder("en=")


def proposed(folder: Path) -> dict[str, int]:
    with MONITOR.opened(folder) as database:
        return {one["name"]: one["texts"] for one in database.do(lambda c: queries.names(c, limit=50))}


def test_names_are_counted_taken_and_then_watched(monitor: Path) -> None:
    rows = [{"text": f"a heavy loss at Vandelay Industries, said Acme {n}", "author": "ann"} for n in range(3)]
    segue.feed_monitor(monitor, [*rows, {"text": "the office of Hooli moves", "author": "bob"}], progress=False)
    assert proposed(monitor) == {"Vandelay Industries": 3, "Hooli": 1}
    assert take_names(monitor, {" Vandelay Industries": "$VAND", "Acme Trucks": "ACME"}) == "0002"
    assert proposed(monitor) == {"Hooli": 1}
    found = segue.open_monitor(monitor)
    assert list(found.read("a heavy loss at Vandelay Industries and Acme Trucks").entities) == ["VAND", "ACME"]
    assert segue.describe_monitor(monitor).numbers["entities"] == 4
    assert segue.describe_monitor(monitor).page.is_file()
    segue.feed_monitor(monitor, [{"text": "orders of Vandelay Industries grew"}], progress=False)
    with MONITOR.opened(monitor) as database:
        [text] = database.do(lambda c: queries.texts(c, entity="VAND"))
        assert text["model"] == "0002"
        database.do(lambda c: reviews.forget(c, "bob"))
    assert proposed(monitor) == {}
    assert segue.roll_back_monitor(monitor) == "0001"
    for bad in ({"x": "A"}, {"Acme|B": "A"}, {"Acme": " "}, {}):
        with pytest.raises(ConfigError):
            take_names(monitor, bad)


def test_no_names_are_looked_for_where_none_are_wanted(monitor: Path) -> None:
    rows = [{"text": "a heavy loss at Vandelay Industries"}]
    segue.feed_monitor(monitor, rows, settings=MonitorSettings(find_names=""), progress=False)
    assert proposed(monitor) == {}


def test_names_are_not_kept_without_end(monitor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_NAMES", 8)
    with MONITOR.opened(monitor) as database:
        for number in range(9):
            some = [f"Name {number}"] * (1 + number % 3)
            database.do(lambda c, some=some, number=number: store.count_names(c, some, float(number)))  # type: ignore[misc]
    assert proposed(monitor) == {"Name 2": 3, "Name 5": 3, "Name 8": 3, "Name 1": 2, "Name 4": 2, "Name 7": 2}


def test_an_operator_takes_and_dismisses_names_of_a_running_monitor(
    server: Server, agent: httpx.Client, operator: httpx.Client
) -> None:
    rows = [{"text": f"a heavy loss at {name}, it is said"} for name in ("Wonka Sweets", "Gotham Bank")]
    assert agent.post("/v1/texts", json={"texts": rows}).status_code == 200
    listed = [one["name"] for one in agent.get("/v1/sources").json()["names"]]
    assert listed == ["Gotham Bank", "Wonka Sweets"]
    body = {"taken": {"Wonka Sweets": "WNKA"}, "dismissed": ["Gotham Bank"]}
    assert agent.post("/v1/operator/names", json=body).status_code == 403
    assert operator.post("/v1/operator/names", json={"taken": {"W": "WNKA"}}).status_code == 400
    before = agent.get("/v1/overview").json()["model"]
    found = operator.post("/v1/operator/names", json=body)
    assert found.status_code == 200, found.text
    assert found.json()["entities"] == 4
    assert found.json()["model"] == f"{int(before) + 1:04d}"
    assert agent.get("/v1/sources").json()["names"] == []
    number = agent.post("/v1/texts", json={"texts": [{"text": "Wonka Sweets wins an order"}]}).json()["texts"][0]
    assert list(agent.get(f"/v1/texts/{number}").json()["entities"]) == ["WNKA"]
    assert operator.post("/v1/operator/names", json={"proposed": ["Gotham Bank"]}).status_code == 200
    assert [one["name"] for one in agent.get("/v1/sources").json()["names"]] == ["Gotham Bank"]
