"""Computes the worked examples of docs/math.md and docs/math.zh-CN.md and checks that both pages show them.

Run by `make pictures` and by the tests: a number, or a line quoted from src/segue/model, that is no longer true in a
page is an error.
"""

import sys
from collections.abc import Callable
from itertools import permutations, product
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from segue.config import changed, model_config
from segue.model import Batch, LanguageModel, attention
from segue.model.embeddings import AdaptiveSoftmax, Vocabulary
from segue.model.kernels import definition
from segue.model.language_model import order_batch
from segue.model.masks import permutation_mask
from segue.model.positions import distance_columns, distances, relative_shift, relative_unshift

DOCS = Path(__file__).parent
PAGES = ("math.md", "math.zh-CN.md")


def tiny_model(seed: int = 0, **settings: object) -> LanguageModel:
    """A random model, wide enough weights that every dependence shows, in float64 and without dropout."""
    torch.manual_seed(seed)
    base = {
        "vocabulary": {"size": 11},
        "num_layers": 3,
        "width": 16,
        "num_heads": 2,
        "inner_width": 24,
        "dropout": 0.0,
        "init_std": 0.4,
    }
    return LanguageModel(model_config(**(base | settings))).double().eval()


def shift_example(*, bidirectional: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Q = 3, M = 2: the distance of each column, the columns of each query, and the same after the shift."""
    distance_R = distances(num_queries=3, num_keys=5, bidirectional=bidirectional)
    before_QR = distance_R.expand(3, -1)
    after_QK = relative_shift(before_QR[None, None], num_keys=5)[0, 0]
    return distance_R, before_QR, after_QK


def context_example() -> tuple[Tensor, Tensor]:
    """Eight tokens: context, three targets, and a functional token (SEP, say) at 4."""
    rank_BQ = torch.tensor([[-1, 2, -1, 0, 3, 1, -1, -1]])
    target_BQ = torch.tensor([[False, True, False, True, False, True, False, False]])
    return rank_BQ, target_BQ


def table(values: Tensor, form: str = "{:3d}") -> str:
    return "\n".join(" ".join(form.format(x) for x in row) for row in values.tolist())


def shift_numbers() -> str:
    """The worked example of the shift, in both forms, with the gather and the way back."""
    _, before, after = shift_example(bidirectional=True)
    _, before_causal, after_causal = shift_example(bidirectional=False)
    at_BQ = torch.tensor([[2, 0]])
    column_BQK = distance_columns(at_BQ, segment_length=3, num_keys=5)
    gathered = before[:1].expand(2, -1).gather(1, column_BQK[0])
    weight_QK = torch.tensor([[1, 2, 3, 0, 0], [1, 2, 3, 4, 0], [1, 2, 3, 4, 5]])
    unshifted = relative_unshift(weight_QK[None, None], num_distances=6)[0, 0]
    flat = before.flatten()[3:]
    both = ["x_QR, both directions (R = K + Q = 8)", table(before), "flat, without the first Q = 3 numbers"]
    both += [table(flat[None]), "in rows of R - 1 = 7", table(flat.view(3, 7))]
    both += ["the first K = 5 of each: relative_shift(x_QR, num_keys=5)", table(after)]
    causal = [
        "x_QR, causal (R = K + 1 = 6)",
        table(before_causal),
        "relative_shift(x_QR, num_keys=5)",
        table(after_causal),
    ]
    gather = ["distance_columns of the predicted positions 2 and 0", table(column_BQK[0])]
    gather += ["the distances in these columns", table(gathered)]
    back = ["weights of the keys, one row a query, zero to the right", table(weight_QK)]
    back += ["relative_unshift(weights, num_distances=6)", table(unshifted)]
    return "\n\n".join("\n".join(part) for part in (both, causal, gather, back))


def permutation_numbers() -> str:
    """permutation_mask for the example with context."""
    rank_BQ, target_BQ = context_example()
    visible = permutation_mask(rank_BQ, target_BQ)[0].int()
    head = f"rank_BQ   {rank_BQ[0].tolist()}\ntarget_BQ {target_BQ[0].int().tolist()}\nvisible_BQQ"
    return f"{head}\n{table(visible, '{}')}"


def originals_softmax(score_BHQK: Tensor, mask_BQK: Tensor) -> Tensor:
    """As the original XLNet code masks: a large number is subtracted, and nothing more."""
    return (score_BHQK - 1e30 * (~mask_BQK[:, None]).to(score_BHQK.dtype)).softmax(dim=-1)


@torch.no_grad()
def order_numbers() -> str:
    """Every order gives probabilities of all 27 texts of three tokens that sum to 1; a leak would show."""
    model = tiny_model(5, vocabulary={"size": 3}, objective="permutation", num_layers=2)
    texts_BQ = torch.tensor(list(product(range(3), repeat=3)))
    lines_out = ["order      -log p(0 1 2)   sum of p over all texts   the same, masked by subtracting 1e30"]
    for order in permutations(range(3)):
        batch = order_batch(texts_BQ, torch.tensor(order).expand(27, -1))
        nll_B = model(batch).nll.sum(dim=1)
        with (
            mock.patch.object(attention, "attend", definition.attend),
            mock.patch.object(definition, "masked_softmax", originals_softmax),
        ):
            leaky_B = model(batch).nll.sum(dim=1)
        text = int((texts_BQ == torch.arange(3)).all(dim=1).nonzero())
        total, leaky = float((-nll_B).exp().sum()), float((-leaky_B).exp().sum())
        lines_out.append(f"{list(order)}  {float(nll_B[text]):12.4f}   {total:23.6f}   {leaky:36.6f}")
    return "\n".join(lines_out)


@torch.no_grad()
def memory_leak_numbers() -> str:
    """Change a token of the second half: does the memory of the first half change?"""
    model = tiny_model(2, objective="permutation", memory={"length": 4, "reuse_length": 4})
    rank_BQ = torch.tensor([[-1, 1, -1, 0, -1, 5, 4, -1]])
    visible = permutation_mask(rank_BQ, rank_BQ >= 0)
    apart = visible.clone()
    apart[:, :4, 4:] = False
    lines_out = ["largest change in memory.hidden_LBMD when the token at 7 (not remembered) changes"]
    for name, mask in (("halves kept apart", apart), ("one order for both halves", visible)):
        batches = [Batch(ids_BQ=torch.tensor([[1, 2, 3, 4, 5, 6, 7, last]]), visible_BQQ=mask) for last in (8, 9)]
        first, second = (model(batch).memory.hidden_LBMD for batch in batches)
        lines_out.append(f"{name:26s} {float((first - second).abs().max()):.3f}")
    return "\n".join(lines_out)


@torch.no_grad()
def recurrence_numbers() -> str:
    """Two segments with memory against one segment of both."""
    model = tiny_model(4, memory={"length": 4})
    ids_BQ = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    whole = model(Batch(ids_BQ=ids_BQ)).output.hidden_BQD[:, 4:]
    first = model(Batch(ids_BQ=ids_BQ[:, :4]))
    second = model(Batch(ids_BQ=ids_BQ[:, 4:]), first.memory).output.hidden_BQD
    alone = model(Batch(ids_BQ=ids_BQ[:, 4:])).output.hidden_BQD
    limited = changed(model.config, memory={"length": 2})
    short = LanguageModel(limited).double().eval()
    short.load_state_dict(model.state_dict())
    cut = short(Batch(ids_BQ=ids_BQ[:, 4:]), short(Batch(ids_BQ=ids_BQ[:, :4])).memory).output.hidden_BQD
    rows = {"memory of 4": second, "memory of 2": cut, "no memory": alone}
    lines_out = ["largest difference from one segment of 8 tokens, at the last 4"]
    for name, states in rows.items():
        gap = float((states - whole).abs().max())
        lines_out.append(f"{name:12s} {'below 1e-12' if gap < 1e-12 else f'{gap:.3f}'}")
    return "\n".join(lines_out)


@torch.no_grad()
def adaptive_numbers() -> str:
    """A vocabulary of 10 in bins of 4, 3 and 3: columns of the head, losses in token order, mass of each bin."""
    torch.manual_seed(6)
    vocabulary = Vocabulary(
        size=10, width=8, table_width=8, cutoffs=(4, 7), shrink=2, project_first_bin=True, scale=False
    )
    orders = ("forward", "reversed")
    softmax = {
        order: AdaptiveSoftmax(
            vocabulary=vocabulary, tie_weights=True, tie_projections="all_but_first", cluster_order=order
        )
        for order in orders
    }
    for parameter in (*vocabulary.parameters(), *softmax["forward"].parameters()):
        torch.nn.init.normal_(parameter, std=0.6)
    flipped = softmax["forward"].state_dict()
    flipped |= {name: flipped[name].flip(0) for name in ("cluster_weight", "cluster_bias")}
    softmax["reversed"].load_state_dict(flipped)
    hidden_ND, targets_N = torch.randn(5, 8), torch.tensor([8, 0, 5, 3, 9])
    log_p = softmax["forward"].logits(hidden_ND, vocabulary)
    nll = {order: softmax[order].nll(hidden_ND, targets_N, vocabulary) for order in orders}
    assert torch.allclose(nll["forward"], nll["reversed"])
    assert torch.allclose(nll["forward"], -log_p.gather(1, targets_N[:, None]).squeeze(1), atol=1e-6)
    by_bin = torch.cat([nll["forward"][(targets_N >= a) & (targets_N < b)] for a, b in ((0, 4), (4, 7), (7, 10))])
    mass = [float(part.exp().sum()) for part in log_p[0].split((4, 3, 3))]
    shown = {
        name: " ".join(f"{x:.3f}" for x in values) for name, values in (("token", nll["forward"]), ("bin", by_bin))
    }
    return "\n".join(
        [
            f"bounds {vocabulary.bounds}, bin widths {vocabulary.bin_widths}",
            "shapes of the tables      " + ", ".join(str(list(t.shape)) for t in vocabulary.tables),
            *(f"columns of clusters 1, 2  {[softmax[o]._cluster_column(i) for i in (1, 2)]}  {o}" for o in orders),
            f"targets                   {targets_N.tolist()}",
            f"nll, in token order       {shown['token']}",
            f"the same, grouped by bin  {shown['bin']}",
            f"p of each bin, first row  {' + '.join(f'{m:.3f}' for m in mass)} = {sum(mass):.3f}",
        ]
    )


NUMBERS: tuple[Callable[[], str], ...] = (
    recurrence_numbers,
    shift_numbers,
    permutation_numbers,
    memory_leak_numbers,
    order_numbers,
    adaptive_numbers,
)


def unknown_lines(page: str) -> list[str]:
    """Lines that the page quotes as code of segue, but that are not in it."""
    source = {line.strip() for path in (DOCS.parent / "src/segue/model").rglob("*.py") for line in path.open()}
    blocks = (DOCS / page).read_text(encoding="utf-8").split("```python\n")[1:]
    quoted = [line.strip() for block in blocks for line in block.split("```")[0].splitlines()]
    return [line for line in quoted if line and line != "..." and line not in source]


def untrue() -> list[str]:
    """What the pages no longer say right; prints every example on the way."""
    found = []
    for compute in NUMBERS:
        block = compute()
        print(f"\n--- {compute.__name__}\n{block}")
        found += [
            f"docs/{page} does not show {compute.__name__} as computed"
            for page in PAGES
            if any(part not in (DOCS / page).read_text(encoding="utf-8") for part in block.split("\n\n"))
        ]
    return found + [
        f"docs/{page} quotes what the code does not say: {line}" for page in PAGES for line in unknown_lines(page)
    ]


if __name__ == "__main__":
    sys.exit("\n".join(untrue()) or 0)
