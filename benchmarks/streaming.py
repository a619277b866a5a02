"""What does a token of a stream cost: beside reading the weights once, in 16 rows at once, and after many tokens?

    .venv/bin/python -m benchmarks.streaming
    .venv/bin/python -m benchmarks.streaming --tokens 1000000

segue alone, a Transformer-XL of width 512 with 6 layers, 8 heads, inner width 2048 and a vocabulary of 10,000; new
weights, since their values do not change the time. A token is read, the next one is the most probable, and so on, with
512 tokens of memory that are all there from the start.

What must be read for a token are all weights but those of the position keys, which a stream projects once. Reading them
is tried in three ways on one buffer of as many numbers: a sum, a product of PyTorch and a product of segue, of a matrix
and a vector; the fastest one counts. Keys, values and position keys of the memory, a fifth more, are not counted.
"""

import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.one_step import resident
from benchmarks.side_by_side import (
    TOLERANCE,
    DisagreementError,
    Row,
    agree,
    arguments,
    interleave,
    say_tokens,
    tokens_row,
    write,
)
from segue.config import ModelConfig, model_config
from segue.model import LanguageModel
from segue.model.cache import Cache
from segue.model.kernels.step import Product
from segue.model.streaming import Streamer

MEMORY, MANY = 512, 16
TOKENS, QUICK_TOKENS, FIRST = 20_000, 1_500, 1_000
TOKENS_A_TURN, QUICK_TOKENS_A_TURN = 48, 16
MANY_GOAL, READING_GOAL, GROWTH_GOAL = 5.0, 1.5, 1.01


def stream_config(
    *, layers: int = 6, width: int = 512, heads: int = 8, vocabulary: int = 10_000, memory: int = MEMORY
) -> ModelConfig:
    """Return the config of a Transformer-XL with a plain tied softmax."""
    return model_config(
        vocabulary={"size": vocabulary},
        memory={"length": memory},
        num_layers=layers,
        width=width,
        num_heads=heads,
        inner_width=4 * width,
    )


def random_ids(vocabulary: int, *, rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))


# --------------------------------------------------------------------------------------------------- token by token


class Writer:
    """A stream in greedy decoding, in each of its rows."""

    def __init__(self, streamer: Streamer, prompt_BQ: Tensor) -> None:
        self.streamer = streamer
        self.cache: Cache = streamer.new_cache(len(prompt_BQ))
        self.next_B1 = self._most_probable(read_pieces(streamer, self.cache, prompt_BQ))

    def write(self, count: int) -> Tensor:
        """Generate `count` further tokens: [B, count]."""
        written = []
        for _ in range(count):
            written.append(self.next_B1)
            self.next_B1 = self._most_probable(self.streamer.read(self.next_B1, self.cache))
        return torch.cat(written, dim=1)

    def _most_probable(self, hidden_B1D: Tensor) -> Tensor:
        return self.streamer.logits(hidden_B1D).argmax(dim=-1)


def read_pieces(streamer: Streamer, cache: Cache, ids_BQ: Tensor) -> Tensor:
    """Read any number of ids, as many at once as possible; return the state that predicts the next token, [B, 1, D]."""
    for piece_BQ in ids_BQ.split(streamer.most_at_once, dim=1):
        hidden_B1D = streamer.read(piece_BQ, cache)
    return hidden_B1D


def single_logits(streamer: Streamer, cache: Cache, ids_BQ: Tensor) -> Tensor:
    """Return the logits of reading token by token: [B, Q, V]."""
    return torch.cat([streamer.logits(streamer.read(id_B1, cache)) for id_B1 in ids_BQ.split(1, dim=1)], dim=1)


def compare_cuts(streamer: Streamer, *, tokens: int = 32) -> float:
    """Return the largest difference of logits between reading token by token and in one part, after a full memory."""
    vocabulary = streamer.model.config.vocabulary.size
    before_BQ, ids_BQ = random_ids(vocabulary, rows=1, length=streamer.memory_length + tokens).split(
        [streamer.memory_length, tokens], dim=1
    )
    caches = [streamer.new_cache(), streamer.new_cache()]
    for cache in caches:
        read_pieces(streamer, cache, before_BQ)
    together = streamer.logits(streamer.read(ids_BQ, caches[0], places=tokens))
    return agree("logits", single_logits(streamer, caches[1], ids_BQ), together, tolerance=TOLERANCE)


def timed(writer: Writer, tokens: int) -> Callable[[], float]:
    """Return a turn, which returns the last token of the first row."""
    return lambda: float(writer.write(tokens)[0, -1])


# ------------------------------------------------------------------------------------------------------- the weights


def numbers_read(model: LanguageModel) -> int:
    """Return the number of weights that a token of a stream needs: all but those of the position keys."""
    return sum(value.numel() for name, value in model.named_parameters() if ".attention.relative." not in name)


def readings(numbers: int, *, width: int, times: int) -> dict[str, Callable[[], float]]:
    """Return ways to read so many numbers, each some times in a turn."""
    matrix_ON, x_N = torch.randn(-(-numbers // width), width), torch.randn(width)
    product = Product(matrix_ON, None, eight_bits=False)
    flat = matrix_ON.view(-1)[:numbers]

    def turn(read: Callable[[], Tensor]) -> Callable[[], float]:
        return lambda: [float(read().view(-1)[0]) for _ in range(times)][-1]

    return {
        "a sum": turn(lambda: flat.sum()),
        "a product of PyTorch": turn(lambda: torch.mv(matrix_ON, x_N)),
        "a product of segue": turn(lambda: product(x_N[None])),
    }


@torch.no_grad()
def measure(config: ModelConfig, *, rounds: int, tokens: int, memory: int) -> tuple[list[Row], Row]:
    """Measure one row beside many, and beside reading the weights; and the cost of each way of reading."""
    torch.manual_seed(0)
    model = LanguageModel(config).eval()
    streamer = Streamer(model, memory_length=memory)
    difference = compare_cuts(streamer)
    vocabulary, numbers = config.vocabulary.size, numbers_read(model)
    one, many = (Writer(streamer, random_ids(vocabulary, rows=rows, length=memory)) for rows in (1, MANY))
    ways = readings(numbers, width=config.width, times=tokens)
    measured = interleave({"one": timed(one, tokens), "many": timed(many, tokens), **ways}, rounds=rounds)
    a_token = {name: [value / tokens for value in values] for name, values in measured.seconds.items()}
    a_token["many"] = [value / MANY for value in a_token["many"]]
    reading = {name: statistics.median(a_token[name]) for name in ways}
    fastest = min(reading, key=lambda name: reading[name])
    rows = [
        tokens_row(
            work=f"{MANY} rows in one cache",
            against="one row",
            ours=a_token["many"],
            theirs=a_token["one"],
            goal=MANY_GOAL,
        ),
        tokens_row(
            work="a token",
            against=f"reading the {numbers / 1e6:.1f} million weights it needs once ({fastest})",
            ours=a_token["one"],
            theirs=a_token[fastest],
            goal=READING_GOAL,
            most=True,
        ),
    ]
    parameters = sum(value.numel() for value in model.parameters())
    details: Row = {
        "difference_of_cuts": difference,
        "parameters": parameters,
        "numbers_read": numbers,
        "reading_seconds": reading,
        "ratio_to_all_parameters": rows[1]["ratio"] * numbers / parameters,
    }
    return [say_tokens(row) for row in rows], details


# ------------------------------------------------------------------------------------------------------ many tokens


def checkpoints(tokens: int) -> Iterator[int]:
    """Yield 1,000, 2,000, 5,000, 10,000, ... below `tokens`, then `tokens`."""
    step = FIRST
    while True:
        for factor in (1, 2, 5):
            if factor * step >= tokens:
                yield tokens
                return
            yield factor * step
        step *= 10


@torch.no_grad()
def long_stream(config: ModelConfig, *, tokens: int, memory: int) -> list[Row]:
    """Measure tokens per second and the resident size of the process, at some points of one stream."""
    torch.manual_seed(0)
    streamer = Streamer(LanguageModel(config).eval(), memory_length=memory)
    writer = Writer(streamer, random_ids(config.vocabulary.size, rows=1, length=memory))
    rows: list[Row] = []
    done = 0
    for place in checkpoints(tokens):
        began = time.perf_counter()
        for start in range(done, place, 500):  # generated tokens are not kept
            writer.write(min(500, place - start))
        rows.append(
            {
                "tokens": place,
                "tokens_a_second": (place - done) / (time.perf_counter() - began),
                "resident_bytes": resident("VmRSS"),
            }
        )
        done = place
        print(
            f"after {place:,} tokens: {rows[-1]['tokens_a_second']:.0f} tokens/s, "
            f"{rows[-1]['resident_bytes'] / 1e6:,.1f} MB",
            flush=True,
        )
    if int(writer.cache.position_B) != memory + tokens:
        raise DisagreementError(
            f"the stream must have read {memory + tokens} tokens; got {int(writer.cache.position_B)}. See Writer."
        )
    return rows


def main() -> None:
    options = arguments(
        __doc__,
        rounds=7,
        quick_rounds=3,
        add=lambda parser: parser.add_argument(
            "--tokens", type=int, help=f"of the long stream; {TOKENS}, or {QUICK_TOKENS} with --quick"
        ),
    )
    tokens = options.tokens if options.tokens is not None else QUICK_TOKENS if options.quick else TOKENS
    if tokens <= FIRST:
        raise SystemExit(f"--tokens must be above {FIRST}; got {tokens}. Leave it out for {TOKENS}.")
    config = stream_config()
    rows, details = measure(
        config,
        rounds=options.rounds,
        tokens=QUICK_TOKENS_A_TURN if options.quick else TOKENS_A_TURN,
        memory=MEMORY,
    )
    stream = long_stream(config, tokens=tokens, memory=MEMORY)
    write(
        "streaming",
        "time and memory of a stream, token by token",
        rows,
        options,
        memory=MEMORY,
        **details,
        stream=stream,
        resident_growth=stream[-1]["resident_bytes"] / stream[0]["resident_bytes"],
        resident_growth_goal=GROWTH_GOAL,
    )


if __name__ == "__main__":
    main()
