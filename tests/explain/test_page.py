"""What goes into a page, and into a picture."""

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from segue.errors import ConfigError, DataError
from segue.explain import report
from segue.explain.page import explanation_page
from segue.explain.picture import head_map
from segue.explain.report import Explanation, explain_text
from segue.explain.text import read_text
from segue.infer.text_model import TextModel, load_text_model
from tests.tasks.models import write_model

MARKUP = "</script><img src=x onerror=document.title='hacked'> The room"
TEXT = "The room was clean and the staff were very kind to us."


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    found = load_text_model(write_model(tmp_path_factory.mktemp("page") / "xlnet"))
    return TextModel(model=found.model, tokenizer=found.tokenizer, segment_length=8)


@pytest.fixture(scope="module")
def made(source: TextModel) -> Explanation:
    return explain_text(source, TEXT, name=MARKUP, order="random", ablate=False)


def test_text_is_text_and_nothing_is_fetched(made: Explanation, source: TextModel) -> None:
    other = explain_text(source, MARKUP, name="other", ablate=False)
    page = explanation_page([made, other])
    assert "<img" not in page
    assert page.count("</script>") == page.count("<script")
    plain = explanation_page([Explanation(name="plain", text=TEXT)])
    assert not re.search(r"""(src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)|\bfetch\(""", plain)
    assert "default-src 'none'" in page
    values = json.loads(re.search(r'id="values">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert values[0]["name"] == MARKUP
    assert values[1]["text"] == MARKUP


def test_blocks_hold_queries_and_keys(made: Explanation) -> None:
    assert made.maps is not None
    assert made.reading is not None
    described = made.maps.description
    assert described["streams"] == ["content", "query"]
    data = base64.b64decode(made.maps.blocks["1-0-content"])
    count, width, distances = len(made.reading.ids_T), described["width"], described["distances"]
    keys = sum(one["stop"] - one["keys"] for one in described["segments"])
    assert len(data) == 4 * count + 2 * (count * width + keys * width + keys + distances * width + distances)
    segment = next(iter(made.reading.attention()))
    inputs = segment.reading.content[1]
    queries = np.frombuffer(data, dtype="<f2", offset=4 * count)[: 8 * width].reshape(8, width)
    np.testing.assert_allclose(queries, inputs.query_BQHE[0, :, 0].numpy() / width**0.5, atol=2e-3)


def test_the_page_of_words_alone(made: Explanation) -> None:
    page = explanation_page([Explanation(name="words", text=TEXT)])
    assert "block-" not in page.partition("<script>")[0].partition('id="values"')[2]
    with pytest.raises(ConfigError, match="one or two explanations"):
        explanation_page([])


def test_a_page_that_would_be_too_large_is_refused(source: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "LARGEST_MAPS", 2**10)
    with pytest.raises(ConfigError, match=r"Choose 1 of them with --layers"):
        explain_text(source, TEXT, name="x")
    with pytest.raises(ConfigError, match="layers must be among the 2"):
        explain_text(source, TEXT, name="x", layers=[2])


def test_a_picture_is_the_attention(source: TextModel) -> None:
    reading = read_text(source, TEXT)
    whole_TT = head_map(reading, layer=1, head=1, stream="query")
    assert whole_TT.shape == (len(reading.ids_T),) * 2
    given_T = np.nansum(whole_TT, axis=1)
    seen_T = ~np.isnan(whole_TT).all(axis=1)
    np.testing.assert_allclose(given_T[seen_T], 1, atol=1e-5)
    position_TT = head_map(reading, layer=1, head=1, shown="position_bias")
    last = list(reading.attention())[-1]
    expected = last.reading.scores(1, heads=1).position_bias_BHQK
    assert expected is not None
    assert position_TT[-1, -1] == pytest.approx(float(expected[0, 0, -1, -1]))
    with pytest.raises(DataError, match="an image of this model shows one of probability, score, content"):
        head_map(reading, layer=0, head=0, shown="u")


def test_long_pictures_are_refused(source: TextModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("segue.explain.picture.MOST_PICTURED", 3)
    with pytest.raises(DataError, match="Write a page instead"):
        head_map(read_text(source, TEXT), layer=0, head=0)


def test_reading_leaves_no_graph(made: Explanation) -> None:
    assert made.reading is not None
    segment = next(iter(made.reading.attention()))
    assert not segment.reading.scores(0).score.requires_grad
    assert torch.is_grad_enabled()
