"""How fast is a permutation pretraining step against transformers' XLNetLMHeadModel, fed as its own collator does?

    .venv-transformers5/bin/python -m benchmarks.pretraining

4 rows of 512 tokens, 85 of each predicted, a vocabulary of 32,000, base width, 4 layers, dropout 0.1: forward and
backward. transformers' collator (DataCollatorForPermutationLanguageModeling) asks for a prediction at every position
and ignores those that are no targets; segue predicts the targets only. Both score the same targets, so logits there,
loss and all gradients are compared first, with dropout 0. A second line gives transformers the targets only, which its
model allows but its collator does not do.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.peers import (
    Peer,
    base_xlnet,
    gradients,
    language_model_like,
    permutation_batch,
    step_of,
    transformers_xlnet,
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
from segue.model import Batch, LanguageModel

ROWS, LENGTH, PREDICTED, GOAL = 4, 512, 85, 3.5
Inputs = dict[str, Tensor]


def as_collated(batch: Batch) -> Inputs:
    """Return the batch in the form of transformers' collator: a mapping and a label for every position, -100 if it does
    not count. Its perm_mask says who may *not* see whom."""
    assert batch.visible_BQQ is not None
    assert batch.predicted_BP is not None
    assert batch.targets is not None
    rows, length = batch.ids_BQ.shape
    return {
        "input_ids": batch.ids_BQ,
        "perm_mask": (~batch.visible_BQQ).float(),
        "target_mapping": torch.eye(length).expand(rows, -1, -1).contiguous(),
        "labels": torch.full_like(batch.ids_BQ, -100).scatter_(1, batch.predicted_BP, batch.targets),
    }


def as_gathered(batch: Batch) -> Inputs:
    """Return the same with a mapping and a label for each target only."""
    assert batch.predicted_BP is not None
    assert batch.targets is not None
    mapping_BPQ = F.one_hot(batch.predicted_BP, batch.ids_BQ.shape[1]).float()
    return as_collated(batch) | {"target_mapping": mapping_BPQ, "labels": batch.targets}


def loss_of(model: LanguageModel, batch: Batch) -> Tensor:
    loss = model(batch).loss
    assert isinstance(loss, Tensor)
    return loss


def compare(theirs: Peer, config: ModelConfig, batch: Batch) -> dict[str, float]:
    """Return the differences of logits at the targets, losses and gradients, in training without dropout."""
    theirs.eval().zero_grad()
    want = theirs(**as_collated(batch))
    want.loss.backward()
    ours = language_model_like(theirs, without_dropout(config)).train()
    got = ours(batch)
    got.loss.backward()
    assert batch.predicted_BP is not None
    at_BPV = batch.predicted_BP[:, :, None].expand(-1, -1, config.vocabulary.size)
    with torch.no_grad():
        gathered = theirs(**as_gathered(batch)).loss
        logits_BPV = ours.logits(got.output.predicted_BPD)
    return {
        "logits": agree("logits at the targets", logits_BPV, want.logits.gather(1, at_BPV), tolerance=TOLERANCE),
        "loss": agree("the loss", got.loss, want.loss, tolerance=TOLERANCE),
        "loss of targets only": agree("the loss of targets only", got.loss, gathered, tolerance=TOLERANCE),
        "gradient": agree_gradients(ours, gradients(theirs)),
    }


def measure(
    config: ModelConfig, *, rows: int, length: int, predicted: int, rounds: int, quick: bool, goal: float | None = None
) -> list[Row]:
    """Measure segue, transformers as its collator feeds it, and (unless quick) transformers with the targets only, in
    turn."""
    import transformers

    theirs = transformers_xlnet("XLNetLMHeadModel", config)
    batch = permutation_batch(config, rows=rows, length=length, predicted=predicted)
    differences = compare(theirs, config, batch.rows(0, 1) if quick else batch)
    ours = language_model_like(theirs, config)
    ours.train()
    theirs.train()
    collated, gathered = as_collated(batch), as_gathered(batch)
    sides = {
        "ours": training_step(ours, lambda: loss_of(ours, batch)),
        "as collated": training_step(theirs, lambda: theirs(**collated).loss),
    }
    if not quick:
        sides["targets only"] = training_step(theirs, lambda: theirs(**gathered).loss)
    measured = interleave(sides, rounds=rounds, warm_up=0 if quick else 1)
    require_dropout(measured)
    name = f"transformers {transformers.__version__} XLNetLMHeadModel"
    against = {"as collated": f"{name} as its collator feeds it", "targets only": f"{name} with the targets only"}
    return [
        say(
            comparison(
                measured,
                work=f"permutation pretraining step, {rows} x {length}, {predicted} predicted",
                against=against[side],
                multiply_adds=step_of(config, rows=rows, length=length, predicted=predicted).training(),
                differences=differences,
                goal=goal if side == "as collated" else None,
                theirs=side,
            )
        )
        for side in list(sides)[1:]
    ]


def main() -> None:
    options = arguments(__doc__)
    rows = measure(
        base_xlnet(),
        rows=ROWS,
        length=LENGTH,
        predicted=PREDICTED,
        rounds=options.rounds,
        quick=options.quick,
        goal=GOAL,
    )
    write("pretraining", "speed of a permutation pretraining step against transformers", rows, options)


if __name__ == "__main__":
    main()
