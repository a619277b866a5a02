"""The two sides of `benchmarks.finetuning`: the data, the same model for both libraries, and a whole run of each.

In: a plan of sizes and the folder of the data sets. Out: tables, a tokeniser and models in a work folder; runs.
"""

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.peers import base_xlnet
from segue.checkpoint.convert import convert
from segue.checkpoint.folder import TOKENIZER
from segue.checkpoint.heads import build, save_head
from segue.config import ReadConfig
from segue.data.tables import TableSettings, open_table
from segue.tasks.batches import batches
from segue.tasks.classify import CLASSIFY, Classify
from segue.tasks.layout import Layout
from segue.tasks.task import Example, Item
from segue.text.files import load_tokenizer, save_tokenizer
from segue.text.train import train_tokenizer
from segue.train.finetune import Ended, Request, Updated, finetune, finetune_settings

LONGEST = 512
PAD_SEGMENT = 3
"""Segment id of padding in transformers' XLNet."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes of a run."""

    shape: Mapping[str, int]
    vocabulary: int
    tokenizer_texts: int
    """Number of training texts that the tokeniser is trained on."""
    train: int
    valid: int
    test: int
    batch_size: int
    epochs: int
    learning_rate: float

    @property
    def updates(self) -> int:
        return self.epochs * -(-self.train // self.batch_size)


FILES: dict[str, tuple[dict[str, str], tuple[str, ...] | None, str]] = {
    "chnsenticorp": ({"train": "train.tsv.xz", "valid": "dev.tsv.xz", "test": "test.tsv.xz"}, None, "text_a"),
    "imdb": (
        {"train": "train.first8000.tsv.xz", "valid": "valid.tsv.xz", "test": "test.tsv.xz"},
        ("label", "id", "text"),
        "text",
    ),
}
"""By data set: the file of each part, its columns if it has no header, and the column of the text."""


# ----------------------------------------------------------------------------------------------------- shared inputs


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """Tables, and the same model for both libraries."""

    plan: Plan
    task: Classify
    tables: dict[str, Path]
    ours: Path
    theirs: Path
    scratch: Path

    def examples(self, part: str) -> list[Example]:
        lines = self.tables[part].read_text(encoding="utf-8").split("\n")[:-1]  # texts contain other line breaks
        return [self.task.example(n, json.loads(line), labelled=True) for n, line in enumerate(lines)]

    def items(self, part: str, *, max_length: int | None = LONGEST) -> list[Item]:
        """Return the items that a model reads, truncated as on both sides."""
        config = base_xlnet(**self.plan.shape)
        layout = Layout(load_tokenizer(self.ours / TOKENIZER), config, max_length=max_length)
        return [item for example in self.examples(part) for item in self.task.items(example, layout)]

    def first(self, count: int) -> "Prepared":
        """Return the same with only the first training examples."""
        lines = self.tables["train"].read_text(encoding="utf-8").split("\n")[:count]
        table = self.ours.parent / f"first{count}.jsonl"
        table.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return replace(self, plan=replace(self.plan, train=count), tables=self.tables | {"train": table})


def prepare(name: str, plan: Plan, data: Path, out: Path) -> Prepared:
    """Write the tables, a tokeniser of the training texts, a classifier with seeded weights, and its conversion for
    transformers."""
    files, columns, text = FILES[name]
    settings = TableSettings() if columns is None else TableSettings(columns=columns)
    tables, texts = {}, []
    out.mkdir(parents=True)
    for part, size in (("train", plan.train), ("valid", plan.valid), ("test", plan.test)):
        rows = [
            {"text": row[text], "label": row["label"]} for _, row in open_table(data / name / files[part], settings)
        ]
        chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:size])
        tables[part] = out / f"{part}.jsonl"
        lines = (json.dumps(rows[number], ensure_ascii=False) + "\n" for number in chosen)
        tables[part].write_text("".join(lines), encoding="utf-8")
        texts += [row["text"] for row in rows] if part == "train" else []
    tokenizer = train_tokenizer("unigram", texts[: plan.tokenizer_texts], vocabulary_size=plan.vocabulary)
    save_tokenizer(tokenizer, out / "tokenizer")
    task = CLASSIFY.learn([(0, {"text": "", "label": "0"}), (1, {"text": "", "label": "1"})], CLASSIFY.settings())
    assert isinstance(task, Classify)
    head = task.head(ReadConfig(), "last")
    torch.manual_seed(0)
    model = build(base_xlnet(**plan.shape, vocabulary_size=tokenizer.size), head)
    save_head(model, head, out / "ours", tokenizer=out / "tokenizer")
    convert(out / "ours", out / "theirs", to="hf", compare=False)
    return Prepared(
        plan=plan, task=task, tables=tables, ours=out / "ours", theirs=out / "theirs", scratch=out / "scratch"
    )


def encoded(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Return items in the form of Trainer."""
    return [
        {
            "input_ids": item.documents[0].ids.tolist(),
            "token_type_ids": item.documents[0].segments.tolist(),
            "attention_mask": [1] * item.length,
            "labels": item.gold,
        }
        for item in items
    ]


def filler() -> Any:
    """Return a tokeniser of transformers for padding only, on the left, as in XLNet."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"<pad>": 0}, unk_token="<pad>")),
        pad_token="<pad>",
        padding_side="left",
        pad_token_type_id=PAD_SEGMENT,
        model_max_length=LONGEST,
    )


# ------------------------------------------------------------------------------------------------------- both sides


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one run."""

    updates: int
    update_seconds: float
    accuracy: float
    """Accuracy on test if there is one, otherwise on valid."""


@contextmanager
def folder_for_run(prepared: Prepared) -> Iterator[Path]:
    """Yield a new folder, removed after the run."""
    prepared.scratch.mkdir()
    try:
        yield prepared.scratch / "run"
    finally:
        shutil.rmtree(prepared.scratch)


def run_ours(prepared: Prepared, *, seed: int = 0, max_length: int | None = LONGEST, restarts: int = 2) -> Outcome:
    """Run `segue finetune`, with one learning rate for all layers as in Trainer."""
    plan = prepared.plan
    train = {
        "epochs": plan.epochs,
        "batch_size": plan.batch_size,
        "learning_rate": plan.learning_rate,
        "layer_decay": 1.0,
        "early_stopping": plan.epochs,
        "restarts": restarts,
        "seed": seed,
    }
    read = {} if max_length is None else {"max_length": max_length}
    request = Request(
        model=str(prepared.ours),
        kind=CLASSIFY,
        train=str(prepared.tables["train"]),
        valid=str(prepared.tables["valid"]),
        test=str(prepared.tables["test"]) if plan.test else None,
        settings=finetune_settings(CLASSIFY, {"train": train, "read": read}),
        baselines=False,
    )
    with folder_for_run(prepared) as run:
        run.mkdir()
        events = list(finetune(request, run))
    updates = [event for event in events if isinstance(event, Updated)]
    ended = events[-1]
    assert isinstance(ended, Ended)
    return Outcome(
        updates=len(updates),
        update_seconds=sum(event.seconds for event in updates),
        accuracy=ended.judged[-1].metrics["accuracy"].value,
    )


def run_theirs(prepared: Prepared, *, padding: str, sampling: str, seed: int = 0) -> Outcome:
    """Run `Trainer` with the same settings; the best model is saved and loaded again, as `segue finetune` does."""
    import transformers

    clock: dict[str, float] = {}

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]  # the interface of Trainer
        """Measures the time of the updates, including batching; validation and saving come after an epoch."""

        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            clock["last"] = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            now = time.perf_counter()
            clock["updates"] = clock.get("updates", 0.0) + now - clock["last"]
            clock["last"] = now

    pad, items = filler(), {part: prepared.items(part) for part in ("train", "valid", "test")}
    if sampling == "sequential":
        # Trainer's own grouping looks at a few batches at a time and groups hardly any of so few examples: these are
        # the batches of segue, as good as grouping can be.
        groups = batches(items["train"], size=prepared.plan.batch_size, seed=seed, epoch=0)
        items["train"] = [item for group in groups for item in group]
    tables = {part: encoded(found) for part, found in items.items()}
    if padding == "max_length":
        tables = {
            part: [dict(pad.pad(row, padding="max_length", max_length=LONGEST)) for row in rows]
            for part, rows in tables.items()
        }
    transformers.set_seed(seed)
    with folder_for_run(prepared) as run:
        trainer = transformers.Trainer(
            model=transformers.XLNetForSequenceClassification.from_pretrained(prepared.theirs),
            args=trainer_settings(prepared.plan, run, sampling=sampling, seed=seed),
            train_dataset=tables["train"],
            eval_dataset=tables["valid"],
            data_collator=transformers.DataCollatorWithPadding(pad, padding="longest"),
            compute_metrics=lambda given: {"accuracy": float((logits_of(given).argmax(-1) == given.label_ids).mean())},
            callbacks=[Clock()],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        measures = trainer.evaluate(tables["test"] or tables["valid"])
    return Outcome(
        updates=trainer.state.global_step, update_seconds=clock["updates"], accuracy=measures["eval_accuracy"]
    )


def logits_of(given: Any) -> Any:
    """Return the logits in what Trainer collected, which is logits alone, or logits and memories."""
    return given.predictions[0] if isinstance(given.predictions, tuple) else given.predictions


def trainer_settings(plan: Plan, run: Path, *, sampling: str, seed: int) -> Any:
    """Return segue's defaults as arguments of Trainer."""
    import transformers

    return transformers.TrainingArguments(
        output_dir=str(run),
        num_train_epochs=plan.epochs,
        per_device_train_batch_size=plan.batch_size,
        learning_rate=plan.learning_rate,
        weight_decay=0.01,
        warmup_steps=0.1,
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        train_sampling_strategy=sampling,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_only_model=True,
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=seed,
    )
