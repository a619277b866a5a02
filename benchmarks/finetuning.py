"""How fast is fine-tuning from end to end against the Trainer of transformers, and does it learn the same?

    .venv-transformers5/bin/python -m benchmarks.finetuning --data DATA
    .venv-transformers5/bin/python -m benchmarks.finetuning --data DATA --accuracy

Speed: XLNet of base shape, seeded weights converted with `segue convert --to hf`, one epoch on some examples of
ChnSentiCorp and IMDB, truncated to 512 tokens. A run starts with a model folder and a table of texts and ends with the
best model saved, loaded again and evaluated: tokenisation (with segue's tokeniser on both sides, so that ids are the
same), loading, updates, validation and saving are all timed; the updates alone are given beside it. Batch size, number
of updates, optimizer, schedule, clipping and dropout are the same. Trainer runs three times: with every example padded
to 512, with dynamic padding, and with dynamic padding of the very batches that segue makes, of about the same length;
the last shows what is left without padding. segue also reads the whole documents.

Accuracy (`--accuracy`): a small shape, from the same weights, on more examples; several seeds, accuracy on test.
"""

import argparse
import gc
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tests.parity.weights import sinusoids_in_double, xlnet_state

from benchmarks.finetuning_sides import (
    FILES,
    LONGEST,
    Outcome,
    Plan,
    Prepared,
    encoded,
    filler,
    prepare,
    run_ours,
    run_theirs,
)
from benchmarks.peers import without_dropout
from benchmarks.provenance import RESULTS, origin
from benchmarks.side_by_side import (
    DisagreementError,
    Measured,
    Row,
    agree,
    agree_gradients,
    interleave,
    spread,
    write,
)
from segue.checkpoint.heads import build, load_head
from segue.config import ModelConfig, ReadConfig, changed
from segue.model.heads import SequenceClassifier
from segue.tasks.reader import Reader

IN_FLOAT64 = 1e-8
GOALS: dict[str, float | None] = {"padded to 512": 4.0, "dynamic padding": 2.0, "segue's batches": None}
TRAINERS: dict[str, dict[str, Any]] = {
    "padded to 512": {"padding": "max_length", "sampling": "random"},
    "dynamic padding": {"padding": "longest", "sampling": "random"},
    "segue's batches": {"padding": "longest", "sampling": "sequential"},
}
ONCE = {"padded to 512"}
"""Sides with a single turn: this one takes longer than all others together, and its goal is far from any noise."""
BASE = Plan(
    shape={"num_layers": 12, "width": 768, "num_heads": 12, "inner_width": 3072},
    vocabulary=32_000,
    tokenizer_texts=10_000,
    train=64,
    valid=8,
    test=0,
    batch_size=8,
    epochs=1,
    learning_rate=2e-5,
)
TINY = Plan(
    shape={"num_layers": 2, "width": 64, "num_heads": 2, "inner_width": 128},
    vocabulary=4_000,
    tokenizer_texts=1_000,
    train=32,
    valid=8,
    test=0,
    batch_size=8,
    epochs=1,
    learning_rate=2e-5,
)
SMALL = Plan(
    shape={"num_layers": 3, "width": 128, "num_heads": 4, "inner_width": 512},
    vocabulary=8_000,
    tokenizer_texts=10_000,
    train=1_600,
    valid=500,
    test=1_000,
    batch_size=16,
    epochs=3,
    learning_rate=5e-4,
)


# ---------------------------------------------------------------------------------------------------------- measuring


def compare(prepared: Prepared, *, rows: int = 4) -> dict[str, float]:
    """Return the differences of logits, loss and gradients on some examples of different length, without dropout, in
    float64: if nearly all tokens are of one segment, the gradient of its weights is a small remainder of large sums."""
    import transformers

    theirs = transformers.XLNetForSequenceClassification.from_pretrained(prepared.theirs).double().eval()
    theirs.transformer.positional_embedding = sinusoids_in_double
    saved, head = load_head(prepared.ours)
    assert isinstance(saved, SequenceClassifier)
    if (
        theirs.config.dropout != saved.trunk.config.dropout
        or theirs.config.summary_last_dropout != theirs.config.dropout
    ):
        raise DisagreementError(
            f"dropout must be the same; got {saved.trunk.config.dropout} here, {theirs.config.dropout} and "
            f"{theirs.config.summary_last_dropout} there. Set it in the model."
        )
    collated = transformers.DataCollatorWithPadding(filler())(encoded(prepared.items("train")[:rows]))
    want = theirs(**collated)
    want.loss.backward()
    ours = build(reading_config(saved.trunk.config), head)
    ours.load_state_dict(saved.state_dict())
    ours.double()
    assert isinstance(ours, SequenceClassifier)
    items, reader = prepared.items("train")[:rows], Reader(ReadConfig(), segment_length=LONGEST)
    loss = prepared.task.loss(ours.train(), items, reader, class_weights=None)
    loss.backward()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        logits_BC = ours.logits(reader.whole(ours.trunk, [item.documents[0] for item in items]))
    gradients = {name: value.grad for name, value in theirs.named_parameters() if value.grad is not None}
    return {
        "logits": agree("logits", logits_BC, want.logits, tolerance=IN_FLOAT64),
        "loss": agree("the loss", loss, want.loss, tolerance=IN_FLOAT64),
        "gradient": agree_gradients(ours, xlnet_state(gradients, head), tolerance=IN_FLOAT64),
    }


def reading_config(config: ModelConfig) -> ModelConfig:
    """Return the config without dropout and with a memory, as in fine-tuning."""
    return without_dropout(changed(config, memory={"length": LONGEST}))


def measure_speed(name: str, plan: Plan, options: argparse.Namespace, work: Path) -> list[Row]:
    """Run all sides in turn; return a row for each pair of ours and theirs."""
    import transformers

    prepared = prepare(name, plan, options.data, work / name)
    differences = compare(prepared)

    def timed(run: Callable[[], Outcome]) -> Callable[[], float]:
        def side() -> float:
            outcome = run()
            if outcome.updates != plan.updates:
                raise DisagreementError(
                    f"both sides must make {plan.updates} updates; got {outcome.updates}. Compare the same work."
                )
            return outcome.update_seconds

        return side

    sides = {"cut to 512": timed(lambda: run_ours(prepared))}
    lengths = [item.length for item in prepared.items("train", max_length=None)]
    if max(lengths) > LONGEST and not options.goals_only:
        sides["whole documents"] = timed(lambda: run_ours(prepared, max_length=None))
    own = list(sides)
    trainers = {name: how for name, how in TRAINERS.items() if GOALS[name] is not None or not options.goals_only}
    for side, settings in trainers.items():
        sides[side] = timed(lambda settings=settings: run_theirs(prepared, **settings))  # type: ignore[misc]
    warm_up = prepared.first(plan.batch_size)
    run_ours(warm_up)
    run_theirs(warm_up, **TRAINERS["dynamic padding"])
    measured = interleave(sides, rounds=1, warm_up=0)
    if options.rounds > 1:
        quick = {name: side for name, side in sides.items() if name not in ONCE}
        measured = measured.and_then(interleave(quick, rounds=options.rounds - 1, warm_up=0))
    rows = []
    for here, there in itertools.product(own, trainers):
        row = pair(measured, here, there, examples=plan.train)
        row |= {
            "work": f"{name}, {plan.train} examples, batches of {plan.batch_size}, {here}",
            "against": f"transformers {transformers.__version__} Trainer, {there}",
            "goal": GOALS[there] if here == own[0] else None,
            "tokens": sum(min(length, LONGEST) for length in lengths),
            "tokens_of_whole_documents": sum(lengths),
            "differences": differences,
        }
        rows.append(row)
        print(
            f"{row['work']}: {row['ours_examples_a_second']:.2f} examples a second, {row['against']} "
            f"{row['theirs_examples_a_second']:.2f}: {row['ratio']:.2f} times, updates alone "
            f"{row['updates_ratio']:.2f}",
            flush=True,
        )
    return rows


def pair(measured: Measured, here: str, there: str, *, examples: int) -> Row:
    """Return the measurements of one side of ours and one of theirs."""
    ours, theirs = spread(measured.seconds[here]), spread(measured.seconds[there])
    updates = [[value or 0.0 for value in measured.returned[side]] for side in (here, there)]
    return {
        "ours": ours,
        "theirs": theirs,
        "ours_examples_a_second": examples / ours["median"],
        "theirs_examples_a_second": examples / theirs["median"],
        "ratio": theirs["median"] / ours["median"],
        "ratio_of_each_round": [b / a for a, b in zip(measured.seconds[here], measured.seconds[there], strict=False)],
        "ours_updates": spread(updates[0]),
        "theirs_updates": spread(updates[1]),
        "updates_ratio": statistics.median(updates[1]) / statistics.median(updates[0]),
        "peak_multiply_adds_a_second": measured.peak(),
    }


def measure_accuracy(name: str, plan: Plan, options: argparse.Namespace, work: Path) -> Row:
    """Measure accuracy from the same weights, examples and settings, one run per seed on each side."""
    prepared = prepare(name, plan, options.data, work / name)
    row: Row = {"work": f"{name}, {plan.train:,} examples, {plan.epochs} epochs", "differences": compare(prepared)}
    outcomes: dict[str, list[float]] = {"ours": [], "theirs": []}
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    sides: dict[str, Callable[[int], Outcome]] = {
        "ours": lambda seed: run_ours(prepared, seed=seed, restarts=0),
        "theirs": lambda seed: run_theirs(prepared, seed=seed, **TRAINERS["dynamic padding"]),
    }
    for seed, (side, run) in itertools.product(range(options.rounds), sides.items()):
        began = time.perf_counter()
        outcomes[side].append(run(seed).accuracy)
        seconds[side].append(time.perf_counter() - began)
        gc.collect()
    row |= {"accuracies": outcomes, "seconds": seconds, "test_examples": plan.test or plan.valid}
    row |= {f"{side}_mean": statistics.mean(values) for side, values in outcomes.items()}
    print(
        f"{row['work']}: accuracy {row['ours_mean']:.3f} {outcomes['ours']}, Trainer {row['theirs_mean']:.3f} "
        f"{outcomes['theirs']}; seconds {seconds}",
        flush=True,
    )
    return row


def options_of_call() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with chnsenticorp and imdb")
    parser.add_argument("--rounds", type=int, help="turns of each side, or seeds with --accuracy; 3, or 1 with --quick")
    parser.add_argument("--examples", type=int, help="to train on")
    parser.add_argument("--set", choices=list(FILES), action="append", help="only this data set")
    parser.add_argument("--accuracy", action="store_true", help="accuracy of a small shape instead of speed")
    parser.add_argument("--goals-only", action="store_true", help="only the sides that have a goal: half of the time")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, and nothing else")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON; benchmarks/results")
    parsed = parser.parse_args()
    parsed.rounds = parsed.rounds or (1 if parsed.quick else 3)
    parsed.started, parsed.origin = time.monotonic(), origin()
    return parsed


def main() -> None:
    import transformers

    options = options_of_call()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    plan = TINY if options.quick else SMALL if options.accuracy else BASE
    if options.examples is not None:
        plan = replace(plan, train=options.examples)
    names = options.set or list(FILES)
    more = {"plan": asdict(plan), "transformers": transformers.__version__}
    with TemporaryDirectory() as work:
        for name in names:
            if options.accuracy:
                rows = [measure_accuracy(name, plan, options, Path(work))]
                question = "accuracy after fine-tuning, and after Trainer"
                write(f"finetuning-accuracy-{name}", question, rows, options, **more)
            else:
                rows = measure_speed(name, plan, options, Path(work))
                question = "speed of fine-tuning from end to end against Trainer"
                write(f"finetuning-{name}", question, rows, options, **more)


if __name__ == "__main__":
    main()
