"""The guide of the desk runs as it stands, in both languages."""

import os
import subprocess
from pathlib import Path

import pytest

import segue
from tests.apps.running import running
from tests.test_guides import BLOCK, DOCS, run_page


@pytest.mark.parametrize("name", ["desk.md", "desk.zh-CN.md"])
def test_the_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(DOCS / "apps" / name) == 6
    assert (tmp_path / "desk-again" / "desk.json").is_file()


@pytest.mark.parametrize("name", ["desk.md", "desk.zh-CN.md"])
def test_the_conversation_over_http_is_held(name: str, tmp_path: Path) -> None:
    """With the table, the keys and the script of the page; what it prints is what the page shows."""
    blocks = BLOCK.findall((DOCS / "apps" / name).read_text(encoding="utf-8"))
    written = {file: text for _, file, text in blocks if file}
    (keys,) = (text for kind, _, text in blocks if kind == "text" and text.startswith("agent "))
    script = next(place for place, (_, file, _) in enumerate(blocks) if file == "conversation.sh")
    for file, text in {**written, "keys": keys}.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    segue.learn_desk(tmp_path / "faq.csv", tmp_path / "desk", error=0.1, progress=False)
    with running("desk", tmp_path / "desk", tmp_path, "--keys", tmp_path / "keys") as server:
        environment = {**os.environ, "DESK": server.url, "no_proxy": "*"}
        done = subprocess.run(
            ["bash", "-e", "conversation.sh"],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.stdout, done.stderr, done.returncode) == (blocks[script + 1][2], "", 0)
