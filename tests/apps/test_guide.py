"""The guide of the desk runs as it stands, in both languages."""

from pathlib import Path

import pytest

from tests.test_guides import DOCS, run_page


@pytest.mark.parametrize("name", ["desk.md", "desk.zh-CN.md"])
def test_the_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(DOCS / "apps" / name) == 6
    assert (tmp_path / "desk-again" / "desk.json").is_file()
