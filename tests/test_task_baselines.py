"""The classical baselines of the results table: what can be said by hand of tiny tables, in English and Chinese."""

from typing import Any

import pytest
from benchmarks import task_baselines
from benchmarks.task_baselines import METHODS, Baseline, _features, _sentences, _shape, _trimmed

from segue.errors import DataError
from segue.evaluation.metrics.translation import translation

Rows = list[dict[str, Any]]
GOOD = {
    "en": ["a good film", "what a good story", "good actors , good end"],
    "zh": ["很好看", "服务真好", "好书，喜欢"],
}
BAD = {"en": ["a bad film", "what a bad story", "bad actors , bad end"], "zh": ["很难看", "服务真差", "差书，讨厌"]}
NEW = {"en": ("good music", "bad music"), "zh": ("好酒店", "差酒店")}


def baselines(task: str, language: str, train: Rows, test: Rows) -> list[Baseline]:
    """Settings are chosen on the training rows."""
    return task_baselines.baselines(task, language, train, test, valid=train)


def only(found: list[Baseline], metric: str) -> tuple[float, float]:
    trivial, classical, *_ = found
    assert trivial.metric == classical.metric == metric
    for one in found:
        assert one.seconds >= 0
        assert (one.low, one.high) == (None, None)  # the tables are too small
    return trivial.value, classical.value


@pytest.mark.parametrize("language", ["en", "zh"])
def test_classes_of_texts(language: str) -> None:
    train = [{"text": text, "label": "1"} for text in GOOD[language]]
    train += [{"text": text, "label": "0"} for text in BAD[language][:2]]
    good, bad = NEW[language]
    test = [{"text": bad, "label": "0"}, {"text": bad + bad, "label": "0"}, {"text": good, "label": "1"}]
    assert only(baselines("classify", language, train, test), "accuracy") == pytest.approx((1 / 3, 1.0))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_nb_svm_knows_the_words_of_each_of_three_classes(language: str) -> None:
    plain = {"en": ["a film", "the story ends"], "zh": ["一部电影", "故事完了"]}[language]
    rows = [
        {"text": text, "label": label}
        for label, texts in {"0": BAD[language], "1": GOOD[language], "2": plain}.items()
        for text in texts
    ]
    good, bad = NEW[language]
    found = baselines("classify", language, rows, [{"text": good, "label": "1"}, {"text": bad, "label": "0"}])
    assert [one.value for one in found if one.name == "NB-SVM"] == [1]


def test_the_penalty_is_chosen_on_the_validation_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the first one, the most frequent class always answers, which is right where bad texts are called good."""
    monkeypatch.setattr(task_baselines, "INVERSE_PENALTIES", (1e-9, 10.0))
    rows = [{"text": text, "label": "1"} for text in GOOD["en"]] + [
        {"text": text, "label": "0"} for text in BAD["en"][:2]
    ]
    test = [{"text": NEW["en"][1], "label": "0"}]
    misled = [{"text": text, "label": "1"} for text in BAD["en"]]
    for valid, value in ((rows, 1.0), (misled, 0.0)):
        found = task_baselines.baselines("classify", "en", rows, test, valid=valid)
        assert found[1].value == value


def test_the_majority_is_that_of_the_training_rows() -> None:
    """Not of the test rows: there it is wrong each time."""
    train = [{"text": "good", "label": "a"}, {"text": "fine", "label": "a"}, {"text": "bad", "label": "b"}]
    trivial, _ = only(baselines("classify", "en", train, [{"text": "bad", "label": "b"}] * 4), "accuracy")
    assert trivial == 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_classes_of_pairs_need_both_texts(language: str) -> None:
    """The label is whether the two are the same: neither text tells it alone."""
    words = list("鱼鸟马牛") if language == "zh" else ["fish", "bird", "horse", "cow"]
    rows = [
        {"sentence1": first, "sentence2": second, "label": "yes" if first == second else "no"}
        for first in words
        for second in words
    ]
    trivial, classical = only(baselines("pair", language, rows, rows), "accuracy")
    assert (trivial, classical) == (12 / 16, 1.0)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_numbers_of_pairs(language: str) -> None:
    """Three texts of which none, half or all is the same: further apart, the smaller the number."""
    join = "" if language == "zh" else " "
    a, b, c, d = list("鱼鸟马牛") if language == "zh" else ["fish", "bird", "horse", "cow"]
    rows = [
        {"sentence1": join.join((a, b)), "sentence2": join.join(second), "score": score}
        for second, score in (((a, b), 5.0), ((a, d), 2.5), ((c, d), 0.0))
    ]
    trivial, classical = only(baselines("regress", language, rows, rows), "pearson")
    assert trivial == 0
    assert classical > 0.9


def test_a_number_needs_two_texts() -> None:
    rows = [{"text": "one", "score": 1.0}, {"text": "two", "score": 2.0}]
    with pytest.raises(DataError, match="compares two texts"):
        baselines("regress", "en", rows, rows)


def test_words_that_training_lacks_tell_texts_apart() -> None:
    """Otherwise both pairs would be the same words, and the number would be constant."""
    train = [{"sentence1": "a man", "sentence2": "a man", "score": n} for n in (1.0, 2.0)]
    test = [
        {"sentence1": "a zebra", "sentence2": "a zebra", "score": 2.0},
        {"sentence1": "a zebra", "sentence2": "a tiger", "score": 1.0},
    ]
    _, classical = only(baselines("regress", "en", train, test), "pearson")
    assert classical == pytest.approx(1)


def test_the_usual_tag_of_a_token() -> None:
    """Paris is more often a place; an I that begins an entity is read as one; an unknown token is none."""
    train: Rows = [{"tokens": ["Paris", "slept"], "tags": ["B-LOC", "O"]}] * 2
    train += [{"tokens": ["Paris", "Hilton", "slept"], "tags": ["B-PER", "I-PER", "O"]}]
    test = [
        {"tokens": ["Paris", "woke"], "tags": ["B-LOC", "O"]},
        {"tokens": ["Hilton", "woke"], "tags": ["B-PER", "O"]},
        {"tokens": ["Oslo", "slept"], "tags": ["B-LOC", "O"]},
    ]
    trivial, _ = only(baselines("tag", "en", train, test), "f1")
    assert trivial == pytest.approx(2 * 2 / (2 + 3))


def test_tags_from_what_stands_around() -> None:
    """Names are new in the test rows: only the word before tells what they are, which no table of tokens can."""
    names = [f"N{letter}" for letter in "abcdefghijkl"]
    rows = [
        {"tokens": [*before, name], "tags": ["O"] * len(before) + [f"B-{kind}"]}
        for name in names
        for before, kind in ((("Mr",), "PER"), (("near", "old"), "LOC"))
    ]
    trivial, classical = only(baselines("tag", "en", rows[:16], rows[16:]), "f1")
    assert (trivial, classical) == (0.0, 1.0)


def test_entities_of_chinese_texts_are_measured_in_characters() -> None:
    """With the offsets of CLUENER, white space, and a word in Latin letters."""
    train = [
        {"text": f"我在 {city}住", "label": {"address": {city: [[3, 2 + len(city)]]}}}
        for city in ("北京", "上海", "NY")
    ] * 4
    trivial, classical = only(baselines("tag", "zh", train, train[:3]), "f1")
    assert (trivial, classical) == (1.0, 1.0)


def test_features_know_the_edges_of_a_row() -> None:
    first, second = _features(["U.N.", "met"])
    assert "u=U.N." in first
    assert "s0=A.A." in first
    assert {"w-1=<", "w1=met", "w2=>"} <= set(first)
    assert {"w-1=u.n.", "e2=et", "b1=m", "p-1=u.n. met"} <= set(second)
    assert "b3=met" not in second
    assert [_shape(word) for word in ("Aachen", "B52s", "東京", "1996-12")] == ["Aa", "A9a", "c", "9-9"]


SQUAD: Rows = [
    {
        "context": "The river is long. The bridge was built in 1890 by Anna Ek. It is red.",
        "question": "When was the bridge built?",
        "answers": {"text": ["in 1890 by Anna Ek"], "answer_start": [40]},
    }
]
CMRC: Rows = [
    {
        "context": "河很长。这座桥于1890年由安娜建成。桥是红色的。",
        "question": "这座桥于何年建成？",
        "answers": [{"text": "1890年由安娜", "start": 8}],
    }
]


@pytest.mark.parametrize(("language", "rows"), [("en", SQUAD), ("zh", CMRC)])
def test_answers(language: str, rows: Rows) -> None:
    assert only(baselines("answer", language, rows, rows), "f1") == pytest.approx((0, 100))


def test_sentences_and_what_is_trimmed() -> None:
    assert _sentences("It cost 3.5 euros. Why?! Nobody knows") == ["It cost 3.5 euros.", "Why?", "Nobody knows"]
    assert _sentences("河很长。桥是红的！") == ["河很长。", "桥是红的！"]
    assert _sentences("...") == ["..."]
    assert _trimmed("The bridge was built in 1890 by Anna Ek.", "When was the bridge built?") == "in 1890 by Anna Ek"
    assert _trimmed("这座桥于1890年由安娜建成。", "这座桥于何时建成？") == "1890年由安娜"
    assert _trimmed("Was it?", "it was") == "Was it?"


def test_questions_without_an_answer_are_answered_all_the_same() -> None:
    impossible = {"context": "The river is long.", "question": "Who?", "answers": [], "impossible": True}
    rows = [SQUAD[0] | {"impossible": False}, impossible]
    _, classical = only(baselines("answer", "en", rows, rows), "f1")
    assert classical == pytest.approx(50)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_orders_of_documents(language: str) -> None:
    """All alike is the worst order, whatever the order in the file: the one that serves comes last, 1 / log2(1 + 3)."""
    query, good, others = "red bridge", "the red bridge", ["a long river", "the sea"]
    if language == "zh":
        query, good, others = "红桥", "一座红桥", ["长河", "大海"]
    rows = [{"query": query, "positives": [good], "negatives": others}]
    assert only(baselines("rank", language, rows, rows), "ndcg") == pytest.approx((0.5, 1.0))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_texts_for_texts(language: str) -> None:
    train = [{"source": "a red bridge", "target": "eine rote Brücke"}, {"source": "the sea", "target": "das Meer"}]
    test = [{"source": "one red bridge", "target": "eine rote Brücke"}]
    if language == "zh":
        train = [{"source": "一座红桥", "target": "a red bridge"}, {"source": "大海", "target": "the sea"}]
        test = [{"source": "两座红桥", "target": "a red bridge"}]
    copied = translation([row["source"] for row in test], [[row["target"]] for row in test]).metrics["chrf"].value
    assert only(baselines("generate", language, train, test), "chrf") == pytest.approx((copied, 100))


def test_rows_that_cannot_serve_are_left_out_as_in_finetuning() -> None:
    train = [{"text": "good", "label": "1"}, {"text": "bad", "label": "0"}, {"text": " ", "label": "0"}]
    test = [{"text": "good", "label": "1"}, {"text": "", "label": "0"}]
    assert only(baselines("classify", "en", train, test), "accuracy")[1] == 1


def test_what_is_refused() -> None:
    rows = [{"text": "good", "label": "1"}, {"text": "bad", "label": "0"}]
    with pytest.raises(DataError, match=f"{', '.join(METHODS)}; got 'choose'"):
        baselines("choose", "en", rows, rows)
    with pytest.raises(DataError, match="got 'de'"):
        baselines("classify", "de", rows, rows)
    with pytest.raises(DataError, match=r"test rows, row 1: .* got '2'"):
        baselines("classify", "en", rows, [{"text": "good", "label": "2"}])
