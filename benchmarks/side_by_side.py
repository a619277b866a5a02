"""Shared parts of all comparisons: turns, checks before timing, the matrix-product peak, rows of tables.

Only ratios from one run are meaningful on a machine that is also used by others. So both sides run in one process and
take turns (A B A B ...), and the peak of a plain matrix product is measured after every turn.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.provenance import RESULTS, origin, record, seconds_since

PRODUCT_SIZE, PRODUCTS_A_TURN = 2048, 3
TOLERANCE = 2e-5
"""Tolerance between both sides, absolute: hidden states after a LayerNorm, logits, losses. Equal code differs by
2e-6."""
Row = dict[str, Any]


class DisagreementError(RuntimeError):
    """Raised if the two sides do not compute the same: nothing is timed."""


# ---------------------------------------------------------------------------------------------- the command line


def arguments(
    description: str | None,
    *,
    rounds: int = 5,
    quick_rounds: int = 2,
    add: Callable[[argparse.ArgumentParser], object] | None = None,
) -> argparse.Namespace:
    """Return the options `--rounds`, `--quick` and `--results` of every question; `add` adds those of a single one."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    if add is not None:
        add(parser)
    parser.add_argument(
        "--rounds", type=int, help=f"timed turns of each side; {rounds}, or {quick_rounds} with --quick"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one shape, few rounds, compared on one row: for every day"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON; benchmarks/results")
    parsed = parser.parse_args()
    if parsed.rounds is None:
        parsed.rounds = quick_rounds if parsed.quick else rounds
    if parsed.rounds < 1:
        parser.error(f"--rounds must be at least 1; got {parsed.rounds}. Leave it out for the default.")
    parsed.started, parsed.origin = time.monotonic(), origin()
    return parsed


# ----------------------------------------------------------------------------------------------------- comparing


def agree(name: str, ours: Tensor, theirs: Tensor, *, tolerance: float, relative: bool = False) -> float:
    """Return the largest difference; raise DisagreementError if it is above the tolerance. `relative`: to their largest
    value."""
    if ours.shape != theirs.shape:
        raise DisagreementError(
            f"{name} must have one shape; got {list(ours.shape)} here and {list(theirs.shape)} there. "
            "Compare the same work."
        )
    difference = float((ours.detach() - theirs.detach()).abs().max())
    if relative:
        difference /= max(float(theirs.detach().abs().max()), 1e-30)
    if not difference <= tolerance:  # NaN is a disagreement too
        raise DisagreementError(
            f"{name} must agree to {tolerance:g}{' of the largest value' if relative else ''}; got {difference:.3g}. "
            "A faster wrong answer is an error: see `make parity`."
        )
    return difference


def agree_gradients(
    ours: nn.Module, theirs: Mapping[str, Tensor | None], *, tolerance: float = 1e-4, smallest: float = 1e-6
) -> float:
    """Compare every gradient that they have, under our names; return the largest difference, each relative to its
    largest value.

    A gradient below `smallest` of the largest of all is rounding on both sides, and is left out.
    """
    scale = max(float(value.abs().max()) for value in theirs.values() if value is not None)
    differences = []
    for name, value in theirs.items():
        if value is None or float(value.abs().max()) < smallest * scale:
            continue
        own = ours.get_parameter(name).grad
        if own is None:
            raise DisagreementError(f"{name} must have a gradient, as it has there; got none. See `make parity`.")
        differences.append(agree(f"the gradient of {name}", own, value, tolerance=tolerance, relative=True))
    return max(differences)


# -------------------------------------------------------------------------------------------------------- timing


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The times of each side in the order of the rounds, the values that its calls returned, and the times of the
    product."""

    seconds: dict[str, list[float]]
    returned: dict[str, list[float | None]]
    product_seconds: list[float] = field(default_factory=list)

    def and_then(self, later: "Measured") -> "Measured":
        """Append the rounds of a later measurement, in which some sides may have had no turn."""
        return Measured(
            seconds={name: times + later.seconds.get(name, []) for name, times in self.seconds.items()},
            returned={name: values + later.returned.get(name, []) for name, values in self.returned.items()},
            product_seconds=self.product_seconds + later.product_seconds,
        )

    def peak(self) -> float:
        """Return the multiply-adds per second of a plain matrix product: the best of all rounds."""
        return PRODUCT_SIZE**3 / min(self.product_seconds)


def interleave(sides: Mapping[str, Callable[[], float | None]], *, rounds: int, warm_up: int = 1) -> Measured:
    """Time every side once, then every side again, ...; rounds of warm-up are not counted."""
    measured = Measured(seconds={name: [] for name in sides}, returned={name: [] for name in sides})
    for number in range(-warm_up, rounds):
        for name, side in sides.items():
            gc.collect()
            began = time.perf_counter()
            value = side()
            seconds = time.perf_counter() - began
            if number >= 0:
                measured.seconds[name].append(seconds)
                measured.returned[name].append(value)
            measured.product_seconds.extend(product_seconds())
    return measured


def product_seconds(times: int = PRODUCTS_A_TURN) -> list[float]:
    """Return times of a plain float32 matrix product; only the best of all of them is meaningful."""
    a, b, out = (torch.ones(PRODUCT_SIZE, PRODUCT_SIZE) for _ in range(3))
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        seconds.append(time.perf_counter() - began)
    return seconds


def training_step(model: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], float]:
    """Return a step of forward and backward from no gradients, which returns the loss."""

    def step() -> float:
        model.zero_grad(set_to_none=True)
        value = loss()
        value.backward()
        return float(value.detach())

    return step


def require_dropout(measured: Measured) -> None:
    """Raise DisagreementError unless steps on the same input have different losses on every side: otherwise one of them
    omits dropout."""
    for name, losses in measured.returned.items():
        if len(losses) > 1 and len(set(losses)) == 1:
            raise DisagreementError(
                f"dropout must change the loss from step to step; got {losses[0]} each time from {name}. "
                "Put the model into training mode."
            )


# -------------------------------------------------------------------------------------------------------- results


def spread(seconds: Sequence[float]) -> Row:
    """Return median, quartiles and best of some times, and the times themselves."""
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 3
    return {"median": median, "quartiles": [low, high], "best": min(seconds), "seconds": list(seconds)}


def comparison(
    measured: Measured,
    *,
    work: str,
    against: str,
    multiply_adds: float,
    differences: Mapping[str, float],
    goal: float | None = None,
    share_goal: float | None = None,
    theirs: str = "theirs",
) -> Row:
    """Return a row of the table: both times, their ratio, and how close each is to the multiply-adds alone."""
    own, other = spread(measured.seconds["ours"]), spread(measured.seconds[theirs])
    limit = multiply_adds / measured.peak()
    pairs = zip(measured.seconds["ours"], measured.seconds[theirs], strict=True)
    return {
        "work": work,
        "against": against,
        "ours": own,
        "theirs": other,
        "ratio": other["median"] / own["median"],
        "ratio_of_each_round": [there / here for here, there in pairs],
        "goal": goal,
        "multiply_adds": multiply_adds,
        "peak_multiply_adds_a_second": measured.peak(),
        "product_seconds": measured.product_seconds,
        "limit_seconds": limit,
        "limit_ratio": other["median"] / limit,
        "share_of_limit": limit / own["median"],
        "share_of_limit_best": limit / own["best"],
        "share_of_limit_theirs": limit / other["median"],
        "share_goal": share_goal,
        "differences": dict(differences),
    }


def tokens_row(
    *, work: str, against: str, ours: Sequence[float], theirs: Sequence[float], goal: float | None, most: bool = False
) -> Row:
    """Return a row of a table of streams: the seconds per token of each side, round by round. The ratio is theirs to
    ours, and the goal a minimum; with `most` it is ours to theirs, and the goal a maximum."""
    own, other = spread(ours), spread(theirs)
    ratio = own["median"] / other["median"] if most else other["median"] / own["median"]
    pairs = zip(ours, theirs, strict=True)
    return {
        "work": work,
        "against": against,
        "ours": own,
        "theirs": other,
        "ratio": ratio,
        "ratio_of_each_round": [here / there if most else there / here for here, there in pairs],
        "goal": goal,
        "most": most,
        "reached": goal is not None and (ratio <= goal if most else ratio >= goal),
    }


def write(what: str, question: str, rows: Sequence[Row], options: argparse.Namespace, **more: Any) -> Path:
    """Write the result of a question."""
    values = {
        "question": question,
        "rounds": options.rounds,
        "quick": options.quick,
        "took_seconds": seconds_since(options.started),
        **more,
        "rows": list(rows),
    }
    return record(what, values, origin=options.origin, folder=options.results)


def say(row: Row) -> Row:
    """Print a row of the table as soon as it is known."""
    agreement = ", ".join(f"{name} {value:.1e}" for name, value in row["differences"].items())
    print(
        f"{row['work']}: {row['ours']['median']:.3f} s, {row['against']} {row['theirs']['median']:.3f} s, "
        f"{row['ratio']:.2f} times (limit {row['limit_ratio']:.2f}); differences: {agreement}",
        flush=True,
    )
    return row


def say_tokens(row: Row) -> Row:
    """Print a row of `tokens_row`."""
    least = "" if row["goal"] is None else f" (goal: at {'most' if row['most'] else 'least'} {row['goal']:g})"
    print(
        f"{row['work']}: {row['ours']['median'] * 1e3:.2f} ms a token, {row['against']} "
        f"{row['theirs']['median'] * 1e3:.2f} ms, {row['ratio']:.2f} times{least}",
        flush=True,
    )
    return row
