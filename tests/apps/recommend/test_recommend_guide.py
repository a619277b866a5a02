"""The guide of the recommender runs as it stands, in both languages."""

from pathlib import Path

import pytest

from tests.test_guides import DOCS, run_page


@pytest.mark.parametrize("name", ["recommend.md", "recommend.zh-CN.md"])
def test_the_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(DOCS / "apps" / name) == 7
    assert (tmp_path / "rec-again" / "recommend.json").is_file()
