"""Chromium, and a server with small models of every kind that the page has a panel for."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from segue.checkpoint.folder import TOKENIZER
from segue.tasks.folder import save_task_model
from segue.tasks.table import TASKS
from tests.serve.running import Server, running
from tests.tasks.made import task_model
from tests.tasks.models import write_model

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
MARKUP = "<img src=x onerror=document.title='hacked'>"
MANY = 1_000_000
"""Tokens that nobody waits for."""
ROWS: dict[str, list[dict[str, Any]]] = {
    "classify": [{"text": "The room was clean", "label": MARKUP}, {"text": "A dull film", "label": "bad"}],
    "tag": [
        {"text": "She was born in Paris", "tags": [{"start": 16, "end": 21, "type": "<b>place"}]},
        {"text": "He moved to London", "tags": [{"start": 0, "end": 2, "type": "person"}]},
    ],
    "answer": [
        {"context": "She was born in Paris", "question": "Where?", "answer": [{"text": "Paris", "start": 16}]},
        {"context": "He wants to buy a coat", "question": "What?", "answer": [{"text": "a coat", "start": 16}]},
    ],
    "choose": [
        {"context": "He wants a coat", "question": "What?", "options": ["a coat", "a hat"], "answer": "A"},
        {"context": "Two men play", "question": "Where?", "options": ["a room", "the park"], "answer": "B"},
    ],
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("page")
    found = {"xl": write_model(folder / "xl", objective="causal"), "xlnet": write_model(folder / "xlnet")}
    for name, rows in ROWS.items():
        made = task_model(TASKS[name], found["xlnet"], rows)
        save_task_model(made, folder / name, tokenizer=found["xlnet"] / TOKENIZER)
        found[name] = folder / name
    return found


@pytest.fixture(scope="session")
def server(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = [f"<u>xl={folders['xl']}", *(path for name, path in folders.items() if name != "xl")]
    with running(models, tmp_path_factory.mktemp("server"), "--set", f"max_tokens={MANY}") as server:
        yield server


@pytest.fixture(scope="session")
def closed(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Needs a key, and has a classifier alone."""
    folder = tmp_path_factory.mktemp("closed")
    keys = folder / "keys"
    keys.write_text(f"ann {'k' * 32}\n")
    keys.chmod(0o600)
    with running([folders["classify"]], folder, "--keys", str(keys)) as server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


Open = Callable[..., Any]


@pytest.fixture
def open_page(chromium: Any, server: Server) -> Iterator[Open]:
    """Opens the page in a browser of its own. At the end nothing may have gone wrong in it, or come from elsewhere."""
    contexts, problems, elsewhere = [], [], []

    def opened(url: str | None = None, *, ready: bool = True, **options: Any) -> Any:
        start = url or server.url
        home = "/".join(start.split("/")[:3])
        context = chromium.new_context(**{"locale": "en-US", "viewport": {"width": 1280, "height": 860}, **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("request", lambda request: elsewhere.append(request.url) if not request.url.startswith(home) else None)
        page.on("console", lambda said: problems.append(said.text) if "Content Security Policy" in said.text else None)
        page.goto(start)
        if ready:
            page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert problems == []
    assert elsewhere == []


@pytest.fixture
def page(open_page: Open) -> Any:
    return open_page()
