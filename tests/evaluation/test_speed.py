"""The comparison of speeds: each side sees what it says, and the numbers are those of its clock."""

import numpy as np
import pytest
import torch

from segue.config import changed
from segue.errors import DataError
from segue.evaluation import speed
from segue.evaluation.perplexity import causal_losses
from segue.evaluation.speed import (
    SpeedRow,
    draw_tokens,
    measure_speed,
    read_on,
    read_window,
    vanilla_of,
    with_memory,
)
from segue.model import Batch
from tests.tiny import CAUSAL, MODELS, VOCABULARY, noisy

XL = CAUSAL["transformer-xl-enwik8-base"]


@pytest.mark.parametrize("name", ["transformer-xl-enwik8-base", "clamped", "shaw", "alibi", "rotary", "untied"])
@pytest.mark.parametrize("segment_length", [3, 256])
def test_one_layer_sees_the_same_on_both_sides(name: str, segment_length: int) -> None:
    """A window of n tokens gives its last position what n kept keys give."""
    model = noisy(changed(CAUSAL[name], num_layers=1, memory={"initial": "empty"}))
    streamer, alone = with_memory(model, 9), model.adjusted(memory=None)
    cache, tokens = streamer.new_cache(), draw_tokens(VOCABULARY, 40)
    with torch.no_grad():
        read_on(streamer, cache, tokens, start=0, length=9, segment_length=segment_length)
        for start in (9, 17):
            nll = read_on(streamer, cache, tokens, start=start, length=8, segment_length=segment_length)
            windows = [read_window(alone, tokens, target=start + n + 1, window=9) for n in range(8)]
            assert nll.tolist() == pytest.approx(windows, abs=1e-10)


def test_more_layers_reach_further_with_memory() -> None:
    """What is read is what the model itself gives with memory, not what a window gives."""
    model = noisy(changed(XL, num_layers=2, attention_span=4))
    streamer, tokens = with_memory(model, 9), draw_tokens(VOCABULARY, 40)
    with torch.no_grad():
        nll = read_on(streamer, streamer.new_cache(), tokens, start=0, length=30, segment_length=7)
        window = read_window(model.adjusted(memory=None, attention_span=None), tokens, target=30, window=9)
    assert abs(float(nll[-1]) - window) > 1e-6
    reader = model.adjusted(memory={"length": 9}, attention_span=9)
    assert nll.tolist() == pytest.approx(causal_losses(reader, tokens, segment_length=5, limit=31).tolist(), abs=1e-10)


def test_the_vanilla_model_has_the_shape_and_the_weights() -> None:
    model = noisy(XL)
    vanilla = vanilla_of(model, 30)
    assert vanilla.config.positions.kind == "per_layer"
    assert vanilla.config.memory is None
    for name in ("num_layers", "width", "num_heads", "head_width", "inner_width", "vocabulary"):
        assert getattr(vanilla.config, name) == getattr(XL, name)
    ours, theirs = dict(model.named_parameters()), dict(vanilla.named_parameters())
    shared = "trunk.reader.layers.1.attention.key.weight"
    assert theirs[shared].data_ptr() == ours[shared].data_ptr()
    with torch.no_grad():
        assert vanilla(Batch(ids_BQ=torch.zeros(1, 30, dtype=torch.long))).output.hidden_BQD.isfinite().all()
    with pytest.raises(DataError, match="30 positions"):
        vanilla(Batch(ids_BQ=torch.zeros(1, 31, dtype=torch.long)))


def test_rows_and_progress() -> None:
    heard: list[tuple[int, int]] = []
    rows = measure_speed(
        noisy(XL).float(),
        attention_lengths=[32, 64],
        windows=2,
        repeats=3,
        progress=lambda done, total: heard.append((done, total)),
    )
    assert [row.attention_length for row in rows] == [32, 64]
    assert {row.segment_length for row in rows} == {with_memory(noisy(XL), 32).most_at_once}
    for row in rows:
        assert row.memory_seconds > 0
        assert row.window_seconds > 0
        assert row.ratio == row.window_seconds / row.memory_seconds
        assert (row.runs, row.windows, row.published) == (3, 2, None)
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert heard[-1][0] == heard[-1][1]


def test_the_clock_is_read_around_each_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that the two sides turn by known amounts, the table must hold the medians of these amounts."""
    now = [0.0]
    runs, windows = iter([90.0, 8.0, 16.0, 60.0]), iter([900.0, 5.0, 7.0, 100.0])  # the first of each is not timed

    def run(*_: object, **__: object) -> torch.Tensor:
        now[0] += next(runs)
        return torch.zeros(1)

    def window(*_: object, **__: object) -> float:
        now[0] += next(windows)
        return 0.0

    monkeypatch.setattr(speed, "read_on", run)
    monkeypatch.setattr(speed, "read_window", window)
    monkeypatch.setattr(speed.time, "perf_counter", lambda: now[0])
    row = measure_speed(noisy(XL), attention_lengths=[32], segment_length=4)[0]
    assert row == SpeedRow(
        attention_length=32, segment_length=4, memory_seconds=0.5, window_seconds=7.0, runs=3, windows=3
    )
    assert row.ratio == 14.0


def test_published_numbers_stand_at_their_lengths() -> None:
    row = SpeedRow(attention_length=3800, segment_length=1, memory_seconds=1.0, window_seconds=2.0, runs=1, windows=1)
    assert row.published == 1874


def test_drawn_ids_fall_as_words_do() -> None:
    tokens = draw_tokens(1000, 20000)
    counts = np.bincount(tokens.read(0, 20000), minlength=1000)
    assert len(counts) == 1000
    assert counts[0] == pytest.approx(20000 * np.log(2) / np.log(1000), rel=0.1)
    assert counts[500:].sum() == pytest.approx(20000 * np.log(2) / np.log(1000), rel=0.1)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("bert-base", {}, 'objective "masked"'),
        ("xlnet-base", {}, 'objective "permutation"'),
        ("two-direction", {}, 'directions "both"'),
        ("gpt", {}, "relative positions"),
        ("transformer-xl-enwik8-base", {"attention_lengths": []}, "at least 1"),
        ("transformer-xl-enwik8-base", {"attention_lengths": [8, 0]}, "at least 1"),
        ("transformer-xl-enwik8-base", {"attention_lengths": [8], "segment_length": 0}, "at least 1"),
        ("transformer-xl-enwik8-base", {"attention_lengths": [8], "windows": 0}, "at least 1"),
        ("transformer-xl-enwik8-base", {"attention_lengths": [8], "tokens": draw_tokens(9, 20)}, "36 tokens"),
        ("transformer-xl-enwik8-base", {"attention_lengths": [8], "segment_length": 9999}, "at most"),
    ],
)
def test_what_does_not_fit_is_refused(model: str, settings: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        measure_speed(noisy(MODELS[model]), **settings)
