"""The page of a monitor in Chromium: live texts, timelines, alarms, corrections, in both languages."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import segue
from tests.apps.monitor.news import DAY, START, entities, labelled, stream
from tests.apps.running import running
from tests.browser.conftest import MARKUP, Open
from tests.serve.running import Server

AGENT = "agent-alice-0123456789"
OPERATOR = "operator-bob-0123456789"
PHONE = {"width": 390, "height": 780}
SHOTS = os.environ.get("SEGUE_SCREENSHOTS")
"""A folder for pictures of the page, to be looked at."""


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("monitor")
    segue.learn_monitor(labelled(), folder / "monitor", entities=entities(), progress=False)
    (folder / "keys").write_text(f"agent alice {AGENT}\noperator bob {OPERATOR}\n")
    (folder / "prices.csv").write_text(
        "date,symbol,close\n"
        + "".join(f"2023-{month}-{day:02d},ACME,{100 + day % 7}\n" for month in (11, 12) for day in range(1, 31))
    )
    (folder / "list.toml").write_text('[prices]\npath = "prices.csv"\n')
    with running(
        "monitor", folder / "monitor", folder, "--keys", folder / "keys", "--sources", folder / "list.toml"
    ) as one:
        rows = stream(days=50, bad_from=40)
        hostile = {"text": f"Acme {MARKUP} posts a heavy loss", "author": MARKUP, "time": START + 50 * DAY - 5}
        with one.client(AGENT) as client:
            for start in range(0, len(rows), 300):
                assert client.post("/v1/texts", json={"texts": rows[start : start + 300]}).status_code == 200
            assert client.post("/v1/texts", json={"texts": [hostile, {"text": ""}]}).status_code == 200
        yield one


def opened(open_page: Open, monitor: Server, key: str = AGENT, **options: Any) -> Any:
    page = open_page(monitor.url, ready=False, **options)
    page.wait_for_selector("#key-form:not([hidden])")
    page.fill("#key-field", key)
    page.press("#key-field", "Enter")
    page.wait_for_selector("html[data-ready]")
    return page


def shot(page: Any, name: str) -> None:
    if SHOTS:
        page.wait_for_timeout(300)
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"))


def test_texts_come_in_live_and_companies_are_listed(open_page: Open, monitor: Server) -> None:
    page = opened(open_page, monitor)
    page.wait_for_selector("#stream .item")
    page.wait_for_selector("#entities tr")
    assert MARKUP in page.inner_text("#stream")
    with monitor.client(AGENT) as client:
        client.post("/v1/texts", json={"texts": [{"text": "Globex wins a very large order", "time": START + 50 * DAY}]})
    page.wait_for_selector("#stream .item:first-child:has-text('very large order')")
    shot(page, "monitor-now")
    page.click("#stream .item:first-child")
    page.wait_for_selector("#panel-now #reader:not([hidden]) .word.for")
    assert page.locator("#network").count() == 0
    page.route("**/v1/texts/*", lambda route: route.fulfill(json={**route.fetch().json(), "network": -0.8}))
    page.click("#stream .item:first-child")
    page.wait_for_selector("#panel-now #network:has-text('speaks against “positive” (-0.80)')")
    page.click("#entities tr[data-entity='ACME'] .link")
    page.wait_for_selector("#timeline svg .mean", state="attached")


def test_a_timeline_has_alarms_price_and_the_texts_of_a_moment(open_page: Open, monitor: Server) -> None:
    page = opened(open_page, monitor)
    page.click("#tab-trends")
    page.wait_for_selector("#timeline svg .mean", state="attached")  # of all entities: later it would replace ACME's
    with page.expect_response(lambda response: "/v1/texts?entity=ACME" in response.url):
        page.fill("#entity", "ACME")
        page.press("#entity", "Enter")
        page.press("#entity", "Tab")
    page.wait_for_selector("#timeline svg .alarm", state="attached")
    page.wait_for_selector("#timeline svg .price", state="attached")
    assert "p = " in page.inner_text("#price")
    assert page.locator("#timeline .times span").count() == 5
    meaning = page.inner_text("#timeline .meaning")
    assert "95 % interval" in meaning
    assert "price" in meaning
    assert "alarm" in meaning
    shot(page, "monitor-trends")
    page.wait_for_selector("#texts .item")
    before = page.inner_text("#here")
    page.focus("#cursor")
    for _ in range(4):
        page.press("#cursor", "ArrowLeft")
    page.wait_for_function("before => document.querySelector('#here').innerText !== before", arg=before)
    page.select_option("#tone", "negative")
    page.wait_for_selector("#texts:has(.badge.negative):not(:has(.badge.positive, .badge.neutral))")
    page.click("#texts .item")
    page.wait_for_selector("#panel-trends #reader:not([hidden]) .word.for")


def test_an_alarm_is_acknowledged_and_commented(open_page: Open, monitor: Server) -> None:
    page = opened(open_page, monitor)
    page.click("#tab-alarms")
    page.click("#alarms .item")
    page.wait_for_selector("#alarm:not([hidden]) #reason")
    assert "usual" in page.inner_text("#reason")
    page.wait_for_selector("#alarm .group .item")
    shot(page, "monitor-alarm")
    page.fill("#comment", MARKUP)
    page.click("#say")
    page.wait_for_selector("#comments li")
    assert MARKUP in page.inner_text("#comments")
    page.click("#acknowledge")
    page.wait_for_selector("#alarm .badge:has-text('alice')")


def test_a_label_is_corrected_and_accepted(open_page: Open, monitor: Server) -> None:
    page = opened(open_page, monitor, OPERATOR)
    page.wait_for_selector("#stream .item")
    page.click("#stream .item")
    page.select_option("#panel-now #new-tone", "neutral")
    page.click("#panel-now #correct")
    page.wait_for_selector("#panel-now #corrected span")
    page.click("#tab-corrections")
    page.click("#corrections button.main")
    page.wait_for_selector("#corrections .missing")


def test_the_sentiment_towards_one_entity_is_shown_and_corrected(open_page: Open, monitor: Server) -> None:
    both = {"text": "Acme profit rose strongly and Globex posts a heavy loss", "time": START + 50 * DAY + 60}
    with monitor.client(AGENT) as client:
        assert client.post("/v1/texts", json={"texts": [both]}).status_code == 200
    page = opened(open_page, monitor, OPERATOR)
    page.click("#stream .item:has-text('rose strongly and Globex')")
    page.wait_for_selector("#panel-now .towards[data-entity='ACME'] .badge.positive")
    page.click("#panel-now .towards[data-entity='GLBX'] button:has-text('Words')")
    page.wait_for_selector("#panel-now #about:has-text('towards GLBX')")
    assert "loss" in page.inner_text("#panel-now .reading")
    assert "rose" not in page.locator("#panel-now .word").all_inner_texts()
    page.select_option("#panel-now select[data-entity='GLBX']", "neutral")
    page.click("#panel-now #correct")
    page.wait_for_selector("#panel-now #corrected span:has-text('GLBX neutral')")
    page.click("#tab-corrections")
    page.wait_for_selector("#corrections [data-entity='GLBX']:has-text('neutral')")
    assert page.locator("#corrections [data-entity='ACME']").count() == 0
    page.click("#corrections button.main")
    page.wait_for_selector("#corrections .missing")


def test_an_entity_within_a_topic_and_names_that_are_taken(open_page: Open, monitor: Server) -> None:
    page = opened(open_page, monitor, OPERATOR)
    page.click("#tab-trends")
    page.wait_for_selector("#within tr")  # of all entities: later it would be added to ACME's
    with page.expect_response(lambda response: "/v1/within?entity=ACME" in response.url):
        page.fill("#entity", "ACME")
        page.press("#entity", "Tab")
    with page.expect_response(lambda response: "/v1/texts?entity=ACME&topic=law" in response.url):
        page.click("#within tr[data-name='law'] .link")
    assert page.input_value("#topic") == "law"
    page.wait_for_selector("#within tr", state="detached")
    page.wait_for_selector("#texts .item")
    shot(page, "monitor-within")
    with monitor.client(AGENT) as client:
        names = ("Wonka Sweets", "Gotham Bank")
        rows = [{"text": f"a heavy loss at {name}, it is said", "time": START + 50 * DAY + 90} for name in names]
        assert client.post("/v1/texts", json={"texts": rows}).status_code == 200
    page.click("#tab-sources")
    page.fill("#names tr[data-name='Wonka Sweets'] input", "WNKA")
    shot(page, "monitor-names")
    page.click("#names tr[data-name='Wonka Sweets'] button.main")
    page.wait_for_selector("#names tr[data-name='Wonka Sweets']", state="detached")
    page.click("#names tr[data-name='Gotham Bank'] button.quiet")
    page.wait_for_selector("#names tr[data-name='Gotham Bank']", state="detached")
    with monitor.client(AGENT) as client:
        later = {"text": "Wonka Sweets wins an order", "time": START + 50 * DAY + 120}
        found = client.post("/v1/texts", json={"texts": [later]}).json()["texts"]
        assert list(client.get(f"/v1/texts/{found[0]}").json()["entities"]) == ["WNKA"]


def test_companies_side_by_side_and_sources(open_page: Open, monitor: Server) -> None:
    page = opened(open_page, monitor)
    page.click("#tab-compare")
    page.wait_for_selector("#comparison svg .mean[data-place='2']", state="attached")
    assert page.locator("#compare-rows tr").count() == 3
    page.click("#tab-sources")
    page.wait_for_selector("#sources td:has-text('post')")
    assert "must have a text" in page.inner_text("#sources")
    assert not page.is_visible("#tab-people")


def test_a_person_is_found(open_page: Open, monitor: Server) -> None:
    page = opened(open_page, monitor, OPERATOR)
    page.click("#tab-people")
    page.fill("#person", "writer-2")
    page.press("#person", "Enter")
    page.wait_for_selector("#delete-person")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_chinese_phone_and_keyboard(open_page: Open, monitor: Server, scheme: str) -> None:
    page = opened(open_page, monitor, locale="zh-CN", viewport=PHONE, color_scheme=scheme)
    page.wait_for_selector("#entities tr")
    assert "舆情监测" in page.inner_text("header")
    page.focus("#tab-now")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#timeline svg .mean", state="attached")
    shot(page, f"monitor-phone-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    page.click("#language")
    assert "Monitor" in page.inner_text("header")
