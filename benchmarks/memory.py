"""What does memory gain? Transformer-XL against the same model without memory, and against a vanilla Transformer.

Equal data, equal tokens, nearly equal parameters, one seed. Each model is evaluated segment by segment as it was
trained; the models without memory also with a sliding window, which gives each token more context at a high cost.

    .venv/bin/python -m benchmarks.memory --train train.txt.xz --valid valid.txt.xz --name wikitext2 --steps 2000
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.provenance import origin, record
from segue.checkpoint.folder import load
from segue.config import parse
from segue.data.prepare import prepare
from segue.data.store import Store
from segue.evaluation.perplexity import evaluate_causal, evaluate_window
from segue.train.loop import StepReport
from segue.train.pretrain import Ended, Started, pretrain

SHAPE = {"num_layers": 4, "width": 192, "num_heads": 4, "inner_width": 768, "dropout": 0.1}
SEGMENT, MEMORY, STRIDE = 64, 192, 8


def models(size: int) -> dict[str, dict[str, Any]]:
    words = {"size": size, "scale": True}
    return {
        "transformer-xl": SHAPE | {"vocabulary": words, "memory": {"length": MEMORY}},
        "without memory": SHAPE | {"vocabulary": words},
        "vanilla": SHAPE | {"vocabulary": words, "positions": {"kind": "per_layer", "max_length": SEGMENT}},
    }


def study(arguments: argparse.Namespace, out: Path) -> dict[str, Any]:
    store, valid = out / "store", out / "valid"
    if not store.exists():
        prepare([arguments.train], out=store, kind=arguments.kind, vocabulary_size=arguments.vocabulary_size)
        prepare([arguments.valid], out=valid, tokenizer=store)
    train_store, valid_store = Store.open(store), Store.open(valid)
    rows = []
    for name, model in models(train_store.vocabulary_size).items():
        config = parse(
            {
                "data": {"store": str(store), "lanes": 16, "segment_length": SEGMENT},
                "model": model,
                "train": {
                    "steps": arguments.steps,
                    "learning_rate": 1e-3,
                    "warmup_steps": 200,
                    "clip_norm": 0.25,
                    "save_every": 500,
                    "log_every": 50,
                    "seed": arguments.seed,
                },
            }
        )
        run, started, whole = out / name.replace(" ", "-"), time.process_time(), True
        for event in pretrain(config, run):
            if isinstance(event, Started):
                whole = event.step == 0
            if isinstance(event, StepReport) and event.step % 200 == 0:
                spent = time.process_time() - started
                print(f"{name}: step {event.step}, loss {event.loss:.3f}, {spent:.0f} s of processor", flush=True)
            if isinstance(event, Ended) and not event.finished:
                raise SystemExit(f"{name} was stopped at step {event.step}; the same command goes on.")
        seconds = time.process_time() - started
        trained = load(run / "last")
        limit = arguments.limit
        score = evaluate_causal(trained, valid_store, segment_length=SEGMENT, lanes=16, limit=limit)
        row = {
            "model": name,
            "parameters": sum(p.numel() for p in trained.parameters()),
            "tokens": arguments.steps * 16 * SEGMENT,
            "processor_seconds": round(seconds) if whole else None,  # unknown if a stopped run was resumed
            "perplexity": score.perplexity,
            "bits_per_token": score.bits,
            "targets": score.targets,
        }
        if config.model.memory is None:
            few = min(limit or valid_store.length, 20_000)
            slid = evaluate_window(trained, valid_store, window=SEGMENT, stride=STRIDE, rows=32, limit=few)
            same = evaluate_causal(trained, valid_store, segment_length=SEGMENT, lanes=16, limit=few)
            row |= {"window_perplexity": slid.perplexity, "segment_perplexity_there": same.perplexity}
        rows.append(row)
        print(json.dumps(row), flush=True)
    return {
        "question": "what memory brings",
        "data": arguments.name,
        "steps": arguments.steps,
        "seed": arguments.seed,
        "kind": arguments.kind,
        "vocabulary": train_store.vocabulary_size,
        "segment": SEGMENT,
        "memory": MEMORY,
        "stride": STRIDE,
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--valid", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--kind", default="unigram")
    parser.add_argument("--vocabulary-size", type=int)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--work", type=Path, default=Path("study"))
    arguments = parser.parse_args()
    started = origin()
    result = study(arguments, arguments.work / arguments.name)
    record(f"memory-{arguments.name}", result, origin=started)


if __name__ == "__main__":
    main()
