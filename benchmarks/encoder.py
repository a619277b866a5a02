"""How fast is the XLNet encoder, forward and in a training step, against transformers' XLNetModel?

    .venv-transformers5/bin/python -m benchmarks.encoder

Base width, 4 layers, float32, the same weights. Forward: evaluation, no gradients. Training: forward and backward with
dropout 0.1 (on attention probabilities too, as there) from no gradients to all of them; the loss is a fixed weighting
of the hidden states. Hidden states and all gradients are compared first, with dropout 0.
"""

import torch
from torch import Tensor

from benchmarks.peers import (
    Peer,
    base_xlnet,
    gradients,
    probe,
    random_ids,
    step_of,
    transformers_xlnet,
    trunk_like,
    without_dropout,
)
from benchmarks.side_by_side import (
    TOLERANCE,
    Row,
    agree,
    agree_gradients,
    arguments,
    comparison,
    interleave,
    require_dropout,
    say,
    training_step,
    write,
)
from segue.config import ModelConfig
from segue.model import Batch, Trunk

SHAPES = {(8, 128): (1.2, 1.35), (4, 512): (1.8, 2.4), (2, 1024): (2.8, 2.9)}
"""Rows and length: the goals for the forward pass and for training."""
SHARE_GOALS = {(4, 512): (0.85, 0.75), (2, 1024): (0.85, 0.75)}


def read_theirs(model: Peer, ids_BQ: Tensor) -> Tensor:
    """Return hidden states of transformers, without its memory, which is not used here."""
    hidden_BQD: Tensor = model(ids_BQ, use_mems=False).last_hidden_state
    return hidden_BQD


def read_ours(model: Trunk, ids_BQ: Tensor) -> Tensor:
    hidden_BQD: Tensor = model(Batch(ids_BQ=ids_BQ)).hidden_BQD
    return hidden_BQD


def compare(theirs: Peer, config: ModelConfig, *, rows: int, length: int) -> dict[str, float]:
    """Return the differences of hidden states and of gradients, in evaluation and in training without dropout."""
    ids_BQ, probe_BQD = random_ids(config, rows=rows, length=length), probe(config, rows=rows, length=length)
    theirs.eval().zero_grad()
    want_BQD = read_theirs(theirs, ids_BQ)
    (want_BQD * probe_BQD).sum().backward()
    ours = trunk_like(theirs, without_dropout(config))
    with torch.no_grad():
        evaluated = agree("hidden states", read_ours(ours.eval(), ids_BQ), want_BQD, tolerance=TOLERANCE)
    got_BQD = read_ours(ours.train(), ids_BQ)
    trained = agree("hidden states in training", got_BQD, want_BQD, tolerance=TOLERANCE)
    (got_BQD * probe_BQD).sum().backward()
    wanted = {name.removeprefix("trunk."): value for name, value in gradients(theirs).items()}
    return {"hidden": max(evaluated, trained), "gradient": agree_gradients(ours, wanted)}


def measure(config: ModelConfig, *, rows: int, length: int, rounds: int, quick: bool) -> list[Row]:
    """Measure the forward pass, then training, in one shape."""
    import transformers

    theirs = transformers_xlnet("XLNetModel", config)
    differences = compare(theirs, config, rows=1 if quick else rows, length=length)
    ours = trunk_like(theirs, config)
    ids_BQ, probe_BQD = random_ids(config, rows=rows, length=length), probe(config, rows=rows, length=length)
    against = f"transformers {transformers.__version__} XLNetModel"
    goals = SHAPES.get((rows, length), (None, None))
    share_goals = SHARE_GOALS.get((rows, length), (None, None))
    step = step_of(config, rows=rows, length=length)
    ours.eval()
    theirs.eval()
    with torch.no_grad():
        forward = interleave(
            {
                "ours": lambda: float(read_ours(ours, ids_BQ)[0, 0, 0]),
                "theirs": lambda: float(read_theirs(theirs, ids_BQ)[0, 0, 0]),
            },
            rounds=rounds,
            warm_up=0 if quick else 1,
        )
    ours.train()
    theirs.train()
    training = interleave(
        {
            "ours": training_step(ours, lambda: (read_ours(ours, ids_BQ) * probe_BQD).sum()),
            "theirs": training_step(theirs, lambda: (read_theirs(theirs, ids_BQ) * probe_BQD).sum()),
        },
        rounds=rounds,
        warm_up=0 if quick else 1,
    )
    require_dropout(training)
    return [
        say(
            comparison(
                measured,
                work=f"XLNet encoder {name}, {rows} x {length}",
                against=against,
                multiply_adds=count,
                differences=differences,
                goal=goal,
                share_goal=share_goal,
            )
        )
        for name, measured, count, goal, share_goal in (
            ("forward", forward, step.forward(), goals[0], share_goals[0]),
            ("training step", training, step.training(), goals[1], share_goals[1]),
        )
    ]


def main() -> None:
    options = arguments(__doc__)
    config = base_xlnet()
    rows: list[Row] = []
    for count, length in [(4, 512)] if options.quick else SHAPES:
        rows += measure(config, rows=count, length=length, rounds=options.rounds, quick=options.quick)
    write("encoder", "speed of the XLNet encoder against transformers", rows, options)


if __name__ == "__main__":
    main()
