"""N-grams joined to a classifier: the weights are the best, nothing is lost by joining, and folders keep it all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from segue.checkpoint.convert import convert
from segue.checkpoint.folder import NGRAMS, WEIGHTS
from segue.errors import CheckpointError
from segue.evaluation.baselines import NgramClassifier, log_softmax, probabilities
from segue.files import MANIFEST, manifest_text, sha256
from segue.tasks.classify import CLASSIFY, PAIR
from segue.tasks.folder import TaskModel, load_task_model, save_task_model
from segue.tasks.predict import answer_rows, answers_in_order, join_ngrams
from segue.tasks.task import TaskKind
from segue.tasks.wide import Wide, fit_wide, scores_of, stack
from segue.text.ngrams import learn_ngrams
from tests.tasks.made import examples_of, task_model

ROWS = [
    {"text": "A kind man 😀.", "label": "good"},
    {"text": "A dull film.", "label": "bad"},
    {"text": "房间很干净", "label": "good"},
]
PAIRS = [{"first": row["text"], "second": "A kind film", "label": row["label"]} for row in ROWS]


def noisy(gold_NC: Any, strength: float, *, seed: int) -> Any:
    """Scores that say what is right, more or less."""
    noise_NC = np.random.default_rng(seed).normal(size=gold_NC.shape)
    return log_softmax(strength * gold_NC + noise_NC)


def gold(count: int = 300, classes: int = 3) -> Any:
    return np.random.default_rng(5).integers(classes, size=count)[:, None] == np.arange(classes)


def loss(scores: tuple[Any, Any], gold_NC: Any, shares: tuple[float, float], *, multiple: bool) -> float:
    """As it is defined, with what holds both near a half."""
    found_NC = probabilities(shares[0] * scores[0] + shares[1] * scores[1], multiple=multiple)
    right = np.where(gold_NC, found_NC, 1 - found_NC) if multiple else found_NC[gold_NC]
    away = (shares[0] - 0.5) ** 2 + (shares[1] - 0.5) ** 2
    return float(-np.log(right).mean() + away / 2 / len(gold_NC))


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("strengths", [(1.0, 2.0), (2.0, 0.5), (-1.0, 2.0), (3.0, -1.0), (-1.0, -1.0)])
def test_the_weights_have_the_smallest_loss(strengths: tuple[float, float], multiple: bool) -> None:
    gold_NC = gold()
    scores = (noisy(gold_NC, strengths[0], seed=0), noisy(gold_NC, strengths[1], seed=1))
    found = stack(scores, gold_NC, multiple=multiple)
    assert min(found) >= 0
    least = loss(scores, gold_NC, found, multiple=multiple)
    for network in np.linspace(0, 3, 31):
        for ngrams in np.linspace(0, 3, 31):
            assert least <= loss(scores, gold_NC, (network, ngrams), multiple=multiple) + 1e-12
    if not multiple:
        assert [share == 0 for share in found] == [strength < 0 for strength in strengths]


def classifier(texts: int = 1, *, multiple: bool = False, classes: int = 2) -> NgramClassifier:
    random = np.random.default_rng(2)
    ngrams = learn_ngrams([row["text"] for row in ROWS], "characters", most=1000)
    return NgramClassifier(
        ngrams=ngrams,
        weight_VC=random.normal(size=(ngrams.width(texts), classes)).astype(np.float32),
        bias_C=random.normal(size=classes),
        multiple=multiple,
    )


@pytest.mark.parametrize("seed", range(8))
def test_together_they_are_no_worse_than_the_better_one(seed: int) -> None:
    """With few examples, where the smallest loss need not make the fewest mistakes."""
    gold_NC = gold(20)
    network_NC = np.exp(noisy(gold_NC, 1.0, seed=seed)).astype(np.float32)
    ngrams_NC = noisy(gold_NC, 1.2, seed=100 + seed)

    def right(found_NC: Any) -> float:
        return float((found_NC.argmax(axis=1) == gold_NC.argmax(axis=1)).mean())

    wide = fit_wide(classifier(), network_NC, ngrams_NC, gold_NC, score=right)
    assert right(wide.combined(network_NC, ngrams_NC)) >= max(right(network_NC), right(ngrams_NC))


def test_either_part_alone_gives_its_own_answer() -> None:
    gold_NC = gold(50, 2)
    network_NC = np.exp(noisy(gold_NC, 1.0, seed=3))
    texts = [(row["text"],) for row in ROWS] * 10
    one = Wide(classifier=classifier(), network=1.0, ngrams=0.0)
    np.testing.assert_allclose(one.joined(network_NC[:30], texts), network_NC[:30], rtol=1e-12)
    other = Wide(classifier=classifier(), network=0.0, ngrams=1.0)
    np.testing.assert_array_equal(other.joined(network_NC[:30], texts), classifier().probabilities(texts))


def test_a_network_that_is_sure_beyond_float32_has_finite_scores() -> None:
    assert np.isfinite(scores_of(np.array([[1.0, 0.0]], dtype=np.float32), multiple=False)).all()
    odds = scores_of(np.array([[1.0, 0.0]], dtype=np.float32), multiple=True)
    assert odds == pytest.approx(np.array([[16.1, -16.1]]), abs=0.1)


# ------------------------------------------------------------------------------------------------------ on disk


def joined_model(kind: TaskKind, english_model: Path, rows: list[dict[str, str]], **settings: Any) -> TaskModel:
    made = task_model(kind, english_model, rows, **settings)
    multiple = bool(settings.get("multiple"))
    found = classifier(2 if kind is PAIR else 1, multiple=multiple)
    return replace(made, wide=Wide(classifier=found, network=1 / 3, ngrams=0.7))


@pytest.mark.parametrize("kind", [CLASSIFY, PAIR], ids=["classify", "pair"])
@pytest.mark.parametrize("multiple", [False, True])
def test_folders_keep_every_bit(kind: TaskKind, multiple: bool, english_model: Path, tmp_path: Path) -> None:
    rows = PAIRS if kind is PAIR else ROWS
    made = joined_model(kind, english_model, rows, multiple=multiple)
    save_task_model(made, tmp_path / "tuned", tokenizer=english_model / "tokenizer")
    again = load_task_model(tmp_path / "tuned")
    assert made.wide is not None
    assert again.wide is not None
    assert (again.wide.network, again.wide.ngrams) == (1 / 3, 0.7)
    assert again.wide.classifier.ngrams.terms == made.wide.classifier.ngrams.terms
    for name, value in made.wide.to_tensors().items():
        assert torch.equal(again.wide.to_tensors()[name], value)
    examples = examples_of(made, rows, tmp_path).examples
    want = [one.value for one in answers_in_order(made, examples)]
    np.testing.assert_array_equal([one.value for one in answers_in_order(again, examples)], want)
    rows_answered = list(answer_rows(again, enumerate(rows, 1)))
    np.testing.assert_array_equal([one.prediction.value for one in rows_answered], want)  # type: ignore[union-attr]
    alone = answers_in_order(replace(made, wide=None), examples)
    later = join_ngrams(made.task, made.wide, examples, alone)
    np.testing.assert_array_equal([one.value for one in later], want)
    assert [one.columns for one in later] == [one.prediction.columns for one in rows_answered]  # type: ignore[union-attr]
    assert not np.allclose([one.value for one in alone], want, atol=1e-3)


def test_lone_surrogates_have_a_place_in_the_vocabulary(english_model: Path, tmp_path: Path) -> None:
    made = task_model(CLASSIFY, english_model, ROWS)
    ngrams = learn_ngrams(["\ud800a"], "characters", most=9)
    found = NgramClassifier(
        ngrams=ngrams, weight_VC=np.ones((3, 2), dtype=np.float32), bias_C=np.zeros(2), multiple=False
    )
    made = replace(made, wide=Wide(classifier=found, network=1.0, ngrams=1.0))
    save_task_model(made, tmp_path / "tuned", tokenizer=english_model / "tokenizer")
    again = load_task_model(tmp_path / "tuned").wide
    assert again is not None
    assert again.classifier.ngrams.terms == ngrams.terms


def damaged(folder: Path, changes: dict[str, Any], *, left_out: str | None = None) -> None:
    """The n-grams with other tensors, under a hash that fits."""
    tensors = load_file(folder / NGRAMS) | changes
    tensors = {name: value for name, value in tensors.items() if name != left_out}
    save_file(tensors, folder / NGRAMS, metadata={"format": "segue-1"})
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST]
    (folder / MANIFEST).write_text(manifest_text({name: sha256(folder / name) for name in names}))


@pytest.mark.parametrize(
    ("changes", "left_out", "words"),
    [
        ({}, "bias", "must have the tensors"),
        ({"weight": torch.zeros(3, 2)}, None, "a weight for each class"),
        ({"bias": torch.tensor([0.0, float("nan")], dtype=torch.float64)}, None, "finite weights"),
        ({"terms": torch.zeros(5, dtype=torch.uint8)}, None, "its bytes, one after the other"),
        ({"term_ends": torch.tensor([2, 1])}, None, "its bytes, one after the other"),
        ({"term_ends": torch.tensor([-5, 1])}, None, "its bytes, one after the other"),
        (
            {"terms": torch.zeros(2, dtype=torch.uint8), "term_ends": torch.tensor([1, 2])},
            None,
            "must be different",
        ),
        (
            {"terms": torch.tensor([255], dtype=torch.uint8), "term_ends": torch.tensor([1])},
            None,
            "must be as segue finetune writes it",
        ),
    ],
)
def test_n_grams_of_others_are_read_with_suspicion(
    changes: dict[str, Any], left_out: str | None, words: str, english_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "tuned"
    made = joined_model(CLASSIFY, english_model, ROWS)
    save_task_model(made, folder, tokenizer=english_model / "tokenizer")
    damaged(folder, {})
    load_task_model(folder)
    damaged(folder, changes, left_out=left_out)
    with pytest.raises(CheckpointError, match=words):
        load_task_model(folder)


def test_a_changed_or_missing_file_is_noticed(english_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    save_task_model(joined_model(CLASSIFY, english_model, ROWS), folder, tokenizer=english_model / "tokenizer")
    data = bytearray((folder / NGRAMS).read_bytes())
    data[-3] ^= 1
    (folder / NGRAMS).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{NGRAMS} must be unchanged since it was written"):
        load_task_model(folder)
    (folder / NGRAMS).unlink()
    with pytest.raises(CheckpointError, match=f"{NGRAMS} must be unchanged since it was written"):
        load_task_model(folder)


def test_a_model_saved_again_without_n_grams_has_none(english_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    made = joined_model(CLASSIFY, english_model, ROWS)
    save_task_model(made, folder, tokenizer=english_model / "tokenizer")
    save_task_model(replace(made, wide=None), folder, tokenizer=english_model / "tokenizer")
    assert load_task_model(folder).wide is None
    assert not (folder / NGRAMS).exists()
    assert (folder / WEIGHTS).exists()


def test_a_conversion_says_that_n_grams_are_left_out(english_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tuned"
    save_task_model(joined_model(CLASSIFY, english_model, ROWS), folder, tokenizer=english_model / "tokenizer")
    report = convert(folder, tmp_path / "hf", to="hf", compare=False)
    assert any("n-grams" in note and "left out" in note for note in report.notes)
