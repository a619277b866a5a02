import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from segue.data.tables import open_table
from segue.errors import DataError
from segue.evaluation.metrics.ranking import ranking
from segue.tasks.examples import column_names
from segue.tasks.folder import load_task_model
from segue.tasks.predict import answer_rows, answers_in_order
from segue.tasks.rank import RANK, Rank, RankSettings, gather, learn
from segue.tasks.reader import TOGETHER, Reader
from segue.tasks.scores import scores
from segue.tasks.task import Item
from tests.tasks.made import examples_of, run, saved_and_restored, task_model, write_rows

FLAT: list[dict[str, Any]] = [
    {"query": "kind staff", "document": "The staff were kind.", "relevance": 1},
    {"query": "new coat", "document": "A dull film with a weak story.", "relevance": "0"},
    {"query": "kind staff", "document": "Two men are playing.", "relevance": 0},
    {"query": "new coat", "document": "He wants to buy a new coat for his wife. " * 3, "relevance": 2.0},
    {"query": "kind staff", "document": "Profit rose.", "relevance": False},
]
LISTS: list[dict[str, Any]] = [
    {"query": "kind staff", "documents": [FLAT[n]["document"] for n in (0, 2, 4)], "relevance": [1, 0, 0]},
    {"query": "new coat", "documents": [FLAT[n]["document"] for n in (1, 3)], "relevance": "[0, 2]"},
]


def test_rows_of_a_query_are_gathered_wherever_they_stand(english_model: Path, tmp_path: Path) -> None:
    made = task_model(RANK, english_model, FLAT)
    examples = examples_of(made, FLAT, tmp_path).examples
    assert [(example.number, example.gold) for example in examples] == [(1, (1, 0, 0)), (2, (0, 2))]
    assert [example.texts for example in examples] == [e.texts for e in examples_of(made, LISTS, tmp_path).examples]
    parts = [
        {"query": "kind staff", "positives": [FLAT[0]["document"]], "negatives": LISTS[0]["documents"][1:]},
        {"query": "new coat", "positives": [{"text": FLAT[3]["document"]}], "negatives": None},
    ]
    found = examples_of(made, parts, tmp_path).examples
    assert (found[0].texts, found[0].gold) == (examples[0].texts, (1, 0, 0))
    assert (found[1].texts, found[1].gold) == (("new coat", FLAT[3]["document"]), (1,))
    named = [row | {"id": number % 2} for number, row in enumerate(FLAT)]
    assert [row["relevance"] for _, row in gather(list(enumerate(named, 1)))] == [[1, 0, 0], [0, 2]]
    assert saved_and_restored(made) == made.task == Rank(highest_grade=2, settings=RankSettings())


@pytest.mark.parametrize("loss", ["pointwise", "pairwise"])
def test_the_loss_is_the_mean_over_queries(english_model: Path, tmp_path: Path, loss: str) -> None:
    made = task_model(RANK, english_model, FLAT, loss=loss)
    examples = examples_of(made, FLAT, tmp_path).examples
    layout = made.layout()
    items = [item for example in examples for item in made.task.items(example, layout)]
    made.model.eval()
    with torch.no_grad():
        found = made.task.loss(made.model, items, made.reader(), class_weights=None)
        (a, b, c), (d, e) = (s.tolist() for item in items for s in scores(made.model, [item], made.reader()))
    if loss == "pairwise":
        by_hand = ((softplus(b - a) + softplus(c - a)) / 2 + softplus(d - e)) / 2
        assert made.task.chance(examples) == pytest.approx(math.log(2))
    else:
        by_hand = ((softplus(-a) + softplus(b) + softplus(c)) / 3 + (softplus(d) + softplus(-e)) / 2) / 2
        share = (1 / 3 + 1 / 2) / 2
        assert made.task.chance(examples) == pytest.approx(-share * math.log(share) - (1 - share) * math.log(1 - share))
    assert float(found) == pytest.approx(by_hand, abs=1e-5)


def softplus(value: float) -> float:
    return float(F.softplus(torch.tensor(value)))


@pytest.mark.parametrize("objective", ["permutation", "causal", "masked"])
def test_a_document_has_the_same_score_alone_in_a_list_and_among_many(
    model_of_each_objective: dict[str, Path], tmp_path: Path, objective: str
) -> None:
    made = task_model(RANK, model_of_each_objective[objective], FLAT)
    examples = examples_of(made, FLAT, tmp_path).examples
    inside = [a.value.tolist() for a in answers_in_order(made, examples)]
    flat = [a.prediction.columns for a in answer_rows(made, enumerate(FLAT, 1)) if a.prediction is not None]
    assert all(list(columns) == ["score"] for columns in flat)
    alone = [columns["score"] for columns in flat]
    assert [*inside[0], *inside[1]] == pytest.approx([alone[n] for n in (0, 2, 4, 1, 3)], abs=1e-4)
    assert max(alone) - min(alone) > 1e-2
    many = [{"query": "kind staff", "documents": [row["document"] for row in FLAT] * 20}]
    assert len(many[0]["documents"]) > TOGETHER
    (answer,) = answer_rows(made, enumerate(many, 1))
    assert answer.prediction is not None
    assert answer.prediction.value[[0, 2, 4]] == pytest.approx(inside[0], abs=1e-5)
    order = answer.prediction.columns["prediction"]
    assert sorted(order) == list(range(1, 101))
    listed = [answer.prediction.columns["scores"][place - 1] for place in order]
    assert listed == sorted(listed, reverse=True)


def test_measures_are_those_of_ranking(english_model: Path, tmp_path: Path) -> None:
    made = task_model(RANK, english_model, FLAT, cut=1, metric="mrr")
    examples = examples_of(made, FLAT, tmp_path).examples
    answers = answers_in_order(made, examples)
    gold, given = [[1, 0, 0], [0, 2]], [answer.value for answer in answers]
    assert made.task.measure(examples, answers) == ranking(gold, given, k=1, highest_grade=2).metrics
    first = made.task.measure(examples[:1], answers[:1])  # err knows the scale from the training examples
    assert first == ranking(gold[:1], given[:1], k=1, highest_grade=2).metrics
    assert made.task.metric == "mrr"
    wrong = [made.task.compare(e, a).badness > 0 for e, a in zip(examples, answers, strict=True)]
    assert wrong == [given[0].argmax() != 0, given[1].argmax() != 1]


class Spy(Reader):
    """A reader that remembers how many documents of which length it was asked to read."""

    seen: Counter[int]

    def whole(self, trunk: Any, documents: Any) -> Any:
        self.seen.update(len(document) for document in documents)
        return super().whole(trunk, documents)


@pytest.mark.parametrize(("relevant", "others", "expected"), [(2, 30, (2, 3)), (9, 8, (4, 1)), (9, 0, (5, 0))])
def test_an_update_reads_so_many_documents_of_a_query(
    english_model: Path, tmp_path: Path, relevant: int, others: int, expected: tuple[int, int]
) -> None:
    rows = [{"query": "q", "positives": ["kind"] * relevant, "negatives": ["dull film and a weak story"] * others}]
    made = task_model(RANK, english_model, FLAT, documents=5)
    (example,) = examples_of(made, rows, tmp_path).examples
    items = made.task.items(example, made.layout())
    spy = Spy(made.read, segment_length=16)
    spy.seen = Counter()
    made.task.loss(made.model, items, spy, class_weights=None)
    lengths = sorted({len(document) for document in items[0].documents})
    assert tuple(spy.seen[length] for length in lengths) == expected[: len(lengths)]
    with torch.no_grad():
        assert len(made.task.answers(made.model, items, made.reader())[0]) == relevant + others


def test_other_documents_are_drawn_anew_and_the_same_for_a_seed(english_model: Path, tmp_path: Path) -> None:
    rows = [{"query": "q", "positives": ["kind"], "negatives": [f"dull {n}" for n in range(40)]}]
    made = task_model(RANK, english_model, rows, documents=4)
    assert isinstance(made.task, Rank)
    (item,) = made.task.items(examples_of(made, rows, tmp_path).examples[0], made.layout())

    def drawn(times: int) -> list[Item]:
        torch.manual_seed(5)
        return [made.task._drawn(item) for _ in range(times)]  # type: ignore[attr-defined]

    first, second = ([tuple(id(d) for d in part.documents) for part in drawn(3)] for _ in range(2))
    assert first == second
    assert len(set(first)) == 3
    assert all(part.gold == (1, 0, 0, 0) for part in drawn(3))


def test_rows_that_cannot_serve_are_counted(english_model: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        *FLAT,
        {"query": "new coat", "document": " ", "relevance": 1},
        {"query": "", "document": "a", "relevance": 1},
        {"query": "new coat", "document": "a", "relevance": "high"},
        {"query": "new coat", "document": "a", "relevance": -1},
        {"query": "new coat", "document": "a", "relevance": 31},
        {"query": "none", "document": "a", "relevance": 0},
        {"query": "none", "document": "b", "relevance": 0},
        {"query": "uneven", "documents": ["a", "b"], "relevance": [1]},
        {"query": "empty", "documents": [], "relevance": []},
    ]
    made = task_model(RANK, english_model, rows)
    found = examples_of(made, rows, tmp_path)
    assert len(found.examples) == 2
    assert found.unusable == {
        "an empty text": (2, 6),
        "a relevance that is not a number from 0 to 30": (3, 8),
        "a query without a relevant document": (1, 11),
        "not one relevance for each document of a query": (1, 13),
        "a query without documents": (1, 14),
    }
    with pytest.raises(DataError, match="--column document=NAME"):
        learn([(1, {"query": "a"})], RankSettings())
    with pytest.raises(DataError, match="different relevance; got none among 2 queries"):
        learn(gather([(1, FLAT[0]), (4, FLAT[3])]), RankSettings())
    with pytest.raises(DataError, match="must be lists; got 'a, b'"):
        learn([(1, {"query": "a", "documents": "a, b"})], RankSettings())


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    rows = [{"qid": "7", "question": "q", "answer": "a", "label": 1}]
    table = open_table(write_rows(tmp_path / "flat.jsonl", rows))
    names = {"query": "question", "id": "qid", "document": "answer", "relevance": "label"}
    assert column_names(RANK, table, {}, labelled=True) == names
    assert "relevance" not in column_names(RANK, table, {}, labelled=False)


@pytest.mark.parametrize(("loss", "language"), [("pairwise", "english"), ("pointwise", "chinese")])
def test_a_run_learns_to_rank_and_its_model_does_after_loading(
    request: pytest.FixtureRequest, tmp_path: Path, loss: str, language: str
) -> None:
    words = {
        "english": (["kind", "clean"], ["dull", "weak", "asleep"]),
        "chinese": (["干净", "非常好"], ["太差", "浪费"]),
    }
    good, bad = words[language]
    random = np.random.default_rng(0)
    rows = []
    for number in range(60):
        documents = [str(random.choice(good)), *random.choice(bad, 3).tolist()]
        order = random.permutation(4)
        rows += [{"query": f"{number}", "document": documents[n], "relevance": int(n == 0)} for n in order]
    rows[:160] = [rows[n] for n in random.permutation(160)]
    train, test = write_rows(tmp_path / "a.jsonl", rows[:160]), write_rows(tmp_path / "b.jsonl", rows[160:])
    model = request.getfixturevalue(f"{language}_model")
    end = run(RANK, model, tmp_path / "run", "train.epochs=4", f"task.loss={loss}", train=train, test=test)
    judged = end.judged[1]
    assert judged.metrics["ndcg"].value > 0.95
    assert len(judged.examples) == 20
    made = load_task_model(tmp_path / "run")
    again = answers_in_order(made, judged.examples)
    for old, new in zip(judged.predictions, again, strict=True):
        assert new.value == pytest.approx(old.value, abs=1e-4)
    found = [a.prediction.columns["score"] for a in answer_rows(made, enumerate(rows[160:], 1)) if a.prediction]
    worst = min(score for row, score in zip(rows[160:], found, strict=True) if row["relevance"])
    best = max(score for row, score in zip(rows[160:], found, strict=True) if not row["relevance"])
    assert worst > best
