"""The guide of the monitor runs as it stands, in both languages."""

from pathlib import Path

import pytest

from tests.test_guides import DOCS, run_page


@pytest.mark.parametrize("name", ["monitor.md", "monitor.zh-CN.md"])
def test_the_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(DOCS / "apps" / name) == 15
    assert (tmp_path / "monitor-again" / "monitor.json").is_file()
    assert "2" in (tmp_path / "acme.csv").read_text(encoding="utf-8")
