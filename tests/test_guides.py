"""The guide pages run as they stand: their files are written, their commands and their Python are run in order.

What is not run is named in NOT_RUN with the reason, and what is made smaller in SMALLER. Every page with commands is
here or in tests/test_readme.py, and each test knows how many commands its page has.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from segue.checkpoint.convert import convert
from segue.checkpoint.folder import load, save
from segue.checkpoint.heads import build, head_config, save_head
from segue.checkpoint.tensorflow import write_tensorflow
from segue.cli.app import app
from segue.model import LanguageModel
from segue.model.named import bert, gpt
from segue.study import pool
from segue.tasks.table import TASKS
from segue.text.files import save_tokenizer
from tests.command import standard_input
from tests.originals import FIXTURES, arrays, tensors
from tests.study.studies import forked_worker
from tests.tasks.models import ENGLISH, write_model
from tests.text.samples import byte_pairs, word_pieces

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "tasks").glob("*.md"))
STREAM_PAGES = [
    DOCS / f"{name}{ending}.md"
    for name in ("generate", "score", "context", "evaluate", "compare")
    for ending in ("", ".zh-CN")
]
"""Their `model` is a Transformer-XL, and `xlnet` is there too."""
SAME_CODE = {"pretrain": 9, "convert": 13, "export": 3, "models": 7, "study": 3}
"""Pages whose code is the same in both languages, so that it runs once, with the number of commands that run."""
NOT_RUN = {
    "segue generate model --chat": "it reads from a terminal; tests/cli/test_generate.py holds a conversation",
    "segue study recurrence-and-positions": "36 runs; tests/study/test_load.py reads it",
    "segue convert some-folder xlnet-checked": "placeholders for digests; tests/cli/test_convert.py has real ones",
    "torchrun --nproc-per-node 2 -m segue pretrain": "two processes; tests/train/test_distributed.py starts them",
    "torchrun --nproc-per-node 2 -m segue finetune": "two processes, as in tests/train/test_finetune_processes.py",
}
"""By how they begin."""
SMALLER = {
    ("segue prepare texts/",): " --vocabulary-size 400",
    ("segue study memory.toml",): " seeds=[1] budget.tokens=512 budget.points=2 base.model.num_layers=1"
    " base.model.width=16 base.model.inner_width=16 measures.validation_tokens=200",
    ("segue plan", "segue pretrain"): " model.num_layers=1 model.width=16 model.num_heads=2 model.inner_width=16"
    " data.lanes=4 data.segment_length=8 model.memory.length=8 train.steps=4 train.warmup_steps=1",
}
"""Settings added to commands that would take minutes: as the guide itself says, any setting may stand there."""
COMPILER = ("fullgraph=True", 'fullgraph=True, backend="aot_eager"')
"""The compiler's default backend builds C++ code for a minute; what the guide shows is that it finds one graph."""
BLOCK = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PIPED = re.compile(r"""echo "(?P<text>[^"$`\\\\]*)" \| (?P<command>segue [^|<>&;$]*)""")
"""A text on standard input, which needs no shell either."""
IN_A_SHELL = "segue generate"
"""What is run in a shell all the same, to see that pipes work: once, with a text that is not ASCII."""
LANGUAGES = {"english": "", "chinese": ".zh-CN"}


def test_every_task_has_a_page_in_both_languages() -> None:
    expected = {f"{name}{ending}.md" for name in [*TASKS, "tune"] for ending in LANGUAGES.values()}
    assert expected <= {page.name for page in PAGES}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {language: write_model(folder / language, language=language) for language in LANGUAGES}


@pytest.fixture(scope="module")
def causal_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("causal")
    return {language: write_model(folder / language, objective="causal", language=language) for language in LANGUAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_runs(page: Path, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(models[language_of(page)], tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize("page", STREAM_PAGES, ids=lambda page: page.name)
def test_the_page_of_streams_runs(
    page: Path,
    models: dict[str, Path],
    causal_models: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(causal_models[language_of(page)], tmp_path / "model")
    shutil.copytree(models[language_of(page)], tmp_path / "xlnet")
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize("ending", ["", pytest.param(".zh-CN", marks=pytest.mark.long)], ids=list(LANGUAGES))
def test_the_page_of_python_runs_in_an_empty_folder(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the models that come with segue."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    page = DOCS / f"python{ending}.md"
    assert not any(name for _, name, _ in BLOCK.findall(page.read_text(encoding="utf-8")))
    run_page(page)


def language_of(page: Path) -> str:
    return "chinese" if page.name.endswith(".zh-CN.md") else "english"


@pytest.mark.parametrize("name", SAME_CODE)
def test_the_page_with_the_same_code_in_both_languages_runs(
    name: str, causal_models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = DOCS / f"{name}.md"
    chinese = BLOCK.findall((DOCS / f"{name}.zh-CN.md").read_text(encoding="utf-8"))
    english = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert [block for block in english if block[0] in ("bash", "python")] == [
        block for block in chinese if block[0] in ("bash", "python")
    ]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "_started", forked_worker)  # of studies
    if name == "models":  # what the page itself sets would be gone with its shell
        Path("my-models").mkdir()
        monkeypatch.setenv("SEGUE_MODELS", "my-models")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    starts = {"convert": checkpoints, "pretrain": corpus, "export": one_layer, "models": copied("run/best")}
    starts |= {"study": corpus}
    starts[name](causal_models["english"])
    assert run_page(page) == SAME_CODE[name]


def copied(place: str) -> Callable[[Path], object]:
    """What a page starts from that needs a model alone, in this place."""
    return lambda model: shutil.copytree(model, place)


def one_layer(_: Path) -> None:
    """What the page on export starts from: exporters take the longer, the more layers there are."""
    write_model(Path("model"), objective="causal", layers=1)


def corpus(model: Path) -> None:
    """What the page on pretraining starts from, and the other run that its last command compares with."""
    Path("texts").mkdir()
    lines = [f"{number} {line}" for number, line in enumerate(ENGLISH.splitlines() * 100)]
    Path("texts", "a.txt").write_text("\n\n".join(lines), encoding="utf-8")
    Path("other-run").mkdir()
    Path("other-run", "metrics.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "loss": 2.5}\n')


def checkpoints(model: Path) -> None:
    """Small files of every kind that the page converts, under its names."""
    shutil.copytree(model, "run/best")
    head = head_config({"kind": "sequence_classifier", "labels": ["bad", "good"]})
    save_head(build(load(model).config, head), head, "sentiment")
    convert(model, Path("some-folder"), to="hf", compare=False)
    convert(model, Path("tensorflow"), to="tf", compare=False)
    small: dict[str, Any] = {"num_layers": 1, "width": 8, "num_heads": 2, "inner_width": 8}
    plain = {"norm_first": True, "final_norm": True}
    for name, config, tokenizer in (
        ("bert", bert(vocabulary_size=word_pieces().size, **small), word_pieces()),
        ("gpt2", gpt(vocabulary_size=byte_pairs().size, **small, **plain), byte_pairs()),
    ):
        save_tokenizer(tokenizer, f"own-{name}/tokenizer")
        save(LanguageModel(config), f"own-{name}/model", tokenizer=Path(f"own-{name}/tokenizer"))
        convert(f"own-{name}/model", f"{name}-folder", to="hf", compare=False)
    released = Path("xlnet_cased_L-12_H-768_A-12")
    variables = arrays(FIXTURES / "xlnet" / "A1_gelu_untied" / "model.npz")
    write_tensorflow(released / "xlnet_model.ckpt", tensors(variables))
    shutil.copy(FIXTURES / "xlnet" / "A1_gelu_untied" / "xlnet_config.json", released)
    variables = arrays(FIXTURES / "transformer_xl_tf" / "D1_wt103_like" / "model.npz")
    for name in ("model.ckpt", "model.ckpt-0"):
        write_tensorflow(Path(name), tensors(variables))
    shutil.copy(FIXTURES / "transformer_xl_pytorch" / "C1_softmax_tied" / "model.pt", "model.pt")


def test_every_page_with_commands_is_run() -> None:
    """And no command hides in a block without a language."""
    here = {
        *PAGES,
        *STREAM_PAGES,
        *(DOCS / f"{name}{ending}.md" for name in SAME_CODE for ending in LANGUAGES.values()),
    }
    elsewhere = {ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md", DOCS / "benchmarks.md"}
    elsewhere |= {DOCS / f"serve{ending}.md" for ending in LANGUAGES.values()}  # tests/serve/test_guide.py
    elsewhere |= {DOCS / f"explain{ending}.md" for ending in LANGUAGES.values()}  # tests/explain/test_guide.py
    elsewhere |= {DOCS / "apps" / f"desk{ending}.md" for ending in LANGUAGES.values()}  # tests/apps/test_guide.py
    elsewhere |= {DOCS / "apps" / f"monitor{ending}.md" for ending in LANGUAGES.values()}  # tests/apps/monitor
    elsewhere |= {DOCS / "apps" / f"recommend{ending}.md" for ending in LANGUAGES.values()}  # tests/apps/recommend
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"^```\n(segue|torchrun|make) ", text, flags=re.MULTILINE), page
        if "```bash" in text:
            assert page in here | elsewhere, f"{page} must be run by a test"
    written = "".join(page.read_text(encoding="utf-8") for page in here)
    for beginning in NOT_RUN:
        assert beginning in written


def test_make_targets_that_pages_name_exist() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for page in (ROOT / "CONTRIBUTING.md", DOCS / "benchmarks.md"):
        named = re.findall(r"^make ([\w-]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert named
        assert set(named) <= set(targets)


def run_page(page: Path) -> int:
    """In the current folder: files first, then commands and Python, which is one program, from top to bottom. Gives the
    number of commands that were run."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for _, name, text in blocks:
        if name:
            assert Path(name).name == name
            Path(name).write_text(text, encoding="utf-8")
    names: dict[str, object] = {}
    count = programs = 0
    for kind, name, text in blocks:
        if kind == "bash":
            for command in joined(text):
                if not command.startswith(tuple(NOT_RUN)):
                    run(command)
                    count += 1
        elif kind == "python" and not name:
            exec(compile(text.replace(*COMPILER), page.name, "exec"), names)
            programs += 1
    assert count or programs
    return count


def run(command: str) -> None:
    """In this process where it is a command of segue alone, which saves its imports; else in a shell."""
    command = re.sub(r"\s+# .*", "", command)
    command += next((more for beginnings, more in SMALLER.items() if command.startswith(beginnings)), "")
    if command.startswith("segue ") and not set(command) & set("|<>&;$"):
        app(shlex.split(command)[1:], standalone_mode=False)
        return
    piped = PIPED.fullmatch(command)
    if piped is not None and (piped["text"].isascii() or not piped["command"].startswith(IN_A_SHELL)):
        with standard_input(f"{piped['text']}\n"):
            app(shlex.split(piped["command"])[1:], standalone_mode=False)
        return
    path = shlex.quote(str(Path(sys.executable).parent))
    result = subprocess.run(
        ["bash", "-c", f"PATH={path}:$PATH; {command}"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"


def joined(text: str) -> list[str]:
    """Commands, those over several lines put together; comments left out."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]
