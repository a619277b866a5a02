"""Progress: events for whoever asks, lines on standard error, and silence."""

from pathlib import Path

import pytest

import segue
from segue.api import progress as shown
from segue.train.pretrain import Ended, Started


def test_events_and_silence(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events: list[segue.Progress] = []
    segue.embed("model", ["one text", "another"], progress=False, on_event=events.append)
    assert events[-1].done == len(segue.score("model", ["one text", "another"], by="token", progress=False))
    assert (events[-1].what, events[-1].unit, events[-1].total) == ("embed", "tokens", None)
    assert capsys.readouterr() == ("", "")


def test_lines_now_and_then(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "LINE_EVERY", 0.0)
    segue.score("model", ["one text"] * 3, batch_tokens=1)
    output = capsys.readouterr()
    assert output.out == ""
    lines = output.err.splitlines()
    assert lines
    assert all(line.startswith("score: ") and line.endswith(" tokens") for line in lines)


def test_a_moving_line_is_gone_at_the_end(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "PATIENCE", 0.0)
    line = shown.StatusLine(show=True)
    line.moves = True
    line._said = 0.0
    line.update("half")
    line.say("a line that stays")
    line.clear()
    assert capsys.readouterr().err == "\rhalf\r    \ra line that stays\n"


def test_a_run_tells_its_events(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = segue.prepare("texts.txt", "corpus", kind="characters")
    tiny = {
        "model": {"num_layers": 1, "width": 16, "num_heads": 2, "inner_width": 16, "memory.length": 8},
        "data": {"lanes": 1, "segment_length": 8, "validation": "corpus"},
        "train": {"steps": 3, "warmup_steps": 1},
    }
    events: list[object] = []
    run = segue.pretrain("small-transformer-xl", "run", store=store, settings=tiny, on_event=events.append)
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Ended)
    assert (run.step, run.finished, run.model) == (3, True, Path("run/best"))
    assert run.validation_loss == pytest.approx(min(e.loss for e in events if hasattr(e, "best")))
    assert run.load().config.num_layers == 1
    err = capsys.readouterr().err
    assert "pretrain: starts at step 0 of 3" in err
    assert "validation loss" in err
    again = segue.pretrain("small-transformer-xl", "run", store=store, settings=tiny, progress=False)
    assert again.finished
