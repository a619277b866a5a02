"""Sentence vectors by distillation: a packaged model learns to embed texts as a larger sentence encoder does.

- `draw_texts` draws sentences, passages, phrases and single words from a decontaminated corpus (`recipes.corpus`).
  Words and phrases are short, so they teach the meaning of words at little cost.
- `teach` computes the teacher's vectors, in parts, and continues where it stopped.
- `distil` reduces these vectors to the width of the model by their principal directions, rotates them towards the
  vectors that the model starts with, and trains the model so that the normalised mean of its last hidden states has the
  same direction, and so that texts are as similar to each other as they are for the teacher.

The result is a model for the task `similarity`: `segue embed` gives its vectors.
"""

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from segue.checkpoint.card import Facts
from segue.checkpoint.find import find, model_folder, tokenizer_folder
from segue.config import ReadConfig, TrainConfig
from segue.infer.embed import embed_texts
from segue.infer.text_model import load_text_model
from segue.model import Batch, LanguageModel
from segue.tasks.folder import TaskModel, save_task_model
from segue.tasks.similarity import SIMILARITY, Similarity, SimilaritySettings
from segue.text.tokenizer import Tokenizer
from segue.train.optim import make_optimizer

Floats = NDArray[np.float32]
SENTENCE_END = re.compile(r"(?<=[.!?])[\"”’)]*\s+(?=[\"“‘(]*[A-Z0-9])")
WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")
SPEAKER = re.compile(r"^(User|Assistant): ")
SHORTEST, LONGEST = 12, 320
"""Characters of a sentence or a passage."""
WARMUP = 200
TOKENS = 1024
"""Number of tokens in an update: small updates with AdamW learn more in the same time than larger ones with Muon
(docs/LOG.md)."""
FITTED = 4096
"""Number of texts that the reduction is fitted to."""
PART = 4096
"""Number of texts whose vectors are computed and written at a time."""


# -------------------------------------------------------------------------------------------------------------- texts


def draw_texts(corpus: Path, *, sentences: int, passages: int, phrases: int, words: int, seed: int = 0) -> list[str]:
    """Return different texts of four lengths, in random order."""
    draw = np.random.default_rng(seed)
    lines = [line for line in (corpus / "train.txt").read_text(encoding="utf-8").split("\n") if line]
    counts: Counter[str] = Counter()
    single: list[str] = []
    longer: list[str] = []
    for place in draw.permutation(len(lines)):
        found = [one.strip() for one in SENTENCE_END.split(lines[place])]
        if len(single) < 4 * sentences:  # a few of each paragraph, so that long paragraphs do not fill the list
            some = draw.permutation(len(found))[:3]
            single += [found[n] for n in some if SHORTEST <= len(found[n]) <= LONGEST]
            counts.update(word.lower() for one in found for word in WORD.findall(one))
        if len(found) > 1 and len(longer) < 4 * passages:
            begin = int(draw.integers(len(found) - 1))
            text = " ".join(found[begin : begin + int(draw.integers(2, 4))])
            if len(text) <= LONGEST:
                longer.append(text)
    single = _some([SPEAKER.sub("", one) for one in single], sentences + phrases, draw)
    parts = [_part(one, draw) for one in single[sentences:]]
    common = [word for word, _ in counts.most_common(words)]
    chosen = dict.fromkeys([*single[:sentences], *_some(longer, passages, draw), *filter(None, parts), *common])
    return _some(list(chosen), len(chosen), draw)


def _some(texts: Sequence[str], count: int, draw: np.random.Generator) -> list[str]:
    different = list(dict.fromkeys(texts))
    return [different[n] for n in draw.permutation(len(different))[:count]]


def _part(sentence: str, draw: np.random.Generator) -> str:
    """Return two to six consecutive words of a sentence."""
    words = sentence.split()
    count = int(draw.integers(2, 7))
    begin = int(draw.integers(max(1, len(words) - count + 1)))
    return " ".join(words[begin : begin + count]).strip(" ,;:.")


# ------------------------------------------------------------------------------------------------------------ teacher


def teach(texts: Sequence[str], teacher: Path, out: Path) -> Floats:
    """Return the teacher's vectors, which are kept in files of PART texts."""
    out.mkdir(parents=True, exist_ok=True)
    model = load_text_model(teacher)
    began, done = time.monotonic(), 0
    for begin in range(0, len(texts), PART):
        path = out / f"{begin:08d}.npy"
        if path.exists():
            continue
        vectors = embed_texts(model.model, model.tokenizer, texts[begin : begin + PART])
        with path.with_suffix(".new").open("wb") as file:
            np.save(file, vectors.astype(np.float16))
        path.with_suffix(".new").rename(path)
        done += len(vectors)
        print(
            f"{begin + len(vectors):,} of {len(texts):,} texts, {done / (time.monotonic() - began):.0f}/s", flush=True
        )
    return np.concatenate([np.load(path) for path in sorted(out.glob("*.npy"))]).astype(np.float32)


# ----------------------------------------------------------------------------------------------------------- learning


class Texts:
    """Texts as ids, in batches of similar length."""

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer, *, longest: int) -> None:
        first = tokenizer.specials["eod"]
        self.ids = [np.concatenate([[first], tokenizer.encode(text)[: longest - 1]]) for text in texts]

    def groups(self, rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield groups of rows of similar length, so that there is little padding."""
        lengths = np.array([len(self.ids[row]) for row in rows])
        order = np.argsort(-lengths, kind="stable")
        begin = 0
        while begin < len(order):
            longest = lengths[order[begin]]
            count = int((lengths[order[begin:]] > 0.8 * longest - 2).sum())
            yield rows[order[begin : begin + count]]
            begin += count

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """Return the ids of some rows, with padding after them."""
        own = [self.ids[row] for row in rows]
        ids_BQ = np.zeros((len(own), max(map(len, own))), dtype=np.int64)
        real_BQ = np.zeros(ids_BQ.shape, dtype=bool)
        for row, one in enumerate(own):
            ids_BQ[row, : len(one)] = one
            real_BQ[row, : len(one)] = True
        return Batch(ids_BQ=torch.from_numpy(ids_BQ), real_BQ=torch.from_numpy(real_BQ))


def vectors_of(model: LanguageModel, batch: Batch) -> Tensor:
    """Return the normalised means of the last hidden states, as `segue embed` computes them."""
    hidden_BQD = model.trunk(batch, None).hidden_BQD[:, 1:]
    assert batch.real_BQ is not None
    weight_BQ = batch.real_BQ[:, 1:].to(hidden_BQD.dtype)
    return F.normalize(torch.einsum("bq,bqd->bd", weight_BQ, hidden_BQD), dim=-1)


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """A linear map from the teacher's vectors to the width of the model: their principal directions, so that dot
    products hardly change, rotated as close to the vectors of the untrained model as possible."""

    matrix_TD: Floats

    def __call__(self, teacher_NT: Floats) -> Tensor:
        """Return targets of length 1."""
        return F.normalize(torch.from_numpy(teacher_NT @ self.matrix_TD), dim=-1)


def reduction(teacher_NT: Floats, own_ND: Floats) -> Reduction:
    """Fit the map to the vectors of the same texts by the teacher and by the model."""
    _, _, directions = np.linalg.svd(teacher_NT, full_matrices=False)
    principal_TD = directions[: own_ND.shape[1]].T
    left, _, right = np.linalg.svd((teacher_NT @ principal_TD).T @ (own_ND - own_ND.mean(axis=0)))
    return Reduction(matrix_TD=(principal_TD @ left @ right).astype(np.float32))


def distil(
    texts: Sequence[str], teacher_NT: Floats, start: str, out: Path, *, updates: int, command: str, rate: float = 1.2e-3
) -> None:
    """Train the model and save it. `command` is for its card."""
    torch.manual_seed(0)
    source = load_text_model(start)
    model = source.model.train()
    known = Texts(texts, source.tokenizer, longest=source.segment_length)
    with torch.no_grad():
        groups = np.array_split(np.arange(min(FITTED, len(texts))), FITTED // 32)
        own = torch.cat([vectors_of(model, known.batch(group)) for group in groups if len(group)])
    target_ND = reduction(teacher_NT[: len(own)], own.numpy())(teacher_NT)
    optimizer = make_optimizer(model, TrainConfig(steps=updates, learning_rate=rate, beta2=0.98))
    mean = 0.0
    for step, groups in enumerate(itertools.islice(drawn_updates(known), updates)):
        for settings in optimizer.param_groups:
            settings["lr"] = rate * min(1.0, (step + 1) / WARMUP) * (1 - step / updates)
        found_BD = torch.cat([vectors_of(model, known.batch(group)) for group in groups])
        wanted_BD = target_ND[np.concatenate(groups)]
        direct = 2 * (1 - (found_BD * wanted_BD).sum(dim=-1)).mean()
        between = (found_BD @ found_BD.T - wanted_BD @ wanted_BD.T).square().sum(dim=-1).mean()
        optimizer.zero_grad(set_to_none=True)
        (direct + between).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = 0.98 * mean + 0.02 * float(direct.detach())
        if (step + 1) % 50 == 0:
            print(f"update {step + 1:,} of {updates:,}: {mean / (1 - 0.98 ** (step + 1)):.4f}", flush=True)
    task = Similarity(scored=True, settings=SimilaritySettings())
    made = TaskModel(
        kind=SIMILARITY,
        task=task,
        model=model.eval(),
        tokenizer=source.tokenizer,
        read=ReadConfig(),
        segment_length=source.segment_length,
    )
    tokenizer = tokenizer_folder(start, model_folder(find(start)))
    save_task_model(made, out, tokenizer=tokenizer, facts=Facts(command=command))


def drawn_updates(known: Texts) -> Iterator[list[NDArray[np.int64]]]:
    """Yield the texts of each update, of all lengths, in groups of similar length; epoch after epoch."""
    draw = np.random.default_rng(0)
    size = max(2, int(TOKENS / np.mean([len(ids) for ids in known.ids])))
    while True:
        order = draw.permutation(len(known.ids))
        for begin in range(0, max(1, len(order) - size // 2), size):
            yield list(known.groups(order[begin : begin + size]))
