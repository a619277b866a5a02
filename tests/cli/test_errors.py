"""How a command ends: a message and a code for whatever the user, the system or a fault of ours did; no traceback."""

import errno
import io
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from segue.cli.console import moving_line
from segue.cli.errors import ended, explained
from segue.cli.writing import enough_memory
from segue.errors import ConfigError, DataError
from segue.model.named import named_models
from tests.cli.test_pretrain import both, segue
from tests.command import command
from tests.forked import forked_call, verb

COMMAND = [sys.executable, "-m", "segue"]


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | options.pop("environment", {})  # type: ignore[operator]
    defaults = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "timeout": 120, "check": False}
    return subprocess.run([*COMMAND, *arguments], env=environment, **defaults | options)  # type: ignore[call-overload]


# ------------------------------------------------------------------------------------------------------ what ends it


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(errno.EACCES, "no", "a/b"),
            r"a/b must be usable; got Permission denied. Check its permissions",
        ),
        (OSError(errno.ENOSPC, "full"), "got No space left on device. Free some space"),
        (OSError(errno.ENAMETOOLONG, "long", "n" * 300), "Use a shorter name."),
        (IsADirectoryError(errno.EISDIR, "folder", "x"), "x must be usable; got Is a directory. Name a file."),
        (OSError(errno.ELOOP, "links", "x"), "Remove the link that leads to itself."),
        (
            OSError("libnative.so: failed to map segment"),
            "a system call failed: libnative.so: failed to map segment. Check the disk",
        ),
        (MemoryError(), "the work must fit into memory; got an allocation failure."),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes\nmore"),
            "9 bytes. Use",
        ),
        (RecursionError("deep"), "must not be nested so deeply"),
        (UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates"), r"got '\udcff'"),
        (ValueError("embedded null byte"), "must have no NUL character"),
        (DataError("x must be y; got z."), "x must be y; got z."),
    ],
)
def test_what_the_user_or_the_system_caused_is_a_message(
    error: BaseException, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    assert ended(fail) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("segue: ")
    assert message in printed
    assert "Traceback" not in printed


def test_a_fault_of_ours_asks_for_a_report_and_keeps_the_traceback(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail() -> None:
        raise KeyError("a name that is not there")

    assert explained(KeyError()) is None
    assert ended(fail) == 70
    printed = capsys.readouterr().err
    (report,) = tmp_path.glob("segue-fault-*.txt")
    assert "this is a bug in segue (KeyError: 'a name that is not there')." in printed
    assert f"The traceback is in {report}; please report it" in printed
    assert "Traceback (most recent call last)" not in printed
    assert 'raise KeyError("a name that is not there")' in report.read_text()
    monkeypatch.setenv("SEGUE_TRACEBACK", "1")
    assert ended(fail) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert ended(fail) == 70
    assert "SEGUE_TRACEBACK=1" in capsys.readouterr().err


def test_an_interrupt_inside_an_import_may_come_out_as_another_error(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as interrupt:
            raise ImportError("half a module") from interrupt

    assert ended(fail) == 130
    assert capsys.readouterr().err == "segue: interrupted\n"


def test_a_lack_of_memory_without_a_word() -> None:
    with (
        pytest.raises(ConfigError, match="must fit into memory with these settings; got an allocation failure"),
        enough_memory(),
    ):
        raise MemoryError
    with pytest.raises(RuntimeError, match="something else"), enough_memory():
        raise RuntimeError("something else")


# ----------------------------------------------------------------------------------------------------------- streams


def test_the_tour_works_in_any_encoding() -> None:
    def tour() -> int:
        sys.stdout = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115
        return verb(["tour"])

    process = forked_call(tour, environment={"COLUMNS": "80"})
    output, errors = process.communicate(120)
    assert process.returncode == 0, errors
    assert "memory 6   ...... ###### ###### ######  18 tokens" in output
    assert "\\u" not in output


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        result = run("models", stdout=full)
    assert result.returncode == 2
    assert result.stderr.startswith("segue: a file or a stream must be usable; got No space left on device.")
    closed = subprocess.run(
        f"{sys.executable} -m segue models >&-", shell=True, check=False, stderr=subprocess.PIPE, text=True
    )
    assert closed.returncode == 2  # as `ls >&-`
    assert "got Bad file descriptor. Open it, or redirect it to a file" in closed.stderr
    assert subprocess.run(f"{sys.executable} -m segue models >&- 2>&-", shell=True, check=False).returncode == 2
    reader, writer = os.pipe()
    os.close(reader)
    gone = run("models", stdout=writer)
    os.close(writer)
    assert gone.returncode == 141  # as of a program that SIGPIPE ends
    assert gone.stderr == ""


def test_rows_are_not_lost_in_a_closed_output(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\na\n")

    def predict() -> int:
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]  # as Python has it then
        return verb(["predict", str(tmp_path), str(tmp_path / "a.csv")])

    process = forked_call(predict)
    _, errors = process.communicate(120)
    assert process.returncode == 2
    assert "standard output is closed. Give --out FILE." in " ".join(errors.split())


def test_a_misspelt_store_does_not_ask_for_the_vocabulary() -> None:
    result = command("plan", "small-transformer-xl", "data.stor=somewhere")
    assert result.returncode == 2
    assert "Did you mean data.store?" in result.stderr
    assert "vocabulary" not in result.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["genrate", "model"], "Did you mean 'generate'?"),
        (["study", "clip-rang"], "Did you mean clip-range?"),
        (["infill", "xlnet-mini-en", "a ___ b", "--length", "99999999"], "at most 4,096 tokens"),
    ],
)
def test_mistakes_are_named_first(given: list[str], message: str) -> None:
    result = command(*given)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xfe.toml")
    result = command("prepare", name, "--out", "store", folder=tmp_path)
    assert result.returncode == 2
    assert "\\udcff\\udcfe.toml must exist" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_interrupt_while_torch_is_imported_is_never_raised_in_it(tmp_path: Path) -> None:
    """C++ that starts up inside an import aborts the process when Python code that it calls raises; so does this."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "interrupted.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept BaseException:\n    os.abort()\n"
    )

    def verb() -> None:
        print("something that was found")
        sys.path.insert(0, str(tmp_path / "torch"))
        __import__("interrupted")

    process = forked_call(lambda: ended(verb))
    assert process.communicate(30) == ("something that was found\n", "segue: interrupted\n")
    assert process.returncode == 130


@pytest.mark.parametrize("importing", [False, True])
def test_an_interrupt_elsewhere_is_raised_and_cleaned_up_after(tmp_path: Path, importing: bool) -> None:
    (tmp_path / "interrupted.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)\n"
    )

    def verb() -> None:
        try:
            if importing:
                sys.path.insert(0, str(tmp_path))
                __import__("interrupted")
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        finally:
            print("cleaned up")

    process = forked_call(lambda: ended(verb))
    assert process.communicate(30) == ("cleaned up\n", "segue: interrupted\n")
    assert process.returncode == 130


def test_interrupts_are_as_they_were_after_a_command() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests themselves may run in the background
    seen = []
    try:
        ended(lambda: seen.append(signal.getsignal(signal.SIGINT)))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a job in the background
        ended(lambda: seen.append(signal.getsignal(signal.SIGINT)))
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen[0] is not signal.default_int_handler
    assert seen[1] is signal.SIG_IGN


@pytest.mark.parametrize("seconds", [0.2, pytest.param(1.5, marks=pytest.mark.long)])
def test_an_interrupt_at_any_moment_leaves_no_traceback(seconds: float) -> None:
    """Also while torch is imported. What Python does before it reaches segue is not ours."""
    process = subprocess.Popen([*COMMAND, "tour"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while "segue/cli" not in (maps := Path(f"/proc/{process.pid}/maps").read_text()) and process.poll() is None:
        if "pydantic_core" in maps or "libtorch" in maps:
            break
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert "Traceback" not in output + errors
    assert process.returncode in (130, -signal.SIGINT, 0)


def test_models_are_listed_with_their_sizes() -> None:
    shown = segue("models")
    assert all(f"{name}  {model.parameters() / 1e6:.1f} M" in shown for name, model in named_models().items())


# -------------------------------------------------------------------------------------------- found by the fuzz run


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run" / "metrics.jsonl"


@pytest.mark.parametrize(
    "text", ["{", "5", "[]", '{"loss": 1.0}', '{"step": "x", "loss": 1.0}', "[" * 5000, '{"step": NaN}', "\udcff"]
)
def test_plots_of_broken_metrics(metrics: Path, text: str) -> None:
    metrics.write_text(text, encoding="utf-8", errors="surrogateescape")
    assert f"{metrics} must " in segue("plot", metrics.parent, "--out", metrics.parent / "a.png", code=2)


def test_plots_of_numbers_that_cannot_be_drawn(metrics: Path) -> None:
    metrics.write_text('{"step": 1, "loss": NaN}\n\n{"step": 2, "loss": 1e308}\n{"step": 3, "loss": 2}\n')
    run = metrics.parent.rename(metrics.parent.with_name("a $x^ run"))
    assert "Plot:" in segue("plot", run, "--out", run / "a.png")


def test_a_plot_into_no_picture(metrics: Path) -> None:
    metrics.write_text('{"step": 1, "loss": 1.0}\n')
    assert "must be an image file" in segue("plot", metrics.parent, "--out", "a.txt", code=2)
    assert "must be in a folder that exists" in segue("plot", metrics.parent, "--out", "/nowhere/a.png", code=2)


def test_progress_and_results_are_apart(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text\n\nmore text\n")
    output, progress = both("prepare", tmp_path / "a.txt", "--out", tmp_path / "store", "--kind", "bytes")
    assert "encoding" in progress
    assert "encoding" not in output
    assert "documents" in output


@pytest.mark.parametrize("width", [20, 50, 80, 200])
def test_the_moving_line_fits_the_terminal_and_is_gone_at_the_end(width: int) -> None:
    """What matters most comes first; a bar takes the room that is left."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None, legacy_windows=False)
    with moving_line(console) as progress:
        line = "3 min 5 s left  loss 0.4213  12,345 tokens/s  padding 3.1%"
        task = progress.add_task("", total=200, completed=50, line=line)
        progress.refresh()
        shown = progress.columns[0](progress.tasks[task]).plain  # type: ignore[operator]
    assert len(shown) < width
    assert shown.startswith(" 25%  3 min 5 s left"[: width - 2])
    assert ("━" in shown) == (width >= 80)
    assert file.getvalue().endswith("\x1b[2K")  # the line is wiped


def test_a_disk_that_takes_no_more(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text\n\nmore text\n")

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

    result = run("prepare", "a.txt", "--out", "store", "--kind", "bytes", cwd=tmp_path, preexec_fn=full)
    assert result.returncode == 2
    assert "File too large" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_forgotten_task_is_an_error(tmp_path: Path) -> None:
    message = segue("finetune", "model", "--train", tmp_path / "a.csv", "--out", tmp_path / "run", code=2)
    assert "got no --task" in message
