"""Draws the pictures of docs/math.md and docs/math.zh-CN.md (`make pictures`).

Everything comes from segue's own functions and from tiny random models: nothing is drawn by assumption. Labels are
names of the code and symbols, so that pages in any language can show the same files.
"""

from itertools import product
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from examples import context_example, shift_example, tiny_model
from segue.model import Batch, LanguageModel, Memory
from segue.model.attention import PositionInputs
from segue.model.kernels import ScoreTerms, View
from segue.model.kernels.definition import attention_score, masked_softmax
from segue.model.language_model import order_batch
from segue.model.masks import causal_mask, order_to_rank, permutation_mask
from segue.model.positions import distances, relative_shift, sinusoid

DOCS = Path(__file__).parent

INK, QUIET, SHADE, PALE = "#22303c", "#8593a0", "#dde2e7", "#eef1f4"
BLUE, ORANGE, RED = "#2b6ca3", "#dd8a3c", "#c0504d"
ROWS = ("#bcd6ec", "#f6d9b8", "#c4e3d2")
STEPS = (PALE, "#134b78", "#4a90c4", "#a9cfe9")
SIGNED = LinearSegmentedColormap.from_list("signed", ["#b5533c", "#f1b890", "#ffffff", "#9cc3e0", "#1f5f94"])
POSITIVE = LinearSegmentedColormap.from_list("positive", ["#ffffff", "#9cc3e0", "#134b78"])

mpl.use("agg")
mpl.rcParams.update(
    {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": QUIET,
        "axes.titlesize": 10,
        "axes.titlepad": 8,
        "xtick.color": QUIET,
        "ytick.color": QUIET,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "figure.facecolor": "white",
    }
)


# ------------------------------------------------------------------------------------------------ drawing


def figure(
    columns: int, rows: int = 1, *, width: float, height: float, **ratios: list[float]
) -> tuple[Figure, np.ndarray]:
    """A figure and its axes, always in a 2-D array."""
    made = Figure(figsize=(width, height), layout="constrained")
    made.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    return made, made.subplots(rows, columns, squeeze=False, gridspec_kw=ratios)


def save(made: Figure, name: str) -> None:
    path = DOCS / "pictures" / name
    made.savefig(path, dpi=110, metadata={"Software": None})
    print(f"{path.relative_to(DOCS.parent)}: {path.stat().st_size // 1024} kB")


def cells(ax: Axes, values: Tensor, *, colours: ListedColormap, top: int) -> None:
    """A matrix of small whole numbers as coloured cells with white lines between them."""
    rows, columns = values.shape
    ax.imshow(values.numpy(), cmap=colours, vmin=0, vmax=top, interpolation="nearest")
    lines(ax, rows, columns)


def heat(ax: Axes, values: Tensor, *, visible: Tensor, colours: LinearSegmentedColormap, low: float, high: float):
    """A matrix of real numbers; what is not visible stays grey."""
    shown = values.masked_fill(~visible, float("nan")).numpy()
    image = ax.imshow(shown, cmap=colours.with_extremes(bad=SHADE), vmin=low, vmax=high, interpolation="nearest")
    lines(ax, *values.shape)
    return image


def lines(ax: Axes, rows: int, columns: int) -> None:
    ax.set_xticks(torch.arange(columns + 1).numpy() - 0.5, minor=True)
    ax.set_yticks(torch.arange(rows + 1).numpy() - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1.2)
    ax.tick_params(which="both", length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


def ticks(ax: Axes, *, x: list, y: list, xlabel: str = "key j", ylabel: str = "query i") -> None:
    ax.set_xticks(range(len(x)), [str(label) for label in x])
    ax.set_yticks(range(len(y)), [str(label) for label in y])
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)


def legend(made: Figure, entries: dict[str, str]) -> None:
    made.legend(
        handles=[Patch(color=colour, label=label) for label, colour in entries.items()],
        loc="outside lower center",
        ncols=len(entries),
        frameon=False,
        fontsize=9,
    )


# --------------------------------------------------------------------------------------------- tiny models


def one_token_changed(ids_Q: Tensor) -> Tensor:
    """Row 0 is the text; row j + 1 has another token at j."""
    rows = ids_Q.repeat(len(ids_Q) + 1, 1)
    place = torch.arange(len(ids_Q))
    rows[place + 1, place] = (rows[place + 1, place] + 1) % 11
    return rows


def dependence(states_BQD: Tensor) -> Tensor:
    """From the states of `one_token_changed`: does the state at i (row) change with the token at j (column)?

    By more than rounding: the rows of a batch may be summed in another order.
    """
    return (states_BQD[1:] - states_BQD[:1]).abs().amax(dim=2).T > 1e-9


@torch.no_grad()
def first_layer_reached(model: LanguageModel, ids_Q: Tensor, *, segment: int) -> Tensor:
    """For query i and token j: the lowest layer whose result at i depends on j; 0 if none does."""
    memory, parts = None, []
    for ids_BQ in one_token_changed(ids_Q).split(segment, dim=1):
        result = model(Batch(ids_BQ=ids_BQ), memory)
        memory = result.memory
        parts.append(torch.stack(result.output.layers[1:]))
    depends_LTT = torch.stack([dependence(layer) for layer in torch.cat(parts, dim=2)])
    return torch.where(depends_LTT.any(dim=0), depends_LTT.int().argmax(dim=0) + 1, 0)


def gradient_reached(model: LanguageModel, ids_Q: Tensor, *, segment: int) -> Tensor:
    """For query i and token j: does a loss at i have a gradient at the embedding of j?"""
    embedded = [model.trunk.vocabulary(part).detach().requires_grad_() for part in ids_Q[None].split(segment, dim=1)]
    memory, rows = None, []
    for ids_BQ, leaf in zip(ids_Q[None].split(segment, dim=1), embedded, strict=True):
        output = model.trunk.reader(leaf, Batch(ids_BQ=ids_BQ), memory, remember=True)
        memory = output.memory
        for state_D in output.hidden_BQD[0]:
            loss = (state_D * torch.arange(len(state_D))).sum()
            found = torch.autograd.grad(loss, embedded, retain_graph=True, allow_unused=True)
            rows.append(
                torch.cat([torch.zeros(segment) if g is None else g[0].abs().sum(dim=1).float() for g in found]) > 0
            )
    return torch.stack(rows).int()


# ------------------------------------------------------------------------------------------------ pictures


def draw_memory() -> None:
    """Which token reaches which query, through how many layers; and where gradients go."""
    segment, count = 3, 5
    ids_Q = torch.arange(segment * count) % 11
    plain = tiny_model()
    remembering = tiny_model(memory={"length": segment})
    flowing = tiny_model(memory={"length": segment, "backprop_segments": 1})
    panels = [
        ("memory = None", first_layer_reached(plain, ids_Q, segment=segment)),
        (f"memory.length = {segment}", first_layer_reached(remembering, ids_Q, segment=segment)),
        ("∂, backprop_segments = None", gradient_reached(remembering, ids_Q, segment=segment) * 4),
        ("∂, backprop_segments = 1", gradient_reached(flowing, ids_Q, segment=segment) * 4),
    ]
    made, axes = figure(4, width=13.2, height=3.95)
    for ax, (title, values) in zip(axes[0], panels, strict=True):
        cells(ax, values, colours=ListedColormap([*STEPS, ORANGE]), top=4)
        for cut in range(0, segment * count + 1, segment):
            ax.axhline(cut - 0.5, color=QUIET, linewidth=0.9)
            ax.axvline(cut - 0.5, color=QUIET, linewidth=0.9)
        labels = [n if n % segment == 0 else "" for n in range(segment * count)]
        ticks(ax, x=labels, y=labels, xlabel="token j")
        ax.set_title(title)
    names = {f"layers[{n}]": STEPS[n] for n in (1, 2, 3)}
    legend(made, {"0": PALE} | names | {"∂ loss[i] / ∂ token[j]": ORANGE})
    save(made, "memory.png")


def draw_masks() -> None:
    """Causal masks, with a span, and with the memory of rows of different age."""
    queries, length = 4, 4
    keys = length + queries
    memory = Memory.empty(layers=1, rows=3, length=length, width=1)
    read_B = torch.tensor([0, 2, 4])
    real_BQ = torch.arange(4) < read_B[:, None]
    memory = memory.then(torch.zeros(1, 3, 4, 1), real_BQ=real_BQ, length=length)
    causal = causal_mask(num_queries=queries, num_keys=keys)
    span = causal_mask(num_queries=queries, num_keys=keys, span=3)
    known_BQK = causal & torch.cat([memory.valid_BM, torch.ones(3, queries, dtype=torch.bool)], dim=1)[:, None]
    panels = [("causal_mask", causal), ("causal_mask, span = 3", span)]
    panels += [(f"row {b}: position_B = {int(memory.position_B[b])}", known_BQK[b]) for b in range(3)]
    made, axes = figure(5, width=13.2, height=2.35)
    for ax, (title, mask) in zip(axes[0], panels, strict=True):
        past = torch.arange(keys) < length
        cells(ax, mask.int() * (1 + past.int()), colours=ListedColormap([PALE, BLUE, ORANGE]), top=2)
        ax.axvline(length - 0.5, color=INK, linewidth=1.2)
        ticks(ax, x=list(range(keys)), y=list(range(queries)))
        ax.set_title(title)
    legend(made, {"True, j < M": ORANGE, "True, j ≥ M": BLUE, "False": PALE})
    save(made, "masks.png")


def draw_shift() -> None:
    """Each cell shows the distance its column stands for; its colour is the query that it was computed for."""
    made, axes = figure(3, 2, width=11.6, height=4.5, width_ratios=[8, 7, 5])
    for row, bidirectional in enumerate((True, False)):
        distance_R, before_QR, after_QK = shift_example(bidirectional=bidirectional)
        columns = len(distance_R)
        owner_QR = torch.arange(3)[:, None].expand_as(before_QR)
        wide = columns - 1
        folded = [relative_shift(x[None, None], num_keys=wide)[0, 0] for x in (before_QR, owner_QR)]
        shifted = relative_shift(owner_QR[None, None], num_keys=5)[0, 0]
        place_QR = torch.arange(3 * columns).view(3, columns)
        stages = [
            (before_QR, owner_QR, place_QR < 3, f"[Q, R] = [3, {columns}]"),
            (*folded, torch.arange(wide).expand(3, -1) >= 5, f"flat[Q:] as [Q, R - 1] = [3, {wide}]"),
            (after_QK, shifted, torch.zeros(3, 5, dtype=torch.bool), "[Q, K] = [3, 5]"),
        ]
        true_QK = 2 + torch.arange(3)[:, None] - torch.arange(5)
        for ax, (numbers, owner, dropped, title) in zip(axes[row], stages, strict=True):
            cells(ax, owner, colours=ListedColormap(ROWS), top=2)
            height, width = numbers.shape
            ax.set_xlim(-0.5, 7.5 if ax is axes[row][0] else width - 0.5)
            for i, j in product(range(height), range(width)):
                gone = bool(dropped[i, j])
                wrong = ax is axes[row][2] and int(numbers[i, j]) != int(true_QK[i, j])
                if gone:
                    ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, color="white", alpha=0.72, linewidth=0))
                if wrong:
                    ax.add_patch(Rectangle((j - 0.44, i - 0.44), 0.88, 0.88, fill=False, edgecolor=RED, linewidth=1.6))
                colour = QUIET if gone else RED if wrong else INK
                ax.text(j, i, f"{int(numbers[i, j])}", ha="center", va="center", color=colour, fontsize=11)
            first = ax is axes[row][0]
            ticks(
                ax,
                x=[f"c{n}" for n in range(width)] if first else list(range(width)),
                y=[0, 1, 2],
                xlabel="column c" if first else "key j" if ax is axes[row][2] else "",
            )
            ax.set_title(f"bidirectional={bidirectional}   " + title if first else title)
    entries = {f"query {i}": colour for i, colour in enumerate(ROWS)}
    made.legend(
        handles=[
            *(Patch(color=colour, label=label) for label, colour in entries.items()),
            Patch(facecolor="white", edgecolor=RED, linewidth=1.6, label="≠ M + i - j"),
        ],
        loc="outside lower center",
        ncols=4,
        frameon=False,
        fontsize=9,
    )
    save(made, "shift.png")


@torch.no_grad()
def score_terms() -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """The four terms of one head's score in a tiny model, their scaled sum, and what is visible."""
    model = tiny_model(3, memory={"length": 4}, num_layers=1, width=32, num_heads=2, init_std=0.36)
    first = model(Batch(ids_BQ=torch.tensor([[1, 7, 3, 9]])))
    batch = Batch(ids_BQ=torch.tensor([[2, 8, 5, 1, 4, 9]]))
    queries, keys = 6, 10
    reader, layer = model.trunk.reader, model.trunk.reader.layers[0]
    hidden_BQD = model.trunk.vocabulary(batch.ids_BQ)
    source_BKD = torch.cat([first.memory.hidden_LBMD[0], hidden_BQD], dim=1)
    distance_R = distances(num_queries=queries, num_keys=keys, bidirectional=False)
    positions = PositionInputs(encoding=reader.distance_encoding(distance_R[None], torch.float64))
    context = layer.attention.context(source_BKD, positions=positions, biases=reader.biases[0])
    query_BQHE = layer.attention.query(hidden_BQD).unflatten(-1, (2, -1))
    mask_QK = causal_mask(num_queries=queries, num_keys=keys)
    view = View(mask_BQK=mask_QK[None], segment_length=queries)
    terms, key_BKHE = context.terms, context.key_BKHE
    nothing, no_keys = torch.zeros_like(query_BQHE), torch.zeros_like(key_BKHE)
    position = ScoreTerms(relative=terms.relative, position_bias_HE=terms.position_bias_HE)
    parts = {
        "(a)  q · k": attention_score(query_BQHE, key_BKHE, terms=ScoreTerms(), view=view),
        "(b)  q · r": attention_score(query_BQHE, no_keys, terms=ScoreTerms(relative=terms.relative), view=view),
        "(c)  u · k": attention_score(
            nothing, key_BKHE, terms=ScoreTerms(content_bias_HE=terms.content_bias_HE), view=view
        ),
        "(d)  v · r": attention_score(nothing, no_keys, terms=position, view=view),
    }
    score_BHQK = attention_score(query_BQHE, key_BKHE, terms=terms, view=view)
    assert torch.allclose(sum(parts.values())[:, :, mask_QK], score_BHQK[:, :, mask_QK])
    return {name: part[0, 0] for name, part in parts.items()}, score_BHQK, mask_QK


def draw_score() -> None:
    """Each term as a heat map, their sum, and the probabilities."""
    parts, score_BHQK, mask_QK = score_terms()
    probability = masked_softmax(score_BHQK, mask_QK[None])[0, 0]
    score = score_BHQK[0, 0]
    bound = max(float(x[mask_QK].abs().max()) for x in (*parts.values(), score))
    made, axes = figure(3, 2, width=11.6, height=5.5)
    flat = axes.flatten()
    for ax, (title, part) in zip(flat, (*parts.items(), ("score_BHQK = (a) + (b) + (c) + (d)", score)), strict=False):
        image = heat(ax, part, visible=mask_QK, colours=SIGNED, low=-bound, high=bound)
        ax.set_title(title)
    shares = heat(flat[5], probability, visible=mask_QK, colours=POSITIVE, low=0, high=float(probability.max()))
    flat[5].set_title("masked_softmax")
    for ax in flat:
        ax.axvline(3.5, color=INK, linewidth=1)
        ticks(ax, x=list(range(10)), y=list(range(6)))
    bar = made.colorbar(image, ax=axes[0], shrink=0.85, pad=0.01)
    bar.outline.set_visible(False)
    bar = made.colorbar(shares, ax=axes[1], shrink=0.85, pad=0.01)
    bar.outline.set_visible(False)
    save(made, "score.png")


def draw_sinusoid() -> None:
    """R for distances of both signs, and how alike two distances are."""
    position = torch.arange(48, -17, -1)
    made, axes = figure(3, width=12.4, height=3.7, width_ratios=[1, 1, 1.15])
    for ax, sign, title in ((axes[0][0], 1, "sinusoid(distance)"), (axes[0][1], -1, "sinusoid(-distance)")):
        encoding = sinusoid(sign * position, width=32, dtype=torch.float64)
        ax.imshow(encoding.numpy(), cmap=SIGNED, vmin=-1, vmax=1, aspect="auto", extent=(0, 32, -16.5, 48.5))
        ax.axvline(16, color=INK, linewidth=1)
        ax.set_title(title)
        ax.set_xticks([0, 8, 16, 24, 32])
        ax.set_xlabel("sin: 0 ... 15            cos: 16 ... 31")
        ax.set_ylabel("distance")
        ax.set_yticks(range(-16, 49, 16))
    ax = axes[0][2]
    encoding = sinusoid(torch.arange(-64, 65), width=32, dtype=torch.float64)
    for origin, colour in ((0, BLUE), (24, ORANGE)):
        ax.plot(range(-64, 65), (encoding @ encoding[64 + origin]).numpy(), color=colour, label=f"R({origin}) · R(d)")
    ax.set_xlabel("distance d")
    ax.set_title("R(x) · R(d)")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    save(made, "sinusoid.png")


@torch.no_grad()
def measured_streams(batch: Batch, *, seed: int = 1) -> tuple[Tensor, Tensor]:
    """What the content stream and the query stream of a three-layer model really depend on."""
    model = tiny_model(seed, objective="permutation")
    ids_BQ = one_token_changed(batch.ids_BQ[0])
    rows = len(ids_BQ)
    output = model.trunk(
        Batch(
            ids_BQ=ids_BQ,
            visible_BQQ=batch.visible_BQQ.expand(rows, -1, -1),
            predicted_BP=batch.predicted_BP.expand(rows, -1),
        )
    )
    return dependence(output.hidden_BQD), dependence(output.predicted_BPD)


def draw_permutation() -> None:
    """Visibility and what three layers make of it: one full order, and one with context."""
    order_BQ = torch.tensor([[3, 1, 5, 0, 4, 2]])
    whole = order_batch(torch.arange(6)[None], order_BQ)
    rank_BQ, target_BQ = context_example()
    some = Batch(
        ids_BQ=torch.arange(8)[None],
        visible_BQQ=permutation_mask(rank_BQ, target_BQ),
        predicted_BP=target_BQ.nonzero()[:, 1][None],
    )
    made, axes = figure(3, 2, width=11.4, height=7.1)
    colours = ListedColormap([PALE, BLUE, ORANGE])
    for row, (batch, rank) in enumerate(((whole, order_to_rank(order_BQ)[0]), (some, rank_BQ[0]))):
        content, query = measured_streams(batch)
        at = batch.predicted_BP[0]
        length = batch.ids_BQ.shape[1]
        names = [f"{i}  (rank {int(r)})" for i, r in enumerate(rank)]
        itself = torch.eye(length, dtype=torch.int)
        panels = [
            ("visible_BQQ", batch.visible_BQQ[0], itself, names),
            ("Δ hidden_BQD[i] ≠ 0", content, itself, names),
            ("Δ predicted_BPD[i] ≠ 0", query, itself[at], [names[i] for i in at]),
        ]
        for ax, (title, mask, own, labels) in zip(axes[row], panels, strict=True):
            cells(ax, mask.int() * (1 + own), colours=colours, top=2)
            ticks(ax, x=list(range(length)), y=labels, xlabel="token j", ylabel="")
            ax.set_title(title)
    legend(made, {"True, j ≠ i": BLUE, "True, j = i": ORANGE, "False": PALE})
    save(made, "permutation.png")


def main() -> None:
    (DOCS / "pictures").mkdir(exist_ok=True)
    for draw in (draw_memory, draw_masks, draw_shift, draw_score, draw_sinusoid, draw_permutation):
        draw()


if __name__ == "__main__":
    main()
