"""Passages with numbers in the README and docs/performance.md, written from the newest results.

A passage is between `<!-- bench NAME -->` and `<!-- /bench -->`. `benchmarks.report` writes them, and
tests/test_benchmark_results.py compares them, so that no page can quote a number without a result.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.provenance import ROOT, Result, source

PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "docs" / "performance.md"]
PASSAGE = re.compile(r"<!-- bench ([\w-]+) -->(.*?)<!-- /bench -->", re.DOTALL)
Results = Mapping[str, Result]


def written(text: str, found: Results) -> str:
    """Return a page with its passages renewed; one without a result stays as it is."""

    def passage(match: re.Match[str]) -> str:
        needed, write = PASSAGES[match[1]]
        inside = write(found) if all(what in found for what in needed) else match[2]
        return f"<!-- bench {match[1]} -->{inside}<!-- /bench -->"

    return PASSAGE.sub(passage, text)


def write_pages(found: Results, pages: list[Path] = PAGES) -> list[Path]:
    """Write the pages; return those that were changed."""
    changed = []
    for path in pages:
        before = path.read_text(encoding="utf-8")
        after = written(before, found)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def _range(values: list[float], form: str = ".1f") -> tuple[str, str]:
    return format(min(values), form), format(max(values), form)


def _ratios(found: Results, what: str, against: str = "") -> list[float]:
    return [row["ratio"] for row in found[what]["rows"] if against in row["against"]]


def _figures(found: Results) -> dict[str, str]:
    """Return the numbers of the README, in both languages."""
    encoder, ours_ms, theirs_ms = _ratios(found, "encoder"), [], []
    for what, peer in (("generation-transformer-xl", "generate"), ("generation-xlnet", "its default")):
        row = next(row for row in found[what]["rows"] if peer in row["against"])
        ours_ms.append(row["ours"]["median"] * 1e3)
        theirs_ms.append(row["theirs"]["median"] * 1e3)
    chinese, english = "finetuning-chnsenticorp", "finetuning-imdb"
    figures = {
        "slowest": _range(encoder)[0],
        "fastest": _range(encoder)[1],
        "pretraining": f"{_ratios(found, 'pretraining')[0]:.1f}",
        "memory": f"{max(row['ratio'] for row in found['peak_memory']['rows']):.2f}",
        "chinese": f"{_ratios(found, chinese, 'dynamic padding')[0]:.1f}",
        "english": f"{_ratios(found, english, 'dynamic padding')[0]:.1f}",
        "chinese_padded": f"{_ratios(found, chinese, 'padded to 512')[0]:.2g}",
        "english_padded": f"{_ratios(found, english, 'padded to 512')[0]:.2g}",
    }
    figures["ours_least"], figures["ours_most"] = _range(ours_ms)
    figures["theirs_least"], figures["theirs_most"] = _range(theirs_ms, ".0f")
    return figures


def speed_in_english(found: Results) -> str:
    return (
        "against transformers 5.22 the XLNet encoder\n  is {slowest} to {fastest} times as fast, a permutation "
        "pretraining step {pretraining} times, with {memory} of the memory at most; fine-tuning XLNet-base from end "
        "to\n  end {chinese} times (short Chinese reviews) and {english} times (IMDB) as fast as its Trainer with "
        "dynamic padding, {chinese_padded} and {english_padded} times with padding\n  to 512; a token of a stream "
        "takes {ours_least} to {ours_most} ms where `generate` of TransfoXL and XLNet takes {theirs_least} to "
        "{theirs_most} (6 layers, width 512, memory 512,\n  two cores)"
    ).format(**_figures(found))


def speed_in_chinese(found: Results) -> str:
    return (
        "与 transformers 5.22 相比，XLNet 编码器的速度是其\n  {slowest} 到 {fastest} 倍，"
        "排列预训练的单步速度是其 {pretraining} 倍，内存至多为其 {memory}；"
        "端到端微调 XLNet-base 的速度，是其 Trainer（动态填充）的\n  {chinese} 倍（中文短评）和 {english} 倍（IMDB），"
        "若它填充到 512 则是 {chinese_padded} 倍和 {english_padded} 倍；"
        "流式处理每个词元用时 {ours_least} 到 {ours_most} 毫秒，\n  而 TransfoXL 与 XLNet 的 `generate` "
        "需要 {theirs_least} 到 {theirs_most} 毫秒（6 层，宽度 512，记忆 512，两个核）"
    ).format(**_figures(found))


def machine(found: Results) -> str:
    result = found["encoder"]
    peaks = [
        row["peak_multiply_adds_a_second"] * 2 / 1e9
        for what in ("encoder", "pretraining")
        for row in found[what]["rows"]
    ]
    low, high = _range(peaks, ".0f")
    return (
        f"{result['hardware']}, {result['threads']} threads, PyTorch\n{result['torch']}, float32, a matrix product at "
        f"{low} to {high} GFLOPS ({result['date']}, {source(result)})"
    )


def profile(found: Results) -> str:
    result = found["step_profile"]
    lines = [f"| {row['group']} | {row['share']:.1%} |" for row in result["rows"] if row["share"] >= 0.005]
    products = result["attention_products_seconds"] / result["seconds_a_step"]
    return (
        f"\nXLNet-base with {result['layers']} layers, 4 rows of 512, 85 predicted, dropout 0.1, data and AdamW "
        f"included: {result['seconds_a_step']:.2f} s under the profiler.\n\n| part | share |\n|---|---|\n"
        + "\n".join(lines)
        + f"\n\nThe products of attention alone would take {products:.1%} of the step at the machine's peak.\n"
    )


def attention_memory(found: Results) -> str:
    row = next(row for row in found["peak_memory"]["rows"] if "4 x 512" in row["work"])
    return f"{row['ratio']:.2f}"


def growth(found: Results) -> str:
    result = found["growth"]
    long = result["long"]
    grown = [
        f"{row['time_growth']:.2f} against {row['multiply_adds_growth']:.2f} times at {row['length']:,}"
        for row in result["rows"]
        if row["length"] > 512
    ]
    return (
        f"{long['length']:,} positions\non the base width with 4 layers take {long['peak_bytes'] / 1e9:.1f} GB for a "
        "whole update. Time a token grows faster than the multiply-adds a token that the definition needs\n"
        f"({', '.join(grown)}, all against 256)"
    )


_SPEED = ["encoder", "pretraining", "peak_memory", "generation-transformer-xl", "generation-xlnet"]
_SPEED += ["finetuning-chnsenticorp", "finetuning-imdb"]
PASSAGES: dict[str, tuple[list[str], Callable[[Results], str]]] = {
    "speed": (_SPEED, speed_in_english),
    "speed-chinese": (_SPEED, speed_in_chinese),
    "machine": (["encoder", "pretraining"], machine),
    "profile": (["step_profile"], profile),
    "attention-memory": (["peak_memory"], attention_memory),
    "growth": (["growth"], growth),
}
"""By name: the results that a passage needs, and the function that writes it."""
