"""Writes docs/benchmarks.md, and the passages of other pages, from the newest result of each question; prints the
tables.

    .venv/bin/python -m benchmarks.report
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.provenance import RESULTS, Result, newest, source
from benchmarks.quoted import write_pages

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
SPEED = ["encoder", "pretraining", "transformer_xl"]
STREAMS = ["generation-transformer-xl", "generation-xlnet", "streaming", "eight_bits"]
QUESTIONS = [*SPEED, "peak_memory", "growth", "step_profile", *STREAMS]
FINETUNED = ["chnsenticorp", "imdb"]
WITH_DATA = [f"{what}-{name}" for what in ("finetuning", "finetuning-accuracy") for name in FINETUNED]
"""Questions that need data sets which not everyone has: their sections are left out without a result."""
SERVING = [f"serving-{part}" for part in ("fork", "overhead", "busy", "first-token", "clients", "idle", "length")]
SERVING += ["serving-isolation", "serving-isolation-llama", "serving-overload"]
"""Questions about the server, which need other servers for comparison: left out without a result."""


# -------------------------------------------------------------------------------------------------------- writing


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(len(line[column]) for line in [header, *lines]) for column in range(len(header))]
    rule = ["-" * width for width in widths]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in [header, rule, *lines]]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def seconds(times: Result) -> str:
    """Return median and quartiles in seconds."""
    low, high = times["quartiles"]
    return f"{times['median']:.3g} s ({low:.3g} to {high:.3g})"


def megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f} MB"


def goal(value: float | None, reached: bool, *, most: bool = False) -> str:
    """Return the goal and whether it was reached; nothing if there is none."""
    if value is None:
        return ""
    return f"{'at most ' if most else ''}{value:g}, {'reached' if reached else 'missed'}"


def measured(results: Sequence[Result]) -> str:
    """Return the commits and dates of the results of a table."""
    origins = dict.fromkeys(f"{source(result)}, {result['date']}" for result in results)
    return f"*Measured: {'; '.join(origins)}.*"


# --------------------------------------------------------------------------------------------------------- tables


def speed_table(results: Sequence[Result]) -> str:
    lines = [
        [
            row["work"],
            row["against"],
            seconds(row["ours"]),
            seconds(row["theirs"]),
            f"{row['ratio']:.2f}",
            goal(row["goal"], row["goal"] is not None and row["ratio"] >= row["goal"]),
            f"{row['limit_ratio']:.2f}",
        ]
        for result in results
        for row in result["rows"]
    ]
    return table(["work", "against", "ours", "theirs", "ratio", "goal", "limit"], lines)


def share_table(results: Sequence[Result]) -> str:
    lines = [
        [
            row["work"],
            f"{row['multiply_adds'] / 1e9:,.0f} G",
            f"{row['peak_multiply_adds_a_second'] / 1e9:.1f} G/s",
            f"{row['limit_seconds']:.3g} s",
            f"{row['share_of_limit']:.2f} ({row['share_of_limit_best']:.2f})",
            f"{row['share_of_limit_theirs']:.2f}",
            goal(row["share_goal"], row["share_goal"] is not None and row["share_of_limit"] >= row["share_goal"]),
        ]
        for result in results
        for row in result["rows"]
    ]
    header = ["work", "multiply-adds", "peak", "limit", "our share (best round)", "their share", "goal"]
    return table(header, lines)


def agreement_table(results: Sequence[Result]) -> str:
    lines = [
        [row["work"], row["against"], ", ".join(f"{name} {value:.1e}" for name, value in row["differences"].items())]
        for result in results
        for row in result["rows"]
    ]
    return table(["work", "against", "largest differences"], lines)


def memory_table(result: Result) -> str:
    lines = [
        [
            row["work"],
            row["against"],
            megabytes(row["ours_bytes"]),
            megabytes(row["theirs_bytes"]),
            f"{row['ratio']:.2f}",
            goal(row["goal"], row["ratio"] <= row["goal"], most=True),
        ]
        for row in result["rows"]
    ]
    return table(["work", "against", "ours", "theirs", "part of theirs", "goal"], lines)


def growth_table(result: Result) -> str:
    lines = [
        [
            f"{row['rows']} x {row['length']}",
            seconds(row["time"]),
            f"{row['seconds_a_token'] * 1e3:.3f} ms",
            f"{row['time_growth']:.2f}",
            f"{row['multiply_adds_growth']:.2f}",
            f"{row['share_of_limit']:.2f}",
        ]
        for row in result["rows"]
    ]
    return table(["rows x length", "step", "a token", "time grew", "multiply-adds grew", "share of the limit"], lines)


def recomputed_table(rows: Sequence[Result]) -> str:
    lines = [
        [
            f"1 x {row['length']}",
            megabytes(row["added_bytes"]),
            f"{row['bytes_a_token'] / 1e3:.0f} kB",
            f"{row['bytes_a_further_token'] / 1e3:.0f} kB" if "bytes_a_further_token" in row else "",
        ]
        for row in rows
    ]
    return table(["rows x length", "added", "a token", "a token more than the line before"], lines)


def profile_table(result: Result) -> str:
    lines = [
        [
            row["group"],
            f"{row['seconds_a_step'] * 1e3:,.0f} ms",
            f"{row['share']:.1%}",
            ", ".join(f"{name} {value * 1e3:,.0f}" for name, value in row["longest"][:3]),
        ]
        for row in result["rows"]
    ]
    return table(["what", "a step", "share", "longest operations, ms"], lines)


def milliseconds(times: Result) -> str:
    """Return median and quartiles in milliseconds."""
    low, high = times["quartiles"]
    return f"{times['median'] * 1e3:.2f} ms ({low * 1e3:.2f} to {high * 1e3:.2f})"


def tokens_table(results: Sequence[Result]) -> str:
    lines = [
        [
            row["work"],
            row["against"],
            milliseconds(row["ours"]),
            milliseconds(row["theirs"]),
            f"{row['ratio']:.2f}",
            goal(row["goal"], row["reached"], most=row["most"]),
        ]
        for result in results
        for row in result["rows"]
    ]
    return table(["work", "against", "ours, a token", "theirs, a token", "ratio", "goal"], lines)


def stream_table(result: Result) -> str:
    lines = [
        [f"{row['tokens']:,}", f"{row['tokens_a_second']:.0f}", f"{row['resident_bytes'] / 1e6:,.1f} MB"]
        for row in result["stream"]
    ]
    return table(["after tokens", "tokens/s since the line before", "resident size"], lines)


def perplexity_table(result: Result) -> str:
    lines = [
        [
            row["model"],
            f"{row['targets']:,}",
            f"{row['float32']:.3f}",
            f"{row['eight_bits']:.3f}",
            f"{row['ratio']:.4f}",
            goal(row["goal"], row["reached"], most=True),
        ]
        for row in result["perplexity"]
    ]
    return table(["model", "tokens", "perplexity, float32", "eight bits", "ratio", "goal"], lines)


def finetuning_table(rows: list[Result]) -> str:
    lines = [
        [
            row["work"],
            row["against"],
            f"{row['ours_examples_a_second']:.2f}",
            f"{row['theirs_examples_a_second']:.2f}",
            f"{row['ratio']:.2f}",
            goal(row["goal"], row["goal"] is not None and row["ratio"] >= row["goal"]),
            f"{row['updates_ratio']:.2f}",
        ]
        for row in rows
    ]
    return table(["work", "against", "ours, examples/s", "theirs", "ratio", "goal", "updates alone"], lines)


def accuracy_table(rows: list[Result]) -> str:
    lines = [
        [row["work"]]
        + [
            f"{row[f'{side}_mean']:.3f} ({', '.join(f'{value:.3f}' for value in row['accuracies'][side])})"
            for side in ("ours", "theirs")
        ]
        for row in rows
    ]
    return table(["work", "ours", "theirs"], lines)


def serving_table(results: Sequence[Result]) -> str:
    lines = [
        [
            row["work"],
            f"{row['figure']:.4g} {row['unit']}".strip(),
            goal(row["goal"], row["reached"], most=row["most"]),
            row["beside"],
        ]
        for result in results
        for row in result["rows"]
    ]
    return table(["what", "figure", "goal", "measured"], lines)


# ----------------------------------------------------------------------------------------------------------- page


def sections(found: dict[str, Result]) -> list[str]:
    """Return the sections of the page for which there are results."""
    speed = [found[what] for what in SPEED if what in found]
    parts: list[str] = []
    if speed:
        parts += [
            "## Speed\n\nTimes are medians with quartiles, of both sides in turn in one process. Ratio: theirs to "
            "ours. Limit: theirs to the time that the\nmultiply-adds of the definition take at the matrix-product "
            "peak of the same rounds: a step that does all of them at that peak.",
            speed_table(speed),
            measured(speed),
            "## Share of the limit\n\nThe time that the multiply-adds take at the peak, divided by the median time "
            "(and by the best). The peak is the best\nplain product of 2048 x 2048 matrices of all rounds; a share "
            "above 1 says that others kept the machine from its peak.\nWhat is counted: `benchmarks/limit.py`.",
            share_table(speed),
            measured(speed),
            "## Agreement\n\nBefore anything is timed, both sides compute the same from the same weights with "
            "dropout 0: absolute for states, logits,\nlosses and memories; relative to the largest entry for the "
            "gradient of each weight.",
            agreement_table(speed),
            measured(speed),
        ]
    if "peak_memory" in found:
        parts += [
            "## Memory of a training step\n\nWhat a step adds at most to the resident size of a process of its own: "
            "activations and gradients, not weights\n(`benchmarks/one_step.py`).",
            memory_table(found["peak_memory"]),
            measured([found["peak_memory"]]),
        ]
    if "growth" in found:
        parts += growth_parts(found["growth"])
    if "step_profile" in found:
        profile = found["step_profile"]
        products = profile["attention_products_seconds"] * 1e3
        parts += [
            f"## Where a pretraining step goes\n\nXLNet-base with {profile['layers']} layers, 4 x 512, 85 predicted, "
            f"vocabulary 32,000, dropout 0.1, data and AdamW included:\n{profile['seconds_a_step']:.2f} s under the "
            "profiler. A native attention kernel shows as one operation, its products included; at the\npeak, "
            f"the products of attention alone would take {products:,.0f} ms of a step (not counting those that a "
            "kernel makes again to save memory).",
            profile_table(profile),
            measured([profile]),
        ]
    parts += stream_parts(found)
    served = [found[what] for what in SERVING if what in found]
    if served:
        parts += [
            "## The server\n\n`segue serve` in a process of its own, over HTTP on the same machine, new weights; "
            "Transformer-XL of width 512 with 6 layers\nand 512 tokens of memory where no other shape is named "
            "(`benchmarks/serving.py`, which also says what a peer cannot do).",
            serving_table(served),
            measured(served),
        ]
    trained = [row for name in FINETUNED for row in found.get(f"finetuning-{name}", {"rows": []})["rows"]]
    accuracy = [row for name in FINETUNED for row in found.get(f"finetuning-accuracy-{name}", {"rows": []})["rows"]]
    if trained:
        parts += [
            "## Fine-tuning from end to end\n\nXLNet-base with all 12 layers, one epoch, from a model folder and a "
            "table of texts to the best model, saved and measured:\nloading, tokenisation, updates, validation and "
            "saving. Medians of runs in turn (`benchmarks/finetuning.py`); "
            "padding to 512, which takes longer than all else, has\none run.",
            finetuning_table(trained),
            measured([found[what] for what in WITH_DATA if what in found and "accuracy" not in what]),
        ]
    if accuracy:
        parts += [
            "A small model from the same new weights with the same settings, accuracy on test, mean and single seeds:",
            accuracy_table(accuracy),
            measured([found[what] for what in WITH_DATA if what in found and "accuracy" in what]),
        ]
    return parts


def growth_parts(result: Result) -> list[str]:
    parts = [
        "## Growth with the length\n\nForward and backward of the same number of tokens. Time a token should grow no "
        "faster than multiply-adds a token.",
        growth_table(result),
        measured([result]),
    ]
    if "memory" in result:
        parts += [
            "With recomputation, one row, what a step adds; linear growth is a constant last column.",
            recomputed_table(result["memory"]),
            measured([result]),
        ]
    if "long" in result:
        long = result["long"]
        reached = "reached" if long["peak_bytes"] < long["limit_bytes"] else "missed"
        parts.append(
            f"A whole update of the permutation language model at 1 x {long['length']} with recomputation and AdamW: "
            f"the process took {long['peak_bytes'] / 1e9:.2f} GB\nat most, weights and libraries included "
            f"(goal: less than {long['limit_bytes'] / 1e9:g}, {reached}), and {long['seconds']:.0f} s."
        )
    return parts


def stream_parts(found: dict[str, Result]) -> list[str]:
    streams = [found[what] for what in STREAMS if what in found]
    if not streams:
        return []
    parts = [
        "## Streams, token by token\n\nOne row, the most probable token each time, 512 tokens of memory or context "
        "from the start; width 512, 6 layers, 8 heads,\ninner width 2048, vocabulary 10,000. Times are those of a "
        "further token. Ratio: theirs to ours; where the goal is a most,\nours to theirs. XLNet's `generate` reads "
        "its context in both directions and a stream from left to right, so only the weights\nare the same there "
        "(`benchmarks/generation.py`).",
        tokens_table(streams),
        measured(streams),
    ]
    compared = [result for result in streams if result["rows"] and "differences" in result["rows"][0]]
    if compared:
        parts += ["Compared before, largest absolute differences:", agreement_table(compared), measured(compared)]
    if "streaming" in found:
        stream = found["streaming"]
        growth, most = stream["resident_growth"], stream["resident_growth_goal"]
        parts += [
            f"One stream, token by token; from the first line to the last the resident size grew {growth:.4f} times "
            f"(goal: {goal(most, growth <= most, most=True)}).",
            stream_table(stream),
            measured([stream]),
        ]
    if "eight_bits" in found:
        parts += [
            "What weights of eight bits cost, on text that the model has not seen:",
            perplexity_table(found["eight_bits"]),
            measured([found["eight_bits"]]),
        ]
    return parts


def run(result: Result) -> str:
    """Return the date and the machine of a result."""
    kernel = "with" if result["compiled_kernel"] else "without"
    machine = f"{result['hardware']}, {result['threads']} threads"
    return f"{result['date']}, {machine}, torch {result['torch']}, {kernel} segue's compiled kernel"


def page(found: dict[str, Result]) -> str:
    """Return the whole of docs/benchmarks.md."""
    runs = sorted({run(result) for result in found.values()})
    head = (
        "# Benchmarks\n\nWritten by `make bench`; do not edit. XLNet of base width with 4 layers and Transformer-XL of "
        "width 512 with 6, float32.\nTraining steps are forward and backward, with dropout 0.1.\n\n"
        + "\n".join(f"- {line}" for line in runs)
    )
    files = "\n".join(
        f"- [{r['file']}](../benchmarks/results/{r['file']}): {r['rounds']} rounds, {source(r)}" for r in found.values()
    )
    minutes = sum(result["took_seconds"] for result in found.values()) / 60
    tail = (
        "## Run it\n\n```bash\nmake bench DATA=folder   # everything, and this page; DATA holds chnsenticorp and imdb\n"
        "make bench-quick         # the middle shapes, printed only\n```\n\n"
        "One file a question in `benchmarks/`. Other work on the machine moves times, and ratios less; compare only "
        f"what one run gave.\nThis page took {minutes:.0f} minutes. All single times:\n\n" + files
    )
    return "\n\n".join([head, *sections(found), tail]) + "\n"


def newest_results(folder: Path) -> dict[str, Result]:
    """Return the newest result of every question that has one."""
    results = {what: newest(folder, what) for what in [*QUESTIONS, *SERVING, *WITH_DATA]}
    return {what: result for what, result in results.items() if result is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON; benchmarks/results")
    parser.add_argument("--print-only", action="store_true", help="leave docs/benchmarks.md as it is")
    options = parser.parse_args()
    found = newest_results(options.results)
    if not found:
        parser.error(f"a report needs results in {options.results}; got none. Run `make bench`.")
    if options.print_only:
        print("\n\n".join(sections(found)))
        return
    missing = [what for what in QUESTIONS if what not in found]
    quick = [what for what, result in found.items() if result["quick"]]
    if missing or quick:
        parser.error(
            f"the page needs a full result of every question; missing: {missing}, quick: {quick}. "
            "Run `make bench`, or use --print-only."
        )
    PAGE.write_text(page(found), encoding="utf-8")
    print("\n\n".join(sections(found)))
    for path in [PAGE, *write_pages(found)]:
        print(f"written: {path.name}")


if __name__ == "__main__":
    main()
