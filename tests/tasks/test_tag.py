import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from segue.config import ReadConfig
from segue.data.tables import TableSettings, open_table
from segue.errors import DataError
from segue.evaluation.metrics.entities import spans_of
from segue.model.heads import TokenTagger
from segue.tasks.examples import column_names, rows_with_roles
from segue.tasks.folder import TaskModel, load_task_model
from segue.tasks.layout import Part
from segue.tasks.predict import answer_rows, answers_in_order
from segue.tasks.tag import INEXACT, TAG, Tag, TagSettings, learn
from segue.tasks.tag.pieces import decode, in_units, pieces_of
from segue.tasks.tag.rows import Form, join, mark, scheme_of, units_of
from segue.tasks.task import Item, UnusableRowError
from tests.tasks.made import examples_of, run, saved_and_restored, task_model, write_rows

Rows = list[dict[str, Any]]

ENGLISH: Rows = [
    {"tokens": ["She", "was", "born", "in", "Paris", "."], "tags": ["O", "O", "O", "O", "I-LOC", "O"]},
    {"tokens": ["Anna", "Weber", "moved", "to", "Zürich"], "tags": ["I-PER", "I-PER", "O", "O", "I-LOC"]},
    {"tokens": ["London", "Leeds", "▁", "Bach"], "tags": ["I-LOC", "B-LOC", "O", "I-PER"]},
    {"tokens": ["The", "room", "was", "clean"], "tags": ["O", "O", "O", "O"]},
]
CHINESE: Rows = [
    {"text": "他出生于北京，后来搬到上海。", "tags": {"address": {"北京": [[4, 5]], "上海": [[11, 12]]}}},
    {"text": "公司表示 Apple 的利润增长了", "tags": {"company": {"Apple": [[5, 9]]}}},
    {"text": "王小明喜欢龘靐公园", "tags": {"name": {"王小明": [[0, 2]]}, "address": {"龘靐公园": [[5, 8]]}}},
    {"text": "房间很干净，服务员的态度也非常好。" * 3, "tags": {}},
]


def items_of(made: TaskModel, rows: Rows, tmp_path: Path) -> tuple[list[Any], list[Item]]:
    examples = examples_of(made, rows, tmp_path).examples
    layout = made.layout()
    return examples, [item for example in examples for item in made.task.items(example, layout)]


def gold_scores(items: list[Item], tags: int) -> tuple[Any, Any, list[int]]:
    """As of a model that knows the answers."""
    lengths = [len(item.extra) for item in items]
    scores = np.full((len(items), max(lengths), tags), -30.0)
    glued = np.zeros(scores.shape[:2], dtype=np.bool_)
    for row, item in enumerate(items):
        scores[row, np.arange(len(item.extra)), item.gold] = 0.0
        glued[row, : len(item.extra)] = item.extra.glued
    return scores, glued, lengths


# ------------------------------------------------------------------------------------------------------ rows


def test_conll_rows_keep_the_offsets_of_their_tokens() -> None:
    task = learn(list(enumerate(ENGLISH, 1)), TagSettings())
    assert (task.types, task.scheme, task.unspaced) == (("LOC", "PER"), "iob1", False)
    assert task.tags == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    example = task.example(1, ENGLISH[1], labelled=True)
    assert example.texts == ("Anna Weber moved to Zürich",)
    assert example.gold == {("PER", 0, 10), ("LOC", 20, 26)}
    assert task.example(1, ENGLISH[2], labelled=True).gold == {("LOC", 0, 6), ("LOC", 7, 12), ("PER", 15, 19)}


def test_tokens_are_joined_as_their_language_is_written() -> None:
    chinese = ["我", "在", "2", "0", "年", "用", "iPhone", "Max", "，", "好"]
    text, starts, ends = join(chinese, None)
    assert text == "我在20年用iPhone Max，好"
    assert [text[a:b] for a, b in zip(starts, ends, strict=True)] == chinese
    assert join(["a", "b"], "-")[0] == "a-b"
    task = learn([(1, {"tokens": chinese, "tags": ["B"] + ["O"] * 9})], TagSettings())
    assert task.unspaced
    assert task.tags == ("O", "B", "I")
    assert task.example(1, {"tokens": chinese}, labelled=False).texts == (text,)
    chosen = learn([(1, {"tokens": chinese, "tags": ["B"] + ["O"] * 9})], TagSettings(joiner=" "))
    assert chosen.example(1, {"tokens": ["我", "在"]}, labelled=False).texts == ("我 在",)


@pytest.mark.parametrize(
    ("tags", "settings"),
    [
        ({"address": {"北京": [[4, 5]]}}, {}),
        ([{"start": 4, "end": 6, "label": "address"}], {}),
        ([{"start_offset": 4, "end_offset": 5, "type": "address", "text": "北京"}], {"end_inclusive": True}),
        ([[4, 6, "address"]], {}),
        ('[{"start": 4, "end": 6, "type": "address"}]', {}),
    ],
)
def test_all_ways_to_write_entities_mean_the_same(tags: Any, settings: dict[str, Any]) -> None:
    row = {"text": "他出生于北京。", "tags": tags}
    task = learn([(1, row)], TagSettings(**settings))
    assert task.example(1, row, labelled=True).gold == {("address", 4, 6)}


def test_schemes_are_found_in_the_tags() -> None:
    assert scheme_of([["I-A", "I-A", "B-A", "O", "I-B"]]) == "iob1"
    assert scheme_of([["B-A", "I-A", "B-A", "O", "B-B"]]) == "iob2"
    assert scheme_of([["B-A", "I-A", "O", "I-B", "B-A"]]) == "iob2"
    assert scheme_of([["B-A", "E-A"]]) == scheme_of([["O", "S-A"]]) == "bioes"
    with pytest.raises(DataError, match=r"'NN'.*task\.scheme=plain"):
        scheme_of([["O", "NN"]])


def test_words_are_units() -> None:
    text = " Zürich2's 北京 café\u0301\n"
    starts, ends = units_of(text, whole_words=True)
    assert [text[a:b] for a, b in zip(starts, ends, strict=True)] == ["Zürich2", "'", "s", "北", "京", "café\u0301"]
    starts, ends = units_of(text, whole_words=False)
    assert "".join(text[a:b] for a, b in zip(starts, ends, strict=True)) == "".join(text.split())


# -------------------------------------------------------------------------------------------- pieces, decoding


@pytest.mark.parametrize("cut", [False, True])
def test_gold_entities_come_back_from_the_tags_of_pieces(
    english_model: Path, chinese_model: Path, tmp_path: Path, cut: bool
) -> None:
    for model, rows in itertools.product((english_model, chinese_model), (ENGLISH, CHINESE)):
        made = task_model(TAG, model, rows, cut_pieces=cut)
        examples, items = items_of(made, rows, tmp_path)
        assert isinstance(made.task, Tag)
        parts = decode(*gold_scores(items, len(made.task.tags)))
        for row, example, item, part in zip(rows, examples, items, parts, strict=True):
            prediction = made.task.prediction(example, [item], [part])
            assert prediction.value == example.gold
            if rows is ENGLISH:
                assert prediction.columns == {"prediction": row["tags"]}
            else:
                found = {(e["type"], e["text"]) for e in prediction.columns["entities"]}
                assert found == {(kind, surface) for kind, places in row["tags"].items() for surface in places}
                for entity in prediction.columns["entities"]:
                    assert row["text"][entity["start"] : entity["end"]] == entity["text"]
                    assert entity["probability"] == pytest.approx(1)


def test_bytes_of_a_character_and_pieces_of_a_token_are_glued(chinese_model: Path, tmp_path: Path) -> None:
    made = task_model(TAG, chinese_model, CHINESE)
    _, items = items_of(made, CHINESE[1:3], tmp_path)
    apple, rare = items[0].extra, items[1].extra
    assert apple.glued.sum() == 4  # Apple is five bytes, one word
    starts = made.tokenizer.encode_with_offsets(CHINESE[2]["text"]).starts
    assert rare.glued.tolist() == [False, *(starts[1:] == starts[:-1]).tolist()]
    assert rare.glued.sum() >= 4  # two characters of three bytes each
    tags = items[1].gold
    assert (tags[rare.glued] % 2 == 0).all()
    assert sorted(tags[tags % 2 == 1]) == [1, 5]  # types: address, company, name
    scores, glued, lengths = gold_scores(items[1:], 7)
    place = int(np.flatnonzero(rare.glued)[0])
    scores[0, place] = np.where(np.arange(7) == 0, 0.0, -30.0)  # one byte says: outside
    (found, _), *_ = decode(scores, glued, lengths)
    assert (found[0].kind, found[0].first) == (2, place - 1)


def test_pieces_across_a_boundary_go_with_the_majority_and_are_counted(tmp_path: Path, english_model: Path) -> None:
    text = "ab，cd"
    form = Form(scheme="iob2", joiner=" ", end_inclusive=False, whole_words=True, prefers_text=True)
    marked = mark({"text": text, "tags": [[3, 5, "X"]]}, form, labelled=True)
    pieces = pieces_of(marked, Part(begin=0, starts=np.array([0, 2, 4]), ends=np.array([2, 4, 5])))
    assert pieces.first.tolist() == [0, 1, 2]
    assert pieces.last.tolist() == [1, 3, 3]
    assert pieces.glued.tolist() == [False, False, True]
    assert in_units(1, 3, pieces, marked) == (2, 3)  # without the comma that came with the piece
    assert in_units(0, 3, pieces, marked) == (0, 3)  # where it is inside, it stays
    rows: Rows = [{"text": "Two men", "tags": [{"start": 1, "end": 3, "type": "X"}]}]
    made = task_model(TAG, english_model, rows)
    layout = made.layout()
    made.task.items(examples_of(made, rows, tmp_path).examples[0], layout)
    assert layout.remarks == {INEXACT: 1}


def brute_force(scores: Any, glued: Any) -> dict[tuple[int, ...], float]:
    length, tags = scores.shape
    found = {}
    for path in itertools.product(range(tags), repeat=length):
        valid = True
        for place, tag in enumerate(path):
            before = path[place - 1] if place else 0
            inside = tag and tag % 2 == 0
            valid &= not inside or before in (tag, tag - 1)
            valid &= not glued[place] or (tag == 0 if before == 0 else bool(inside))
        if valid:
            found[path] = sum(scores[place, tag] for place, tag in enumerate(path))
    return found


def test_decoding_is_exact() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        scores = random.normal(size=(2, 5, 5)) * 2
        scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        glued = random.random((2, 5)) < 0.3
        glued[:, 0] = False
        lengths = [5, 4]
        for row, (found, confidence) in enumerate(decode(scores, glued, lengths)):
            size = lengths[row]
            paths = brute_force(scores[row, :size], glued[row, :size])
            total = sum(np.exp(score) for score in paths.values())
            best = max(paths, key=lambda path: paths[path])
            names = ["O", "B-0", "I-0", "B-1", "I-1"]
            entities = {path: spans_of([names[tag] for tag in path], "iob2") for path in paths}
            assert {(str(one.kind), one.first, one.end) for one in found} == entities[best]
            assert confidence == pytest.approx(np.exp(paths[best]) / total)
            for one in found:
                mine = (str(one.kind), one.first, one.end)
                share = sum(np.exp(score) for path, score in paths.items() if mine in entities[path]) / total
                assert one.probability == pytest.approx(share)


# --------------------------------------------------------------------------------------------- loss and answers


def test_the_loss_is_the_mean_over_pieces(english_model: Path, tmp_path: Path) -> None:
    made = task_model(TAG, english_model, ENGLISH)
    examples, items = items_of(made, ENGLISH, tmp_path)
    model = made.model.eval()
    assert isinstance(model, TokenTagger)
    costs = []
    with torch.no_grad():
        for item in items:
            logits = model.logits(made.reader().every_token(model.trunk, [item.documents[0]]))[0]
            own = logits[item.extra.begin : item.extra.begin + len(item.extra)].log_softmax(dim=-1)
            costs += [-float(own[place, tag]) for place, tag in enumerate(item.gold)]
        loss = made.task.loss(model, items, made.reader(), class_weights=None)
    assert float(loss) == pytest.approx(np.mean(costs), rel=1e-5)
    counts = np.array([12, 4, 0, 2, 1]) / 19  # tokens of O, B-LOC, I-LOC, B-PER, I-PER
    assert made.task.chance(examples) == pytest.approx(-sum(p * np.log(p) for p in counts if p))
    weights = made.task.class_weights(examples)
    assert weights is not None
    assert weights[1] * 4 == pytest.approx(weights[4].item())
    assert weights[2] == 0


@pytest.mark.parametrize("objective", ["permutation", "causal", "masked"])
def test_rows_are_answered_the_same_alone_and_together(
    model_of_each_objective: dict[str, Path], tmp_path: Path, objective: str
) -> None:
    rows = [*ENGLISH, {"tokens": [f"{t}{n}" for n in range(12) for t in ("Paris", "is")], "tags": ["O"] * 24}]
    made = task_model(TAG, model_of_each_objective[objective], rows)
    examples = examples_of(made, rows, tmp_path).examples
    together = answers_in_order(made, examples, batch_size=8)
    assert any(prediction.value for prediction in together)
    for example, prediction in zip(examples, together, strict=True):
        (alone,) = answers_in_order(made, [example])
        assert alone.value == prediction.value
        assert alone.confidence == pytest.approx(prediction.confidence, rel=1e-4)
        assert len(prediction.columns["prediction"]) == len(example.extra.starts)


def test_what_is_cut_has_no_entities(english_model: Path, tmp_path: Path) -> None:
    rows = [{"tokens": ["Paris"] * 40, "tags": ["B-LOC"] * 40}]
    made = replace(task_model(TAG, english_model, rows), read=ReadConfig(max_length=20))
    examples = examples_of(made, rows, tmp_path).examples
    (prediction,) = answers_in_order(made, examples)
    assert len(prediction.columns["prediction"]) == 40
    assert set(prediction.columns["prediction"][20:]) == {"O"}
    assert decode(np.zeros((1, 1, 3)), np.zeros((1, 1), dtype=np.bool_), [0]) == [([], 1.0)]


def test_measures_are_those_of_seqeval(english_model: Path, tmp_path: Path) -> None:
    metrics = pytest.importorskip("seqeval.metrics")
    made = task_model(TAG, english_model, ENGLISH)
    examples = examples_of(made, ENGLISH, tmp_path).examples
    predictions = answers_in_order(made, examples)
    gold, predicted = [row["tags"] for row in ENGLISH], [p.columns["prediction"] for p in predictions]
    assert any(tag != "O" for tags in predicted for tag in tags)
    measured = made.task.measure(examples, predictions)
    assert measured["f1"].value == pytest.approx(metrics.f1_score(gold, predicted))
    assert measured["recall"].value == pytest.approx(metrics.recall_score(gold, predicted))
    assert made.task.metric in measured


# ------------------------------------------------------------------------------------------------- whole runs


def sentences(count: int, *, seed: int) -> Rows:
    """A place, and a person with an article."""
    random = np.random.default_rng(seed)
    rows: Rows = []
    for _ in range(count):
        place, person = str(random.choice(["Paris", "London"])), str(random.choice(["man", "wife"]))
        if random.random() < 0.5:
            rows.append(
                {"tokens": ["the", person, "moved", "to", place], "tags": ["B-PER", "I-PER", "O", "O", "B-LOC"]}
            )
        else:
            rows.append({"tokens": [place, "said", "the", person], "tags": ["B-LOC", "O", "B-PER", "I-PER"]})
    return rows


def test_a_run_learns_and_answers_tokens_and_texts(english_model: Path, tmp_path: Path) -> None:
    ended = run(
        TAG,
        english_model,
        tmp_path / "run",
        "train.epochs=6",
        train=write_rows(tmp_path / "train.jsonl", sentences(64, seed=0)),
        test=write_rows(tmp_path / "test.jsonl", sentences(12, seed=1)),
    )
    assert ended.judged[-1].metrics["f1"].value == 1.0
    made = load_task_model(tmp_path / "run")
    assert made.task == ended.task == saved_and_restored(made)
    answers = answer_rows(
        made,
        [(1, {"tokens": ["Paris", "said", "the", "wife"]}), (2, {"text": "Paris  said the wife "}), (3, {"text": ""})],
    )
    first, second, third = answers
    assert first.prediction is not None
    assert second.prediction is not None
    assert first.prediction.columns == {"prediction": ["B-LOC", "O", "B-PER", "I-PER"]}
    entities = second.prediction.columns["entities"]
    assert [(e["type"], e["start"], e["end"], e["text"]) for e in entities] == [
        ("LOC", 0, 5, "Paris"),
        ("PER", 12, 20, "the wife"),
    ]
    assert all(0 < entity["probability"] <= 1 for entity in entities)
    assert (third.prediction, third.problem) == (None, "an empty text")


def test_a_run_learns_classes_of_tokens(chinese_model: Path, tmp_path: Path) -> None:
    kinds = {"房间": "NN", "服务员": "NN", "很": "AD", "非常": "AD", "好": "VA", "干净": "VA"}
    random = np.random.default_rng(0)
    rows: Rows = []
    for _ in range(48):
        tokens = random.permutation(list(kinds))[:4].tolist()
        rows.append({"tokens": tokens, "tags": [kinds[token] for token in tokens]})
    train = write_rows(tmp_path / "train.jsonl", rows)
    ended = run(TAG, chinese_model, tmp_path / "run", "train.epochs=6", "task.scheme=plain", train=train)
    assert ended.judged[0].metrics["f1"].value > 0.9
    made = load_task_model(tmp_path / "run")
    (answer,) = answer_rows(made, [(1, {"tokens": ["服务员", "很", "好"]})])
    assert answer.prediction is not None
    assert answer.prediction.columns == {"prediction": ["NN", "AD", "VA"]}


def test_conll_files_and_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "eng.train"
    path.write_text("-DOCSTART- -X- O\n\nEU NNP I-ORG\nsaid VBD O\n\nBonn NNP I-LOC\n", encoding="utf-8")
    table = open_table(str(path), TableSettings(format="conll"))
    names = column_names(TAG, table, {}, labelled=True)
    assert names == {"tokens": "tokens", "tags": "tags"}
    task = learn(list(rows_with_roles(table, names)), TagSettings())
    assert (task.scheme, task.types) == ("iob1", ("LOC", "ORG"))
    assert column_names(TAG, table, {"tags": "column2"}, labelled=True)["tags"] == "column2"


# --------------------------------------------------------------------------------------------------- bad data


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        ({"tokens": ["a", "b"], "tags": ["O"]}, "tags and tokens of different number"),
        ({"tokens": [], "tags": []}, "an empty sentence"),
        ({"tokens": ["a", ""], "tags": ["O", "O"]}, "an empty token"),
        ({"tokens": ["a"], "tags": None}, "no tags or entities"),
        ({"text": " ", "tags": []}, "an empty text"),
        ({"text": "Bonn", "tags": [{"start": 0, "end": 5, "type": "LOC"}]}, "not within its text"),
        ({"text": "Bonn", "tags": [{"start": 2, "end": 2, "type": "LOC"}]}, "not within its text"),
    ],
)
def test_rows_that_cannot_serve(row: dict[str, Any], rule: str) -> None:
    task = learn(list(enumerate(ENGLISH, 1)), TagSettings())
    with pytest.raises(UnusableRowError, match=rule):
        task.example(1, row, labelled=True)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"tokens": ["a"], "tags": ["B-ORG"]}, "one of those in the training examples .*ORG"),
        ({"tokens": ["a"], "tags": [3]}, "a list of names"),
        ({"tokens": [3], "tags": ["O"]}, "a list of texts"),
        ({"text": "a", "tags": ["O"]}, "need a column of tokens"),
        ({"tokens": ["a"], "tags": [{"start": 0, "end": 1, "type": "LOC"}]}, "a text or a list of tokens"),
        ({"text": "a", "tags": [{"begin": 0}]}, "a list of {start, end, type}"),
        ({"text": "a", "tags": {"LOC": [[0, 0]]}}, "a list of {start, end, type}"),
        ({"tokens": ["a"], "tags": ["E-LOC"]}, "scheme iob1"),
    ],
)
def test_rows_that_are_errors(row: dict[str, Any], message: str) -> None:
    task = learn(list(enumerate(ENGLISH, 1)), TagSettings())
    with pytest.raises(DataError, match=message):
        task.example(1, row, labelled=True)


def test_training_data_without_entities_is_an_error() -> None:
    with pytest.raises(DataError, match="got only O tags"):
        learn([(1, {"tokens": ["a"], "tags": ["O"]})], TagSettings())
    with pytest.raises(DataError, match="record 7: tags must be"):
        learn([(7, {"tokens": ["a"], "tags": [1]})], TagSettings())


def test_what_is_repaired_is_counted(tmp_path: Path, english_model: Path) -> None:
    rows: Rows = [
        {"tokens": ["a", "b", "c"], "tags": ["I-X", "O", "O"]},
        {"tokens": ["a", "b", "c"], "tags": ["B-X", "I-X", "B-Y"]},
        {"text": "New York City", "tags": {"X": {"New York": [[0, 7]], "York": [[4, 7]], "city": [[9, 12]]}}},
        {"text": "New York City", "tags": {"X": {"New": [[0, 2]], "York": [[4, 7]]}}},
    ]
    made = task_model(TAG, english_model, rows)
    examples = examples_of(made, rows, tmp_path).examples
    notes = "\n".join(made.task.describe(examples))
    assert "IOB2" in notes
    assert "1 tags break their scheme" in notes
    assert "1 entities have another text" in notes
    assert "1 entities overlap longer ones" in notes
    assert examples[2].gold == {("X", 0, 8), ("X", 4, 8), ("X", 9, 13)}
    item = made.task.items(examples[2], made.layout())[0]
    assert sum(tag % 2 for tag in item.gold) == 2  # the longer one, and City


def test_ends_that_are_meant_otherwise_are_noticed() -> None:
    rows = [(n, {"text": "in Bonn", "tags": [{"start": 3, "end": 6, "type": "LOC", "text": "Bonn"}]}) for n in (1, 2)]
    with pytest.raises(DataError, match=r"2 of 2.*task\.end_inclusive=true"):
        learn(rows, TagSettings())
    assert learn(rows, TagSettings(end_inclusive=True)).types == ("LOC",)


def test_entities_survive_a_table_of_cells() -> None:
    cell = json.dumps([{"start": 0, "end": 4, "type": "LOC"}])
    task = learn([(1, {"text": "Bonn", "tags": cell}), (2, {"tokens": "in Bonn", "tags": "O B-LOC"})], TagSettings())
    assert task.example(1, {"text": "Bonn", "tags": cell}, labelled=True).gold == {("LOC", 0, 4)}
    assert task.example(2, {"tokens": "in Bonn", "tags": "O B-LOC"}, labelled=True).gold == {("LOC", 3, 7)}
