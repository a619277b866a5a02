"""An order of factorisation, step by step."""

from pathlib import Path

import numpy as np
import pytest

from segue.errors import ConfigError, DataError
from segue.explain.orders import MOST_WATCHED, WatchedOrder, watch_order
from segue.infer.score import ScoreSettings, score_texts
from segue.infer.text_model import TextModel, load_text_model
from tests.tasks.models import ENGLISH, write_model

TEXT = "The room was clean and the staff were very kind to us."


@pytest.fixture(scope="module")
def xlnet(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return load_text_model(write_model(tmp_path_factory.mktemp("orders") / "xlnet"))


@pytest.fixture(scope="module")
def watched(xlnet: TextModel) -> WatchedOrder:
    return watch_order(xlnet, TEXT, seed=4)


def test_the_turn_of_each_token_is_the_likelihood_under_the_order(watched: WatchedOrder) -> None:
    """Revealed step by step is the same as all at once with two streams."""
    count = len(watched.tokens)
    for step, position in enumerate(watched.order_T):
        assert watched.log_probability_XT[step, position] == pytest.approx(watched.one_T[position], abs=1e-5)
        revealed = np.isnan(watched.log_probability_XT[step])
        assert set(np.flatnonzero(revealed)) == set(watched.order_T[:step])
    assert np.isnan(watched.log_probability_XT[count]).all()
    assert len(watched.likeliest_XT) == count + 1


def test_who_sees_whom_is_the_order(watched: WatchedOrder) -> None:
    rank = np.argsort(watched.order_T)
    earlier = rank[:, None] > rank[None]
    assert (watched.query_TT == earlier).all()
    assert (watched.content_TT == (earlier | np.eye(len(rank), dtype=bool))).all()


def test_one_order_is_that_of_score(xlnet: TextModel) -> None:
    """Without the token before a text, which `score` adds: so the same model, that token among the text."""
    tokens = len(xlnet.tokenizer.encode(TEXT))
    order = list(np.random.default_rng(0).permutation(tokens))
    watched = watch_order(xlnet, TEXT, order=[int(n) for n in order])
    assert watched.order_T.tolist() == order
    settings = ScoreSettings(order=[int(n) for n in order])
    (row,) = score_texts(xlnet.model, _WithoutEnd(xlnet.tokenizer), [TEXT], settings)  # type: ignore[arg-type]
    assert watched.one_T.sum() == pytest.approx(row.log_probability, abs=1e-3)


class _WithoutEnd:
    """A tokeniser that has no eod."""

    def __init__(self, inner: object) -> None:
        self.inner = inner
        self.specials: dict[str, int] = {}

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def test_the_mean_over_orders(watched: WatchedOrder) -> None:
    assert watched.orders_XT.shape == (24, len(watched.tokens))
    assert np.isfinite(watched.orders_XT).all()
    assert (watched.mean == watched.orders_XT.mean(axis=0)).all()
    assert watched.orders_XT.std(axis=0).max() > 0


def test_a_long_text_is_watched_at_its_end_after_its_memory(xlnet: TextModel) -> None:
    text = ENGLISH.replace("\n", " ")
    short = TextModel(model=xlnet.model, tokenizer=xlnet.tokenizer, segment_length=16)
    watched = watch_order(short, text, order="backward", orders=2)
    assert len(watched.tokens) == 16 <= MOST_WATCHED
    assert watched.before == len(xlnet.tokenizer.encode(text)) - 16
    other = watch_order(short, "Two young men. " + text, order="backward", orders=2)
    assert other.one_T == pytest.approx(watched.one_T, abs=1), "about the same"
    alone = watch_order(short, xlnet.tokenizer.decode(xlnet.tokenizer.encode(text)[-16:]), order="backward", orders=2)
    if alone.tokens == watched.tokens:
        assert not np.allclose(alone.one_T, watched.one_T, atol=1e-6), "memory counts"


def test_orders_that_cannot_be_watched(xlnet: TextModel, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="positions that are watched once"):
        watch_order(xlnet, TEXT, order=[0, 1])
    with pytest.raises(DataError, match="must have at least one token"):
        watch_order(xlnet, "")
    causal = load_text_model(write_model(tmp_path / "causal", objective="causal"))
    with pytest.raises(ConfigError, match="Use an XLNet"):
        watch_order(causal, TEXT)
