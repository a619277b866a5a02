"""`segue tour`: four ideas behind these models, computed live on small ones."""

import itertools
import time

import torch
from rich.console import Console
from torch import Tensor

from segue.cli.console import finding, say
from segue.config import ModelConfig, changed
from segue.evaluation.checks import check_model
from segue.model import Batch, LanguageModel
from segue.model.language_model import order_batch
from segue.model.named import named

SMALL = {"num_layers": 2, "width": 32, "num_heads": 4, "head_width": 8, "inner_width": 64, "dropout": 0.0}
SENTENCE = ["go", "on", "to", "what", "follows", "without", "a", "pause"]


def run() -> None:
    """Run the four demonstrations."""
    started = time.perf_counter()
    torch.set_num_threads(1)  # the models are so small that a second thread would only wait
    console = Console(highlight=False, emoji=False)
    torch.manual_seed(0)
    with torch.no_grad():
        _memory(console)
        _permutation(console)
        _orders(console)
    _exactness(console)
    console.print()
    say(console, f"Done in {time.perf_counter() - started:.1f} s. Next: segue models, segue doctor, docs/math.md.")


def _model(name: str, vocabulary: int, **settings: object) -> LanguageModel:
    """Return a small model whose weights are large enough to make every effect visible."""
    config: ModelConfig = changed(named(name), vocabulary={"size": vocabulary}, init_std=0.3, **(SMALL | settings))
    return LanguageModel(config).double().eval()


def _marks(console: Console) -> tuple[str, str]:
    """Return the marks for hidden and visible tokens."""
    return (".", "#") if console.options.ascii_only else ("·", "█")


def _reach(model: LanguageModel, ids_BQ: Tensor, segment: int) -> list[bool]:
    """Return which tokens change the last hidden state, by trying each."""

    def last_state(ids: Tensor) -> Tensor:
        memory = None
        for start in range(0, ids.shape[1], segment):
            result = model(Batch(ids_BQ=ids[:, start : start + segment]), memory)
            memory = result.memory
        hidden: Tensor = result.output.hidden_BQD[0, -1]
        return hidden

    before = last_state(ids_BQ)
    moved = []
    for position in range(ids_BQ.shape[1]):
        other = ids_BQ.clone()
        other[0, position] += 1
        moved.append(bool((last_state(other) - before).abs().max() > 1e-12))
    return moved


def _memory(console: Console) -> None:
    console.print("[bold]1. Memory: context does not stop at the segment boundary[/]")
    marks = _marks(console)
    say(console, "A text of 24 tokens, read 6 at a time. Which tokens can the last state know of?")
    console.print()
    ids_BQ = torch.randint(0, 99, (1, 24))
    remembering = _model("transformer-xl-enwik8-base", 100, memory={"length": 6})
    forgetful = remembering.adjusted(memory=None)
    for label, model in (("no memory", forgetful), ("memory 6", remembering)):
        reach = _reach(model, ids_BQ, 6)
        cells = "".join(marks[moved] for moved in reach)
        bars = " ".join(cells[start : start + 6] for start in range(0, 24, 6))
        console.print(f"  {label:<10} {bars}  {sum(reach)} tokens", soft_wrap=True)
    whole = remembering.adjusted(memory={"length": 24})
    one = whole(Batch(ids_BQ=ids_BQ)).output.hidden_BQD
    memory, parts = None, []
    for start in range(0, 24, 6):
        result = whole(Batch(ids_BQ=ids_BQ[:, start : start + 6]), memory)
        memory = result.memory
        parts.append(result.output.hidden_BQD)
    error = float((torch.cat(parts, dim=1) - one).abs().max())
    console.print()
    say(console, f"With memory 24, four segments equal one long segment: largest difference {error:.1e}.")


def _permutation(console: Console) -> None:
    console.print("\n[bold]2. Permutations: both directions, and no [MASK][/]")
    length = len(SENTENCE)
    order = torch.randperm(length).tolist()
    say(console, "Predict the words in this order, each from those before it:")
    say(console, ", ".join(SENTENCE[i] for i in order), indent=2)
    console.print()
    model = _model("xlnet-base", 100, memory=None)
    ids_BQ = torch.randint(0, 99, (1, length))
    order_BQ = torch.tensor([order])
    before = model(order_batch(ids_BQ, order_BQ)).output
    sees: list[list[bool]] = [[] for _ in range(length)]
    for position in range(length):
        other = ids_BQ.clone()
        other[0, position] += 1
        after = model(order_batch(other, order_BQ)).output
        change_Q = (after.predicted_BPD - before.predicted_BPD)[0].abs().amax(dim=1)
        for q in range(length):
            sees[q].append(bool(change_Q[q] > 1e-12))
    widest, marks = max(map(len, SENTENCE)), _marks(console)
    for q, word in enumerate(SENTENCE):
        row = " ".join(marks[seen] for seen in sees[q])
        console.print(f"  {word:>{widest}}  {row}  place {order.index(q) + 1}, sees {sum(sees[q])}", soft_wrap=True)
    own = sum(sees[q][q] for q in range(length))
    console.print()
    say(console, f"Row: a predicted word. Column: a word that moves its prediction. Words that see themselves: {own}.")


def _orders(console: Console) -> None:
    console.print("\n[bold]3. One model, any order: the chain rule holds in each[/]")
    model = _model("xlnet-base", 5, memory=None)
    rows = torch.tensor(list(itertools.product(range(5), repeat=3)))
    say(console, f"All {len(rows)} rows of 3 tokens from 5: their probabilities must sum to 1 in every order.")
    console.print()
    example = rows.tolist().index([0, 1, 2])
    for order in itertools.permutations(range(3)):
        nll = model(order_batch(rows, torch.tensor(order).expand_as(rows))).nll
        total = float((-nll.sum(dim=1)).exp().sum())
        one = float((-nll[example].sum()).exp())
        console.print(f"  order {order}: sum {total:.12f}, p(0 1 2) = {one:.6f}", soft_wrap=True)


def _exactness(console: Console) -> None:
    console.print("\n[bold]4. Exact: the classic mistakes, tried on both models[/]")
    for name in ("transformer-xl-enwik8-base", "xlnet-base"):
        say(console, f"A small {name}:")
        for check in check_model(_model(name, 100)):
            if check.passed is not None:
                finding(console, check.passed, f"{check.name}: {check.measured}")


def tour() -> None:
    """Demonstrate the ideas of Transformer-XL and XLNet, computed live.

    Segment-level recurrence, permutation language modelling, factorisation orders and exactness, on small models in
    seconds.

    \b
    Example:
      segue tour
    """
    run()
