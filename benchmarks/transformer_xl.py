"""How fast is a Transformer-XL training step with memory against TransfoXL of transformers 4.37.2, the last that runs?

    .venv-transformers4/bin/python -m benchmarks.transformer_xl

Width 512, 6 layers, 8 heads, inner width 2048, a vocabulary of 10,000 with a plain tied softmax, segment and memory
equally long; memory is what a first segment left. Forward and backward with dropout 0.1, without attention dropout (the
recipe of the paper's base models, and the default there) and with it. Hidden states, losses, next memories and all
gradients are compared first, with dropout 0.
"""

import warnings

import torch
from tests.parity.weights import Settings, filled, transfo_xl_config, transfo_xl_state
from torch import Tensor

from benchmarks.peers import Peer, randomised, step_of, without_dropout
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
from segue.config import ModelConfig, changed
from segue.model import Batch, LanguageModel, Memory

SHAPES = {(8, 128): 1.3, (2, 512): 2.5}
"""Rows and length of segment and memory: the goal."""
DROPOUT = 0.1


def settings_of(length: int, *, layers: int, width: int, vocabulary: int, attention_dropout: float) -> Settings:
    import transformers

    return transformers.TransfoXLConfig(
        vocab_size=vocabulary,
        cutoffs=[],
        div_val=1,
        d_model=width,
        d_embed=width,
        n_head=8,
        d_head=width // 8,
        d_inner=4 * width,
        n_layer=layers,
        mem_len=length,
        clamp_len=-1,
        same_length=False,
        dropout=DROPOUT,
        dropatt=attention_dropout,
    )


def random_segments(vocabulary: int, *, rows: int, length: int) -> tuple[Tensor, Batch]:
    """Return the segment that fills the memory, and the one that is trained on: the next token is predicted within it,
    as in transformers, so the last has no target."""
    ids = torch.randint(vocabulary, (rows, 2 * length), generator=torch.Generator().manual_seed(1))
    first_BQ, second_BQ = ids.split(length, dim=1)
    inside_BQ = (torch.arange(length) < length - 1).expand(rows, -1)
    return first_BQ, Batch(ids_BQ=second_BQ, targets=second_BQ.roll(-1, dims=1), target_mask=inside_BQ)


def compare(theirs: Peer, config: ModelConfig, first_BQ: Tensor, batch: Batch) -> dict[str, float]:
    """Return the differences over two segments, in training without dropout."""
    theirs.eval().zero_grad()
    ours = filled(LanguageModel(without_dropout(config)), transfo_xl_state(theirs.state_dict(), theirs.config)).train()
    mems, memory = theirs(first_BQ).mems, ours(Batch(ids_BQ=first_BQ)).memory
    want = theirs(batch.ids_BQ, mems=mems, labels=batch.ids_BQ, output_hidden_states=True)
    want.loss.backward()
    got = ours(batch, memory)
    got.loss.backward()
    wanted = transfo_xl_state({name: value.grad for name, value in theirs.named_parameters()}, theirs.config)
    next_LBMD = torch.stack(want.mems).transpose(1, 2)
    return {
        "hidden": agree("hidden states", got.output.hidden_BQD, want.hidden_states[-1], tolerance=TOLERANCE),
        "loss": agree("the loss", got.loss, want.loss, tolerance=TOLERANCE),
        "memory": agree("the next memory", got.memory.hidden_LBMD, next_LBMD, tolerance=TOLERANCE),
        "gradient": agree_gradients(ours, wanted),
    }


def measure(
    *,
    rows: int,
    length: int,
    rounds: int,
    quick: bool,
    attention_dropout: float,
    layers: int = 6,
    width: int = 512,
    vocabulary: int = 10_000,
    goal: float | None = None,
) -> Row:
    import transformers

    settings = settings_of(
        length, layers=layers, width=width, vocabulary=vocabulary, attention_dropout=attention_dropout
    )
    config = changed(transfo_xl_config(settings), dropout=DROPOUT, attention_dropout=attention_dropout)
    theirs = randomised(transformers.TransfoXLLMHeadModel(settings))
    first_BQ, batch = random_segments(vocabulary, rows=rows, length=length)
    kept = 1 if quick else rows
    differences = compare(theirs, config, first_BQ[:kept], batch.rows(0, kept))
    ours = filled(LanguageModel(config), transfo_xl_state(theirs.state_dict(), settings))
    with torch.no_grad():
        mems: list[Tensor] = theirs(first_BQ).mems
        memory: Memory = ours(Batch(ids_BQ=first_BQ)).memory
    ours.train()
    theirs.train()
    measured = interleave(
        {
            "ours": training_step(ours, lambda: ours(batch, memory).loss),
            "theirs": training_step(theirs, lambda: theirs(batch.ids_BQ, mems=mems, labels=batch.ids_BQ).loss),
        },
        rounds=rounds,
        warm_up=0 if quick else 1,
    )
    require_dropout(measured)
    also = ", attention dropout too" if attention_dropout else ""
    return say(
        comparison(
            measured,
            work=f"Transformer-XL training step, {rows} x {length}, memory {length}{also}",
            against=f"transformers {transformers.__version__} TransfoXLLMHeadModel",
            multiply_adds=step_of(config, rows=rows, length=length, memory=length).training(),
            differences=differences,
            goal=None if attention_dropout else goal,
        )
    )


def main() -> None:
    options = arguments(__doc__)
    warnings.filterwarnings("ignore", message="The output of TransfoXL will be updated")
    rows = [
        measure(
            rows=count,
            length=length,
            rounds=options.rounds,
            quick=options.quick,
            attention_dropout=attention_dropout,
            goal=goal,
        )
        for (count, length), goal in SHAPES.items()
        for attention_dropout in (0.0, DROPOUT)
        if not options.quick or (length == 512 and not attention_dropout)
    ]
    write("transformer_xl", "speed of a Transformer-XL training step against transformers", rows, options)


if __name__ == "__main__":
    main()
