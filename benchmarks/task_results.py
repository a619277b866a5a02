"""How good are small models at every task? Pretrained XLNet against no pretraining, a BERT objective and baselines.

Pretrains small models (English and Chinese; permutation and masked objective; other positions) of the same shape and
budget, fine-tunes them on twelve data sets, and evaluates all of it beside a majority answer and the appropriate
classical method. Two more questions: long documents truncated to 512 tokens against read to the end, and Shaw's and
absolute positions against those of Transformer-XL.

Every run is a process of one thread, as many at a time as there are cores; finished runs are kept, so the same command
continues after a stop.

    .venv/bin/python -m benchmarks.task_results --data DATA --work WORK
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.provenance import origin, record
from benchmarks.task_data import SETS, DataSet, pretraining_text, write_tables

SHAPE = {
    "num_layers": 3, "width": 128, "num_heads": 4, "inner_width": 512, "norm_epsilon": 1e-12,
    # With these, small models leave the plateau of token frequencies within some hundred updates (docs/LOG.md).
    "norm_first": True, "final_norm": True, "init_std": 0.08, "dropout": 0.0,
}  # fmt: skip
LANES, SEGMENT = 32, 64
XLNET: dict[str, Any] = {
    "objective": "permutation",
    "segments": "relative",
    "activation": "gelu_tanh",
    "positions": {"kind": "xl", "shared_biases": False},
    "memory": {"length": SEGMENT // 2, "reuse_length": SEGMENT // 2},
}
MODELS: dict[str, dict[str, Any]] = {
    "xlnet": XLNET,
    "bert": {
        "objective": "masked",
        "segments": "absolute",
        "activation": "gelu",
        "attention_bias": True,
        "embedding_norm": True,
        "vocabulary": {"transform": True},
        "positions": {"kind": "absolute", "encoding": "learned", "max_length": SEGMENT},
    },
    "shaw": XLNET | {"positions": {"kind": "shaw", "clip_distance": 16}},
    "absolute": XLNET | {"positions": {"kind": "absolute", "encoding": "sinusoidal"}},
}
VOCABULARY = {"en": 8000, "zh": 6000}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A column of a table."""

    model: str
    """Name of the pretrained model."""
    read: tuple[str, ...]
    """Settings for reading documents."""
    new_weights: bool = False
    only: tuple[str, ...] | None = None
    """Data sets; None: all that the model supports."""


WHOLE = ("read.segment_length=512", "read.memory_length=512", "read.summary=mean")
"""Segments of 512 with a memory of 512, to the end of the document."""
LONG = ("thucnews_long", "imdb")
VARIANTS = {
    "xlnet": Variant(model="xlnet", read=WHOLE),
    "scratch": Variant(model="xlnet", read=WHOLE, new_weights=True),
    # Learned positions end at the length of pretraining: each segment is independent.
    "bert": Variant(model="bert", read=(f"read.segment_length={SEGMENT}", "read.summary=mean", "read.pool=mean")),
    "cut to 512": Variant(model="xlnet", read=(*WHOLE, "read.max_length=512"), only=LONG),
    "shaw": Variant(model="shaw", read=WHOLE, only=("chnsenticorp",)),
    "absolute": Variant(model="absolute", read=WHOLE, only=("chnsenticorp",)),
}
TRAIN = ["train.dropout=0.1", "train.early_stopping=10"]
SHORT = 120.0
"""Seconds: shorter runs are repeated with three seeds."""
SPENT = "seconds.json"
"""File in the work folder with the total time of all calls."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process: a pretraining, a fine-tuning run or the baselines of a data set."""

    name: str
    arguments: list[str]
    result: Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--work", type=Path, required=True, help="where everything goes")
    parser.add_argument("--steps", type=int, default=2000, help="updates of each pretraining")
    parser.add_argument("--sets", nargs="*", default=[one.name for one in SETS], help="only these data sets")
    parser.add_argument("--seeds", type=int, default=3, help="of runs that take less than two minutes")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--job", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        run_job(arguments)
        return
    started = origin()
    with counted_time(arguments.work):
        run_everything(arguments)
    values = results([one for one in SETS if one.name in arguments.sets], arguments)
    record("task-results", values, origin=started)


def run_everything(arguments: argparse.Namespace) -> None:
    chosen = [one for one in SETS if one.name in arguments.sets]
    write_tables(chosen, arguments.data, arguments.work / "tables")
    languages = sorted({one.language for one in chosen})
    for language in languages:
        make_store(language, arguments.data, arguments.work)
    run_all([job(arguments, "pretrain", language, model) for language, model in needed_models(chosen)], arguments)
    run_all([job(arguments, "baselines", one.name) for one in chosen], arguments)
    first = [job(arguments, "finetune", one.name, variant, "0") for one in chosen for variant in variants(one)]
    run_all(first, arguments)
    again = [
        job(arguments, "finetune", one.name, variant, str(seed))
        for one in chosen
        for variant in variants(one)
        if read(arguments.work, "finetune", one.name, variant, "0")["seconds"] < SHORT
        for seed in range(1, arguments.seeds)
    ]
    run_all(again, arguments)


@contextmanager
def counted_time(work: Path) -> Iterator[None]:
    """Add the time of this call to that of earlier calls."""
    began = time.perf_counter()
    try:
        yield
    finally:
        path = work / SPENT
        before = json.loads(path.read_text()) if path.exists() else 0.0
        path.write_text(json.dumps(before + time.perf_counter() - began))


def variants(one: DataSet) -> list[str]:
    """Return the variants of a data set. A masked model cannot generate from left to right."""
    return [
        name
        for name, variant in VARIANTS.items()
        if (variant.only is None or one.name in variant.only)
        and not (one.task == "generate" and MODELS[variant.model]["objective"] == "masked")
    ]


def needed_models(chosen: list[DataSet]) -> list[tuple[str, str]]:
    """Return language and model of each model that is fine-tuned."""
    pairs = [(one.language, VARIANTS[name].model) for one in chosen for name in variants(one)]
    return list(dict.fromkeys(pairs))


def job(arguments: argparse.Namespace, *words: str) -> Job:
    """Return the process of a job: this file again."""
    common = ["--data", str(arguments.data), "--work", str(arguments.work), "--steps", str(arguments.steps)]
    command = [sys.executable, "-m", "benchmarks.task_results", *common, "--job", *words]
    return Job(name=" ".join(words), arguments=command, result=result_path(arguments.work, *words))


def result_path(work: Path, *words: str) -> Path:
    return work / "results" / f"{'-'.join(words).replace(' ', '-')}.json"


def read(work: Path, *words: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(result_path(work, *words).read_text())
    return values


def run_all(jobs: list[Job], arguments: argparse.Namespace) -> None:
    """Run the jobs that are not done yet, several at a time."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    left = [one for one in jobs if not one.result.exists()]
    done = 0

    def run(one: Job) -> None:
        nonlocal done
        log = one.result.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        with log.open("w") as file:
            code = subprocess.run(one.arguments, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False)
        done += 1
        state = "done" if code.returncode == 0 else f"failed, see {log}"
        print(f"{done}/{len(left)} {one.name}: {state} in {time.perf_counter() - began:.0f} s", flush=True)

    with ThreadPoolExecutor(arguments.cores) as pool:
        list(pool.map(run, left))
    failed = [one.name for one in jobs if not one.result.exists()]
    if failed:
        raise SystemExit(f"{len(failed)} failed: {', '.join(failed)}")


# --------------------------------------------------------------------------------------------------- the processes


def run_job(arguments: argparse.Namespace) -> None:
    kind, *rest = arguments.job
    started, began = origin(), time.perf_counter()
    match kind:
        case "pretrain":
            values = pretrain_model(arguments, *rest)
        case "baselines":
            values = measure_baselines(arguments, *rest)
        case _:
            values = finetune_model(arguments, *rest)
    values |= {"seconds": round(time.perf_counter() - began, 1), "commit": started.commit, "changed": started.changed}
    path = result_path(arguments.work, *arguments.job)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n")
    new.replace(path)


def make_store(language: str, data: Path, work: Path) -> None:
    from segue.data.prepare import prepare

    store = work / "stores" / language
    if not (store / "manifest.json").exists():
        text = pretraining_text(language, data, work)
        prepare([text], out=store, vocabulary_size=VOCABULARY[language], validation_share=0.01, replace=True)


def pretrain_model(arguments: argparse.Namespace, language: str, model: str) -> dict[str, Any]:
    from segue.config import parse
    from segue.data.store import Store
    from segue.train.pretrain import Ended, Validated, pretrain

    store = arguments.work / "stores" / language
    choices = dict(MODELS[model])
    words = {"size": Store.open(store).vocabulary_size} | choices.pop("vocabulary", {})
    data: dict[str, Any] = {
        "store": str(store), "validation": f"{store}-valid", "lanes": LANES, "segment_length": SEGMENT,
        "permutation": {"spans": "characters" if language == "zh" else "pieces"},
        "masking": {"whole_words": language == "en"},
    }  # fmt: skip
    train = {"steps": arguments.steps, "learning_rate": 2e-3, "warmup_steps": 200, "clip_norm": 1.0, "save_every": 500}
    config = parse({"data": data, "model": SHAPE | choices | {"vocabulary": words}, "train": train})
    loss = None
    for event in pretrain(config, arguments.work / "models" / f"{language}-{model}"):
        if isinstance(event, Ended) and not event.finished:  # a signal; the next call resumes it
            raise SystemExit(f"stopped at step {event.step}")
        if isinstance(event, Validated):
            loss = event.loss
        elif getattr(event, "step", 1) % 100 == 0:
            print(event, flush=True)
    tokens = arguments.steps * LANES * SEGMENT
    return {"validation_loss": loss, "tokens": tokens, "store_tokens": Store.open(store).length}


def measure_baselines(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    from benchmarks.task_baselines import baselines

    one = next(one for one in SETS if one.name == name)
    rows = {
        split: [json.loads(line) for line in (arguments.work / "tables" / name / f"{split}.jsonl").open()]
        for split in ("train", "test")
    }
    found = baselines(one.task, one.language, rows["train"], rows["test"])
    return {"baselines": [asdict(one) for one in found]}


def finetune_model(arguments: argparse.Namespace, name: str, variant: str, seed: str) -> dict[str, Any]:
    from segue.tasks.table import task_kind
    from segue.train.finetune import Ended, Request, Restarted, Updated, finetune, finetune_settings

    one = next(one for one in SETS if one.name == name)
    kind = task_kind(one.task)
    tables = arguments.work / "tables" / name
    how = VARIANTS[variant]
    overrides = [*TRAIN, *how.read, *one.settings, f"train.seed={seed}"]
    request = Request(
        model=str(arguments.work / "models" / f"{one.language}-{how.model}"),
        kind=kind,
        train=str(tables / "train.jsonl"),
        valid=str(tables / "valid.jsonl"),
        test=str(tables / "test.jsonl"),
        settings=finetune_settings(kind, {}, overrides),
        new_weights=how.new_weights,
        baselines=False,
    )
    run = arguments.work / "runs" / f"{name}-{variant}-{seed}".replace(" ", "-")
    shutil.rmtree(run, ignore_errors=True)
    restarts, padding = 0, 0.0
    for event in finetune(request, run):
        print(event if not isinstance(event, Ended) else event.reason, flush=True)
        restarts += isinstance(event, Restarted)
        if isinstance(event, Updated):
            padding = event.padding_share
        if isinstance(event, Ended):
            end = event
    metrics = next(part.metrics for part in end.judged if part.name == "test")
    return {
        "metric": end.task.metric,
        "test": {metric: value.value for metric, value in metrics.items()},
        "low": metrics[end.task.metric].low,
        "high": metrics[end.task.metric].high,
        "restarts": restarts,
        "padding_share": padding,
        "best_step": end.best_step,
    }


# ------------------------------------------------------------------------------------------------------ the table


def results(chosen: list[DataSet], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the table. Its runs may have been made by several calls: `commits` names the code of all of them."""
    rows: list[dict[str, Any]] = []
    seconds = json.loads((arguments.work / SPENT).read_text())
    for one in chosen:
        found = read(arguments.work, "baselines", one.name)["baselines"]
        row: dict[str, Any] = {"name": one.name, "task": one.task, "part": one.part, "baselines": found}
        for variant in variants(one):
            runs = [
                read(arguments.work, "finetune", one.name, variant, str(seed))
                for seed in range(arguments.seeds)
                if result_path(arguments.work, "finetune", one.name, variant, str(seed)).exists()
            ]
            metric = runs[0]["metric"]
            values = [run["test"][metric] for run in runs]
            row["metric"] = metric
            row[variant] = {
                "values": values,
                "mean": statistics.mean(values),
                "deviation": statistics.stdev(values) if len(values) > 1 else None,
                "seconds": [run["seconds"] for run in runs],
                "padding_share": max(run["padding_share"] for run in runs),
                "restarts": sum(run["restarts"] for run in runs),
            }
        rows.append(row)
    pretraining = {
        f"{language}-{model}": read(arguments.work, "pretrain", language, model)
        for language, model in needed_models(chosen)
    }
    paths = (arguments.work / "results").glob("*.json")
    commits = {str(json.loads(path.read_text()).get("commit")) for path in paths}
    how_read = {name: list(variant.read) for name, variant in VARIANTS.items()}
    return {
        "machine": f"{platform.machine()}, {arguments.cores} processes of one thread",
        "shape": SHAPE, "steps": arguments.steps, "train": TRAIN, "read": how_read, "seconds": round(seconds),
        "pretraining": pretraining, "rows": rows, "commits": sorted(commits),
    }  # fmt: skip


if __name__ == "__main__":
    main()
