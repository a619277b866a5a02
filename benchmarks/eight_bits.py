"""What do 8-bit weights gain, and what do they cost?

    .venv/bin/python -m benchmarks.eight_bits
    .venv/bin/python -m benchmarks.eight_bits --model runs/mine/best --store data/mine-valid

Speed: the model of `streaming.py`, one token at a time after 512 tokens of memory, float32 and eight bits in turn.
Perplexity: a small Transformer-XL, trained here on English prose of the Python that runs this, on held-out documents;
or a model and a store of yours. Both sides read the same tokens as one stream.
"""

import argparse
import math
import tempfile
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.side_by_side import Row, arguments, interleave, say_tokens, tokens_row, write
from benchmarks.streaming import (
    MEMORY,
    QUICK_TOKENS_A_TURN,
    TOKENS_A_TURN,
    Writer,
    compare_cuts,
    random_ids,
    stream_config,
    timed,
)
from segue.checkpoint.folder import load
from segue.config import ModelConfig, parse
from segue.data.prepare import prepare, validation_path
from segue.data.samples import samples
from segue.data.store import Store
from segue.model import LanguageModel
from segue.model.streaming import Streamer
from segue.train.pretrain import Ended, pretrain

SPEED_GOAL, PERPLEXITY_GOAL = 1.5, 1.01
SIDES = ("float32", "eight bits")
CHARACTERS, STEPS = 1_000_000, 400
QUICK_CHARACTERS, QUICK_STEPS = 150_000, 40
SCORED = 20_000
"""Maximum number of scored tokens."""
SHAPE = {"num_layers": 4, "width": 192, "num_heads": 4, "inner_width": 768, "dropout": 0.1}


@torch.no_grad()
def measure_speed(config: ModelConfig, *, rounds: int, tokens: int, memory: int) -> tuple[Row, dict[str, float]]:
    torch.manual_seed(0)
    model = LanguageModel(config).eval()
    streamers = {bits: Streamer(model, memory_length=memory, eight_bits=bits == "eight bits") for bits in SIDES}
    differences = {bits: compare_cuts(streamer) for bits, streamer in streamers.items()}
    prompt_BQ = random_ids(config.vocabulary.size, rows=1, length=memory)
    measured = interleave(
        {bits: timed(Writer(streamer, prompt_BQ), tokens) for bits, streamer in streamers.items()}, rounds=rounds
    )
    a_token = {bits: [value / tokens for value in values] for bits, values in measured.seconds.items()}
    row = tokens_row(
        work="weights of eight bits",
        against="float32",
        ours=a_token["eight bits"],
        theirs=a_token["float32"],
        goal=SPEED_GOAL,
    )
    return say_tokens(row), differences


# ------------------------------------------------------------------------------------------------------- perplexity


@torch.no_grad()
def perplexity(streamer: Streamer, ids_Q: Tensor) -> float:
    """Return the perplexity of all ids but the first, read as one stream."""
    cache, total = streamer.new_cache(), 0.0
    for start in range(0, len(ids_Q) - 1, streamer.most_at_once):
        piece_Q = ids_Q[start : start + streamer.most_at_once + 1]
        hidden_BQD = streamer.read(piece_Q[None, :-1], cache, places=len(piece_Q) - 1)
        total += float(F.cross_entropy(streamer.logits(hidden_BQD)[0], piece_Q[1:], reduction="sum"))
    return math.exp(total / (len(ids_Q) - 1))


def trained_model(folder: Path, *, characters: int, steps: int) -> tuple[LanguageModel, Store]:
    """Return a small trained model, and a store of held-out documents."""
    text, store = folder / "english.txt", folder / "store"
    read = 0
    with text.open("w", encoding="utf-8") as file:
        for document in samples()["english"].documents():
            block = "\n".join(document)
            file.write(f"{block}\n\n")
            read += len(block)
            if read >= characters:
                break
    prepare([text], out=store, vocabulary_size=4000 if characters >= CHARACTERS else 1000, validation_share=0.06)
    config = parse(
        {
            "data": {"store": str(store), "lanes": 16, "segment_length": 64},
            "model": SHAPE
            | {
                "vocabulary": {"size": Store.open(store).vocabulary_size, "scale": True},
                "memory": {"length": 128},
            },
            "train": {
                "steps": steps,
                "learning_rate": 1e-3,
                "warmup_steps": steps // 10,
                "clip_norm": 0.25,
                "final_share": 0.05,
            },
        }
    )
    run = folder / "run"
    for event in pretrain(config, run):
        if isinstance(event, Ended) and not event.finished:
            raise SystemExit(f"the training was stopped at step {event.step}; the same command starts again.")
    return load(run / "last"), Store.open(validation_path(store))


def measure_perplexity(model: LanguageModel, store: Store, *, name: str) -> Row:
    ids_Q = torch.from_numpy(store.read(0, min(store.length, SCORED + 1)))
    length = model.config.memory.length if model.config.memory is not None else MEMORY
    found = {
        bits: perplexity(Streamer(model.eval(), memory_length=length, eight_bits=bits == "eight bits"), ids_Q)
        for bits in SIDES
    }
    row: Row = {
        "model": name,
        "parameters": sum(value.numel() for value in model.parameters()),
        "vocabulary": model.config.vocabulary.size,
        "targets": len(ids_Q) - 1,
        "float32": found["float32"],
        "eight_bits": found["eight bits"],
        "ratio": found["eight bits"] / found["float32"],
        "goal": PERPLEXITY_GOAL,
    }
    row["reached"] = row["ratio"] <= PERPLEXITY_GOAL
    print(
        f"{name}: perplexity {row['float32']:.3f} in float32, {row['eight_bits']:.3f} in eight bits, "
        f"{row['ratio'] - 1:+.3%} on {row['targets']:,} tokens",
        flush=True,
    )
    return row


def main() -> None:
    def add(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--model", type=Path, help="a model folder, in the place of the one that is trained here")
        parser.add_argument("--store", type=Path, help="with --model: a store of its tokeniser that it has not seen")

    options = arguments(__doc__, rounds=7, quick_rounds=3, add=add)
    if (options.model is None) != (options.store is None):
        raise SystemExit("--model and --store must be given together; got one of them. Give the other too, or none.")
    tokens = QUICK_TOKENS_A_TURN if options.quick else TOKENS_A_TURN
    row, differences = measure_speed(stream_config(), rounds=options.rounds, tokens=tokens, memory=MEMORY)
    if options.model is not None:
        scored = measure_perplexity(load(options.model), Store.open(options.store), name=options.model.name)
    else:
        with tempfile.TemporaryDirectory() as folder:
            characters, steps = (QUICK_CHARACTERS, QUICK_STEPS) if options.quick else (CHARACTERS, STEPS)
            model, store = trained_model(Path(folder), characters=characters, steps=steps)
            name = f"Transformer-XL, 4 layers of width 192, {steps} updates on English prose"
            scored = measure_perplexity(model, store, name=name)
    write(
        "eight_bits",
        "speed and perplexity with weights of eight bits",
        [row],
        options,
        memory=MEMORY,
        differences=differences,
        perplexity=[scored],
    )


if __name__ == "__main__":
    main()
