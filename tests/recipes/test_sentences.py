"""Distillation of sentence vectors, on small models: the student's similarities become those of the teacher."""

from pathlib import Path

import numpy as np
import pytest
from recipes.sentences import distil, draw_texts, reduction, teach

import segue
from recipes import sentences
from tests.tasks.models import write_model

WORDS = ["room", "film", "coat", "park", "story", "staff", "company", "profit", "clean", "dull", "kind", "weak"]


@pytest.fixture
def texts() -> list[str]:
    draw = np.random.default_rng(0)
    return [" ".join(draw.choice(WORDS, int(draw.integers(1, 9))).tolist()) for _ in range(200)]


def test_a_model_learns_the_similarities_of_its_teacher(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "TOKENS", 256)
    monkeypatch.setattr(sentences, "WARMUP", 5)
    teacher, start = write_model(tmp_path / "teacher", objective="masked"), write_model(tmp_path / "start")
    vectors = teach(texts, teacher, tmp_path / "vectors")
    assert vectors == pytest.approx(segue.embed(teacher, texts, progress=False), abs=1e-3)  # kept in 16 bits
    distil(texts, vectors, str(start), tmp_path / "out", updates=60, command="", rate=1e-2)

    def correlation(model: Path) -> float:
        own = segue.embed(model, texts, progress=False)
        above = np.triu_indices(len(texts), 1)
        return float(np.corrcoef((own @ own.T)[above], (vectors @ vectors.T)[above])[0, 1])

    assert correlation(tmp_path / "out") > max(0.5, correlation(start) + 0.3)
    (row,) = segue.predict(tmp_path / "out", [{"first": texts[0], "second": texts[0]}], progress=False)
    assert row["prediction"] == pytest.approx(1, abs=1e-5)


def test_vectors_of_the_teacher_are_computed_once(
    texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "PART", 64)
    teacher = write_model(tmp_path / "teacher", objective="masked")
    first = teach(texts[:130], teacher, tmp_path / "vectors")
    names = sorted(path.name for path in (tmp_path / "vectors").iterdir())
    assert names == ["00000000.npy", "00000064.npy", "00000128.npy"]
    np.save(tmp_path / "vectors" / names[0], np.zeros((64, first.shape[1]), dtype=np.float16))
    again = teach(texts[:130], teacher, tmp_path / "vectors")
    assert not again[:64].any()
    assert np.array_equal(again[64:], first[64:])


def test_a_reduction_keeps_dot_products() -> None:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(300, 6)) @ draw.normal(size=(6, 24))  # of rank 6
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    reduced = reduction(vectors, draw.normal(size=(300, 8)).astype(np.float32))(vectors).numpy()
    assert reduced.shape == (300, 8)
    assert reduced @ reduced.T == pytest.approx(vectors @ vectors.T, abs=1e-4)


def test_texts_are_different_and_of_all_lengths(tmp_path: Path) -> None:
    lines = [f"User: The {a} was near the {b}. It was a {c} day for us." for a in WORDS for b in WORDS for c in WORDS]
    (tmp_path / "train.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = draw_texts(tmp_path, sentences=50, passages=10, phrases=20, words=8)
    assert len(found) == len(set(found))
    assert draw_texts(tmp_path, sentences=50, passages=10, phrases=20, words=8) == found
    assert not any(text.startswith("User:") for text in found if text.count(".") == 1)
    assert sum(" " not in text for text in found) >= 8
    assert sum(text.count(".") == 2 for text in found) >= 9
