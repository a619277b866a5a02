"""The page of a recommender in Chromium: clicks change the list, reasons, what-if, models side by side, people."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import segue
from tests.apps.recommend.shop import events, items, quick
from tests.apps.running import running
from tests.browser.conftest import MARKUP, Open
from tests.serve.running import Server

OPERATOR = "operator-bob-0123456789"
PHONE = {"width": 390, "height": 780}
LISTED = "[...document.querySelectorAll('#lists .item')].map((one) => one.dataset.item)"
"""Ids of the listed items, in order."""
SHOTS = os.environ.get("SEGUE_SCREENSHOTS")
"""A folder for pictures of the page, to be looked at."""


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("recommend")
    hostile = {"id": "hostile", "title": MARKUP, "tags": "red|thing"}
    segue.learn_recommender(events(), folder / "rec", items=[*items(), hostile], settings=quick(), progress=False)
    (folder / "keys").write_text(f"operator bob {OPERATOR}\n")
    with running("recommend", folder / "rec", folder, "--keys", folder / "keys") as one:
        yield one


def opened(open_page: Open, server: Server, **options: Any) -> Any:
    page = open_page(server.url, ready=False, **options)
    page.wait_for_selector("#key-form:not([hidden])")
    page.fill("#key-field", OPERATOR)
    page.press("#key-field", "Enter")
    page.wait_for_selector("html[data-ready]")
    return page


def shot(page: Any, name: str) -> None:
    if SHOTS:
        page.wait_for_timeout(300)
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))


def test_a_click_changes_the_list_and_says_why(open_page: Open, recommender: Server) -> None:
    page = opened(open_page, recommender)
    page.wait_for_selector("#lists .item")
    before = page.inner_text("#lists")
    page.fill("#search", "red-3")
    page.wait_for_selector("#items .item[data-item='red-3']:only-child")
    page.click("#items .item")
    page.wait_for_selector("#past .chip")
    page.wait_for_function("before => document.querySelector('#lists').innerText !== before", arg=before)
    page.wait_for_selector("#lists .because")
    assert page.locator("#lists .move").count()  # which items are new, and how far others have moved
    real = page.evaluate(LISTED)
    assert len(real) == 10
    page.click("#lists .row-of-list .quiet")
    page.wait_for_selector("#real:not([hidden])")
    assert page.evaluate(LISTED) != real
    page.click("#real")
    page.wait_for_selector("#real", state="hidden")
    assert page.evaluate(LISTED) == real
    page.select_option("#other", "0001")
    page.wait_for_selector("#lists [data-model]:nth-child(2)")
    page.fill("#search", "hostile")
    page.wait_for_selector("#items .item[data-item='hostile']:only-child")
    assert MARKUP in page.inner_text("#items")
    assert page.title() == "segue recommend"
    shot(page, "recommend-browse")


def test_quality_and_people(open_page: Open, recommender: Server) -> None:
    page = opened(open_page, recommender)
    page.click("#tab-quality")
    page.wait_for_selector("#methods tr:nth-child(3)")
    assert "item-kNN" in page.inner_text("#methods")
    assert "best on the validation events" in page.inner_text("#method")
    page.click("#tab-people")
    page.fill("#person", "user-1")
    page.press("#person", "Enter")
    page.click("#delete-person")
    page.wait_for_selector("#person-found:has-text('deleted')")


def test_chinese_phone_and_keyboard(open_page: Open, recommender: Server) -> None:
    page = opened(open_page, recommender, locale="zh-CN", viewport=PHONE, color_scheme="dark")
    page.wait_for_selector("#lists .item")
    assert "推荐" in page.inner_text("header")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    shot(page, "recommend-phone")
    page.focus("#tab-browse")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#methods tr")
    page.click("#language")
    assert "Recommend" in page.inner_text("header")
