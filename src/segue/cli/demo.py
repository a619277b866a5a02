"""`segue demo`: the main job from end to end in a few minutes.

Real English and Chinese text is prepared, a small Transformer-XL and a small XLNet are pretrained on it, each beside
the same model without memory on the same budget, and all are evaluated on text that none has seen.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from segue.checkpoint.folder import load
from segue.cli.paragraphs import say
from segue.cli.plot import plot_runs
from segue.config import Config, parse
from segue.data.prepare import prepare
from segue.data.samples import write_sample
from segue.data.store import Store
from segue.errors import SegueError
from segue.evaluate.perplexity import Score, evaluate_causal, evaluate_order
from segue.infer.generate import generate
from segue.train.loop import StepReport
from segue.train.pretrain import pretrain

SHAPE = {"num_layers": 3, "width": 128, "num_heads": 4, "inner_width": 512, "dropout": 0.1}
TRAIN = {"learning_rate": 2e-3, "warmup_steps": 50, "clip_norm": 1.0, "final_share": 0.05, "log_every": 1}
XL: dict[str, Any] = {
    "data": {"lanes": 32, "segment_length": 16},
    "model": SHAPE | {"vocabulary": {"scale": True}, "positions": {"kind": "xl"}, "memory": {"length": 64}},
}
XLNET: dict[str, Any] = {
    "data": {"lanes": 16, "segment_length": 64, "permutation": {"spans": "characters"}},
    "model": SHAPE
    | {
        "objective": "permutation",
        "segments": "relative",
        "activation": "gelu_tanh",
        "positions": {"kind": "xl", "shared_biases": False},
        "memory": {"length": 64, "reuse_length": 32},
    },
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One trained and evaluated model."""

    name: str
    language: str
    memory: int
    score: Score
    characters: float
    seconds: float
    run: Path


def run_demo(out: Path, *, steps: int) -> None:
    """Prepare, pretrain, evaluate, compare; everything goes into `out`."""
    console, started = Console(highlight=False), time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for sample, language, name, settings, vocabulary in (
        ("english", "English", "transformer-xl", XL, 4000),
        ("chinese-novel", "Chinese", "xlnet", XLNET, 6000),
    ):
        console.rule(f"{language}: {name}", align="left")
        try:
            store = _store(console, out, sample, vocabulary)
        except SegueError as error:  # no network: the Chinese text comes in a package
            say(console, f"{language} is left out: {error}", style="yellow")
            continue
        for memory in (True, False):
            config = _config(settings, store, memory=memory, steps=steps)
            run = out / (name if memory else f"{name}-without-memory")
            results.append(_train_and_evaluate(console, config, run, name=name, language=language))
    _print_table(console, results)
    plot_runs([result.run for result in results], out / "runs.png")
    _print_text(console, out / "transformer-xl" / "last")
    say(console, f"Done in {time.perf_counter() - started:.0f} s. Everything is in {out}.")


def _store(console: Console, out: Path, sample: str, vocabulary: int) -> Path:
    """The text of a sample as a store, with a validation store beside it."""
    store = out / f"{sample}-store"
    if not (store / "manifest.json").exists():
        text = out / f"{sample}.txt"
        write_sample(sample, text, replace=True)
        report = prepare([text], out=store, vocabulary_size=vocabulary, validation_share=0.04, replace=True)
        counts = report.manifest
        say(console, f"{counts.documents:,} documents, {counts.characters:,} characters, {counts.tokens:,} tokens.")
    return store


def _config(settings: dict[str, Any], store: Path, *, memory: bool, steps: int) -> Config:
    """The same model, data and budget, with or without memory."""
    model = dict(settings["model"])
    if not memory:
        model.pop("memory")
    model["vocabulary"] = model.get("vocabulary", {}) | {"size": Store.open(store).vocabulary_size}
    data = settings["data"] | {"store": str(store)}
    return parse({"data": data, "model": model, "train": TRAIN | {"steps": steps}})


def _train_and_evaluate(console: Console, config: Config, run: Path, *, name: str, language: str) -> Result:
    assert config.data is not None
    assert config.train is not None
    memory = config.model.memory.length if config.model.memory else 0
    label = f"{name}, {'memory ' + str(memory) if memory else 'no memory'}"
    started = time.perf_counter()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=config.train.steps)
        for event in pretrain(config, run):
            if isinstance(event, StepReport):
                progress.update(task, completed=event.step, description=f"{label}: loss {event.loss:.3f}")
    seconds = time.perf_counter() - started
    store = Store.open(Path(config.data.store).with_name(Path(config.data.store).name + "-valid"))
    model, length = load(run / "last"), config.data.segment_length
    if config.model.objective == "causal":
        score = evaluate_causal(model, store, segment_length=length, lanes=16)
    else:
        score = evaluate_order(model, store, segment_length=length)
    characters = store.manifest.characters * score.targets / store.length
    say(console, f"{label}: trained in {seconds:.0f} s, perplexity {score.perplexity:,.1f} on unseen text.")
    return Result(
        name=name,
        language=language,
        memory=memory,
        score=score,
        characters=characters,
        seconds=seconds,
        run=run,
    )


def _print_table(console: Console, results: list[Result]) -> None:
    table = Table("text", "model", "memory", "perplexity", "bits/character", box=None, pad_edge=False)
    for result in results:
        table.add_row(
            result.language,
            result.name,
            str(result.memory) if result.memory else "none",
            f"{result.score.perplexity:,.1f}",
            f"{result.score.bits_per(result.characters):.3f}",
        )
    console.rule("Unseen text, same budget", align="left")
    console.print(table)


def _print_text(console: Console, folder: Path) -> None:
    """A few words from the Transformer-XL."""
    from segue.text.files import load_tokenizer

    tokenizer, model = load_tokenizer(folder / "tokenizer"), load(folder)
    prompt = "The module provides"
    tokens = generate(model, tokenizer.encode(prompt).tolist(), count=60, top_k=20)
    console.rule("Transformer-XL goes on", align="left")
    say(console, " ".join((prompt + tokenizer.decode(tokens)).split()))
