"""A network beside the linear model: when it is used, what it reads, and that all else goes on as before."""

import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import segue
from segue.apps.folder import MODELS, read_about
from segue.apps.monitor import reviews
from segue.apps.monitor.folder import NETWORK
from segue.apps.monitor.joining import LEAST, measure
from segue.apps.monitor.labelled import SENTIMENTS
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.network import CHINESE, ENGLISH, Network, Trainer, choose_trainer
from segue.apps.monitor.store import MONITOR
from segue.errors import CheckpointError
from tests.apps.monitor.articles import SEGMENT, article, articles, said, small, tiny
from tests.apps.monitor.news import entities, labelled
from tests.command import command


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def joined(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A monitor with a network; tests that write copy it."""
    out = tmp_path_factory.mktemp("joined") / "monitor"
    with small(epochs=5, least=20):
        segue.learn_monitor(articles(160), out, entities=entities(), model=model_folder, progress=False)
    return out


@pytest.fixture(scope="module")
def model(joined: Path) -> MonitorModel:
    return segue.open_monitor(joined)


@pytest.fixture
def copied(joined: Path, tmp_path: Path) -> Path:
    shutil.copytree(joined, tmp_path / "monitor")
    return tmp_path / "monitor"


def test_a_network_that_tells_what_n_grams_cannot_is_used(joined: Path, model: MonitorModel) -> None:
    numbers = segue.describe_monitor(joined).numbers
    tried = numbers["network"]
    assert tried["used"]
    assert (tried["learned"] + tried["asked"], tried["asked"]) == (numbers["rows"], numbers["rows"] // 5)
    assert tried["right_before"] < 0.8 < 0.95 < tried["right_now"]
    assert tried["loss_now"] < 0.5 * tried["loss_before"]
    assert numbers["sentiment"]["accuracy"] == tried["right_now"]
    report = segue.describe_monitor(joined).page.with_suffix(".md").read_text(encoding="utf-8")
    assert "It is used." in report
    assert "Most influential words, in the linear model" in report
    new = articles(40, seed=9)
    found = model.read_all([row["text"] for row in new])
    right = sum(one.sentiment.label == row["sentiment"] for one, row in zip(found, new, strict=True))
    assert right > 36


def test_long_articles_are_read_to_the_end_with_memory(model: MonitorModel) -> None:
    """What decides comes last, many segments after the beginning; what stands before the last segment is remembered."""
    assert model.joined is not None
    network = model.joined.network
    made = network.model.task_model
    assert (made.segment_length, made.config.memory is not None) == (SEGMENT, True)
    draw = random.Random(4)
    filler = " ".join(article(good=one % 2 == 0, draw=draw) for one in range(8))
    for good, label in ((True, "positive"), (False, "negative")):
        text = f"{filler} {article(good=good, draw=draw)}"
        assert len(made.tokenizer.encode(text)) > 20 * SEGMENT
        assert model.read(text).sentiment.label == label
    ending = article(good=True, draw=draw)
    other = ending.replace(said("dull"), said("kind"))
    ids, others = (made.tokenizer.encode(text) for text in (ending, other))
    assert np.array_equal(ids[-SEGMENT:], others[-SEGMENT:])  # the last segment is the same in both
    assert not np.array_equal(ids[:-SEGMENT], others[:-SEGMENT])
    first_C, second_C = network.scores([ending, other])
    assert np.abs(first_C - second_C).max() > 1e-3


def test_a_text_is_read_the_same_alone_in_a_batch_and_again(model: MonitorModel) -> None:
    draw = random.Random(5)
    texts = [article(good=draw.random() < 0.5, draw=draw)[draw.randrange(150) :] for _ in range(40)]
    texts += ["", " ", "!", "Acme was kind, but Globex was dull", "好", texts[0] * 30]
    together = model.read_all(texts)
    assert together == model.read_all(texts)
    assert list(together[43].entities) == ["ACME", "GLBX"]
    for text, found in zip(texts, together, strict=True):
        alone = model.read(text)
        assert alone.sentiment.negative == pytest.approx(found.sentiment.negative, abs=1e-5)
        assert alone.entities.keys() == found.entities.keys()
        for code, one in found.entities.items():
            assert alone.entities[code].positive == pytest.approx(one.positive, abs=1e-5)


def test_words_biases_and_network_add_up_to_the_score(model: MonitorModel) -> None:
    assert model.joined is not None
    mixture = model.joined.mixture
    text = article(good=True, draw=random.Random(6))
    found = model.read(text).sentiment
    by_network = model.by_network(text)
    assert by_network is not None
    assert by_network > 0
    biases_C = mixture.linear * model.linear.bias_C[:3] + mixture.bias_C
    total = sum(one.weight for one in model.deciding(text)) + by_network + float(biases_C[2] - biases_C[0])
    assert total == pytest.approx(np.log(found.positive / found.negative), abs=1e-3)
    negative = model.by_network(text, label="negative")
    assert negative == pytest.approx(-by_network)


def test_a_packaged_model_reads_its_own_language_alone(model: MonitorModel, tmp_path: Path) -> None:
    def chosen(texts: list[str]) -> Trainer | None:
        return choose_trainer("auto", texts, folder=tmp_path, seed=0, told=lambda _: None)

    english, chinese = chosen(["Profit rose", "利润上升", "a loss"]), chosen(["利润上升", "Profit rose", "亏损"])
    assert english is not None
    assert chinese is not None
    assert (english.name, english.chinese, chinese.name, chinese.chinese) == (ENGLISH, False, CHINESE, True)
    assert [one.reads("利润上升") for one in (english, chinese)] == [False, True]
    assert choose_trainer("none", ["Profit"], folder=tmp_path, seed=0, told=lambda _: None) is None
    assert model.joined is not None
    of_english = replace(model, joined=replace(model.joined, network=replace(model.joined.network, chinese=False)))
    linear = replace(model, joined=None)
    text = "公司净利润同比增长"
    assert of_english.by_network(text) is None
    assert of_english.read_all([text, "It was kind"]) == [linear.read(text), model.read("It was kind")]
    assert linear.read("It was kind") != model.read("It was kind")


def test_what_is_measured_decides() -> None:
    """A network that knows is used; one that guesses, or repeats what the linear model says, is not."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 3, 600)
    right_NC = np.eye(3)[labels]
    linear_NC = right_NC + draw.normal(size=(600, 3))
    says = {
        "knows": 2 * right_NC + draw.normal(size=(600, 3)),
        "guesses": 3 * draw.normal(size=(600, 3)),
        "repeats": 2 * linear_NC,
        "is wrong": -3 * right_NC + draw.normal(size=(600, 3)),
    }
    found = {name: measure(linear_NC, np.log(_softmax(one)), labels.tolist()) for name, one in says.items()}
    assert {name: one.helps for name, one in found.items()} == {
        "knows": True,
        "guesses": False,
        "repeats": False,
        "is wrong": False,
    }
    assert found["knows"].right(found["knows"].both_NC) > found["knows"].right(found["knows"].linear_NC) + 0.1


def _softmax(scores_NC: np.ndarray) -> np.ndarray:
    powers = np.exp(scores_NC)
    found: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return found


def test_a_network_that_does_not_help_is_not_used(model_folder: Path, tmp_path: Path) -> None:
    rows = [row for row in labelled(160) if row["text"].isascii()]
    with small(epochs=1, least=10):
        found = segue.learn_monitor(rows, tmp_path / "monitor", model=model_folder, progress=False)
    tried = found.numbers["network"]
    assert not tried["used"]
    assert tried["learned"] > 50
    assert not (tmp_path / "monitor" / MODELS / "0001" / NETWORK).exists()
    assert segue.open_monitor(tmp_path / "monitor").joined is None
    assert "It is not used." in found.page.with_suffix(".md").read_text(encoding="utf-8")
    assert segue.open_monitor(tmp_path / "monitor").by_network("a heavy loss") is None


def test_too_few_rows_and_missing_models_are_told(model_folder: Path, tmp_path: Path) -> None:
    done = command("monitor", "learn", _table(tmp_path), "--model", model_folder, "--out", tmp_path / "monitor")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert f"was not tried: it needs {LEAST} held-out rows that it can read" in said
    wrong = command("monitor", "learn", _table(tmp_path), "--model", "no-such-model", "--out", tmp_path / "other")
    assert wrong.returncode == 2
    assert "no-such-model" in wrong.stderr
    assert not (tmp_path / "other").exists()


def _table(folder: Path) -> Path:
    path = folder / "rows.csv"
    rows = [f"{row['text']},{row['sentiment']}" for row in articles(20)]
    path.write_text("\n".join(["text,sentiment", *rows]) + "\n", encoding="utf-8")
    return path


def test_copies_have_the_network_and_damage_is_told(copied: Path, model: MonitorModel, tmp_path: Path) -> None:
    segue.copy_monitor(copied, tmp_path / "copy")
    segue.copy_monitor(tmp_path / "copy", tmp_path / "again", check=True)
    text = article(good=False, draw=random.Random(7))
    assert segue.open_monitor(tmp_path / "again").read(text) == model.read(text)
    weights = copied / MODELS / "0001" / NETWORK / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        segue.open_monitor(copied)
    shutil.rmtree(weights.parent)
    with pytest.raises(CheckpointError, match=NETWORK):
        segue.open_monitor(copied)


def test_tell_says_what_the_network_added(joined: Path) -> None:
    text = article(good=False, draw=random.Random(8))
    done = command("monitor", "tell", joined, text)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("negative")
    assert "the network, which read the whole text: +" in " ".join(done.stdout.split())


def test_improve_measures_old_and_new_with_the_network(
    copied: Path, model: MonitorModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Corrected articles are learned; the new model goes back to the old one, and a person's texts are found in it."""
    learned: list[list[str]] = []

    def train(self: Trainer, texts: Sequence[str], labels: Sequence[int]) -> Network:
        learned.append(list(texts))
        assert model.joined is not None
        return model.joined.network

    monkeypatch.setattr(Trainer, "train", train)
    (row,) = articles(40, seed=11)[39:]
    wrong = {"text": f"{row['text']} 17", "author": "writer-0"}
    segue.feed_monitor(copied, [wrong], progress=False)
    with MONITOR.opened(copied) as database:
        database.do(lambda one: reviews.correct(one, 1, sentiment="negative", topic=None, entities={}, agent="alice"))
        database.do(lambda one: reviews.decide(one, 1, accepted=True, reviewer="bob"))
    with small(epochs=1, least=20):
        found = segue.improve_monitor(copied, progress=False)
    assert (found.model, found.learned) == ("0002", 1)
    assert found.right_before == found.right_now > 0.9
    assert found.switched
    before, now, whole = learned
    assert len(before) <= len(now) < len(whole)
    assert wrong["text"] not in before
    about = read_about(copied / MODELS / "0002")
    assert about["asked_for"] == read_about(copied / MODELS / "0001")["asked_for"]
    assert about["summary"]["network"]["used"]
    assert segue.open_monitor(copied).joined is not None
    assert segue.roll_back_monitor(copied) == "0001"
    assert segue.open_monitor(copied).joined is not None
    assert segue.person_in_monitor(copied, "writer-0", delete=True)["models"] == ["0002"]


def test_live_and_replayed_texts_are_read_the_same(copied: Path) -> None:
    """One by one as they come, or all in one batch."""
    rows = [
        {**row, "text": f"Part {n}. {row['text']}", "time": 1_700_000_000 + n}  # with numbers, they are no repeats
        for n, row in enumerate(articles(12, seed=13))
    ]
    shutil.copytree(copied, copied.parent / "other")
    for part in (rows[:1], rows[1:3], rows[3:]):
        segue.feed_monitor(copied, part, progress=False)
    segue.feed_monitor(copied.parent / "other", rows, progress=False)
    told = []
    for folder in (copied, copied.parent / "other"):
        with MONITOR.opened(folder) as database:
            told.append(
                database.do(lambda one: one.execute("SELECT negative, positive FROM texts ORDER BY time").fetchall())
            )
    assert np.array(told[0]) == pytest.approx(np.array(told[1]), abs=1e-5)
    assert [SENTIMENTS[0 if negative > positive else 2] for negative, positive in told[0]] == [
        row["sentiment"] for row in rows
    ]
