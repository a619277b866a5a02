"""Do the defaults of fine-tuning learn from long documents? Film reviews, new weights, beside TF-IDF.

The 1,400 longest training reviews of IMDb, the 350 longest validation reviews, and 1,000 of the longest test reviews.
A tokeniser of 8,000 pieces is trained on the training reviews; a small XLNet gets new weights, nothing is pretrained.
TF-IDF of words and pairs of words has a logistic regression whose C the validation reviews choose.

    .venv/bin/python -m benchmarks.long_documents --data DATA --work WORK
"""

import argparse
import json
import lzma
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from benchmarks.task_baselines import counted_words
from segue.checkpoint.folder import save
from segue.config import model_config
from segue.model import LanguageModel
from segue.tasks.table import TASKS
from segue.text.files import save_tokenizer
from segue.text.train import train_pieces
from segue.train.finetune import (
    Compared,
    Ended,
    Prepared,
    Request,
    Restarted,
    Validated,
    finetune,
    finetune_settings,
)

Rows = list[dict[str, str]]
PARTS = {"train": ("train.first8000", 1400), "valid": ("valid", 350), "test": ("test", 4375)}
TESTED = 1000
PENALTIES = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SHAPE = {"num_layers": 2, "width": 64, "num_heads": 2, "inner_width": 256}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with imdb/*.tsv.xz")
    parser.add_argument("--work", type=Path, required=True, help="a new folder for everything that is made")
    parser.add_argument("--seed", type=int, default=0, help="of the new weights and of their training")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True)
    tables = {part: longest(arguments.data / "imdb" / f"{name}.tsv.xz", count) for part, (name, count) in PARTS.items()}
    chosen = np.random.default_rng(0).permutation(len(tables["test"]))[:TESTED]
    tables["test"] = [tables["test"][n] for n in chosen]
    for part, rows in tables.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (arguments.work / f"{part}.jsonl").write_text(lines, encoding="utf-8")
    print(f"TF-IDF, logistic regression: {tf_idf(tables):.4f}", flush=True)
    for what, accuracy in fine_tuned(arguments.work, tables["train"], seed=arguments.seed).items():
        print(f"{what}: {accuracy:.4f}", flush=True)


def longest(path: Path, count: int) -> Rows:
    """Return the longest reviews, in the order of the file."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        cells = [line.rstrip("\n").split("\t") for line in file]
    rows = [{"text": text.replace("<br />", " "), "label": label} for label, _, text in cells]
    order = sorted(range(len(rows)), key=lambda n: -len(rows[n]["text"]))[:count]
    return [rows[n] for n in sorted(order)]


def tf_idf(tables: dict[str, Rows]) -> float:
    """Return the accuracy on the test reviews, with the C that is best on the validation reviews."""
    vectors = counted_words(characters=False)
    vectors.fit([row["text"] for row in tables["train"]])
    texts = {part: vectors.transform([row["text"] for row in rows]) for part, rows in tables.items()}
    labels = {part: [row["label"] for row in rows] for part, rows in tables.items()}
    models = [LogisticRegression(C=c, max_iter=1000).fit(texts["train"], labels["train"]) for c in PENALTIES]
    best = max(models, key=lambda model: model.score(texts["valid"], labels["valid"]))
    return float(best.score(texts["test"], labels["test"]))


def fine_tuned(work: Path, rows: Rows, *, seed: int) -> dict[str, float]:
    """Return the accuracy on the test reviews of a model trained from new weights, as it is saved, and of its parts."""
    tokenizer = train_pieces([row["text"] for row in rows], kind="unigram", vocabulary_size=8000)
    save_tokenizer(tokenizer, work / "tokenizer")
    config = model_config(
        objective="permutation",
        segments="relative",
        activation="gelu_tanh",
        vocabulary={"size": tokenizer.size},
        positions={"kind": "xl", "shared_biases": False},
        memory={"length": 32},
        norm_first=True,
        final_norm=True,
        init_std=0.08,
        dropout=0.0,
        **SHAPE,
    )
    torch.manual_seed(seed)
    save(LanguageModel(config), work / "model", tokenizer=work / "tokenizer")
    files = {part: str(work / f"{part}.jsonl") for part in PARTS}
    kind = TASKS["classify"]
    settings = finetune_settings(kind, {}, [f"train.seed={seed}"])
    request = Request(model=str(work / "model"), kind=kind, new_weights=True, settings=settings, **files)
    end, compared = None, None
    for event in finetune(request, work / "run"):
        match event:
            case Prepared():
                print(*event.notes, sep="\n", flush=True)
            case Compared():
                compared = event
            case Validated():
                print(f"step {event.step}: validation {event.metrics['accuracy'].value:.4f}", flush=True)
            case Restarted():
                print(f"step {event.step}: {event.reason}", flush=True)
            case Ended():
                end = event
    assert end is not None
    assert compared is not None
    print(end.joined, flush=True)
    found = {"segue, new weights, defaults": end.judged[1].metrics["accuracy"].value}
    if end.alone:
        found["the model alone"] = end.alone[1].metrics["accuracy"].value
    return found | {method.name: method.metrics["test"]["accuracy"].value for method in compared.methods}


if __name__ == "__main__":
    main()
