"""The page in a browser, on a real server."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser.conftest import MANY, MARKUP, Open
from tests.serve.running import Server, running

IDLE = "#stop:disabled"
WRITTEN = "#panel-write .paper .token:not(.read)"


def write(page: Any, text: str = "", *, tokens: int = 12, temperature: float = 0, seed: int | None = None) -> None:
    page.fill("#prompt", text)
    page.fill("#tokens", str(tokens))
    page.fill("#temperature", str(temperature))
    page.fill("#seed", "" if seed is None else str(seed))
    page.click("#go")
    page.wait_for_selector(IDLE)


def text_of(page: Any) -> str:
    return str(page.locator("#panel-write .paper").inner_text())


def figure(page: Any, name: str) -> str:
    return str(page.locator("#session .fact", has_text=name).locator("b").inner_text())


# -------------------------------------------------------------------------------------------------------------- write


def test_text_streams_and_is_what_the_server_writes(page: Any, server: Server) -> None:
    write(page, "The room was", seed=5, temperature=1)
    with server.client() as client:
        model = client.get("/v1/models").json()["data"][0]["id"]
        session = client.post("/v1/sessions", json={"model": model}).json()["id"]
        client.post(f"/v1/sessions/{session}/score", json={"text": "The room was"}).raise_for_status()
        body = {"max_tokens": 12, "temperature": 1, "top_p": 0.95, "seed": 5, "stream": False}
        expected = client.post(f"/v1/sessions/{session}/write", json=body).raise_for_status().json()
    assert text_of(page).replace("¶", "") == "The room was" + expected["text"]
    assert figure(page, "Generated") == str(expected["usage"]["completion_tokens"])
    assert figure(page, "Tokens so far") == str(expected["session"]["tokens"])
    heats = page.locator(WRITTEN).evaluate_all("all => all.map(one => one.dataset.heat)")
    assert set(heats) <= set("0123456789")
    write(page, "and the staff", seed=5)
    assert int(figure(page, "Reused")) == expected["session"]["tokens"]


def test_stop_cancels_and_the_session_is_where_the_text_ends(page: Any, server: Server) -> None:
    page.fill("#prompt", "The room was")
    page.fill("#tokens", str(MANY))
    page.fill("#temperature", "0")
    page.click("#go")
    page.wait_for_selector(WRITTEN)
    page.click("#stop")
    page.wait_for_selector(IDLE)
    assert "Stopped" in page.inner_text("#state")
    with server.client() as client:
        assert client.get("/load").json()["writing"] == 0
        tokens = {one["tokens"] for one in client.get("/v1/sessions").json()["data"]}
    shown = int(figure(page, "Tokens so far").replace(",", ""))
    ids = page.locator("#panel-write .token").evaluate_all(
        "all => all.reduce((sum, one) => sum + one.piece.ids.length, 0)"
    )
    assert shown == ids + 1  # the mark that begins a document
    assert shown in tokens
    assert shown < MANY


def test_rewinding_is_exact(page: Any) -> None:
    write(page, "She was born in", tokens=14)
    before = text_of(page)
    count = page.locator(WRITTEN).count()
    page.locator(WRITTEN).nth(4).click()
    page.get_by_role("button", name="Rewind to here").click()
    page.wait_for_selector(IDLE)
    assert page.locator(WRITTEN).count() == 5
    assert before.startswith(text_of(page))
    write(page, tokens=9)
    assert page.locator(WRITTEN).count() == count
    assert text_of(page) == before


def test_two_continuations_side_by_side(page: Any) -> None:
    write(page, "Two young men", tokens=3)
    before = text_of(page)
    page.fill("#seed", "1")
    page.fill("#temperature", "1")
    page.fill("#tokens", "10")
    page.click("#two")
    page.wait_for_selector(IDLE)
    ways = page.locator(".way-text").all_inner_texts()
    assert len(ways) == 2
    assert ways[0] != ways[1]
    assert text_of(page) == before
    page.get_by_role("button", name="Keep this one").nth(1).click()
    assert page.locator(".way").count() == 0
    assert text_of(page) == before + ways[1]


def test_an_alternative_goes_another_way(page: Any) -> None:
    write(page, "The company said", tokens=8)
    before = text_of(page)
    other = page.locator("#inspector button.bar").first
    for place in range(page.locator(".paper .token").count()):
        page.locator(".paper .token").nth(place).click()
        if other.count():  # tokens that are bytes cannot be read as text
            break
    name = other.locator(".bar-name").inner_text().replace("␣", " ")
    other.click()
    page.wait_for_selector(".way-text .token")
    page.wait_for_selector(IDLE)
    first, second = page.locator(".way-text").all_inner_texts()
    assert text_of(page) + first == before
    assert second.strip().startswith(name.strip())


# --------------------------------------------------------------------------------------------------------- other panels


def test_gaps_are_filled(page: Any, server: Server) -> None:
    page.click("#tab-gaps")
    page.fill("#gap-text", "The ___ was clean and the ___ were kind.")
    page.click("#fill")
    page.wait_for_selector("#filled mark")
    with server.client() as client:
        body = {"text": "The ___ was clean and the ___ were kind.", "length": 2}
        gaps = client.post("/v1/infill", json=body).raise_for_status().json()["gaps"]
    assert [text.strip() for text in page.locator("#filled mark").all_inner_texts()] == [gap.strip() for gap in gaps]
    assert page.locator("#panel-gaps .chips .token").count() == 4


def test_models_and_examples_are_those_of_the_language(
    open_page: Open, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Until a model is chosen by hand; a text in another language is warned of."""
    sources = [f"{name}={shutil.copytree(folders['xlnet'], tmp_path / name)}" for name in ("gaps-zh", "gaps-en")]
    with running(sources, tmp_path) as server:
        page = open_page(server.url)
        page.click("#tab-gaps")
        choice = page.locator("#panel-gaps select").first
        assert choice.input_value() == "gaps-en"
        page.fill("#gap-text", "他出生于___，后来随父母搬到上海。")
        page.click("#fill")
        page.wait_for_selector("#notice:not([hidden])")
        assert "gaps-en" in page.inner_text("#notice")
        page.click("#language")
        assert choice.input_value() == "gaps-zh"
        choice.select_option("gaps-en")
        page.click("#language")
        page.click("#language")
        assert choice.input_value() == "gaps-en"
        page.locator("#panel-gaps button", has_text="示例").click()
        page.wait_for_selector("#notice", state="hidden")
        assert page.input_value("#gap-text").startswith("The old man")


def ask(page: Any, model: str, **fields: str) -> Any:
    page.click("#tab-read")
    page.locator("#panel-read select").select_option(model)
    for name, value in fields.items():
        page.fill(f"#{name}", value)
    page.click("#ask")
    page.wait_for_selector("#result .hint:last-child")
    return page.locator("#result")


def test_documents_are_read(page: Any, server: Server) -> None:
    text = "She was born in Paris 巴黎😀 in 1906 and moved to London"
    with server.client() as client:
        answer = client.post("/v1/answer", json={"input": {"context": text, "question": "Where?"}}).json()["data"][0]
        entities = client.post("/v1/tag", json={"input": {"text": text}}).json()["data"][0]["entities"]
        options = ["a coat", "a hat", "<i>tea"]
        chosen = client.post("/v1/choose", json={"input": {"context": text, "question": "What?", "options": options}})
    assert ask(page, "tag", document=text).locator("mark").count() == len(entities)
    marked = ask(page, "answer", document=text, question="Where?").locator("mark").first.inner_text()
    assert marked == answer["answer"] == text[answer["start"] : answer["end"]]
    shown = ask(page, "choose", document=text, question="What?", options="\n".join(options))
    assert shown.locator(".bar.chosen .bar-name").inner_text() == chosen.json()["data"][0]["option"]


def test_lines_are_sorted_by_a_query(page: Any, server: Server) -> None:
    lines = ["The room was clean", "A dull film", "两个年轻人", "She was born in Paris"]
    page.click("#tab-search")
    page.locator("#panel-search select").select_option("xlnet")
    page.fill("#query", "a film")
    page.fill("#lines", "\n".join(lines))
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#found .bar")
    with server.client() as client:
        body = {"model": "xlnet", "input": ["a film", *lines]}
        data = client.post("/v1/embeddings", json=body).raise_for_status().json()["data"]
    query, *vectors = (np.array(one["embedding"]) for one in data)
    expected = sorted(lines, key=lambda line: -float(vectors[lines.index(line)] @ query))
    assert page.locator("#found .bar-name").all_inner_texts() == expected


def explained(page: Any, text: str) -> tuple[Any, Any]:
    """The tab of an explanation, and the frame that shows it."""
    page.click("#tab-explain")
    page.locator("#panel-explain select").select_option("xlnet")
    page.fill("#explained", text)
    with page.context.expect_page() as opened:
        page.click("#explain")
    tab = opened.value
    tab.wait_for_selector("html[data-ready]")
    frame = tab.frame_locator("#explanation")
    frame.locator("canvas").first.wait_for()
    return tab, frame


def test_a_text_is_explained_in_a_tab_of_its_own(page: Any) -> None:
    tab, frame = explained(page, f"{MARKUP} The room was clean")
    assert "clean" in frame.locator(".tokens").first.inner_text()
    assert frame.locator("img").count() == 0
    assert tab.title() == "xlnet · segue explain"
    tab.close()


def test_an_explanation_has_the_language_of_the_page(page: Any) -> None:
    page.click("#language")
    tab, frame = explained(page, "The room was clean")
    assert frame.locator("#language").inner_text() == "English"
    tab.close()
    page.click("#language")


def test_the_words_that_decided_are_a_click_away(page: Any) -> None:
    answer = ask(page, "classify", document="A dull film with a weak story").locator("h3").inner_text()
    with page.context.expect_page() as opened:
        page.click("#why")
    tab = opened.value
    tab.wait_for_selector("html[data-ready]")
    shown = tab.frame_locator("#explanation").locator("body").inner_text()
    assert f"Answer: {answer}" in shown
    assert "weak" in shown
    tab.close()
    page.fill("#document", "film " * 600)
    with page.context.expect_page() as opened:
        page.click("#why")
    opened.value.wait_for_selector("#state.error")
    assert "at most 512 tokens" in opened.value.inner_text("#state")


def test_an_explanation_has_the_key_of_the_tab(open_page: Open, closed: Server) -> None:
    page = open_page(closed.url, ready=False)
    page.fill("#key-field", "k" * 32)
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-ready]")
    page.click("#tab-explain")
    page.fill("#explained", "A dull film")
    with page.context.expect_page() as opened:
        page.click("#explain")
    opened.value.wait_for_selector("html[data-ready]")


def test_the_status_shows_models_and_sessions(page: Any) -> None:
    write(page, "The room", tokens=2)
    page.click("#tab-status")
    page.wait_for_selector("#panel-status tbody tr:has-text('in memory')")
    assert "<u>xl" in page.inner_text("#panel-status")
    assert page.locator(".number b").nth(3).inner_text() != "0"


# ---------------------------------------------------------------------------------------------------------------- safe


def test_markup_is_shown_as_text(page: Any) -> None:
    """In prompts, labels, names of models, entities, options, lines, errors."""
    write(page, MARKUP, tokens=2)
    assert MARKUP in text_of(page)
    assert "<u>xl" in page.locator("#panel-write select").inner_text()
    result = ask(page, "classify", document=f"{MARKUP} a film")
    assert MARKUP in result.inner_text()
    result = ask(page, "tag", document=f"<script>{MARKUP}</script>")
    assert "<script>" in result.inner_text()
    assert "<b>place" in result.inner_text()
    page.click("#tab-search")
    page.fill("#query", MARKUP)
    page.fill("#lines", f"{MARKUP}\n<script>document.title='hacked'</script>")
    page.click("#search")
    page.wait_for_selector("#found .bar")
    assert MARKUP in page.inner_text("#found")
    page.click("#tab-gaps")
    page.fill("#gap-text", f"{MARKUP} without a mark")
    page.click("#fill")
    page.wait_for_selector("#error:not([hidden])")
    assert page.locator("main img, main u, main script, #result b, main i").count() == 0
    assert page.title() == "segue"
    refused = page.evaluate("() => { try { document.body.innerHTML = '<p>'; return false } catch { return true } }")
    assert refused


def test_a_key_is_asked_for_and_forgotten_with_the_tab(open_page: Open, closed: Server) -> None:
    page = open_page(closed.url, ready=False)
    page.wait_for_selector("#key-form:not([hidden])")
    page.fill("#key-field", "wrong")
    with page.expect_response(lambda response: response.status == 401):
        page.keyboard.press("Enter")
    assert page.locator("#key-form").is_visible()
    page.fill("#key-field", "k" * 32)
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-ready]")
    assert not page.locator("#key-form").is_visible()
    assert "No model on this server can generate text" in page.inner_text("#panel-write")
    page.click("#tab-gaps")
    assert "No model on this server can fill gaps" in page.inner_text("#panel-gaps")
    result = ask(page, "classify", document="A dull film")
    assert "bad" in result.inner_text()
    assert "kkkk" not in page.evaluate("() => JSON.stringify(localStorage) + document.cookie")
    page.reload()
    page.wait_for_selector("html[data-ready]")


# ---------------------------------------------------------------------------------------------------- for everybody


def test_both_languages(open_page: Open) -> None:
    page = open_page(locale="zh-CN")
    assert page.inner_text("#tab-write") == "续写"
    assert page.get_attribute("html", "lang") == "zh-CN"
    write(page, "房间很干净", tokens=4)
    assert "房间很干净" in text_of(page)
    page.click("#language")
    assert page.inner_text("#tab-write") == "Write"
    assert "Tokens so far" in page.inner_text("#session")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.inner_text("#tab-write") == "Write"
    words = page.evaluate("async () => (await import('/page/words.js')).WORDS")
    assert list(words["en"]) == list(words["zh"])
    missing = page.evaluate("() => [...document.querySelectorAll('[data-t]')].map(one => one.dataset.t)")
    assert set(missing) <= set(words["en"])


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_it_fits_a_phone(open_page: Open, language: str) -> None:
    page = open_page(viewport={"width": 375, "height": 700}, has_touch=True, is_mobile=True, locale=language)
    for name in ("write", "gaps", "read", "search", "explain", "status"):
        page.click(f"#tab-{name}")
        page.wait_for_selector(f"#panel-{name}:not([hidden])")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 375, name
    page.click("#tab-write")
    write(page, "The room was", tokens=3)
    page.locator(WRITTEN).first.click()
    box = page.locator("#token-card").bounding_box()
    assert box["x"] >= 0
    assert box["y"] + box["height"] <= 700


def test_all_of_it_with_the_keyboard(page: Any) -> None:
    page.locator("#tab-write").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#panel-gaps").is_visible()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#panel-write").is_visible()
    page.fill("#tokens", str(MANY))
    page.fill("#temperature", "0")
    page.locator("#prompt").focus()
    page.keyboard.type("The room was")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(WRITTEN)
    page.keyboard.press("Escape")
    page.wait_for_selector(IDLE)
    page.locator(".paper .token[tabindex='0']").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("#inspector h3").is_visible()
    assert page.locator(".token.chosen").evaluate("one => one === document.querySelectorAll('.token')[1]")


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_light_and_dark(open_page: Open, scheme: str, dark: bool) -> None:
    page = open_page(color_scheme=scheme)
    lightness = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    assert (max(page.evaluate(lightness)) < 60) is dark
    page.click("#theme")
    page.click("#theme")
    assert max(page.evaluate(lightness)) < 60
