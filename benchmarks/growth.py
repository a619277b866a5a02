"""How do time and memory grow with the length, and does 1 x 8192 train in 6 GB?

    .venv/bin/python -m benchmarks.growth

segue alone, XLNet encoder of base width, 4 layers, dropout 0.1. Time: forward and backward of 4096 tokens, as 16 rows
of 256 up to 1 row of 4096, in turn; time a token should grow no faster than multiply-adds a token. Memory: one row with
recomputation, each length in a process of its own (`one_step.py`); it should grow with the length, not its square.
Last, a whole update of the permutation language model (vocabulary 32,000, one token in six predicted, AdamW) at
1 x 8192 with recomputation: the highest resident size of the whole process.
"""

from collections.abc import Callable

from torch import Tensor

from benchmarks.one_step import Measurement, in_own_process
from benchmarks.peers import base_xlnet, probe, random_ids, step_of
from benchmarks.side_by_side import Row, arguments, interleave, require_dropout, spread, training_step, write
from segue.config import ModelConfig
from segue.model import Batch, Trunk

LENGTHS, TOKENS = [256, 512, 1024, 2048, 4096], 4096
MEMORY_LENGTHS = [512, 1024, 2048, 4096, 8192]
LONG, LONG_LIMIT = 8192, 6e9


def time_rows(config: ModelConfig, *, lengths: list[int], tokens: int, rounds: int, quick: bool) -> list[Row]:
    """Measure time and multiply-adds per token, and their growth since the shortest length."""
    trunk = Trunk(config).train()

    def loss(length: int) -> Callable[[], Tensor]:
        rows = tokens // length
        batch = Batch(ids_BQ=random_ids(config, rows=rows, length=length))
        probe_BQD = probe(config, rows=rows, length=length)
        return lambda: (trunk(batch).hidden_BQD * probe_BQD).sum()

    measured = interleave(
        {str(length): training_step(trunk, loss(length)) for length in lengths},
        rounds=rounds,
        warm_up=0 if quick else 1,
    )
    require_dropout(measured)
    rows: list[Row] = []
    for length in lengths:
        times = spread(measured.seconds[str(length)])
        counted = step_of(config, rows=tokens // length, length=length).training()
        row: Row = {
            "rows": tokens // length,
            "length": length,
            "time": times,
            "seconds_a_token": times["median"] / tokens,
            "multiply_adds_a_token": counted / tokens,
            "share_of_limit": counted / measured.peak() / times["median"],
        }
        first = rows[0] if rows else row
        row["time_growth"] = row["seconds_a_token"] / first["seconds_a_token"]
        row["multiply_adds_growth"] = row["multiply_adds_a_token"] / first["multiply_adds_a_token"]
        rows.append(row)
        print(
            f"{row['rows']} x {length}: {row['seconds_a_token'] * 1e3:.3f} ms a token; "
            f"grew {row['time_growth']:.2f} times, multiply-adds {row['multiply_adds_growth']:.2f} times",
            flush=True,
        )
    return rows


def memory_rows(lengths: list[int]) -> list[Row]:
    """Measure the memory that a step of one row adds with recomputation, and how much each further token adds."""
    rows: list[Row] = []
    for length in lengths:
        added = in_own_process(rows=1, length=length, recompute=True)["added_bytes"]
        row: Row = {"length": length, "added_bytes": added, "bytes_a_token": added / length}
        if rows:
            row["bytes_a_further_token"] = (added - rows[-1]["added_bytes"]) / (length - rows[-1]["length"])
        rows.append(row)
        print(f"1 x {length} with recomputation: {added / 2**20:.0f} MiB", flush=True)
    return rows


def long_update(length: int) -> Measurement:
    """Measure a whole update with recomputation, and the memory of its process."""
    result = in_own_process(rows=1, length=length, recompute=True, pretraining=True)
    print(f"1 x {length}, a whole update: {result['peak_bytes'] / 1e9:.2f} GB, {result['seconds']:.0f} s", flush=True)
    return {"length": length, "limit_bytes": LONG_LIMIT} | result


def main() -> None:
    options = arguments(__doc__)
    config = base_xlnet()
    if options.quick:
        rows = time_rows(config, lengths=[256, 1024], tokens=1024, rounds=options.rounds, quick=True)
        write("growth", "time over length", rows, options)
        return
    rows = time_rows(config, lengths=LENGTHS, tokens=TOKENS, rounds=options.rounds, quick=False)
    memory = memory_rows(MEMORY_LENGTHS)
    write("growth", "time and memory over length", rows, options, memory=memory, long=long_update(LONG))


if __name__ == "__main__":
    main()
