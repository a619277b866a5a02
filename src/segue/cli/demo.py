"""`segue demo`: the main tasks from end to end in a few minutes, with the packaged models.

It generates text in two languages, fills gaps, classifies reviews in both languages beside baselines, finds entities,
and pretrains a small model with and without memory. The user may type reviews at the end.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Annotated, Any

import tomli_w
import typer
from rich.console import Console
from rich.table import Table

import segue
from segue.cli.console import say
from segue.cli.plot import plot_runs
from segue.errors import SegueError
from segue.files import write_file
from segue.train.events import STOPPED
from segue.train.run_folder import one_at_a_time

WRITERS = {"transformer-xl-mini-en": "The city was founded in", "transformer-xl-mini-zh": "这座城市位于"}
GAPS = {
    "xlnet-mini-en": "The capital of France is ___, and many people live there.",
    "xlnet-mini-zh": "他___了一封信给他的朋友。",
}
GAP_TOKENS = 1
TAGGER, TAGGED = "entities-zh", "新华社北京1月5日电，国务院副总理朱镕基今天会见了日本客人。"
TEST = 1000
"""Number of reviews held out for the test."""


@dataclass(frozen=True, kw_only=True)
class Reviews:
    """Labelled reviews in one language, and the model that is fine-tuned on them."""

    language: str
    sample: str
    model: str
    examples: tuple[str, ...]


REVIEWS = [
    Reviews(
        language="English",
        sample="english-sentiment",
        model="xlnet-mini-en",
        examples=("A warm and funny film with a great cast.", "Dull, slow and far too long."),
    ),
    Reviews(
        language="Chinese",
        sample="chinese-sentiment",
        model="xlnet-mini-zh",
        examples=("房间很干净，早餐也不错，下次还会再来。", "电池用了两个小时就没电了，后悔买了。"),
    ),
]
SMALL: dict[str, Any] = {
    "data": {"lanes": 32, "segment_length": 16},
    "model": {
        "num_layers": 3,
        "width": 128,
        "num_heads": 4,
        "inner_width": 512,
        "dropout": 0.1,
        "vocabulary": {"scale": True},
        "positions": {"kind": "xl"},
    },
    "train": {"learning_rate": 2e-3, "warmup_steps": 50, "clip_norm": 1.0, "final_share": 0.05, "log_every": 1},
}
VOCABULARY = 4000
MEMORY = 64
EPOCHS = {"train.epochs": 2}


def run_demo(out: Path, *, steps: int, rows: int) -> None:
    """Run the demo; everything is written into `out`."""
    with one_at_a_time(out, "demo"):
        _run(out, steps=steps, rows=rows)


def _run(out: Path, *, steps: int, rows: int) -> None:
    console, started = Console(highlight=False, emoji=False), time.perf_counter()
    _write(console)
    _fill(console)
    _tag(console)
    models = [made for reviews in REVIEWS if (made := _reviews(console, out, reviews, rows=rows)) is not None]
    _memory(console, out, steps=steps)
    for reviews, model in models:
        _show(console, model, reviews.examples)
    if models:
        _typed(console, *models[-1])
    say(console, f"Done in {time.perf_counter() - started:.0f} s. Everything is in {out}.")


# --------------------------------------------------------------------------------------------------- packaged models


def _write(console: Console) -> None:
    console.rule("Transformer-XL continues a prompt", align="left")
    for model, prompt in WRITERS.items():
        text = segue.generate(model, prompt, max_tokens=60, sampling=segue.SamplingSettings(temperature=0.9, top_k=20))
        say(console, f"{model}: " + " ".join(f"{prompt}{text}".split()), hang=2)


def _fill(console: Console) -> None:
    console.rule("XLNet fills a gap from the context on both sides", align="left")
    for model, text in GAPS.items():
        say(console, f"{model}: {text}", hang=2)
        say(console, segue.infill(model, text, length=GAP_TOKENS).text, indent=2, hang=2)


def _tag(console: Console) -> None:
    console.rule("Entities in a sentence", align="left")
    (found,) = segue.predict(TAGGER, [TAGGED], progress=False)
    say(console, f"{TAGGER}: {TAGGED}", hang=2)
    for entity in found["entities"]:
        say(console, f"{entity['type']}  {entity['text']}", indent=2)


# ------------------------------------------------------------------------------------------------------------ reviews


def _reviews(
    console: Console, out: Path, reviews: Reviews, *, rows: int
) -> tuple[Reviews, segue.FinetunedModel] | None:
    """Fine-tune a packaged model on some reviews, and evaluate it and baselines on others."""
    console.rule(f"{reviews.language}: sentiment of reviews", align="left")
    table, run = out / f"{reviews.sample}.jsonl", out / reviews.sample
    try:
        if not table.exists():
            segue.sample(reviews.sample, table)
    except SegueError as error:  # no network: the reviews are in a package to be downloaded
        say(console, f"Skipped: {error}", style="yellow")
        return None
    lines = table.read_text(encoding="utf-8").rstrip("\n").split("\n")
    parts = {"train": lines[TEST : TEST + rows], "test": lines[:TEST]}
    files = {name: out / f"{reviews.sample}-{name}.jsonl" for name in parts}
    for name, part in parts.items():
        write_file(files[name], "".join(f"{line}\n" for line in part))
    if _results(run) is None:
        made = segue.finetune(reviews.model, files["train"], test=files["test"], out=run, wide=True, settings=EPOCHS)
        _end_if_stopped(console, made.stopped_by)
    results = _results(run)
    assert results is not None
    counts = [f"{len(part):,}" for part in parts.values()]
    shown = Table(f"trained on {counts[0]} reviews", f"accuracy on {counts[1]} test reviews", box=None, pad_edge=False)
    for name, measures in {
        **results["baselines"],
        f"{reviews.model}, fine-tuned": results["model_alone"],
        "both combined": {"test": results["test"]},
    }.items():
        shown.add_row(name, f"{measures['test']['accuracy']['value']:.1%}")
    console.print(shown)
    return reviews, segue.load_finetuned(run)


def _results(run: Path) -> dict[str, Any] | None:
    """Return the results of a finished run; None if there are none."""
    try:
        results: dict[str, Any] = json.loads((run / "results.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return None if results["ended"] == STOPPED else results


def _show(console: Console, model: segue.FinetunedModel, texts: tuple[str, ...]) -> None:
    for text, found in zip(texts, model.predict(list(texts)), strict=True):
        say(console, f"{text}  {found['prediction']} {found['probability']:.0%}", indent=2)


def _typed(console: Console, reviews: Reviews, model: segue.FinetunedModel) -> None:
    """Classify reviews that the user types, in a terminal."""
    while sys.stdin.isatty():
        try:
            text = console.input(f"A review in {reviews.language} (empty to end): ").strip()
        except EOFError:
            break
        if not text:
            break
        _show(console, model, (text,))


# ------------------------------------------------------------------------------------------------------------- memory


def _memory(console: Console, out: Path, *, steps: int) -> None:
    """Train a small Transformer-XL from scratch, with and without memory: same text, same budget."""
    console.rule("The effect of memory: a small Transformer-XL, trained here", align="left")
    text, folder = out / "english.txt", out / "english-store"
    if not text.exists():
        segue.sample("english", text)
    if not (folder / "manifest.json").exists():
        segue.prepare(text, folder, vocabulary_size=VOCABULARY, validation_share=0.04)
    table = Table("memory", "perplexity on unseen text", "bits/character", box=None, pad_edge=False)
    runs = {length: out / (f"memory-{length}" if length else "no-memory") for length in (MEMORY, 0)}
    for length, run in runs.items():
        found = _trained(console, run, folder, memory=length, steps=steps)
        table.add_row(str(length or "none"), f"{found.perplexity:,.1f}", f"{found.bits_per_character:.3f}")
    console.print(table)
    plot_runs(list(runs.values()), out / "runs.png", replace=True)


def _trained(console: Console, run: Path, store: Path, *, memory: int, steps: int) -> segue.Evaluation:
    model = SMALL["model"] | ({"memory": {"length": memory}} if memory else {})
    config = run.with_name(f"{run.name}.toml")
    write_file(config, tomli_w.dumps(SMALL | {"model": model, "train": SMALL["train"] | {"steps": steps}}))
    done = segue.pretrain(config, run, store=store)
    _end_if_stopped(console, done.stopped_by)
    return segue.evaluate(run, store.with_name(f"{store.name}-valid"))


def _end_if_stopped(console: Console, signal: Signals | None) -> None:
    if signal is not None:
        say(console, "Stopped. The same command resumes.")
        raise typer.Exit(128 + signal)


def demo(
    out: Annotated[Path, typer.Option(help="Output folder of the demo.")] = Path("demo"),
    steps: Annotated[
        int, typer.Option(min=1, help="Number of updates for each of the two models trained from scratch.")
    ] = 500,
    rows: Annotated[int, typer.Option(min=60, help="Number of reviews in each language to fine-tune on.")] = 2000,
) -> None:
    """Run the main tasks in a few minutes: generate, infill, tag, fine-tune, pretrain, compare.

    Uses real English and Chinese text and the packaged models.

    \b
    Example:
      segue demo --rows 500 --steps 100
    """
    run_demo(out, steps=steps, rows=rows)
