"""A worker process of a study: pretraining runs with their evaluation, and fine-tuning runs, one after the other.

Each line of its standard input is an order, as JSON; it reports progress on standard output. Its current folder is the
studies folder. It stops like a training run: a signal, or the end of its input, which also comes when the parent
process is gone, makes it save its state and exit. Result files are written atomically.
"""

import fcntl
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import torch

from segue.checkpoint.folder import load
from segue.config import Config, parse, toml
from segue.data.store import Store
from segue.errors import DataError, SegueError
from segue.evaluation.perplexity import evaluate_causal
from segue.evaluation.recl import context_losses
from segue.files import make_folder_of, remove_folder, write_file
from segue.model import LanguageModel
from segue.study.plan import OUTCOME, RUN, SECONDS
from segue.tasks.table import task_kind
from segue.train.events import Ended as FinetuneEnded
from segue.train.events import Prepared, Request, Updated
from segue.train.finetune import finetune, finetune_settings
from segue.train.loop import DivergedError, StepReport
from segue.train.pretrain import Ended, Saved, pretrain
from segue.train.run_folder import Stop, remove_run, stop_signal

PATIENCE = 0.2
"""Seconds between two checks for signals, while there is nothing to do."""
LINE_EVERY = 0.5
"""Seconds between two lines of progress."""
Tell = Callable[[int, int], None]


class StoppedError(Exception):
    """Raised when a signal arrived; the next process repeats the unfinished work."""


def main() -> int:
    """Run jobs until the input ends; return the exit code."""
    orders: SimpleQueue[bytes] = SimpleQueue()
    with stop_signal() as stop:
        threading.Thread(target=_listen, args=(orders,), daemon=True).start()
        while not stop.asked:
            try:
                order = json.loads(orders.get(timeout=PATIENCE))
            except Empty:
                continue
            try:
                with _alone(Path(order.get("folder", order["run"])), stop):
                    _do(order, stop)
                _say({"ended": True})
            except StoppedError:
                break
            except SegueError as error:
                _say({"ended": True, "problem": str(error)})
    return 0


def _listen(orders: SimpleQueue[bytes]) -> None:
    """Read orders; send SIGTERM to this process at the end of the input, which means that the work or the parent has
    ended."""
    for line in sys.stdin.buffer:
        orders.put(line)
    os.kill(os.getpid(), signal.SIGTERM)


def _do(order: Mapping[str, Any], stop: Stop) -> None:
    torch.set_num_threads(int(order["threads"]))
    if "task" in order:
        _finetune(order, stop)
    else:
        _pretrain(order, stop)


@contextmanager
def _alone(folder: Path, stop: Stop) -> Iterator[None]:
    """Lock a run for one process; a process whose parent was killed may still be saving."""
    make_folder_of(folder)
    with folder.with_name(f"{folder.name}.lock").open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _check(stop)
                time.sleep(0.1)
        yield


def _check(stop: Stop) -> None:
    if stop.asked:
        raise StoppedError


def _say(values: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _telling(stop: Stop, phase: str) -> Tell:
    """Return a function that reports progress now and then, and raises StoppedError if a signal arrived."""
    said = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal said
        _check(stop)
        if time.monotonic() - said >= LINE_EVERY:
            said = time.monotonic()
            _say({"phase": phase, "done": done, "total": total})

    return tell


# ------------------------------------------------------------------------------------------------------ pretraining


def _pretrain(order: Mapping[str, Any], stop: Stop) -> None:
    folder = Path(order["run"])
    make_folder_of(folder / OUTCOME)
    config = parse(toml(order["config"], source="the job"))
    if not (folder / OUTCOME).is_file():
        outcome = _trained(config, folder, stop)
        remove_folder(folder / RUN / "best")  # the model at the end of the budget is evaluated
        _write(folder / OUTCOME, outcome)
    if not Path(order["result"]).is_file():
        state = _read(folder / OUTCOME)["state"]
        found = _measured(order["measures"], config, folder, stop) if state == "finished" else {}
        _write(Path(order["result"]), found)


def _trained(config: Config, folder: Path, stop: Stop) -> dict[str, Any]:
    """Train the run to its end, or until it diverges. Processor time counts up to saved states, from which a killed run
    resumes."""
    spent = _read(folder / SECONDS)["processor"] if (folder / SECONDS).is_file() else 0.0
    began, last = time.process_time(), 0
    assert config.train is not None
    tell = _telling(Stop(), "training")
    try:
        for event in pretrain(config, folder / RUN, stop=stop):
            match event:
                case StepReport():
                    last = event.step
                    tell(event.step, config.train.steps)
                case Saved():
                    _write(folder / SECONDS, {"processor": spent + time.process_time() - began})
                case Ended() if not event.finished:
                    raise StoppedError
    except DivergedError as error:
        return {
            "state": "diverged",
            "step": last,
            "reason": str(error).partition(". ")[0],
            "processor": spent + time.process_time() - began,
        }
    return {"state": "finished", "step": config.train.steps, "processor": spent + time.process_time() - began}


# --------------------------------------------------------------------------------------------------------- measures


def _measured(order: Mapping[str, Any], config: Config, folder: Path, stop: Stop) -> dict[str, Any]:
    """Return the losses of the model at the end of its budget; nothing for objectives whose loss exists in training
    alone."""
    if not order:
        return {}
    assert config.data is not None
    assert config.data.validation is not None
    began = time.process_time()
    store = Store.open(config.data.validation)
    model = load(folder / RUN / "last").eval()
    tell, length = _telling(stop, "measuring"), min(int(order["segment_length"]), store.length)
    found: dict[str, Any] = {
        "loss": _loss(model, store, length, order["limit"], tell),
        "memory": [
            [memory, _loss(_with_memory(model, memory), store, length, order["limit"], tell)]
            for memory in order["memory_lengths"]
        ],
    }
    if order["contexts"]:
        stop_at = min(store.length, order["contexts"][-1] + order["context_tokens"])
        losses_CT = context_losses(model, store, contexts=order["contexts"], limit=stop_at, progress=tell)
        found["contexts"] = [[round(float(loss), 6) for loss in losses_T] for losses_T in losses_CT]
    found["processor"] = time.process_time() - began
    return found


def _loss(model: LanguageModel, store: Store, segment_length: int, limit: int | None, tell: Tell) -> float | None:
    """Return the loss; None if it is not finite."""
    loss = evaluate_causal(model, store, segment_length=segment_length, limit=limit, progress=tell).loss
    return loss if math.isfinite(loss) else None


def _with_memory(model: LanguageModel, memory: int | None) -> LanguageModel:
    return model.adjusted(memory=None if memory is None else {"length": memory})


# ------------------------------------------------------------------------------------------------------ fine-tuning


def _finetune(order: Mapping[str, Any], stop: Stop) -> None:
    result = Path(order["result"])
    if result.is_file():
        return
    told, run = order["task"], Path(order["folder"])
    kind = task_kind(told["task"])
    request = Request(
        model=f"{order['run']}/{RUN}/last",
        kind=kind,
        **told["files"],
        settings=finetune_settings(kind, told["settings"]),
        new_weights=told["new_weights"],
        baselines=False,
        wide=False,
    )
    remove_run(run)  # left by a process that was killed
    began, tell = time.process_time(), _telling(Stop(), "fine-tuning")
    steps, metric = 0, told["metric"]
    try:
        for event in finetune(request, run, stop=stop):
            match event:
                case Prepared():
                    steps, metric = event.steps, metric or event.metric
                case Updated():
                    tell(event.step, steps)
                case FinetuneEnded():
                    _check_end(event, stop)
                    found = _judged(event, metric)
    except DivergedError as error:
        found = {"state": "diverged", "reason": str(error).partition(". ")[0]}
    _check(stop)
    remove_folder(run / "best")  # only the numbers are kept
    _write(result, {**found, "processor": time.process_time() - began})


def _check_end(event: FinetuneEnded, stop: Stop) -> None:
    if event.stopped_by is not None:
        raise StoppedError
    _check(stop)


def _judged(event: FinetuneEnded, metric: str) -> dict[str, Any]:
    part = event.judged[-1]  # test, if there is one
    if metric not in part.metrics:
        known = ", ".join(part.metrics)
        raise DataError(f"the metric of a task must be one of {known}; got {metric!r}. Correct it, or leave it out.")
    value = part.metrics[metric].value
    return {"state": "finished" if math.isfinite(value) else "diverged", "metric": metric, "part": part.name} | {
        "value": value if math.isfinite(value) else None,
        "reason": event.reason,
    }


# ------------------------------------------------------------------------------------------------------------ files


def _write(path: Path, values: Mapping[str, Any]) -> None:
    write_file(path, json.dumps(values, allow_nan=False))


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_bytes())
    return values


if __name__ == "__main__":
    sys.exit(main())
