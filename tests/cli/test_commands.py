"""The verbs that need no data: `models`, `doctor` and `tour`; some through the installed script."""

import tomllib
from pathlib import Path

import pytest

from segue.api.doctor import EXTRAS, NOT_FOR_USERS, extras
from segue.checkpoint.folder import save
from segue.config import Config, dump, load
from segue.model import LanguageModel
from segue.model.kernels import library
from segue.model.named import named, named_models
from tests.command import command, script
from tests.tiny import MODELS


def test_help_and_version() -> None:
    help_text = script("--help")
    assert help_text.returncode == 0
    for verb in ("models", "doctor", "tour"):
        assert verb in help_text.stdout
    assert script("--version").stdout.strip() == __import__("segue").__version__
    assert script("nonsense").returncode == 2


@pytest.mark.parametrize("width", [40, 120])
def test_models_fits_the_terminal(width: int) -> None:
    result = (script if width == 40 else command)("models", width=width)
    assert result.returncode == 0, result.stderr
    assert max(len(line) for line in result.stdout.splitlines()) <= width
    for name in named_models():
        assert f"{name}  " in result.stdout
    assert "116.8 M parameters" in result.stdout


def test_models_prints_a_config_that_loads(tmp_path) -> None:
    path = tmp_path / "xlnet.toml"
    path.write_text(command("models", "xlnet-base").stdout)
    assert load(path).model == named("xlnet-base")


def test_doctor_on_small_models_in_a_narrow_terminal() -> None:
    result = command("doctor", width=44)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "All checks passed." in result.stdout
    assert "FAILED" not in result.stdout
    assert result.stderr == ""
    assert max(len(line) for line in result.stdout.splitlines()) <= 44
    words = " ".join(result.stdout.split())
    built = "definition, banded, native, step" if library.available() else "definition, banded"
    assert words.count(f"ok kernel ({built}): checked") == 2
    assert words.count("-- kernel (native, step): not built") == (0 if library.available() else 2)
    assert f"ok shift direction ({built.removesuffix(', step')}): 108 of 108 distances right" in words


def test_doctor_takes_a_config_or_a_folder(tmp_path) -> None:
    path = tmp_path / "model.toml"
    path.write_text(dump(Config(model=MODELS["shaw"])))
    assert "random weights" in command("doctor", str(path), width=200).stdout
    model = LanguageModel(MODELS["gpt"])
    save(model, tmp_path / "good")
    assert command("doctor", str(tmp_path / "good")).returncode == 0
    model.trunk.vocabulary.tables[0].data[0, 0] = float("nan")
    save(model, tmp_path / "bad")
    result = command("doctor", str(tmp_path / "bad"), width=200)
    assert result.returncode == 1
    assert "FAILED  weights: not finite: trunk.vocabulary.tables.0" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("models", "xlnet-bose"), "Did you mean xlnet-base?"),
        (("doctor", "gpt5"), "Did you mean gpt?"),
        (("doctor", "nowhere.toml"), "must be a readable UTF-8 TOML file"),
        (("doctor", "/"), "must be a model folder, a run"),
    ],
)
def test_errors_are_one_message_without_a_traceback(arguments: tuple[str, ...], message: str) -> None:
    result = command(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("segue: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_tour_computes_what_it_says() -> None:
    result = command("tour", width=200)
    assert result.returncode == 0, result.stderr
    assert "no memory  ······ ······ ······ ██████  6 tokens" in result.stdout
    assert "memory 6   ······ ██████ ██████ ██████  18 tokens" in result.stdout
    assert "Words that see themselves: 0." in result.stdout
    assert result.stdout.count("sum 1.000000000000") == 6
    assert "FAILED" not in result.stdout
    assert result.stderr == ""


def test_doctor_lists_every_extra_and_what_it_is_for(tmp_path: Path) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = set(project["optional-dependencies"]) - NOT_FOR_USERS
    assert declared <= set(EXTRAS)
    path = tmp_path / "model.toml"
    path.write_text(dump(Config(model=MODELS["gpt"])))
    said = " ".join(command("doctor", path, width=200).stdout.split())
    assert {extra.name for extra in extras()} <= declared
    for extra in extras():
        assert f"{extra.name}: " in said
        assert extra.purpose in said
        assert all(package in said for package in extra.packages)
