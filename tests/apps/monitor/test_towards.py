"""Sentiment towards each entity of a text: which clauses, labels of single entities, corrections of them."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import segue
from segue.api.tables import memory_table
from segue.apps.monitor import reviews
from segue.apps.monitor.entities import entities_of
from segue.apps.monitor.folder import MODELS, read_rows
from segue.apps.monitor.labelled import SENTIMENTS, Labelled, read_labelled
from segue.apps.monitor.said import THIS, around, said_of
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.targets import NOT_NAMED, TOO_FEW, targets_of
from segue.errors import ConfigError
from tests.apps.monitor.news import entities, labelled
from tests.command import command

KNOWN = entities_of(
    [("A", ["Acme", "Acme, Inc."]), ("G", ["Globex"]), ("I", ["Initech"]), ("C", ["长江"]), ("H", ["黄河"])]
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Acme rose and Globex fell", {"A": "Acme rose and", "G": "Globex fell"}),
        ("Profit rose at Acme and fell at Globex", {"A": "Profit rose at Acme and", "G": "fell at Globex"}),
        ("Acme and Globex rose", {"A": "Acme and Globex rose", "G": "Globex rose"}),
        (
            "Acme, Globex and Initech rose",
            {"A": "Acme, Initech rose", "G": "Globex and Initech rose", "I": "Initech rose"},
        ),
        (
            "Demand lifts Acme and Globex, but Initech fell",
            {"A": "Demand lifts Acme and but", "G": "Demand lifts Acme and Globex, but", "I": "Initech fell"},
        ),
        ("Acme, Inc. rose as Globex fell", {"A": "Acme, Inc. rose as", "G": "Globex fell"}),
        ("Winners: Acme, Globex", {"A": "Winners: Acme,", "G": "Winners: Globex"}),
        ("长江、黄河大涨", {"C": "长江、黄河大涨", "H": "黄河大涨"}),
        ("长江大涨，黄河下跌。", {"C": "长江大涨，", "H": "黄河下跌。"}),
        ("Acme rose. It won an order.", {"A": "Acme rose. It won an order."}),
    ],
)
def test_what_is_said_of_each(text: str, expected: dict[str, str]) -> None:
    found = around(text, KNOWN.mentions(text))
    assert {code: " ".join(said_of(text, spans).text.split()) for code, spans in found.items()} == expected
    for code, spans in found.items():
        for marked in (False, True):
            said = said_of(text, spans, entity=code, mentions=KNOWN.mentions(text), marked=marked)
            assert len(said.places) == len(said.text)
            assert all(0 <= start < end <= len(text) for start, end in said.places)


def test_praise_of_one_and_blame_of_another_in_one_clause(learned: Path) -> None:
    model = segue.open_monitor(learned)
    for text in (
        "Acme profit rose strongly and Globex posts a heavy loss",
        "strong demand lifts Acme and weak demand drags Globex into a loss",
    ):
        found = model.read(text)
        assert (found.entities["ACME"].label, found.entities["GLBX"].label) == ("positive", "negative")
    both = model.read("Acme and Globex profit rose strongly").entities
    assert both["ACME"].label == both["GLBX"].label == "positive"


def test_the_words_that_decided_are_those_about_the_entity(learned: Path) -> None:
    model, text = segue.open_monitor(learned), "Acme profit rose strongly and Globex posts a heavy loss"
    words = {text[one.start : one.end]: one.weight for one in model.deciding(text, entity="GLBX")}
    assert words["loss"] > 0.05
    assert words["profit"] == words["rose"] == words["Acme"] == 0
    with pytest.raises(ConfigError, match="one that the text names"):
        model.deciding(text, entity="600001")


def read(cell: Any) -> tuple[tuple[str, int], ...]:
    rows = [
        {"text": "Acme up, Globex down", "sentiment": "neutral", "entities": cell},
        {"text": "good", "sentiment": "positive"},
    ]
    return read_labelled([memory_table(rows, name="rows")]).rows[0].entities


def test_labels_of_entities_are_read_as_they_are_written() -> None:
    expected = (("ACME", 2), ("Globex", 0))
    listed = [{"code": "ACME", "sentiment": "positive"}, {"name": "Globex", "sentiment": "利空"}]
    assert read(listed) == read(json.dumps(listed)) == expected
    assert read({"ACME": "pos", "Globex": "neg"}) == read('{"$ACME": "pos", "Globex": "neg"}') == expected
    assert read("ACME:positive | Globex：负面") == expected
    rows = [{"text": "a", "sentiment": "positive", "entities": cell} for cell in ("{", ["x"], "ACME:what", None)]
    rows = [{**row, "text": f"a{n}"} for n, row in enumerate([*rows, {"text": "", "sentiment": "negative"}])]
    left = read_labelled([memory_table(rows, name="rows")]).left_out
    assert left["cells of entities that cannot be read"] == 2
    assert left["entities without a name or with an unknown sentiment"] == 1


def test_labels_that_cannot_be_used_are_counted() -> None:
    rows = [Labelled(text="Acme fell", entities=(("Acme", 0), ("Globex", 2), ("Hooli", 1)))]
    found, problems = targets_of(rows, KNOWN)
    assert not found
    assert problems == {NOT_NAMED: 2, TOO_FEW: 1}
    many = [Labelled(text=f"Acme fell {n}", entities=(("A", n % 2),)) for n in range(30)]
    found, problems = targets_of(many, KNOWN)
    assert (len(found), problems, found[3].text) == (30, {}, f"{THIS} fell 3")


def quarrels(count: int = 90, seed: int = 3) -> list[dict[str, Any]]:
    """One sues the other: good for none of the words, and bad for the one that comes second."""
    draw, names = random.Random(seed), {"ACME": "Acme", "GLBX": "Globex"}
    rows = []
    for number in range(count):
        first, second = draw.sample(list(names), 2)
        verb = draw.choice(["sues", "accuses", "defeats"])
        text = f"{names[first]} {verb} {names[second]} in court case {number}"
        towards = [{"code": first, "sentiment": "positive"}, {"name": names[second], "sentiment": "negative"}]
        rows.append({"text": text, "sentiment": "neutral", "topic": "law", "entities": towards})
    return rows


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("taught") / "monitor"
    rows = [{key: value for key, value in row.items() if key != "time"} for row in labelled(120)]
    segue.learn_monitor([*rows, *quarrels()], out, entities=entities(), progress=False)
    return out


def test_labels_of_entities_teach_who_did_what_to_whom_and_are_measured_apart(taught: Path, learned: Path) -> None:
    text = "Globex sues Acme in court case 7000"
    untaught = segue.open_monitor(learned).read(text).entities
    assert untaught["ACME"] == untaught["GLBX"]  # one clause, and nobody has said who is meant
    found = segue.open_monitor(taught).read(text).entities
    assert (found["GLBX"].label, found["ACME"].label) == ("positive", "negative")
    again = segue.open_monitor(taught).read("Acme profit rose strongly and Globex posts a heavy loss").entities
    assert (again["ACME"].label, again["GLBX"].label) == ("positive", "negative")
    numbers = segue.describe_monitor(taught).numbers
    assert numbers["entity"]["held_back"] == 180
    assert numbers["entity"]["accuracy"] > 0.9
    assert numbers["sentiment"]["held_back"] < 220
    page = segue.describe_monitor(taught).page.read_text(encoding="utf-8")
    assert "sentiment towards single entities" in page
    kept = read_rows(taught / MODELS / "0001")
    assert sum(len(row.entities) for row in kept) == 180
    done = command("monitor", "tell", str(taught), "--json", text)
    told = json.loads(done.stdout)["entities"]["ACME"]
    assert told["label"] == "negative"
    assert told["deciding"]


def test_contributions_towards_an_entity_add_up_to_its_score(taught: Path) -> None:
    model, text = segue.open_monitor(taught), "Globex sues Acme in court, and 长江电力净利润同比增长"
    assert model.entity is not None
    for code, told in model.read(text).entities.items():
        part = model._said(text)[code].text
        scores_C = (model.linear.scores(part) - model.linear.bias_C)[-3:].astype(np.float64)
        chosen = SENTIMENTS.index(told.label)
        expected = scores_C[chosen] - (scores_C.sum() - scores_C[chosen]) / 2
        total = sum(one.weight for one in model.deciding(text, entity=code))
        assert total == pytest.approx(model.entity.scale * expected, abs=1e-4)


def test_corrected_labels_of_entities_are_learned_after_a_review(taught: Path, tmp_path: Path) -> None:
    segue.copy_monitor(taught, tmp_path / "monitor")
    rows = [{"text": f"Acme outshines Globex at fair {n}", "id": str(n)} for n in range(40)]
    segue.feed_monitor(tmp_path / "monitor", rows, progress=False)

    def corrected(connection: Any) -> None:
        for number in range(1, 41):
            towards = {"ACME": "positive", "GLBX": "negative"}
            assert reviews.correct(connection, number, sentiment=None, topic=None, entities=towards, agent="alice")
            assert reviews.decide(connection, number, accepted=number != 40, reviewer="bob")

    with MONITOR.opened(tmp_path / "monitor") as database:
        database.do(corrected)
    found = segue.improve_monitor(tmp_path / "monitor", progress=False)
    assert found.learned == 39
    assert found.entities_asked >= 2
    assert found.entities_now >= found.entities_before
    assert found.switched == (found.right_now >= found.right_before)
    assert segue.describe_monitor(tmp_path / "monitor").model == ("0002" if found.switched else "0001")
    if found.switched:
        told = segue.open_monitor(tmp_path / "monitor").read("Globex outshines Acme at fair 99").entities
        assert (told["GLBX"].label, told["ACME"].label) == ("positive", "negative")
