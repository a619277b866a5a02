"""Parts of a desk with many entries: the same scores in less time."""

import numpy as np
import pytest

from segue.apps.desk import index, parts
from segue.apps.desk.index import build_index
from segue.apps.desk.parts import products_with
from segue.apps.desk.terms import terms_of
from segue.model.kernels import library


def unit(draw: np.random.Generator, *shape: int) -> np.ndarray:
    found = draw.standard_normal(shape, dtype=np.float32)
    return found / np.linalg.norm(found, axis=-1, keepdims=True)


@pytest.mark.skipif(not library.available(), reason="the compiled library is not there")
def test_products_with_many_rows_are_close_to_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    rows_NE, vector_E = unit(draw, 301, 64), unit(draw, 64)
    exact = products_with(rows_NE)(vector_E)
    np.testing.assert_array_equal(exact, rows_NE @ vector_E)
    monkeypatch.setattr(parts, "MANY_ROWS", 300)
    rows_NE[7] = 0
    found = products_with(rows_NE)(vector_E)
    assert found[7] == 0
    np.testing.assert_allclose(found, rows_NE @ vector_E, atol=0.005)
    assert not np.array_equal(found, rows_NE @ vector_E)


def test_an_index_weighs_every_term_of_every_text(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["card lost", "the card was lost, the card", "", "银行卡丢了", "transfer to 银行"]
    found = build_index(texts)
    assert list(found.terms) == sorted({term for text in texts for term in terms_of(text)})
    for column, term in enumerate(found.terms):
        those = found.texts[found.starts_V[column] : found.starts_V[column + 1]].tolist()
        assert those == [number for number, text in enumerate(texts) if term in terms_of(text)]
    monkeypatch.setattr(index, "MANY", 4)
    monkeypatch.setattr(index, "COMMON", 0.3)
    rarer = build_index(texts)
    assert "card" in found.terms
    assert "card" not in rarer.terms
    assert "transfer" in rarer.terms


def test_a_desk_without_texts_has_an_empty_index() -> None:
    found = build_index([])
    assert found.terms == ()
    assert found.scores("card").tolist() == []
