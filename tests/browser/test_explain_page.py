"""The page of `segue explain` in a browser: its numbers are those of Python, and it opens long texts at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from segue.config import changed
from segue.explain.decision import decide
from segue.explain.faithful import explain_words
from segue.explain.page import explanation_page
from segue.explain.report import Explanation, explain_text
from segue.infer.text_model import TextModel, load_text_model
from segue.model import LanguageModel
from segue.tasks.table import TASKS
from tests.browser.conftest import MARKUP
from tests.tasks.made import task_model
from tests.tasks.models import ENGLISH, write_model

TEXT = ENGLISH.replace("\n", " ")[:150]
Show = Callable[..., Any]


def noisy(folder: Path, *, segment_length: int) -> TextModel:
    source = load_text_model(folder)
    return TextModel(model=shaken(source.model), tokenizer=source.tokenizer, segment_length=segment_length)


def shaken(model: LanguageModel) -> LanguageModel:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Explanation, Explanation]:
    folder = tmp_path_factory.mktemp("explained")
    xlnet = noisy(write_model(folder / "xlnet"), segment_length=16)
    causal = noisy(write_model(folder / "causal", objective="causal"), segment_length=16)
    rows = [{"text": "The room was clean", "label": MARKUP}, {"text": "A dull film", "label": MARKUP + "2"}]
    words = explain_words(decide(task_model(TASKS["classify"], folder / "xlnet", rows), {"text": TEXT[:60]}))
    first = explain_text(xlnet, TEXT, name=MARKUP, order="random")
    return replace(first, words=words), explain_text(causal, MARKUP + TEXT, name="causal")


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Show]:
    """Opens a page from a file. At the end nothing may have gone wrong in it, or come from elsewhere."""
    contexts, problems, elsewhere = [], [], []

    def opened(page: str, **options: Any) -> Any:
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        context = chromium.new_context(**{"locale": "en-US", "viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(30_000)
        contexts.append(context)
        view = context.new_page()
        view.on("pageerror", lambda error: problems.append(str(error)))
        view.on("console", lambda said: problems.append(said.text))
        view.on("request", lambda request: elsewhere.append(request.url) if request.url != path.as_uri() else None)
        view.goto(path.as_uri())
        view.wait_for_selector("canvas[data-drawn]")
        return view

    yield opened
    for context in contexts:
        context.close()
    assert problems == []
    assert [url for url in elsewhere if not url.startswith(("data:", "blob:"))] == []


def test_the_numbers_are_those_of_python(show: Show, sides: tuple[Explanation, Explanation]) -> None:
    check_numbers(show(explanation_page(sides)), sides)


def test_the_numbers_of_buckets_are_those_of_python(show: Show, tmp_path: Path) -> None:
    """u and v for each bucket of distances, in a page with both streams."""
    source = load_text_model(write_model(tmp_path / "xlnet"))
    config = changed(source.model.config, positions={"biases": "buckets", "shared_biases": False})
    model = LanguageModel(config).eval()
    made = TextModel(model=shaken(model), tokenizer=source.tokenizer, segment_length=16)
    side = explain_text(made, TEXT, name="buckets", ablate=False)
    assert "content_bias" in side.statistics[0][1].terms
    check_numbers(show(explanation_page([side])), [side])


def check_numbers(page: Any, sides: Sequence[Explanation]) -> None:
    for number, side in enumerate(sides):
        assert side.reading is not None
        streams = ["content", "query"] if number == 0 else ["content"]
        for segment in list(side.reading.attention())[1:3]:
            for stream in streams:
                scores = segment.reading.scores(1, heads=1, stream=stream)  # type: ignore[arg-type]
                for q in range(0, len(segment.span), 5):
                    token = segment.span.start + q
                    seen_K = scores.mask_BQK[0, q].numpy()
                    keys = segment.key_tokens[seen_K].tolist()
                    for term in ("probability", "score", *scores.terms):
                        values_K = {"probability": scores.probability, "score": scores.score} | scores.terms
                        expected = values_K[term][0, 0, q].numpy()[seen_K]
                        row = page.evaluate(
                            "([side, stream, term, q]) => Array.from(headOf(side, 1, 1, stream).row(term, q), "
                            "(value) => Number.isNaN(value) ? null : value)",
                            [number, stream, term, token],
                        )
                        assert [n for n, value in enumerate(row) if value is not None] == sorted(keys)
                        np.testing.assert_allclose([row[key] for key in keys], expected, atol=0.02)


def test_views_are_drawn_and_markup_is_text(show: Show, sides: tuple[Explanation, Explanation]) -> None:
    page = show(explanation_page(sides))
    assert page.title() != "hacked"
    assert page.locator("img").count() == 0
    assert page.locator("h2").first.inner_text() == MARKUP
    page.locator(".token").nth(20).hover()
    assert "from 20" in page.locator(".reading").first.inner_text()
    box = page.locator("canvas").first.bounding_box()
    page.mouse.move(box["x"] + 12, box["y"] + box["height"] - 12)
    assert "from memory" in page.locator(".reading").first.inner_text() or "not seen" in page.inner_text(".reading")
    page.click("#tab-terms")
    assert page.locator("svg").count() == 6
    page.click("#tab-losses")
    assert "the memory in all layers" in page.inner_text("main")
    page.click("#tab-words")
    assert MARKUP in page.inner_text("main")
    assert "Random rankings" in page.inner_text("main")
    page.select_option("select", "leave_one_out")
    page.click("#tab-order")
    page.get_by_role("button", name="Forward").first.click()
    assert page.locator("td", has_text="revealed").count() == 1
    assert "Step 1 of" in page.inner_text("main")


def test_it_is_used_with_the_keyboard(show: Show, sides: tuple[Explanation, Explanation]) -> None:
    page = show(explanation_page(sides[1:]))
    page.focus("#tab-attention")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-terms"
    page.keyboard.press("ArrowLeft")
    page.focus("canvas")
    page.keyboard.press("+")
    size = page.evaluate("SIDES[0].tokens.length")
    assert page.get_attribute("canvas", "data-drawn") == "2"
    page.focus(".token[tabindex='0']")
    page.keyboard.press("ArrowRight")
    assert "from 1 " in page.inner_text(".reading")
    page.keyboard.press("End")
    assert f"from {size - 1} " in page.inner_text(".reading")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_in_chinese_and_in_the_dark(show: Show, sides: tuple[Explanation, Explanation], scheme: str) -> None:
    page = show(explanation_page(sides), locale="zh-CN", color_scheme=scheme)
    assert page.inner_text("#tab-attention") == "注意力"
    missing = page.evaluate("Object.keys(WORDS.en).filter((key) => !(key in WORDS.zh))")
    assert missing == []
    assert page.evaluate("Object.keys(WORDS.zh).length === Object.keys(WORDS.en).length")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.click("#language")
    assert page.inner_text("#tab-attention") == "Attention"
    assert page.get_attribute("html", "lang") == "en"


def test_a_text_of_4096_tokens_is_drawn_within_a_second(show: Show, tmp_path: Path) -> None:
    """Segments of 1,024 tokens after a memory as long: the time from the start of the page to its first map."""
    folder = write_model(tmp_path / "long", objective="causal")
    source = noisy(folder, segment_length=1024)
    long = TextModel(
        model=source.model.adjusted(memory={"length": 1024}), tokenizer=source.tokenizer, segment_length=1024
    )
    count = len(source.tokenizer.encode(ENGLISH))
    text = ENGLISH * (4096 // count)
    side = explain_text(long, text, name="long", ablate=False)
    assert side.reading is not None
    assert 3900 < len(side.reading.ids_T) <= 4200
    page = show(explanation_page([side]))
    measured = page.evaluate("performance.getEntriesByName('first map')[0].startTime")
    print(f"first map after {measured:.0f} ms")
    assert measured < 1000 * SLOWNESS
    page.locator(".token").nth(3000).hover()
    assert "from 3000" in page.inner_text(".reading")


SLOWNESS = 4
"""The limit of a second is that of a machine at rest; tests share theirs."""
