"""Task-adaptive pretraining: before it is fine-tuned, a model is pretrained on the training texts of the task with its
own objective (Gururangan et al. 2020, "Don't Stop Pretraining", section 4).

In: the model, the training examples and the number of epochs. Out: events of a pretraining run, and a model folder. In
the folder of the fine-tuning run:

    adapt-texts.jsonl   the distinct texts, in a random order; none of them is a text of a validation or test example
    adapt-store/        the same texts as ids
    adapt/              the pretraining run, which can be resumed; the adapted model is its `last/`
"""

import json
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from segue.checkpoint.folder import CONFIG, TOKENIZER, read_toml
from segue.config import Config, DataConfig, ModelConfig, parse
from segue.data.batches import Batches
from segue.data.prepare import prepare
from segue.data.store import Store
from segue.errors import DataError
from segue.files import write_file
from segue.tasks.task import Example
from segue.train.distributed import largest_of_processes, rank, world
from segue.train.events import Adapted, Adapting, AdaptStep
from segue.train.pretrain import Ended, pretrain
from segue.train.run_folder import Stop
from segue.train.stages import find_origin

TEXTS, STORE, RUN = "adapt-texts.jsonl", "adapt-store", "adapt"
LENGTH, LANES = 512, 16
"""Tokens per segment and rows per batch, if the model folder does not say how the model was pretrained."""
STEPS_PER_EPOCH = 10
"""Minimum number of updates per epoch: batches become smaller to reach it if there is little text."""
SHORTEST = 16
"""Minimum segment length in tokens."""
RATE = 0.08
"""Factor of 1 / model.width: 1e-4, as in the paper, at the width of its models."""
WARMUP_SHARE = 0.06


@dataclass(frozen=True, kw_only=True)
class Texts:
    """The texts that the model is adapted to."""

    texts: list[str]
    left_out: int
    """Number of training texts dropped because validation or test examples have them too."""


def training_texts(train: Sequence[Example], others: Iterable[Example], *, seed: int) -> Texts:
    """Return the distinct texts of the training examples, in a random order, without those of the other examples."""
    own = dict.fromkeys(text for example in train for text in example.texts if text.strip())
    unseen = {text for example in others for text in example.texts}
    texts = [text for text in own if text not in unseen]
    order = np.random.default_rng(seed).permutation(len(texts))
    return Texts(texts=[texts[place] for place in order], left_out=len(own) - len(texts))


def adapt(
    model: str,
    folder: Path,
    run: Path,
    *,
    texts: Texts,
    epochs: int,
    seed: int,
    stop: Stop,
    device: torch.device,
) -> Generator[Adapting | AdaptStep, None, Adapted]:
    """Pretrain on the texts until all epochs are done or a signal requests a stop. `model` is the name that the user
    gave, `folder` its folder."""
    store = run / STORE
    if rank() == 0:
        _write_store(run, texts, tokenizer=folder / TOKENIZER)
    largest_of_processes(0)  # the other processes wait for the store
    origin = find_origin(model, run / RUN)
    assert origin is not None
    config, per_epoch = _config(folder, origin.config, store, epochs=epochs, seed=seed)
    assert config.data is not None
    tokens = Store.open(store, verify=False).length
    read = f"{len(texts.texts):,} training texts, {tokens:,} tokens, in {epochs} epochs of {per_epoch:,} steps"
    yield Adapting(config=config, run=run / RUN, notes=_notes(texts, read, config.data, per_epoch))
    ended: Ended | None = None
    for event in pretrain(config, run / RUN, origin=origin, stop=stop, device=device):
        yield AdaptStep(event=event)
        ended = event if isinstance(event, Ended) else ended
    assert ended is not None
    return Adapted(
        place=run / RUN / "last" if ended.finished else None,
        stopped_by=ended.stopped_by,
        said=f"adapted to {read}",
        start=f"{origin.described()}, adapted to {read}",
    )


def _write_store(run: Path, texts: Texts, *, tokenizer: Path) -> None:
    """Write the texts and their store once: a resumed run must read the same texts."""
    content = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts.texts)
    place = run / TEXTS
    if (run / STORE).exists() and place.is_file():
        if place.read_bytes() != content.encode("utf-8", errors="surrogatepass"):
            raise DataError(
                f"{place} must hold the training texts of this run; got others. Give the same tables as before, or "
                "choose another --out."
            )
        return
    if not texts.texts:
        raise DataError("--adapt needs training texts; got none that validation or test examples do not have too.")
    write_file(place, content.encode("utf-8", errors="surrogatepass"))
    prepare([place], out=run / STORE, tokenizer=tokenizer, document="record", replace=(run / STORE).exists())


def _config(folder: Path, model: ModelConfig, store: Path, *, epochs: int, seed: int) -> tuple[Config, int]:
    """Return the settings of the run, and the number of steps per epoch."""
    own = parse(read_toml(folder / CONFIG)).data
    opened = Store.open(store)
    for lanes, length in _sizes(own, model, opened.length):
        data = _data(own, model, store, lanes=lanes, length=length)
        memory = {}
        if model.objective == "permutation" and model.memory is not None and model.memory.reuse_length is not None:
            memory = {"model": {"memory": {"reuse_length": length // 2}}}
        first = parse({"data": data, **memory}, base=model)
        assert first.data is not None
        try:
            batches = Batches(opened, first.data, first.model, seed=seed, rank=rank(), world=world())
        except DataError:  # too few tokens for this size
            continue
        per_epoch = batches.steps_per_epoch
        steps = epochs * per_epoch
        train = {
            "steps": steps,
            "seed": seed,
            "learning_rate": min(1e-3, RATE / model.width),
            "schedule": "linear",
            "warmup_steps": round(WARMUP_SHARE * steps),
            "clip_norm": 1.0,
        }
        return parse({"data": data, "train": train, **memory}, base=model), per_epoch
    raise DataError(
        f"--adapt needs training texts of some {4 * SHORTEST} tokens or more; got {opened.length}. Leave it out."
    )


def _sizes(own: DataConfig | None, model: ModelConfig, tokens: int) -> list[tuple[int, int]]:
    """Return rows and lengths of batches to try, the best first: as in pretraining, but smaller for few tokens."""
    least = world() * (2 if own is not None and own.backward_lanes else 1)
    lanes = -(-(own.lanes if own is not None else LANES) // least) * least
    length = own.segment_length if own is not None else min(LENGTH, model.learned_positions or LENGTH)
    while lanes // 2 >= least and lanes * length * STEPS_PER_EPOCH > tokens:
        lanes = max(least, lanes // 2 // least * least)
    sizes = [(lanes, length)]
    while length > SHORTEST:
        length = max(SHORTEST, length // 4 * 2)
        sizes.append((least, length))
    return sizes


def _data(own: DataConfig | None, model: ModelConfig, store: Path, *, lanes: int, length: int) -> dict[str, Any]:
    """Return the data settings of the pretraining, if the model folder has them; otherwise plain text in segments."""
    values = own.model_dump(mode="json", exclude_none=True) if own is not None else {"permutation": {"pairs": False}}
    values.pop("validation", None)
    if own is None or length != own.segment_length:
        values["permutation"].pop("permutation_size", None)
    if model.objective == "permutation" and model.memory is not None and model.memory.reuse_length is None:
        values["permutation"]["pairs"] = False
    return values | {"store": str(store), "lanes": lanes, "segment_length": length}


def _notes(texts: Texts, read: str, data: DataConfig, per_epoch: int) -> list[str]:
    notes = [f"{read}, each of {data.lanes} x {data.segment_length} tokens"]
    if per_epoch < STEPS_PER_EPOCH:
        notes.append("so few tokens change a model little: with more unlabelled text, use segue pretrain --from")
    if texts.left_out:
        notes.append(f"left out: {texts.left_out:,} training texts that validation or test examples have too")
    return notes
