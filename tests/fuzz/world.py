"""A folder with one of every kind of file that segue reads, small enough to be copied for every case."""

import bz2
import gzip
import json
import lzma
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import torch
import zstandard

from segue.checkpoint.convert import convert
from segue.checkpoint.folder import load, save
from segue.checkpoint.heads import HeadConfig, build, save_head
from segue.checkpoint.tensorflow import write_tensorflow
from segue.config import changed, parse
from segue.data.prepare import prepare
from segue.infer.session import open_session
from segue.model import LanguageModel
from segue.tasks.table import TASKS
from segue.train.finetune import Request, finetune, finetune_settings
from segue.train.pretrain import pretrain
from tests.originals import FIXTURES, arrays, tensors
from tests.tasks.models import CHINESE, ENGLISH, write_model
from tests.tiny import MODELS

CONFIG = """
[data]
store = "store"
validation = "store-valid"
lanes = 2
segment_length = 8

[model]
num_layers = 1
width = 16
num_heads = 2
inner_width = 16

[model.memory]
length = 4

[train]
steps = 3
save_every = 2
log_every = 1
"""
STUDY = """
seeds = [1]
corpus = {files = ["text.txt"], kind = "characters", validation_share = 0.5}
budget = {tokens = 16, points = 1}
[base]
data = {lanes = 2, segment_length = 8}
model = {num_layers = 1, width = 16, num_heads = 2, inner_width = 16, memory = {length = 4}}
[[variants]]
name = "memory"
[[variants]]
name = "no memory"
without = ["model.memory"]
"""
ROWS = [{"text": line, "label": "good" if "o" in line[:12] else "bad"} for line in ENGLISH.splitlines()] * 4
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "She was born in Paris in 1906.",
                    "qas": [
                        {
                            "id": str(n),
                            "question": "Where was she born?",
                            "answers": [{"text": "Paris", "answer_start": 16}],
                        }
                        for n in range(12)
                    ],
                }
            ]
        }
    ]
}
CONLL = "She O\nwas O\nborn O\nin O\nParis B-LOC\n. O\n\n" * 12


def make(folder: Path) -> Path:
    """Writes the world; all names in it are relative, so that a copy is one too."""
    folder.mkdir(parents=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        _texts()
        _models()
        _runs()
        _checkpoints()
    finally:
        os.chdir(before)
    return folder


def _texts() -> None:
    text = (ENGLISH + "\n" + CHINESE + "\n") * 2
    Path("text.txt").write_text(text, encoding="utf-8")
    Path("config.toml").write_text(CONFIG, encoding="utf-8")
    Path("study.toml").write_text(STUDY, encoding="utf-8")
    for suffix, pack in (("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)):
        Path(f"text.txt.{suffix}").write_bytes(pack(text.encode()))
    Path("text.txt.zst").write_bytes(zstandard.ZstdCompressor().compress(text.encode()))
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    Path("table.jsonl").write_text(lines, encoding="utf-8")
    Path("table.json").write_text(json.dumps(ROWS), encoding="utf-8")
    for suffix, mark in (("csv", ","), ("tsv", "\t")):
        cells = "".join(f"{row['text'].replace(',', '')}{mark}{row['label']}\n" for row in ROWS)
        Path(f"table.{suffix}").write_text(f"text{mark}label\n{cells}", encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), "table.parquet")
    events = "".join(f"user-{user},item-{(user + place) % 7},{place}\n" for user in range(8) for place in range(6))
    Path("events.csv").write_text(f"user,item,time\n{events}", encoding="utf-8")
    Path("table.conll").write_text(CONLL, encoding="utf-8")
    Path("squad.json").write_text(json.dumps(SQUAD), encoding="utf-8")


def _models() -> None:
    write_model(Path("model"), objective="causal", width=16)
    write_model(Path("xlnet"), width=16)
    prepare(["text.txt"], out="store", tokenizer="model/tokenizer", document="line", validation_share=0.3, workers=1)


def _runs() -> None:
    config = parse(
        {
            "data": {"store": "store", "validation": "store-valid", "lanes": 2, "segment_length": 8},
            "model": load("model").config.model_dump(exclude_none=True),
            "train": {"steps": 3, "save_every": 2, "log_every": 1},
        }
    )
    list(pretrain(config, Path("run")))
    for task, table, out in (("classify", "table.jsonl", "tuned"), ("tag", "table.conll", "tagger")):
        kind = TASKS[task]
        settings = finetune_settings(kind, {}, ["train.epochs=1", "train.restarts=0", "read.segment_length=32"])
        list(finetune(Request(model="xlnet", kind=kind, train=table, settings=settings), Path(out)))
    session = open_session("model")
    session.feed("The room was")
    session.save(Path("session"))


def _checkpoints() -> None:
    torch.manual_seed(0)
    config, head = changed(MODELS["xlnet-base"], head_width=6), HeadConfig(kind="sequence_classifier")
    save_head(build(config, head), head, Path("head"))
    convert("head", "hf", to="hf", compare=False)
    save(LanguageModel(config), Path("plain"))
    convert("plain", "hf-plain", to="hf", compare=False)
    weights = dict(load("plain").state_dict())
    torch.save(weights, "state.pt")
    torch.save(weights, "legacy.pt", _use_new_zipfile_serialization=False)
    variables = tensors(arrays(FIXTURES / "transformer_xl_tf" / "D1_wt103_like" / "model.npz"))
    write_tensorflow(Path("tf") / "model.ckpt-0", variables)
    Path("vocab.txt").write_text("the\nroom\n", encoding="utf-8")
