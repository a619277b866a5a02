"""What a monitor learns, how sure it is, which words decided; models on disk."""

from pathlib import Path

import numpy as np
import pytest

import segue
from segue.apps.monitor.calibrate import calibration_error, fit_calibration, macro_f1
from segue.apps.monitor.folder import MODELS, TENSORS, read_model
from segue.apps.monitor.labelled import SENTIMENTS
from segue.apps.monitor.learn import NEVER
from segue.errors import CheckpointError, DataError
from tests.apps.monitor.news import entities, labelled

TEXT = "Acme Motors posts a heavy loss, while 长江电力净利润同比增长 and demand is strong"


def test_unseen_texts_are_told_rightly_and_the_report_says_so(learned: Path) -> None:
    numbers = segue.describe_monitor(learned).numbers
    assert numbers["sentiment"]["accuracy"] > 0.95
    assert numbers["topic"]["accuracy"] > 0.9
    assert numbers["sentiment"]["calibration_error"] < 0.1
    assert (numbers["topics"], numbers["entities"], numbers["rows"] > 150) == (4, 3, True)
    page = segue.describe_monitor(learned).page.read_text(encoding="utf-8")
    assert "Most influential words" in page
    model = segue.open_monitor(learned)
    assert model.read("a heavy loss at Initrode").sentiment.label == "negative"
    assert model.read("公司净利润同比增长").sentiment.label == "positive"
    assert model.read("investigation into fraud").topic == "law"


def test_each_entity_has_a_sentiment_of_its_own(learned: Path) -> None:
    found = segue.open_monitor(learned).read(TEXT)
    assert list(found.entities) == ["ACME", "600001"]
    assert found.entities["ACME"].label == "negative"
    assert found.entities["600001"].label == "positive"
    one = segue.open_monitor(learned).read("Acme posts a heavy loss")
    assert one.entities["ACME"] == one.sentiment


def test_contributions_add_up_to_the_score(learned: Path) -> None:
    model = segue.open_monitor(learned)
    for label in SENTIMENTS:
        total = sum(one.weight for one in model.deciding(TEXT, label=label))
        scores_C = model.linear.scores(TEXT)[:3].astype(np.float64) - model.linear.bias_C[:3]
        chosen = SENTIMENTS.index(label)
        others = [place for place in range(3) if place != chosen]
        expected = model.sentiment.scale * (scores_C[chosen] - scores_C[others].mean())
        assert total == pytest.approx(expected, abs=1e-4)
    text = "a heavy loss，亏损Acme扩大"
    words = {text[one.start : one.end]: one.weight for one in model.deciding(text, label="negative")}
    assert list(words) == ["a", "heavy", "loss", "，", "亏", "损", "Acme", "扩", "大"]
    assert words["loss"] > words["a"]


def test_long_articles_are_read_to_the_end(learned: Path) -> None:
    model = segue.open_monitor(learned)
    filler = "The office is in another street. " * 2000
    ends = filler + "A heavy loss, fraud, weak demand. " * 400
    assert model.read(ends).sentiment.negative > model.read(filler).sentiment.negative + 0.2


def test_two_classes_alone_never_give_the_third(tmp_path: Path) -> None:
    rows = [row for row in labelled(80) if row["sentiment"] != "neutral"]
    segue.learn_monitor(rows, tmp_path / "two", progress=False)
    model = segue.open_monitor(tmp_path / "two")
    assert model.linear.bias_C[1] == NEVER
    assert model.read("the annual meeting").sentiment.neutral < 1e-6


def test_a_model_is_the_same_when_it_is_read_again_and_damage_is_told(monitor: Path) -> None:
    first, second = segue.open_monitor(monitor), read_model(monitor / MODELS / "0001")
    assert first.read(TEXT) == second.read(TEXT)
    data = bytearray((monitor / MODELS / "0001" / TENSORS).read_bytes())
    data[-1] ^= 1
    (monitor / MODELS / "0001" / TENSORS).write_bytes(data)
    with pytest.raises(CheckpointError):
        segue.open_monitor(monitor)


def test_calibration_mends_what_is_too_sure() -> None:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 4000)
    scores_NC = draw.normal(size=(4000, 3))
    scores_NC[np.arange(4000), labels] += 1.0
    sharp = 6 * scores_NC
    before = np.exp(sharp - sharp.max(axis=1, keepdims=True))
    before /= before.sum(axis=1, keepdims=True)
    found = fit_calibration(sharp[:2000], labels[:2000].tolist())
    after = found.probabilities(sharp[2000:])
    assert calibration_error(before[2000:], labels[2000:].tolist()) > 0.15
    assert calibration_error(after, labels[2000:].tolist()) < 0.04


def test_measures_by_hand() -> None:
    assert macro_f1([0, 0, 1, 1], [0, 1, 1, 1]) == pytest.approx((2 / 3 + 0.8) / 2)
    sure = np.array([[0.9, 0.1], [0.9, 0.1]])
    assert calibration_error(sure, [0, 1]) == pytest.approx(0.4)


def test_tables_that_cannot_be_learned_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="two sentiments"):
        segue.learn_monitor([{"text": "a", "sentiment": "good"}], tmp_path / "x", progress=False)
    assert not (tmp_path / "x").exists()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("mine")
    with pytest.raises(DataError, match="must not exist yet"):
        segue.learn_monitor(labelled(20), tmp_path / "kept", entities=entities(), progress=False)
