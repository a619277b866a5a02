"""What the benchmarks compute besides times: counts, statistics, comparisons, groups, tables. Nothing is timed."""

import json
import math
from pathlib import Path

import pytest
import torch
from benchmarks import (
    eight_bits,
    generation,
    provenance,
    report,
    side_by_side,
    step_profile,
    streaming,
)
from benchmarks.limit import Step
from benchmarks.serving_isolation import Compared
from benchmarks.serving_parts import row as serving_row
from benchmarks.side_by_side import (
    PRODUCT_SIZE,
    DisagreementError,
    Measured,
    agree,
    agree_gradients,
    comparison,
    interleave,
    require_dropout,
    spread,
    tokens_row,
    training_step,
)
from torch import nn

from segue.model import Batch, LanguageModel
from segue.model.streaming import Streamer

SMALL = {"rows": 2, "length": 3, "layers": 2, "width": 4, "inner_width": 5}

# --------------------------------------------------------------------------------------------- multiply-adds


def counted(*queries_of_layers: int, rows: int, length: int, layers: int, width: int, inner_width: int) -> int:
    """One layer after the other, product by product, from the shapes [n, k] [k, m]: n k m."""
    total = 0
    for queries in queries_of_layers:
        for _ in range(rows):
            total += queries * width * width * 2  # query, out
            total += length * width * width * 2  # key, value
            total += queries * width * length * 3  # q k^T, q r, p v
            total += queries * width * inner_width * 2
        total += 2 * length * width * width  # W_r R, for the distances of both directions
    return total


def test_multiply_adds_of_an_encoder() -> None:
    step = Step(**SMALL)
    assert step.forward() == counted(3, 3, **SMALL)
    assert step.training() == 3 * step.forward()


def test_multiply_adds_of_two_streams() -> None:
    """A predicted position is one more query, and a softmax; no loss reads the last content stream."""
    step = Step(**SMALL, predicted=2, scored=2, vocabulary=7)
    assert step.forward() == counted(3 + 2, 2, **SMALL) + 2 * 2 * 4 * 7


def test_multiply_adds_of_a_causal_model_with_memory() -> None:
    """Queries 0, 1, 2 see 6, 7, 8 keys of 5 + 3; keys and values are made of memory too."""
    step = Step(**SMALL, memory=5, causal=True)
    seen = 2 * (6 + 7 + 8) * 4 * 3
    weights = 2 * 3 * (2 * 16 + 2 * 4 * 5) + 2 * 8 * 2 * 16 + 8 * 16
    assert step.forward() == 2 * (seen + weights)
    assert step.attention() == 2 * seen


# ------------------------------------------------------------------------------------------------ comparing


def test_agreement_and_disagreement() -> None:
    there = torch.tensor([1.0, 100.0])
    assert agree("x", there + 0.5, there, tolerance=0.6) == 0.5
    assert agree("x", there + 0.5, there, tolerance=0.006, relative=True) == pytest.approx(0.005)
    with pytest.raises(DisagreementError, match=r"x must agree to 0\.1; got 0\.5"):
        agree("x", there + 0.5, there, tolerance=0.1)
    with pytest.raises(DisagreementError, match="got nan"):
        agree("x", there * math.nan, there, tolerance=0.1)
    with pytest.raises(DisagreementError, match="one shape"):
        agree("x", there[:1], there, tolerance=0.1)


def test_gradients_are_compared_by_name() -> None:
    model = nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    theirs = {"weight": torch.ones(2, 2), "bias": torch.ones(2)}
    assert agree_gradients(model, theirs) == 0
    with pytest.raises(DisagreementError, match="gradient of bias"):
        agree_gradients(model, theirs | {"bias": torch.zeros(2) + 2})
    model.bias.grad = None
    with pytest.raises(DisagreementError, match="bias must have a gradient"):
        agree_gradients(model, theirs)


# --------------------------------------------------------------------------------------- turns and statistics


def test_sides_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "PRODUCT_SIZE", 8)
    calls: list[str] = []
    sides = {name: lambda name=name: calls.append(name) for name in ("ours", "theirs")}
    measured = interleave(sides, rounds=2, warm_up=1)
    assert calls == ["ours", "theirs"] * 3
    assert {name: len(times) for name, times in measured.seconds.items()} == {"ours": 2, "theirs": 2}
    more = measured.and_then(interleave({"ours": sides["ours"]}, rounds=1, warm_up=0))
    assert {name: len(times) for name, times in more.seconds.items()} == {"ours": 3, "theirs": 2}
    assert len(more.product_seconds) > len(measured.product_seconds)


def test_a_step_starts_without_gradients() -> None:
    model = nn.Linear(1, 1)
    step = training_step(model, lambda: model(torch.ones(1, 1)).sum())
    step(), step()
    assert model.weight.grad == torch.ones(1, 1)


def test_spread() -> None:
    times = spread([4.0, 1.0, 3.0, 2.0, 5.0])
    assert (times["median"], times["quartiles"], times["best"]) == (3.0, [2.0, 4.0], 1.0)
    assert times["seconds"] == [4.0, 1.0, 3.0, 2.0, 5.0]
    assert spread([2.0])["quartiles"] == [2.0, 2.0]


def measured_times() -> Measured:
    return Measured(
        seconds={"ours": [1.0, 2.0, 3.0], "theirs": [3.0, 6.0, 12.0]},
        returned={"ours": [0.1, 0.2, 0.3], "theirs": [0.1, 0.2, 0.3]},
        product_seconds=[0.5, 0.25],
    )


def row() -> dict[str, object]:
    return comparison(
        measured_times(),
        work="a step",
        against="another",
        multiply_adds=4 * PRODUCT_SIZE**3,
        differences={"hidden": 1e-6},
        goal=2.5,
        share_goal=0.6,
    )


def test_comparison() -> None:
    """The best product takes 0.25 s, so four of them 1 s."""
    line = row()
    assert line["ratio"] == 3
    assert line["ratio_of_each_round"] == [3, 3, 4]
    assert line["limit_seconds"] == 1
    assert line["limit_ratio"] == 6
    assert (line["share_of_limit"], line["share_of_limit_best"]) == (0.5, 1)


def test_a_side_without_dropout_is_an_error() -> None:
    require_dropout(measured_times())
    with pytest.raises(DisagreementError, match="dropout"):
        require_dropout(Measured(seconds={}, returned={"ours": [0.5, 0.5]}))


# -------------------------------------------------------------------------------------------------- streams


def token_row(*, most: bool = False, goal: float | None = 2.0) -> dict[str, object]:
    return tokens_row(work="a", against="b", ours=[1.0, 2.0, 3.0], theirs=[3.0, 6.0, 12.0], goal=goal, most=most)


def test_ratios_of_streams_have_a_least_or_a_most() -> None:
    least, most = token_row(), token_row(most=True)
    assert (least["ratio"], least["reached"]) == (3, True)
    assert least["ratio_of_each_round"] == [3, 3, 4]
    assert (most["ratio"], most["reached"]) == (pytest.approx(1 / 3), True)
    assert not token_row(goal=3.5)["reached"]
    assert not token_row(goal=0.3, most=True)["reached"]
    assert not token_row(goal=None)["reached"]


def small_stream(*, memory: int = 40) -> tuple[LanguageModel, Streamer]:
    """In float64, and every token of the tests within its memory."""
    torch.manual_seed(0)
    config = streaming.stream_config(layers=2, width=16, heads=2, vocabulary=30, memory=memory)
    model = LanguageModel(config).double().eval()
    return model, Streamer(model, memory_length=memory)


@torch.no_grad()
def test_a_writer_takes_the_most_probable_token_of_a_whole_forward() -> None:
    model, streamer = small_stream()
    prompt_BQ = streaming.random_ids(30, rows=3, length=7)
    written_BQ = streaming.Writer(streamer, prompt_BQ).write(6)
    text_BQ = prompt_BQ
    for _ in range(6):
        logits_BQV = model.logits(model(Batch(ids_BQ=text_BQ)).output.hidden_BQD)
        text_BQ = torch.cat([text_BQ, logits_BQV[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(written_BQ, text_BQ[:, 7:])


def test_a_long_prompt_is_read_in_pieces() -> None:
    _, streamer = small_stream()
    streamer.most_at_once = 8
    cache, other = streamer.new_cache(), streamer.new_cache()
    ids_BQ = streaming.random_ids(30, rows=1, length=21)
    last_B1D = streaming.read_pieces(streamer, cache, ids_BQ)
    logits_BQV = streaming.single_logits(streamer, other, ids_BQ)
    torch.testing.assert_close(streamer.logits(last_B1D), logits_BQV[:, -1:], rtol=0, atol=1e-12)
    assert int(cache.position_B) == int(other.position_B) == 21


def test_weights_that_a_token_needs() -> None:
    """Two layers of width 16: all but one matrix of 16 x 16 each, which makes the position keys."""
    model, _ = small_stream()
    everything = sum(value.numel() for value in model.parameters())
    assert streaming.numbers_read(model) == everything - 2 * 16 * 16


def test_ways_of_reading_read_all_numbers() -> None:
    """A width that does not divide the numbers, so that the matrix is a little larger."""
    assert set(streaming.readings(100, width=16, times=2)) == {"a sum", "a product of PyTorch", "a product of segue"}
    assert all(math.isfinite(read()) for read in streaming.readings(100, width=16, times=2).values())


def test_places_where_a_long_stream_is_looked_at() -> None:
    assert list(streaming.checkpoints(1_500)) == [1_000, 1_500]
    assert list(streaming.checkpoints(20_000)) == [1_000, 2_000, 5_000, 10_000, 20_000]
    assert list(streaming.checkpoints(1_000_000))[-3:] == [200_000, 500_000, 1_000_000]


@torch.no_grad()
def test_perplexity_of_a_stream_is_that_of_a_whole_forward() -> None:
    model, streamer = small_stream()
    streamer.most_at_once = 8
    ids_Q = streaming.random_ids(30, rows=1, length=30)[0]
    hidden_BQD = model(Batch(ids_BQ=ids_Q[None, :-1])).output.hidden_BQD
    log_probability = model.logits(hidden_BQD)[0].log_softmax(dim=-1)[torch.arange(29), ids_Q[1:]]
    assert eight_bits.perplexity(streamer, ids_Q) == pytest.approx(math.exp(-log_probability.mean()), rel=1e-9)


def test_the_clock_leaves_out_what_the_prompt_takes() -> None:
    clock = generation.Clock(stamps=[10.0, 10.5, 11.0, 13.0])
    assert clock.seconds_a_token() == 1
    scores = torch.ones(1, 3)
    assert clock(torch.zeros(1, 2), scores) is scores
    assert len(clock.stamps) == 5


def test_tables_of_streams() -> None:
    lines = [token_row(), token_row(most=True, goal=0.25), token_row(goal=None)]
    cells = [line.strip("|").split(" | ") for line in report.tokens_table([{"rows": lines}]).splitlines()[2:]]
    assert [[cell.strip() for cell in line[2:]] for line in cells] == [
        ["2000.00 ms (1500.00 to 2500.00)", "6000.00 ms (4500.00 to 9000.00)", "3.00", "2, reached"],
        ["2000.00 ms (1500.00 to 2500.00)", "6000.00 ms (4500.00 to 9000.00)", "0.33", "at most 0.25, missed"],
        ["2000.00 ms (1500.00 to 2500.00)", "6000.00 ms (4500.00 to 9000.00)", "3.00", ""],
    ]
    stream = [{"tokens": 1_000, "tokens_a_second": 200.4, "resident_bytes": 5e8}]
    found = {
        "generation-xlnet": {"rows": [token_row() | {"differences": {"logits": 1e-6}}]},
        "streaming": {"rows": [], "stream": stream, "resident_growth": 1.02, "resident_growth_goal": 1.01},
        "eight_bits": {
            "rows": [],
            "perplexity": [
                {"model": "m", "targets": 99, "float32": 50.0, "eight_bits": 50.1, "ratio": 1.002}
                | {"goal": 1.01, "reached": True}
            ],
        },
    }
    text = "\n".join(report.sections({what: result | {"date": "2026-01-03"} for what, result in found.items()}))
    assert "logits 1.0e-06" in text
    assert "grew 1.0200 times (goal: at most 1.01, missed)" in text
    assert "1,000" in text
    assert "500.0 MB" in text
    assert "| m     | 99     | 50.000              | 50.100     | 1.0020 | at most 1.01, reached |" in text


# -------------------------------------------------------------------------------------------------- profile


def test_operations_belong_to_the_innermost_group() -> None:
    groups = step_profile.GROUPS
    assert step_profile.group_of(["aten::bmm", "segue::attend"], groups) == "matrix products"
    assert step_profile.group_of(["aten::empty", "aten::native_dropout"], groups) == "dropout"
    assert step_profile.group_of(["aten::add_", "Optimizer.step#AdamW.step"], groups) == "optimizer"
    assert step_profile.group_of(["aten::add"], groups) == "other"


# --------------------------------------------------------------------------------------------------- report


def test_table_lines_up() -> None:
    assert report.table(["a", "bb"], [["ccc", "d"]]) == "| a   | bb |\n| --- | -- |\n| ccc | d  |"


def test_speed_and_share_tables() -> None:
    result = {"rows": [row()]}
    (*_, line) = report.speed_table([result]).splitlines()
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["a step", "another", "2 s (1.5 to 2.5)", "6 s (4.5 to 9)", "3.00", "2.5, reached", "6.00"]
    assert "0.50 (1.00)" in report.share_table([result])
    assert "0.6, missed" in report.share_table([result])
    assert "hidden 1.0e-06" in report.agreement_table([result])


def test_finetuning_tables() -> None:
    rates = {"ours_examples_a_second": 4.0, "theirs_examples_a_second": 1.6, "ratio": 2.5, "updates_ratio": 2.75}
    lines = [{"work": "a set", "against": "another", "goal": value, **rates} for value in (2.0, 4.0, None)]
    cells = [line.split(" | ")[4:6] for line in report.finetuning_table(lines).splitlines()[2:]]
    assert [[cell.strip() for cell in line] for line in cells] == [
        ["2.50", "2, reached"],
        ["2.50", "4, missed"],
        ["2.50", ""],
    ]
    accuracies = {"accuracies": {"ours": [0.5, 1.0], "theirs": [0.25]}, "ours_mean": 0.75, "theirs_mean": 0.25}
    assert "0.750 (0.500, 1.000) | 0.250 (0.250)" in report.accuracy_table([{"work": "a set", **accuracies}])


def test_the_table_of_the_server() -> None:
    rows = [
        serving_row("a fork", 0.0151, unit="ms", goal=1.0, most=True, beside="over HTTP 2 ms"),
        serving_row("16 clients", 3.5, goal=4.0, most=False),
        serving_row("the peer", 30.0, goal=None, most=True),
    ]
    cells = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in report.serving_table([{"rows": rows}]).splitlines()[2:]
    ]
    assert cells == [
        ["a fork", "0.0151 ms", "at most 1, reached", "over HTTP 2 ms"],
        ["16 clients", "3.5 times", "4, missed", ""],
        ["the peer", "30 times", "", ""],
    ]


def test_a_mix_up_of_sessions_would_be_counted() -> None:
    compared = Compared()
    compared.add([-1.0, -2.0], [-1.0, -2.00005])
    assert (compared.values, compared.beyond) == (2, 0)
    compared.add([-1.0, -2.0, -3.0], [-1.0, -2.1])
    assert (compared.values, compared.beyond) == (4, 2)  # one that differs, and one too many
    compared.add([float("nan")], [-1.0])
    assert compared.beyond == 3
    assert compared.largest == pytest.approx(0.1)


def test_the_page_says_when_on_what_and_from_which_commit() -> None:
    result = {"date": "2026-01-03", "hardware": "A chip", "threads": 2, "torch": "2.13", "compiled_kernel": False}
    result |= {"rows": [row()], "file": "encoder_a_2026-01-03.json", "rounds": 3, "took_seconds": 120}
    page = report.page({"encoder": result | {"commit": "0123456789abcdef", "changed": False}})
    assert "- 2026-01-03, A chip, 2 threads, torch 2.13, without segue's compiled kernel" in page
    assert "[encoder_a_2026-01-03.json](../benchmarks/results/encoder_a_2026-01-03.json): 3 rounds" in page
    assert "took 2 minutes" in page
    assert page.count("*Measured: commit 0123456789, 2026-01-03.*") == page.count("\n| ---") == 3
    assert "commit 0123456789, changed since" in report.page(
        {"encoder": result | {"commit": "0123456789ab", "changed": True}}
    )
    assert "commit not recorded" in report.page({"encoder": result})


def test_the_newest_result_counts(tmp_path: Path) -> None:
    assert provenance.newest(tmp_path, "encoder") is None
    for name in ("encoder_b_2026-01-02", "encoder_a_2026-01-03", "encoder_c_2026-01-01", "encoders_d_2027-01-01"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"rows": []}), encoding="utf-8")
    newest = provenance.newest(tmp_path, "encoder")
    assert newest is not None
    assert newest["file"] == "encoder_a_2026-01-03.json"
