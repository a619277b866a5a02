"""How good are the packaged models at every task, with the defaults of `segue finetune`?

Fine-tunes the packaged XLNet of the language on each of twelve data sets, the same model with new weights, and measures
a trivial answer and classical methods beside them. No setting is chosen for a data set: what `finetune` chooses from
the training rows is what users get. Where the task has classes, n-grams are joined to the model too (`--wide`), and
told apart from the model alone.

Every process is a job whose result is kept in the work folder, so that the same command continues after a stop. Each
data set is a result of its own, so that sets can be measured at different times; `benchmarks.task_report` makes the
page of the newest ones.

    .venv/bin/python -m benchmarks.task_results --data DATA --work WORK
    .venv/bin/python -m benchmarks.task_results --data DATA --work WORK --sets ocnli sst2 --seeds 1
    .venv/bin/python -m benchmarks.task_report
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.provenance import origin, record
from benchmarks.task_data import SETS, DataSet, write_tables

MODELS = {"en": "xlnet-mini-en", "zh": "xlnet-mini-zh"}
WITH_CLASSES = ("classify", "pair")
VARIANTS = ("pretrained", "new weights")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process: a fine-tuning run, or the baselines of a data set."""

    name: str
    arguments: list[str]
    result: Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--work", type=Path, required=True, help="where everything goes")
    parser.add_argument("--sets", nargs="*", default=[one.name for one in SETS], help="only these data sets")
    parser.add_argument("--seeds", type=int, default=3, help="of each variant")
    parser.add_argument("--variants", nargs="*", default=VARIANTS, choices=VARIANTS, help="only these")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--job", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        run_job(arguments)
        return
    torch.set_num_threads(1)  # as in every job
    started = origin()
    chosen = [one for one in SETS if one.name in arguments.sets]
    write_tables(chosen, arguments.data, arguments.work / "tables")
    for one in chosen:
        jobs = [job(arguments, "baselines", one.name)]
        jobs += [
            job(arguments, "finetune", one.name, variant, str(seed))
            for variant in arguments.variants
            for seed in range(arguments.seeds)
        ]
        run_all(jobs, cores=arguments.cores)
        record(f"task-{one.name}", results(one, arguments), origin=started)


def job(arguments: argparse.Namespace, *words: str) -> Job:
    """Return the process of a job: this file again."""
    common = ["--data", str(arguments.data), "--work", str(arguments.work)]
    command = [sys.executable, "-m", "benchmarks.task_results", *common, "--job", *words]
    return Job(name=" ".join(words), arguments=command, result=result_path(arguments.work, *words))


def result_path(work: Path, *words: str) -> Path:
    return work / "results" / f"{'-'.join(words).replace(' ', '-')}.json"


def read(work: Path, *words: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(result_path(work, *words).read_text())
    return values


def run_all(jobs: Sequence[Job], *, cores: int) -> None:
    """Run the jobs that are not done yet, several at a time."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def run(one: Job) -> None:
        log = one.result.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        with log.open("w") as file:
            code = subprocess.run(one.arguments, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False)
        state = "done" if code.returncode == 0 else f"failed, see {log}"
        print(f"{one.name}: {state} in {time.perf_counter() - began:.0f} s", flush=True)

    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(run, [one for one in jobs if not one.result.exists()]))
    failed = [one.name for one in jobs if not one.result.exists()]
    if failed:
        raise SystemExit(f"{len(failed)} failed: {', '.join(failed)}")


# --------------------------------------------------------------------------------------------------- the processes


def run_job(arguments: argparse.Namespace) -> None:
    kind, name, *rest = arguments.job
    one = next(one for one in SETS if one.name == name)
    started, began, processor = origin(), time.perf_counter(), time.process_time()
    values = measure_baselines(arguments, one) if kind == "baselines" else finetuned(arguments, one, *rest)
    values |= {
        "seconds": round(time.perf_counter() - began, 1),
        "processor_seconds": round(time.process_time() - processor, 1),
        "commit": started.commit,
        "changed": started.changed,
    }
    path = result_path(arguments.work, *arguments.job)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n")
    new.replace(path)


def measure_baselines(arguments: argparse.Namespace, one: DataSet) -> dict[str, Any]:
    from benchmarks.task_baselines import baselines

    rows = {
        split: [json.loads(line) for line in (arguments.work / "tables" / one.name / f"{split}.jsonl").open()]
        for split in ("train", "valid", "test")
    }
    found = baselines(one.task, one.language, rows["train"], rows["test"], valid=rows["valid"])
    return {"baselines": [asdict(one) for one in found], "rows": {split: len(part) for split, part in rows.items()}}


def finetuned(arguments: argparse.Namespace, one: DataSet, variant: str, seed: str) -> dict[str, Any]:
    import segue
    from segue.checkpoint.find import find, model_folder
    from segue.checkpoint.folder import WEIGHTS
    from segue.files import sha256
    from segue.train.events import Event, Prepared, Restarted

    tables, model = arguments.work / "tables" / one.name, MODELS[one.language]
    run = arguments.work / "runs" / f"{one.name}-{variant}-{seed}".replace(" ", "-")
    shutil.rmtree(run, ignore_errors=True)
    joined = one.task in WITH_CLASSES and variant == "pretrained"
    prepared: list[Prepared] = []
    restarts: list[str] = []

    def keep(event: Event) -> None:
        if isinstance(event, Prepared):
            prepared.append(event)
        elif isinstance(event, Restarted):
            restarts.append(event.reason)

    result = segue.finetune(
        model,
        str(tables / "train.jsonl"),
        valid=str(tables / "valid.jsonl"),
        test=str(tables / "test.jsonl"),
        task=one.task,
        out=run,
        settings={"train.seed": int(seed)},
        new_weights=variant == "new weights",
        baselines=joined,
        wide=True if joined else None,
        on_event=keep,
    )
    metric = prepared[0].metric
    values: dict[str, Any] = {
        "metric": metric,
        "alone": _test(result.model_alone or result.metrics, metric),
        "steps": prepared[0].steps,
        "chosen": [note for note in prepared[0].notes if note.startswith("chosen")],
        "restarts": restarts,
        "weights": sha256(model_folder(find(model)) / WEIGHTS),
    }
    if joined:
        values["together"] = _test(result.metrics, metric)
        values["n-grams"] = {name: _test(metrics, metric) for name, metrics in result.baselines.items()}
    return values


def _test(metrics: Mapping[str, Mapping[str, Any]], metric: str) -> float:
    value: float = metrics["test"][metric].value
    return value


# ------------------------------------------------------------------------------------------------------ the result


def results(one: DataSet, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the result of a data set, of all runs in the work folder. They may have been made by several calls: each
    names the code it ran."""
    measured = read(arguments.work, "baselines", one.name)
    runs = {
        variant: [
            read(arguments.work, "finetune", one.name, variant, str(seed))
            for seed in range(arguments.seeds)
            if result_path(arguments.work, "finetune", one.name, variant, str(seed)).exists()
        ]
        for variant in VARIANTS
    }
    first = runs["pretrained"][0]
    row: dict[str, Any] = {
        "name": one.name,
        "task": one.task,
        "language": one.language,
        "part": one.part,
        "rows": measured["rows"],
        "model": MODELS[one.language],
        "weights": first["weights"],
        "metric": first["metric"],
        "chosen": first["chosen"],
        "baselines": measured["baselines"],
    }
    for variant, found in runs.items():
        if found:
            row[variant] = _over_seeds(found, "alone")
    if "together" in first:
        row["with n-grams"] = _over_seeds(runs["pretrained"], "together")
        row["n-grams of finetune"] = first["n-grams"]
    row["commits"] = sorted({str(part["commit"]) for part in itertools.chain([measured], *runs.values())})
    return row


def _over_seeds(runs: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    values = [run[name] for run in runs]
    return {
        "values": values,
        "mean": statistics.mean(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "processor_seconds": [run["processor_seconds"] for run in runs],
        "restarts": sum(len(run["restarts"]) for run in runs),
    }


if __name__ == "__main__":
    main()
