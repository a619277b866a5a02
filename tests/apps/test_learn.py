"""From tables to answers: what is read, what is found, when nothing is answered."""

import csv
import doctest
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import segue
from segue.apps.desk import build, decide, learn, matcher, model, network, pairs, parts, rounds
from segue.apps.desk.confidence import fit_logistic, probability
from segue.apps.desk.folder import MODELS, read_model
from segue.apps.desk.index import build_index
from segue.apps.desk.knowledge import read_knowledge
from segue.apps.desk.parts import PARTS
from segue.apps.desk.ranker import PRIOR, fit_weights, put_forward, rank
from segue.apps.desk.slots import filled, slots_in
from segue.apps.desk.terms import terms_of, words_of
from segue.errors import CheckpointError, DataError
from segue.text.unicode import is_chinese
from tests.apps.faq import CHINESE, ENGLISH, rows
from tests.tasks.models import write_model

SURE = {
    "please track the parcel": "parcel",
    "I cannot remember my password": "password",
    "快递查一下": "快递",
    "我想申请退款": "退款",
}


def test_a_topic_is_an_intent_or_an_answer(tmp_path: Path) -> None:
    table = tmp_path / "faq.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([
            ("Question", "Answer", "Intent"),
            ("where is it", "There.", "place"),
            ("where to", "Here.", "place"),
            ("and where", "There.", "place"),
            ("how much", "Nothing.", ""),
            ("what does it cost", "Nothing.", ""),
            ("nonsense", "", "oos"),
            ("no answer yet", "", "later"),
            ("", "An article to be searched.", ""),
            ("", "", "empty"),
        ])  # fmt: skip
    known = read_knowledge([table])
    assert [(topic.name, topic.answer) for topic in known.topics] == [
        ("place", "There."), ("Nothing.", "Nothing."), ("later", None),
        ("An article to be searched.", "An article to be searched."),
    ]  # fmt: skip
    assert {one.text: one.topics for one in known.asked}["what does it cost"] == (1,)
    assert known.outside == ("nonsense",)
    assert known.left_out == {"rows without question and answer": 1}


def test_dialogues_are_questions_with_their_answers(tmp_path: Path) -> None:
    turns = [{"speaker": "customer", "text": "where is it"}, {"speaker": "agent", "text": "There."},
             {"speaker": "customer", "text": "thanks"}]  # fmt: skip
    table = tmp_path / "dialogues.jsonl"
    table.write_text(
        json.dumps({"turns": turns}) + "\n" + json.dumps({"turns": ["how much", "Nothing."]}) + "\n"
        + json.dumps({"turns": 7}) + "\n"
    )  # fmt: skip
    known = read_knowledge([table])
    assert [(one.text, known.topics[one.topics[0]].answer) for one in known.asked] == [
        ("where is it", "There."), ("how much", "Nothing."),
    ]  # fmt: skip
    assert known.left_out == {"dialogues that are no list of turns": 1}


def test_a_table_without_answers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("name,age\nann,3\n")
    with pytest.raises(DataError, match="must have a column question, answer or turns; got name, age"):
        read_knowledge([tmp_path / "bad.csv"])
    with pytest.raises(DataError, match="must have a column answer or intent"):
        segue.learn_desk([{"question": "hello"}], tmp_path / "desk", model="none", progress=False)
    assert not (tmp_path / "desk").exists()


def test_terms_of_both_kinds_of_script() -> None:
    assert words_of("Where's my 我的 card?") == ["where's", "my", "我的", "card"]
    assert terms_of("ＡＢＣ") == terms_of("abc")
    assert terms_of("order 123456") == terms_of("order 99-88/77") != terms_of("order 12")
    assert {"快", "递", "快递"} <= terms_of("快递").keys()
    assert is_chinese("请问 iPhone 多少钱")
    assert not is_chinese("How do I say 谢谢 in English?")


def test_full_text_scores_are_shares_of_the_question_itself() -> None:
    texts = ["where is my parcel", "I want a refund", "", "快递到哪里了"]
    index = build_index(texts)
    for place, text in enumerate(texts):
        scores = index.scores(text)
        assert scores.shape == (4,)
        if text:
            assert scores.argmax() == place
            assert scores[place] == pytest.approx(1, abs=1e-5)
    assert not index.scores("zzz").any()
    assert index.scores("where is my quantum telescope")[0] < 0.6


def test_weights_prefer_the_part_that_is_right() -> None:
    draw = np.random.default_rng(0)
    scores, golds = [], []
    for _ in range(200):
        gold = int(draw.integers(20))
        one = draw.random((len(PARTS), 20)).astype(np.float32)
        one[4:] = 0
        one[0, gold] += 0.8
        scores.append(put_forward(one))
        golds.append((gold,))
    weights = fit_weights(scores, golds)
    assert weights[0] > PRIOR[0] / 2
    assert weights[1] < weights[0] / 3
    right = [int(rank(one, weights).topics[0]) == gold for one, (gold,) in zip(scores, golds, strict=True)]
    assert np.mean(right) > 0.8
    assert fit_weights([], []).tolist() == PRIOR.tolist()


def test_a_logistic_model_is_calibrated() -> None:
    draw = np.random.default_rng(2)
    given = np.stack([np.ones(5000), draw.normal(size=5000)], axis=1)
    true = draw.random(5000) < 1 / (1 + np.exp(-(given @ np.array([0.5, 2.0]))))
    assert fit_logistic(given, true) == pytest.approx([0.5, 2.0], abs=0.15)
    assert probability(given, fit_logistic(given, true)).mean() == pytest.approx(true.mean(), abs=1e-3)


def test_slots_are_filled_from_the_question() -> None:
    templates = ["where is order {order}", "我的订单{order}在哪"]
    assert slots_in("Order {order} is late.", templates, "Where is order 77-A?").values == {"order": "77-A"}
    assert slots_in("Order {order} is late.", templates, "where is it?").missing == ("order",)
    assert slots_in("No slots.", templates, "where is order 5").missing == ()
    assert filled("Order {order} of {name}", {"order": "7"}) == "Order 7 of {name}"


def test_signs_for_a_person() -> None:
    assert doctest.testmod(decide).attempted == 5
    assert doctest.testmod(decide).failed == 0
    for text in ("agent", "Let me speak to someone please", "I need a human", "请帮我转人工客服", "叫你们经理来"):
        assert decide.wants_person(text), text
    for text in ("what does an estate agent cost", "human resources address", "我的卡", "is the operator fee included"):
        assert not decide.wants_person(text), text


def test_it_answers_and_knows_when_not_to(learned: Path) -> None:
    desk = segue.open_desk(learned)
    for question, topic in SURE.items():
        found = desk.ask(question)
        assert found.candidates[0].topic.name == topic
        assert found.answer == {**ENGLISH, **CHINESE}[topic][0], question
    for question in ("can penguins fly over the moon", "宇宙有多大"):
        found = desk.ask(question)
        assert found.answer is None
        assert found.reason == "out_of_scope"
    assert desk.ask("complaint about your colleague").reason == "no_answer"
    assert 0 <= desk.ask("").confidence <= 1


def test_what_was_said_before_helps(learned: Path) -> None:
    desk = segue.open_desk(learned)
    assert desk.ask("and when?").answer is None
    found = desk.ask("and when?", before=["I want a refund"])
    assert found.with_before
    assert found.candidates[0].topic.name == "refund"
    assert not desk.ask("I forgot my password", before=["where is my parcel"]).with_before
    assert desk.ask("can penguins fly over the moon", before=["where is my parcel"]).reason == "out_of_scope"
    assert doctest.testmod(model).attempted == 1
    assert doctest.testmod(model).failed == 0


def test_a_desk_is_read_as_it_was_written(learned: Path, tmp_path: Path) -> None:
    numbers = segue.describe_desk(learned)
    assert numbers.numbers["topics"] == 12
    assert numbers.numbers["without_answer"] == 1
    assert numbers.numbers["right"] > 0.6
    assert not numbers.numbers["shortened"]
    text = numbers.page.with_suffix(".md").read_text(encoding="utf-8")
    for part in ("What it knows", "Confused topics", "When it answers", "without an answer", "complaint"):
        assert part in text
    assert "<script" not in numbers.page.read_text(encoding="utf-8")
    again = tmp_path / "again"
    segue.learn_desk(rows(), again, model="none", error=0.05, progress=False)
    one, two = segue.open_desk(learned), segue.open_desk(again)
    for question in SURE:
        assert one.ask(question) == two.ask(question)
    path = again / MODELS / "0001" / "tensors.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"tensors\.safetensors"):
        segue.open_desk(again)


def test_vectors_of_any_model(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    out = tmp_path / "desk"
    found = segue.learn_desk(rows(), out, model=str(folder), error=0.05, progress=False)
    assert {"near", "dense", "linear", "questions"} <= found.numbers["alone"].keys()
    desk = read_model(out / MODELS / "0001")
    assert desk.encoder is not None
    vectors = desk.encoder.vectors(["where is my parcel", "where is my parcel", "I want a refund"])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-4)
    assert vectors[0] @ vectors[1] == pytest.approx(1, abs=1e-4)
    assert desk.ask("please track the parcel").candidates[0].topic.name == "parcel"


def test_a_network_is_tried_where_there_are_enough_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here twelve held-out questions are enough, and any network is good enough."""
    monkeypatch.setattr(rounds, "MANY", 12)
    monkeypatch.setattr(rounds, "ENOUGH", 5)
    monkeypatch.setattr(learn, "ENOUGH", 5)
    monkeypatch.setattr(learn, "WORTH", -1.0)
    monkeypatch.setattr(matcher, "STEPS", 1)
    monkeypatch.setattr(network, "SETTINGS", {**network.SETTINGS, "train.epochs": 1})
    folder = write_model(tmp_path / "model")
    found = segue.learn_desk(rows(), tmp_path / "desk", model=str(folder), error=0.05, progress=False)
    assert "network" in found.numbers["alone"]
    assert "A fine-tuned network was tried" in found.page.with_suffix(".md").read_text(encoding="utf-8")
    desk = segue.open_desk(tmp_path / "desk")
    assert desk.network is not None
    scores = desk.network.scores(["where is my parcel", "我要退款"])
    assert scores.shape == (2, 12)
    assert np.exp(scores).sum(axis=1) == pytest.approx(1, abs=1e-3)
    assert desk.ask("please track the parcel").candidates[0].topic.name == "parcel"


def test_vectors_are_matched_where_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of sixteen directions tell the topics apart; the others are louder, and say nothing."""
    monkeypatch.setattr(matcher, "STEPS", 80)
    monkeypatch.setattr(matcher, "RATE", 0.02)
    draw = np.random.default_rng(0)
    meanings = draw.normal(size=(60, 4))

    def vectors(topics: list[int]) -> np.ndarray:
        loud = 2.5 * draw.normal(size=(len(topics), 12))
        return np.concatenate([meanings[topics] + 0.2 * draw.normal(size=(len(topics), 4)), loud], axis=1).astype("f4")

    known, new = [n % 60 for n in range(360)], list(range(60))
    asked, answers, questions = vectors(known), vectors(new), vectors(new)
    found = matcher.fit_matcher(asked, answers, [(topic,) for topic in known], range(360), seed=0)
    assert found is not None

    def right(ask: np.ndarray, others: np.ndarray) -> float:
        unit = others / np.linalg.norm(others, axis=1, keepdims=True)
        return float(np.mean((ask @ unit.T).argmax(axis=1) % 60 == np.arange(60)))

    assert right(found.questions(questions), found.questions(asked)) > right(questions, asked) + 0.2
    nothing = matcher.fit_matcher(asked[:60], np.zeros_like(answers), [(n,) for n in range(60)], range(60), seed=0)
    assert nothing is None


def test_pairs_are_read_where_there_are_many_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here everything counts as many, and any reader is good enough."""
    for place in (build, parts):
        monkeypatch.setattr(place, "MOST_TOPICS", 1)
    monkeypatch.setattr(learn, "ENOUGH", 5)
    monkeypatch.setattr(learn, "LEAST_PAIRS", 5)
    monkeypatch.setattr(matcher, "ROUNDS", 1)
    monkeypatch.setattr(matcher, "STEPS", 3)
    monkeypatch.setattr(learn, "WORTH", -1.0)
    monkeypatch.setattr(pairs, "SETTINGS", {**pairs.SETTINGS, "train.epochs": 1})
    folder = write_model(tmp_path / "model")
    found = segue.learn_desk(rows(), tmp_path / "desk", model=str(folder), error=0.05, progress=False)
    assert "pairs" in found.numbers["alone"]
    text = found.page.with_suffix(".md").read_text(encoding="utf-8")
    assert "A reader of pairs was tried" in text
    assert "Matching of vectors was learned" in text
    desk = segue.open_desk(tmp_path / "desk")
    assert desk.pairs is not None
    assert desk.encoder is not None
    assert desk.matcher is not None
    one, other = desk.pairs.scores(["where is my parcel", "refund"], [["track my parcel", "refund"], ["a", "b", "c"]])
    assert (one.shape, other.shape, one.max(), other.max()) == ((2,), (3,), 0, 0)
    assert desk.ask("please track the parcel").candidates[0].topic.name == "parcel"


def test_topics_without_an_answer_do_not_count_as_answered(tmp_path: Path) -> None:
    some = [one | {"answer": None if one["intent"] in ENGLISH else one["answer"]} for one in rows()]
    numbers = segue.learn_desk(some, tmp_path / "some", model="none", error=0.3, progress=False).numbers
    every = segue.learn_desk(rows(), tmp_path / "every", model="none", error=0.3, progress=False).numbers
    assert 0 < numbers["answered"] < 0.6 < every["answered"]


def test_files_in_another_encoding(tmp_path: Path) -> None:
    table = tmp_path / "faq.csv"
    table.write_text("question,answer\n快递在哪里,请看订单。\n怎么退款,三天到账。\n", encoding="gb18030")
    with pytest.raises(DataError, match="encoding='gb18030'"):
        segue.learn_desk(table, tmp_path / "desk", model="none", progress=False)
    segue.learn_desk(table, tmp_path / "desk", model="none", encoding="gb18030", progress=False)
    assert segue.open_desk(tmp_path / "desk").knowledge.topics[0].answer == "请看订单。"


def test_few_questions_are_held_back_one_by_one(tmp_path: Path) -> None:
    few = [one for one in rows() if one["intent"] in ("parcel", "refund", "card")]
    found = segue.learn_desk(few, tmp_path / "desk", model="none", progress=False)
    assert not found.numbers["shortened"]
    assert found.numbers["held_back"] == len(few)


def test_single_questions_are_shortened_to_measure(tmp_path: Path) -> None:
    few = [{"question": one[1], "answer": one[0]} for one in ENGLISH.values()]
    few.append({"question": None, "answer": "Batteries last for two years."})
    found = segue.learn_desk(few, tmp_path / "desk", model="none", progress=False)
    assert found.numbers["shortened"]
    assert Counter(topic.answer is not None for topic in segue.open_desk(tmp_path / "desk").knowledge.topics) == {
        True: 7
    }
    assert (
        segue.open_desk(tmp_path / "desk").ask("how long do batteries last").candidates[0].topic.answer
        == few[-1]["answer"]
    )
