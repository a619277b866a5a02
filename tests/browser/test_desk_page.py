"""The pages of a desk in Chromium: a visitor asks, a person answers, in both languages, by mouse and by keyboard."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import segue
from tests.apps.faq import rows
from tests.apps.running import running
from tests.apps.test_writer import UNCLEAR
from tests.browser.conftest import MARKUP, Open
from tests.serve.running import Server

AGENT = "agent-alice-0123456789"
OPERATOR = "operator-bob-0123456789"
PHONE = {"width": 390, "height": 780}
SHOTS = os.environ.get("SEGUE_SCREENSHOTS")
"""A folder for pictures of the pages, to be looked at."""


class Shop(BaseHTTPRequestHandler):
    """A page of another site, which has the desk in a corner."""

    desk = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        script = f'<script src="{self.desk}/widget.js" data-person="shop-7" defer></script>'
        self.wfile.write(f"<!doctype html><html lang=en><title>Shop</title>{script}<h1>Shop</h1>".encode())

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def desk(shop: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("desk")
    hostile = [{"question": f"{MARKUP} {end}", "answer": MARKUP, "intent": MARKUP} for end in ("one", "two", "three")]
    segue.learn_desk([*rows(), *hostile], folder / "desk", model="none", error=0.05, progress=False)
    (folder / "keys").write_text(f"agent alice {AGENT}\noperator bob {OPERATOR}\n")
    options = ("--keys", folder / "keys", "--set", "rate=1000", "--set", "burst=1000", "--set", f"embed={shop}")
    with running("desk", folder / "desk", folder, *options) as server:
        Shop.desk = server.url
        yield server


def shot(page: Any, name: str) -> None:
    if SHOTS:
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))


def ask(page: Any, text: str) -> Any:
    """Sends a message, and gives the last one that is shown then.

    The stream may show it before the request is answered, which empties the field: what is typed earlier is lost.
    """
    before = page.locator(".message").count()
    page.fill("#text", text)
    page.press("#text", "Enter")
    page.wait_for_function(
        "count => document.querySelectorAll('.message').length > count && document.querySelector('#text').value === ''",
        arg=before,
    )
    return page.locator(".message").last


def begin_again(page: Any) -> None:
    """Opens another conversation. The messages are gone at once, but the server has yet to give its id."""
    page.click("#new")
    page.wait_for_function("() => sessionStorage.getItem('segue.conversation')")
    assert page.locator(".message").count() == 0


def agents_page(open_page: Open, desk: Server, key: str, **options: Any) -> Any:
    page = open_page(f"{desk.url}/agent", ready=False, **options)
    page.wait_for_selector("#key-form:not([hidden])")
    page.fill("#key-field", key)
    page.press("#key-field", "Enter")
    page.wait_for_selector("html[data-ready]")
    return page


@pytest.mark.parametrize(
    ("locale", "question", "answer", "wish", "reply"),
    [
        (
            "en-US",
            "please track the parcel",
            "Your parcel is shown under Orders.",
            "I want a human",
            "I look at it now.",
        ),
        ("zh-CN", "快递查一下", "请在订单页面查看物流。", "转人工", "我马上看一下。"),
    ],
)
def test_a_visitor_asks_and_a_person_answers_live(
    open_page: Open, desk: Server, locale: str, question: str, answer: str, wish: str, reply: str
) -> None:
    visitor = open_page(f"{desk.url}/", locale=locale)
    assert ask(visitor, question).locator(".bubble").inner_text() == answer
    visitor.locator(".message.desk .under button").first.click()
    visitor.wait_for_selector('.message.desk .under button[aria-pressed="true"]')
    assert "handed" not in ask(visitor, wish).inner_text()
    agent = agents_page(open_page, desk, AGENT, locale=locale)
    agent.locator(".item").first.click()
    agent.wait_for_selector("#talk .message")
    agent.fill("#reply", reply)
    agent.press("#reply", "Control+Enter")
    visitor.wait_for_selector(f'.message.agent .bubble:text-is("{reply}")')
    shot(visitor, f"visitor-{locale}")
    shot(agent, f"agent-{locale}")
    ask(visitor, "thanks 谢谢")
    agent.wait_for_selector('#talk .bubble:text-is("thanks 谢谢")')
    agent.click("#release")
    visitor.wait_for_function("() => document.querySelectorAll('.message.desk').length === 3")
    visitor.reload()  # the conversation goes on
    visitor.wait_for_selector(f'.message.agent .bubble:text-is("{reply}")')
    agent.click("#resolve")
    agent.click("#tab-review")
    agent.wait_for_selector(".review")
    assert agent.locator(".review").last.locator("textarea").first.input_value() == question
    shot(agent, f"review-{locale}")
    agent.locator(".review button.main").last.click()
    agent.click("#tab-statistics")
    agent.wait_for_selector("#statistics .number")
    assert agent.locator("#tab-people").is_hidden()
    shot(agent, f"statistics-{locale}")


def test_a_reviewer_picks_another_message_or_says_that_it_is_out_of_scope(open_page: Open, desk: Server) -> None:
    visitor = open_page(f"{desk.url}/")
    handed = ask(visitor, "can penguins fly over the moon")
    assert handed.locator(".under button").count() == 0  # a hand-over is not rated
    ask(visitor, "please, are you there?")
    with desk.client(AGENT) as client:
        (one,) = client.get("/v1/agent/conversations", params={"search": "penguins"}).json()["data"]
        client.post(f"/v1/agent/conversations/{one['id']}/messages", json={"text": "They cannot."})
        agent = agents_page(open_page, desk, AGENT)
        agent.click("#tab-review")
        review = agent.locator(".review").last
        review.wait_for()
        question = review.locator("textarea").first
        assert question.input_value() == "can penguins fly over the moon"
        review.locator(".pick").select_option("please, are you there?")
        assert question.input_value() == "please, are you there?"
        review.locator(".pick").select_option("can penguins fly over the moon")
        shot(agent, "review-outside")
        review.locator("button.outside").click()
        agent.wait_for_function("() => !document.querySelector('.review')")
        (learned,) = client.get("/v1/agent/reviews", params={"state": "outside"}).json()["data"]
    assert learned["question"] == "can penguins fly over the moon"


def test_suggestions_are_chosen_with_the_keyboard(open_page: Open, tmp_path: Path) -> None:
    segue.learn_desk(rows(), tmp_path / "desk", model="none", error=0.05, progress=False)
    with running("desk", tmp_path / "desk", tmp_path, "--set", "rate=1000") as server:
        page = open_page(f"{server.url}/")
        for text in UNCLEAR:
            if ask(page, text).locator(".suggestions").count():
                break
            begin_again(page)
        else:
            pytest.fail("nothing was unclear")
        shot(page, "suggestions")
        page.locator(".suggestions button").first.focus()
        count = page.locator(".message").count()
        page.keyboard.press("Enter")
        page.wait_for_function("count => document.querySelectorAll('.message').length === count + 2", arg=count)
        assert page.locator(".message.desk .under button").count() >= 2


def test_a_generated_reply_is_marked_and_offers_its_sources(open_page: Open, tmp_path: Path) -> None:
    segue.learn_desk(rows(), tmp_path / "desk", model="none", error=0.05, progress=False)
    options = ("--set", "generate=transformer-xl-mini-en", "--set", "max_generated=8", "--set", "rate=1000")
    with running("desk", tmp_path / "desk", tmp_path, *options) as server:
        page = open_page(f"{server.url}/")
        for text in UNCLEAR:
            if ask(page, text).locator(".generated").count():
                break
            begin_again(page)
        else:
            pytest.fail("nothing was generated")
        shot(page, "generated")
        assert "Written by a machine" in page.locator(".generated").inner_text()
        page.locator(".suggestions button").first.click()
        page.wait_for_function("() => document.querySelectorAll('.message').length === 4")


def test_markup_is_shown_as_text(open_page: Open, desk: Server) -> None:
    page = open_page(f"{desk.url}/")
    ask(page, f"{MARKUP} one")
    assert page.locator(".message.visitor .bubble").first.inner_text() == f"{MARKUP} one"
    assert page.locator("main img").count() == 0
    assert page.title() == "segue desk"
    agent = agents_page(open_page, desk, OPERATOR)
    agent.locator('[data-state=""]').click()
    agent.fill("#search", "onerror")
    agent.click(".item:has-text('onerror')")  # and none of the list before the search
    agent.wait_for_selector("#talk .bubble:has-text('onerror')")
    assert agent.locator("main img").count() == 0
    assert agent.title() == "segue desk: agents"


def test_an_operator_sets_the_error_and_deletes_a_person(open_page: Open, desk: Server) -> None:
    visitor = open_page(f"{desk.url}/?person=user-17", ready=True)
    ask(visitor, "my secret is 4711")
    page = agents_page(open_page, desk, OPERATOR)
    page.click("#tab-statistics")
    page.wait_for_selector(".curve")
    page.fill("#error-percent", "40")
    page.click("#set-error")
    page.wait_for_function("() => document.getElementById('error-percent')?.value === '40.0'")
    page.click("#tab-people")
    page.fill("#person", "user-17")
    page.press("#person", "Enter")
    page.wait_for_selector("#delete-person")
    assert "4711" in page.locator("#person-found").inner_text()
    shot(page, "people")
    page.click("#delete-person")
    page.wait_for_function("() => !document.getElementById('person-found').innerText.includes('4711')")


def test_it_fits_a_phone_in_the_dark(open_page: Open, desk: Server) -> None:
    page = open_page(f"{desk.url}/", viewport=PHONE, color_scheme="dark")
    ask(page, "where is my parcel")
    shot(page, "phone-dark")
    agent = agents_page(open_page, desk, AGENT, viewport=PHONE, color_scheme="dark")
    agent.wait_for_selector("#list")
    shot(agent, "phone-agent-dark")
    for one in (page, agent):
        wide = one.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0
        back = one.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == "rgb(19, 21, 25)"


def test_the_widget_stands_on_the_page_of_another_site(chromium: Any, desk: Server, shop: str) -> None:
    page = chromium.new_page()
    page.set_default_timeout(20_000)
    page.goto(shop)
    button = page.get_by_role("button", name="Help")
    button.click()
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for()
    frame.locator("#text").fill("where is my parcel")
    frame.locator("#text").press("Enter")
    frame.locator(".message.desk .bubble").wait_for()
    assert frame.locator(".message.desk .bubble").inner_text() == "Your parcel is shown under Orders."
    shot(page, "widget")
    button.click()
    assert page.locator("iframe").is_hidden()
    page.close()


def test_a_server_that_comes_back_loses_nothing(open_page: Open, tmp_path: Path) -> None:
    from tests.apps.running import Ready

    segue.learn_desk(rows(), tmp_path / "desk", model="none", error=0.05, progress=False)
    server = Ready("desk", tmp_path / "desk", tmp_path).start()
    page = open_page(f"{server.url}/")
    ask(page, "where is my parcel")
    server.process.kill()
    server.process.wait()
    server = Ready("desk", tmp_path / "desk", tmp_path).start(server.port)
    try:
        assert ask(page, "I lost my card").locator(".bubble").inner_text() == "Block the card in the app."
        assert page.locator(".message").count() == 4
    finally:
        server.stop()
