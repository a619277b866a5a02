"""`segue study` as it is typed; what it computes is tested in tests/study."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from segue.cli.app import app
from segue.errors import ConfigError
from segue.study.load import ready_studies
from tests.study.studies import write_study


def test_it_lists_and_shows_the_ready_studies() -> None:
    listed = CliRunner().invoke(app, ["study"])
    assert listed.exit_code == 0
    for name, title in ready_studies().items():
        assert re.search(rf"^{name} +{re.escape(title.split()[0])}", listed.output, flags=re.MULTILINE), name
    shown = CliRunner().invoke(app, ["study", "clip-range", "--show"])
    assert len(tomllib.loads(shown.output)["variants"]) == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study.toml"], "Give --out REPORT"),
        (["study.toml", "--show"], "--show needs the name of a built-in study"),
        (["long-txt", "--out", "out"], "Did you mean long-text?"),
        (["study.toml", "seeds=[]", "base.modle.width=3", "--out", "out"], "base.modle is not a setting"),
    ],
)
def test_mistakes_leave_nothing_behind(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    result = CliRunner().invoke(app, ["study", *arguments])
    assert isinstance(result.exception, ConfigError)
    assert message in result.exception.on_command_line
    assert not Path("out").exists()
