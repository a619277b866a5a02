"""Question answering: losses, spans, and the answer of several windows."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from segue.model.answers import BeamAnswerer, SimpleAnswerer
from segue.tasks.answer import ANSWER, Answer, AnswerSettings
from segue.tasks.answer.windows import Found, best_spans, characters
from segue.tasks.folder import TaskModel
from segue.tasks.predict import answers_in_order
from segue.tasks.task import Example
from tests.tasks.answer_rows import ROWS
from tests.tasks.made import examples_of, task_model

# --------------------------------------------------------------------------------------------------- loss and spans


def items_of(made: TaskModel, rows: list[dict[str, Any]], folder: Path) -> list[Any]:
    layout = made.layout()
    return [item for example in examples_of(made, rows, folder).examples for item in made.task.items(example, layout)]


@pytest.mark.parametrize("head", ["beam", "simple"])
def test_the_loss_is_that_of_the_definition(head: str, english_model: Path, tmp_path: Path) -> None:
    none = {"context": "The room was clean.", "question": "Who?", "answer": [], "impossible": True}
    made = task_model(ANSWER, english_model, [*ROWS, none], head=head)
    items = items_of(made, [*ROWS, none], tmp_path)
    model = made.model.eval()
    assert isinstance(model, BeamAnswerer | SimpleAnswerer)
    costs = []
    for item in items:
        window = item.extra[0]
        start, end = item.gold
        hidden_TD = made.reader().every_token(model.trunk, [item.documents[0]]).tokens()[0][0]
        places = [*range(window.part.begin, window.part.begin + len(window.part)), window.cls]
        if isinstance(model, SimpleAnswerer):
            start_T, end_T = model.bounds(hidden_TD)[places].unbind(-1)
            impossible = torch.zeros(())
        else:
            start_T = model.start(hidden_TD[places]).squeeze(-1)
            pair = torch.cat([hidden_TD[places], hidden_TD[start].expand(len(places), -1)], dim=-1)
            end_T = model.end(model.end_norm(model.end_dense(pair).tanh())).squeeze(-1)
            expected = start_T.softmax(dim=-1) @ hidden_TD[places]
            both = torch.cat([expected, hidden_TD[window.cls]])
            logit = model.impossible(model.impossible_dense(both).tanh()).squeeze()
            impossible = 0.5 * F.softplus(-logit if start == window.cls else logit)
        start_cost = -start_T.log_softmax(dim=-1)[places.index(start)]
        end_cost = -end_T.log_softmax(dim=-1)[places.index(end)]
        costs.append((0.5 * (start_cost + end_cost) + impossible).item())
    loss = made.task.loss(model, items, made.reader(), class_weights=None)
    assert float(loss.detach()) == pytest.approx(np.mean(costs), rel=1e-5)
    assert items[-1].gold[0] == items[-1].extra[0].cls


def test_the_best_spans_are_those_of_a_search_over_all() -> None:
    random = torch.Generator().manual_seed(0)
    rows, starts, length, longest = 3, 4, 11, 4
    start_BA = torch.stack([torch.randperm(length, generator=random)[:starts] for _ in range(rows)])
    start_log_BA = torch.randn(rows, starts, generator=random)
    end_log_BAT = torch.randn(rows, starts, length, generator=random)
    allowed_BT = torch.rand(rows, length, generator=random) < 0.7
    allowed_BT[:, -1] = True  # the last token of a passage can be an answer
    start_BA[0, 0] = length - 1
    start_log_BA[0, 0] = 99.0
    found = best_spans(start_BA, start_log_BA, end_log_BAT, allowed_BT, max_length=longest, count=5)
    for row in range(rows):
        every = [
            (float(start_log_BA[row, n] + end_log_BAT[row, n, end]), int(start), end)
            for n, start in enumerate(start_BA[row].tolist())
            for end in range(start, min(length, start + longest))
            if allowed_BT[row, start] and allowed_BT[row, end]
        ]
        assert found[row] == sorted(every, reverse=True)[:5]
    assert found[0][0][1:] == (length - 1, length - 1)


@pytest.mark.parametrize("head", ["beam", "simple"])
@pytest.mark.parametrize("objective", ["permutation", "causal", "masked"])
def test_answers_are_the_same_alone_and_together(
    model_of_each_objective: dict[str, Path], tmp_path: Path, objective: str, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = {"context": "The room was clean.", "question": "Who?", "answer": [], "impossible": True}
    made = task_model(ANSWER, model_of_each_objective[objective], [*ROWS, none], head=head, window=32, stride=12)
    made = replace(made, segment_length=20 if objective != "masked" else 64)
    items = items_of(made, [*ROWS, none], tmp_path)
    assert len(items) > 4
    with torch.no_grad():
        together = made.task.answers(made.model.eval(), items, made.reader())
        alone = [made.task.answers(made.model, [item], made.reader())[0] for item in items]
        monkeypatch.setattr("segue.tasks.answer.task.JUDGED_AT_ONCE", 500)
        few = made.task.answers(made.model, items, made.reader())
    for other in (alone, few):
        for one, two in zip(together, other, strict=True):
            assert one.null == pytest.approx(two.null, abs=1e-5)
            assert [span[0] for span in one.spans] == pytest.approx([span[0] for span in two.spans], abs=1e-5)
            assert one.spans[0][1:] == two.spans[0][1:]
    assert any(found.spans[0] != together[0].spans[0] for found in together)


def test_probabilities_are_those_of_the_head(english_model: Path, tmp_path: Path) -> None:
    made = task_model(ANSWER, english_model, ROWS, head="simple", n_best=5)
    example = examples_of(made, ROWS, tmp_path).examples[1]
    (item,) = made.task.items(example, made.layout())
    window = item.extra[0]
    model = made.model.eval()
    assert isinstance(model, SimpleAnswerer)
    with torch.no_grad():
        hidden_TD = made.reader().every_token(model.trunk, [item.documents[0]]).tokens()[0][0]
        places = [*range(window.part.begin, window.part.begin + len(window.part)), window.cls]
        start_P, end_P = model.bounds(hidden_TD)[places].softmax(dim=0).unbind(-1)
    every: dict[str, float] = {}
    for first in range(len(places) - 1):
        for last in range(first, len(places) - 1):
            span = characters(example.texts[0], window.part, places[first], places[last])
            text = example.texts[0][slice(*span)]
            if text:
                every[text] = max(every.get(text, 0.0), float(start_P[first] * end_P[last]))
    ranked = sorted(every.items(), key=lambda pair: -pair[1])[:5]
    (prediction,) = answers_in_order(made, [example])
    assert [best["answer"] for best in prediction.columns["n_best"]] == [text for text, _ in ranked]
    shown = [best["probability"] for best in prediction.columns["n_best"]]
    assert shown == pytest.approx([probability for _, probability in ranked], abs=2e-6)
    assert prediction.columns["answer"] == ranked[0][0]
    start, end = prediction.columns["start"], prediction.columns["end"]
    assert example.texts[0][start:end] == prediction.columns["answer"]


# ------------------------------------------------------------------------------------- windows to one answer, measures


def answerer(**settings: Any) -> Answer:
    return Answer(settings=AnswerSettings(**({"unanswerable": True, "script": "squad2"} | settings)))


def test_windows_are_combined_and_the_least_doubt_decides() -> None:
    example = Example(number=1, texts=("ab cd ab ef", "?"))
    parts = [
        Found(spans=((math.log(0.5), 0, 2), (math.log(0.2), 3, 5)), null=2.0),
        Found(spans=((math.log(0.6), 6, 8), (math.log(0.1), 9, 11), (math.log(0.05), 3, 5)), null=-1.0),
    ]
    given = answerer(n_best=2).prediction(example, [], parts)
    assert given.columns["n_best"] == [
        {"answer": "ab", "probability": 0.6, "start": 6, "end": 8},
        {"answer": "cd", "probability": 0.2, "start": 3, "end": 5},
    ]
    assert (given.columns["answer"], given.columns["start"], given.columns["end"]) == ("ab", 6, 8)
    assert given.columns["no_answer_probability"] == pytest.approx(1 / (1 + math.e), abs=1e-6)
    assert (given.value.text, given.value.no_answer) == ("ab", -1.0)

    left = answerer(null_threshold=-1.5).prediction(example, [], parts)
    assert (left.columns["answer"], left.columns["start"], left.value.text) == ("", None, "ab")
    assert left.confidence == left.columns["no_answer_probability"]

    simple = answerer(head="simple").prediction(example, [], [replace(part, null=math.log(0.3)) for part in parts])
    assert simple.columns["no_answer_probability"] == pytest.approx(0.3 / (0.3 + 0.6), abs=1e-6)

    sure = answerer(unanswerable=False, script="squad1").prediction(example, [], [Found(spans=(), null=None)])
    assert (sure.columns["answer"], sure.columns["start"], sure.columns["n_best"]) == ("", None, [])
    assert "no_answer_probability" not in sure.columns


def test_scores_are_counted_against_all_answers_by_the_script(english_model: Path, tmp_path: Path) -> None:
    both = [{"text": "Paris", "start": 16}, {"text": "the city Paris", "start": 0}]
    rows = [ROWS[0] | {"answer": both}, ROWS[1], ROWS[1] | {"answer": [], "impossible": True}]
    made = task_model(ANSWER, english_model, rows)
    examples = examples_of(made, rows, tmp_path).examples
    found = [[(0.0, 16, 21)], [(0.0, 15, 23)], [(0.0, 0, 3)]]
    parts = [Found(spans=tuple(spans), null=null) for spans, null in zip(found, (-3.0, 1.0, 2.0), strict=True)]
    predictions = [made.task.prediction(example, [], [part]) for example, part in zip(examples, parts, strict=True)]
    metrics = {name: metric.value for name, metric in made.task.measure(examples, predictions).items()}
    assert metrics["exact"] == pytest.approx(100 * 2 / 3)  # the second was not answered
    assert metrics["has_answer_f1"] == pytest.approx(50)
    assert metrics["no_answer_f1"] == 100
    assert metrics["best_f1_threshold"] == 1.0
    assert metrics["best_f1"] == pytest.approx(100 * (1 + 2 / 3 + 1) / 3)  # "park" of "in park" (the article aside)
    assert made.task.metric in metrics
    compared = made.task.compare(examples[2], predictions[2])
    assert (compared.gold, compared.predicted, compared.badness) == ("(no answer)", "(no answer)", 0.0)
    assert made.task.compare(examples[1], predictions[1]).badness > 0


def test_the_table_is_described(english_model: Path, tmp_path: Path) -> None:
    rows = [ROWS[0] | {"answer": [{"text": "1906", "start": 3}, {"text": "year 1906", "start": 25}]}]
    rows += [{"context": "ab cd ab", "question": "?", "answer": "ab"}]
    made = task_model(ANSWER, english_model, rows)
    lines = made.task.describe(examples_of(made, rows, tmp_path).examples)
    assert lines[0].startswith("2 questions, 0 of them without an answer (0.0%); answers have 4 characters (median)")
    assert lines[1] == "exact match and F1 are counted as the script of squad1 does"
    assert [line.split()[0] for line in lines[2:]] == ["1", "1", "1"]
