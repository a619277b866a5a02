"""How much memory does a training step of the XLNet encoder need, against transformers' XLNetModel?

    .venv-transformers5/bin/python -m benchmarks.peak_memory

Base width, 4 layers, dropout 0.1, float32: the encoder's training step of `encoder.py`, where outputs and gradients are
compared. Each side runs in a process of its own, so that nothing that one left is used by the other; `one_step.py` says
how it is measured. Rounds are processes, in turn.
"""

import statistics

from benchmarks.one_step import in_own_process
from benchmarks.side_by_side import Row, arguments, write

SHAPES = [(4, 512), (2, 1024)]
GOAL = 0.5
"""Maximum share of their memory."""


def measure(*, rows: int, length: int, rounds: int) -> Row:
    import transformers

    sides: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(rounds):
        for side, added in sides.items():
            added.append(in_own_process(rows=rows, length=length, side=side)["added_bytes"])
    ours, theirs = (statistics.median(added) for added in sides.values())
    row: Row = {
        "work": f"XLNet encoder training step, {rows} x {length}",
        "against": f"transformers {transformers.__version__} XLNetModel",
        "ours_bytes": ours,
        "theirs_bytes": theirs,
        "ratio": ours / theirs,
        "goal": GOAL,
        "all_bytes": sides,
    }
    print(
        f"{row['work']}: {ours / 2**20:.0f} MiB, theirs {theirs / 2**20:.0f} MiB: {row['ratio']:.2f} of it", flush=True
    )
    return row


def main() -> None:
    options = arguments(__doc__, rounds=2, quick_rounds=1)
    shapes = SHAPES[:1] if options.quick else SHAPES
    rows = [measure(rows=count, length=length, rounds=options.rounds) for count, length in shapes]
    write("peak_memory", "what a training step adds to the memory of a process, at most", rows, options)


if __name__ == "__main__":
    main()
