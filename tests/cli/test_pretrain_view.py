"""What `segue pretrain` shows while it runs fits into terminals of any usual width, and says what can be done next."""

import io
import re
import signal
from pathlib import Path

import pytest
import torch
from rich.console import Console

from segue.cli.pretrain import LiveView
from segue.config import Config, parse
from segue.train.loop import StepReport
from segue.train.pretrain import Ended, Started, Validated

RUN = Path("run")


def config(vocabulary: int) -> Config:
    model = {"num_layers": 2, "width": 16, "num_heads": 2, "inner_width": 32, "vocabulary": {"size": vocabulary}}
    data = {"store": "store", "validation": "store-valid", "lanes": 4, "segment_length": 16}
    return parse({"data": data, "model": model, "train": {"steps": 100_000, "log_every": 1}})


def report(step: int, *, seconds: float = 0.5) -> StepReport:
    return StepReport(
        step=step,
        loss=10.1234,
        gradient_norm=1.0,
        learning_rate=1e-3,
        tokens=512,
        seconds=seconds,
        skipped=False,
        position={},
    )


def view(width: int, *, terminal: bool = True, vocabulary: int = 32000) -> tuple[LiveView, io.StringIO]:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=width, highlight=False, color_system="standard")
    return LiveView(console, config(vocabulary), RUN, boards=[]), output


def moving_line(shown: LiveView) -> str:
    (line,) = shown.console.render_lines(shown.progress.get_renderable(), pad=False)
    return "".join(segment.text for segment in line)


STARTED = Started(step=0, steps=100_000, parameters=1_000_000, changed=[])


@pytest.mark.parametrize("vocabulary", [32000, 256], ids=["perplexity", "bits"])
@pytest.mark.parametrize(
    ("width", "parts"),
    [
        (50, []),
        (80, []),
        (120, ["step 50003/100000", "tokens/s", "GiB"]),
        (160, ["step 50003/100000", "tokens/s", "GiB", "of peak"]),
    ],
)
def test_the_moving_line_has_a_bar_and_the_time_left(width: int, parts: list[str], vocabulary: int) -> None:
    shown, _ = view(width, vocabulary=vocabulary)
    with shown:
        shown.show(STARTED)
        for step in range(50_000, 50_004):
            shown.show(report(step))
        line = moving_line(shown)
        assert len(line) <= width
        assert "…" not in line
        assert len(re.findall("[━─]", line)) >= 6
        assert "6 h 56 min left" in line
        assert line.startswith(" 50%")
        assert "loss 10.123" in line
        for part in parts:
            assert part in line
        if width >= 80:
            assert ("bits" if vocabulary == 256 else "perplexity") in line


def test_what_comes_next_is_said_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    shown, _ = view(80)
    with shown:
        shown.show(STARTED)
        shown.show(report(100_000))
        shown.show(Ended(step=100_000, saved=100_000, finished=True, stopped_by=None))
    said = " ".join(capsys.readouterr().out.split())
    assert said == "Done at step 100000. Evaluate the model: segue evaluate run/last store-valid"


@pytest.mark.parametrize(
    ("ended", "text"),
    [
        (
            Ended(step=9, saved=9, finished=False, stopped_by=signal.SIGINT),
            "Stopped at step 9. The same command resumes from step 9, in run/last.",
        ),
        (
            Ended(step=9, saved=None, finished=False, stopped_by=signal.SIGINT),
            "Stopped at step 9; no state is saved. The same command starts from the beginning.",
        ),
    ],
)
def test_a_stopped_run_says_how_to_resume(ended: Ended, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown, output = view(120, terminal=False)
    with shown:
        shown.show(STARTED)
        shown.show(report(9))
        shown.show(ended)
    first, *_, line = output.getvalue().splitlines()
    assert first == "run starts at step 0 of 100000; 1.00 M parameters."
    assert re.fullmatch(r"step 9/100000  loss 10.123 .* tokens/s .* of peak .* GiB .* left", line)
    assert " ".join(capsys.readouterr().out.split()) == text


def test_a_validation_that_is_not_finite_is_shown_as_it_is() -> None:
    shown, output = view(80, terminal=False)
    with shown:
        shown.show(Validated(step=3, loss=float("nan"), best=False))
    assert output.getvalue() == "step 3: validation loss nan\n"


def test_other_processes_show_nothing() -> None:
    shown, output = view(80)
    with shown:
        pass
    assert output.getvalue() == ""


@pytest.mark.parametrize("peak", [0.0, 1.0])
def test_a_peak_that_the_run_exceeds_is_not_shown(peak: float) -> None:
    """It was measured while other work slowed down the machine."""
    shown, output = view(160, terminal=False)
    with shown:
        shown.show(STARTED)
        shown.throughput.peak = peak
        shown.show(report(9))
    assert "tokens/s" in output.getvalue()
    assert "of peak" not in output.getvalue()


def test_the_peak_is_that_of_the_precision_of_the_run() -> None:
    assert view(80)[0].throughput.dtype == torch.float32
    settings = config(256)
    assert settings.train is not None
    bfloat16 = settings.model_copy(update={"train": settings.train.model_copy(update={"precision": "bfloat16"})})
    assert LiveView(Console(), bfloat16, RUN, boards=[]).throughput.dtype == torch.bfloat16
