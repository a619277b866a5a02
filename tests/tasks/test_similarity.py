from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import segue
from segue.apps.encoder import raw_vectors
from segue.data.tables import open_table
from segue.errors import ConfigError, DataError
from segue.infer.text_model import load_text_model
from segue.tasks.examples import column_names
from segue.tasks.folder import load_task_model, save_task_model
from segue.tasks.predict import answers_in_order
from segue.tasks.similarity import SIMILARITY, Similarity, SimilaritySettings, contrastive, cosent, learn
from tests.tasks.made import examples_of, run, saved_and_restored, task_model, write_rows

SCORED: list[dict[str, Any]] = [
    {"first": "两个年轻人正在踢足球。", "second": "年轻人在公园里踢足球。", "score": 4.5},
    {"first": "他想买大衣。", "second": "房间很干净。", "score": 0},
    {"first": "公司表示，今年第一季度的利润增长了百分之十。" * 3, "second": "利润增长了。", "score": "3.75"},
]
PAIRS: list[dict[str, Any]] = [
    {"first": "The room was clean.", "second": "a clean room"},
    {"first": "A dull film.", "second": "The film was weak."},
    {"first": "She was born in Paris.", "second": "born in Paris"},
]
WORDS = ["room", "film", "coat", "park", "story", "staff", "company", "profit"]


def about(count: int, *, seed: int) -> list[dict[str, Any]]:
    """Pairs of texts that share their first two words, among words of chance."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        topic = random.choice(WORDS, 2).tolist()
        first, second = ([*topic, *random.choice(["new", "kind", "dull", "weak"], 2).tolist()] for _ in range(2))
        rows.append({"first": " ".join(first), "second": " ".join(second)})
    return rows


@pytest.mark.parametrize("objective", ["permutation", "causal", "masked"])
def test_the_prediction_is_the_cosine_of_the_embeddings(
    model_of_each_objective: dict[str, Path], tmp_path: Path, objective: str
) -> None:
    source = model_of_each_objective[objective]
    made = task_model(SIMILARITY, source, PAIRS)
    save_task_model(made, tmp_path / "made", tokenizer=source / "tokenizer")
    answers = answers_in_order(made, examples_of(made, PAIRS, tmp_path).examples)
    first, second = (
        segue.embed(tmp_path / "made", [row[role] for row in PAIRS], progress=False) for role in ("first", "second")
    )
    assert [a.value.cosine for a in answers] == pytest.approx((first * second).sum(axis=1), abs=1e-5)
    assert len({a.columns["prediction"] for a in answers}) == len(PAIRS)


def test_texts_of_several_segments_are_read_to_the_end_alone_and_together(english_model: Path, tmp_path: Path) -> None:
    rows = [
        {"first": "The room was clean. " * n + end, "second": "A dull film."} for n, end in ((1, "kind"), (9, "weak"))
    ]
    rows.append({"first": "The room was clean. " * 9 + "new", "second": "another"})
    made = task_model(SIMILARITY, english_model, rows)
    examples = examples_of(made, rows, tmp_path).examples
    together = [answer.value.cosine for answer in answers_in_order(made, examples)]
    alone = [answers_in_order(made, [example])[0].value.cosine for example in examples]
    assert together == pytest.approx(alone, abs=1e-5)
    first = [answer.value.first_D for answer in answers_in_order(made, examples)]
    assert np.abs(first[1] - first[2]).max() > 1e-4  # they differ in their last word only


def test_in_batch_negatives_by_hand() -> None:
    torch.manual_seed(0)
    first, second = (F.normalize(torch.randn(3, 4, dtype=torch.float64), dim=-1) for _ in range(2))
    apart = torch.eye(3, dtype=torch.bool)
    logits = (first @ second.T / 0.1).numpy()
    forward = -np.mean([logits[n, n] - np.log(np.exp(logits[n]).sum()) for n in range(3)])
    backward = -np.mean([logits[n, n] - np.log(np.exp(logits[:, n]).sum()) for n in range(3)])
    assert float(contrastive(first, second, apart, temperature=0.1)) == pytest.approx((forward + backward) / 2)
    same = apart.clone()
    same[0, 1] = same[1, 0] = True  # rows 0 and 1 have the same second text
    two = -(logits[0, 0] - np.log(np.exp(logits[0, [0, 2]]).sum()))
    loss = contrastive(first, second, same, temperature=0.1)
    assert float(loss) < float(contrastive(first, second, apart, temperature=0.1))
    third = -(logits[2, 2] - np.log(np.exp(logits[2]).sum()))
    one = -(logits[1, 1] - np.log(np.exp(logits[1, [1, 2]]).sum()))
    back = [-(logits[n, n] - np.log(np.exp(logits[kept, n]).sum())) for n, kept in ((0, [0, 2]), (1, [1, 2]))]
    back.append(-(logits[2, 2] - np.log(np.exp(logits[:, 2]).sum())))
    assert float(loss) == pytest.approx((np.mean([two, one, third]) + np.mean(back)) / 2)


def test_scores_order_the_cosines() -> None:
    cosine, gold = torch.tensor([0.1, 0.5, 0.3]), torch.tensor([2.0, 1.0, 1.0])
    expected = np.log(1 + np.exp((0.5 - 0.1) / 0.05) + np.exp((0.3 - 0.1) / 0.05))
    assert float(cosent(cosine, gold, temperature=0.05)) == pytest.approx(expected, rel=1e-5)
    assert float(cosent(cosine, torch.ones(3), temperature=0.05)) == 0.0


def test_a_run_learns_pairs_and_its_model_embeds(english_model: Path, tmp_path: Path) -> None:
    train = write_rows(tmp_path / "train.jsonl", about(160, seed=0))
    test = write_rows(tmp_path / "test.jsonl", about(40, seed=1))
    before = task_model(SIMILARITY, english_model, about(160, seed=0))
    examples = examples_of(before, about(40, seed=1), tmp_path).examples
    at_first = before.task.measure(examples, answers_in_order(before, examples), resamples=None)["mrr"].value
    end = run(SIMILARITY, english_model, tmp_path / "run", "train.epochs=6", train=train, test=test)
    metrics = end.judged[1].metrics
    assert metrics["mrr"].value > max(0.5, at_first + 0.1)
    assert metrics["recall_at_1"].value <= metrics["recall_at_10"].value
    made = load_task_model(tmp_path / "run")
    assert isinstance(made.task, Similarity)
    assert not made.task.scored
    assert segue.embed(tmp_path / "run", ["new room"], progress=False).shape == (1, made.config.hidden_width)
    with pytest.raises(ConfigError, match="fine-tuned on the task similarity"):
        segue.score(tmp_path / "run", ["new room"], progress=False)


def test_a_run_learns_scores(english_model: Path, tmp_path: Path) -> None:
    def scored(count: int, seed: int) -> str:
        pairs, others = about(count, seed=seed), about(count, seed=seed + 10)
        rows = [one | {"score": 1} for one in pairs]
        rows += [{"first": a["first"], "second": b["second"], "score": 0} for a, b in zip(pairs, others, strict=True)]
        return write_rows(tmp_path / f"{seed}.jsonl", rows)

    end = run(SIMILARITY, english_model, tmp_path / "run", "train.epochs=5", train=scored(80, 0), test=scored(30, 1))
    assert end.judged[1].metrics["spearman"].value > 0.6
    assert set(end.judged[1].metrics) == {"spearman", "pearson"}


def test_ranks_count_different_texts_once(english_model: Path, tmp_path: Path) -> None:
    rows = [*PAIRS, {"first": "A dull film.", "second": "a clean room"}]  # the same second text as row 1
    made = task_model(SIMILARITY, english_model, rows)
    examples = examples_of(made, rows, tmp_path).examples
    answers = answers_in_order(made, examples)
    metrics = made.task.measure(examples, answers, resamples=None)
    first = np.stack([a.value.first_D for a in answers])
    second = np.stack([a.value.second_D for a in answers])[:3]
    ranks = [int((first[n] @ second.T >= first[n] @ second[own] - 1e-7).sum()) for n, own in enumerate((0, 1, 2, 0))]
    assert metrics["mrr"].value == pytest.approx(np.mean([1 / rank for rank in ranks]))


def test_the_task_comes_back_as_it_was_saved(chinese_model: Path) -> None:
    for rows, scored in ((SCORED, True), (PAIRS, False)):
        made = task_model(SIMILARITY, chinese_model, rows, temperature=0.1)
        assert isinstance(made.task, Similarity)
        assert made.task.scored == scored
        assert saved_and_restored(made) == made.task
    with pytest.raises(ValueError, match="true or false"):
        SIMILARITY.restore({"scored": 1, "settings": {}})


def test_columns_by_their_usual_names(tmp_path: Path) -> None:
    table = open_table(write_rows(tmp_path / "a.jsonl", [{"question": "a", "answer": "b"}]))
    assert column_names(SIMILARITY, table, {}, labelled=True) == {"first": "question", "second": "answer"}
    table = open_table(write_rows(tmp_path / "b.jsonl", [{"sentence1": "a", "sentence2": "b", "label": 1}]))
    names = {"first": "sentence1", "second": "sentence2", "score": "label"}
    assert column_names(SIMILARITY, table, {}, labelled=True) == names


def test_rows_that_cannot_serve_are_counted(english_model: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [*SCORED, {"first": " ", "second": "a", "score": 1}]
    rows += [{"first": "a", "second": "b", "score": value} for value in ("high", None, float("nan"))]
    made = task_model(SIMILARITY, english_model, rows)
    found = examples_of(made, rows, tmp_path)
    assert found.unusable == {"an empty text": (1, 4), "a label that is not a finite number": (3, 5)}
    assert made.task.describe(found.examples) == ["3 pairs with scores from 0 to 4.5, mean 2.75"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"first": "a", "second": "b", "score": 1}] * 3, "different scores; got 1 for all 3 pairs"),
        ([{"first": "a", "second": "b"}, {"first": "c", "second": "b"}], "different second texts; got 2 usable"),
    ],
)
def test_pairs_from_which_nothing_can_be_learned_are_an_error(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        learn(list(enumerate(rows, 1)), SimilaritySettings())


def test_applications_embed_with_its_last_layer(english_model: Path, tmp_path: Path) -> None:
    made = task_model(SIMILARITY, english_model, PAIRS)
    save_task_model(made, tmp_path / "made", tokenizer=english_model / "tokenizer")
    texts = ["The room was clean.", "A dull film."]
    for folder, layer in ((tmp_path / "made", None), (english_model, 1)):
        expected = segue.embed(folder, texts, layer=layer, normalise=False, progress=False)
        assert raw_vectors(load_text_model(folder), texts) == pytest.approx(expected, abs=1e-5)
