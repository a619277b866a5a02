"""The evaluation report of a model, and the numbers stored with it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from segue.apps.recommend.final import NAMES
from segue.apps.recommend.histories import Histories
from segue.apps.recommend.learn import Learned
from segue.report.pages import Block, Bullets, Heading, Paragraph, Table

TITLE = "Evaluation of the recommender"
DRAWS = 1000
"""Number of bootstrap samples."""
LONG = 200
"""Number of earlier events above which a history is long."""
SIMPLE = ("item-kNN", "popularity")
"""Names of the baselines."""


def summary(
    histories: Histories, learned: Learned, *, items: int, with_text: int, left_out: Mapping[str, int]
) -> dict[str, Any]:
    """Return the numbers that are stored with the model."""
    return {
        "users": len(histories.users),
        "items": items,
        "items_with_text": with_text,
        "events": len(histories.items_N),
        "latest": int((histories.times_N == histories.times_N.max()).sum()),
        "left_out": dict(left_out),
        "repeats": learned.repeats,
        "epochs": learned.epochs,
        "negatives": learned.network.negatives,
        "final": {
            "method": learned.final.method,
            "weights": dict(zip(NAMES, learned.final.weights, strict=True)),
        },
        "seconds": round(learned.seconds, 1),
        "held_back": {name: asdict(one) for name, one in learned.qualities().items()},
        "long_histories": _long(learned),
        "difference": _difference(learned),
    }


def _long(learned: Learned) -> dict[str, Any]:
    """Return the number of held-out events after long histories, and NDCG@10 on them."""
    far = np.array([place > LONG for _, place in learned.wanted], dtype=bool)
    ndcg = {
        name: float(np.where(ranks[far] <= 10, 1 / np.log2(1 + ranks[far]), 0).mean()) if far.any() else 0.0
        for name, ranks in learned.held.items()
    }
    return {"events": int(far.sum()), "ndcg": ndcg}


def _difference(learned: Learned) -> dict[str, Any]:
    """Return NDCG@10 minus that of the better baseline, with a bootstrap interval over users."""
    gains = {name: np.where(ranks <= 10, 1 / np.log2(1 + ranks), 0.0) for name, ranks in learned.held.items()}
    if not learned.wanted:
        return {"against": "popularity", "mean": 0.0, "low": 0.0, "high": 0.0}
    other = max((name for name in gains if name in SIMPLE), key=lambda name: float(gains[name].mean()))
    users = np.array([user for user, _ in learned.wanted])
    names, where = np.unique(users, return_inverse=True)
    sums = np.zeros(len(names))
    np.add.at(sums, where, gains["segue"] - gains[other])
    counts = np.bincount(where, minlength=len(names))
    drawn = np.random.default_rng(0).integers(len(names), size=(DRAWS, len(names)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return {"against": other, "mean": float(sums.sum() / counts.sum()), "low": float(low), "high": float(high)}


def _final_text(final: Mapping[str, Any]) -> str:
    """Return a sentence on the method of the final ranking."""
    if final["method"] == "mixed":
        shares = ", ".join(f"{name} {weight:.2f}" for name, weight in final["weights"].items())
        return f"Items are ranked by a mixture, which was best on the validation events. Weights: {shares}."
    simpler = " The simpler method was better; more events may change that." if final["method"] != "network" else ""
    return f"Items are ranked by {final['method']} alone, which was best on the validation events.{simpler}"


def _far(long: Mapping[str, Any], name: str) -> str:
    """Return NDCG@10 on events after long histories; a dash if there are none."""
    return f"{long['ndcg'][name]:.4f}" if long["events"] else "–"


def not_measured(numbers: Mapping[str, Any]) -> str:
    """Return a sentence on why no event was held out."""
    latest, events = numbers.get("latest", 0), numbers["events"]
    if latest > 1 and 2 * latest > events:
        return (
            f"Too many events share the latest time ({latest:,} of {events:,}) to hold any out: nothing is evaluated. "
            "Give times with hours and minutes, or events of more days."
        )
    return "Too few events to hold any out: nothing is evaluated."


def report(numbers: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of the report."""
    held, difference, long = numbers["held_back"], numbers["difference"], numbers["long_histories"]
    events = held["segue"]["events"]
    rows = [
        (name, f"{one['hit_rate']:.4f}", f"{one['ndcg']:.4f}", f"{one['mrr']:.4f}", _far(long, name))
        for name, one in held.items()
    ]
    again = "are ranked too" if numbers["repeats"] else "are not ranked, for any method"
    return [
        Heading(text="What it knows"),
        Bullets(
            texts=[
                f"{numbers['users']:,} users, {numbers['items']:,} items, {numbers['events']:,} events.",
                f"{numbers['items_with_text']:,} items have a title, a description or tags.",
                f"Trained in {numbers['seconds']:.0f} seconds; the best weights are from epoch {numbers['epochs']}.",
                "Trained with the softmax over all items."
                if numbers["negatives"] is None
                else f"Trained with {numbers['negatives']:,} negative items per step, sampled by popularity with "
                "the log-Q correction.",
                *(f"Rows skipped: {count:,} ({reason})." for reason, count in numbers["left_out"].items()),
            ]
        ),
        Heading(text="Accuracy on later events"),
        Paragraph(
            text=f"{events:,} of the latest events were held out by time and predicted one after the other, each "
            "from all earlier events of the user. The next item is ranked among all items, without sampling; "
            f"items that the user had seen {again}. The last column counts the {long['events']:,} events after "
            f"more than {LONG} others of the user."
        ),
        *([] if events else [Paragraph(text=not_measured(numbers))]),
        Table(
            header=("method", "HR@10", "NDCG@10", "MRR", f"NDCG@10, long histories ({long['events']:,})"),
            rows=rows,
            numbers=frozenset({1, 2, 3, 4}),
        ),
        Paragraph(
            text=f"NDCG@10 minus that of {difference['against']}: {difference['mean']:+.4f}, 95 % interval over "
            f"users {difference['low']:+.4f} to {difference['high']:+.4f}. "
            + (
                "The model is no better than the baseline: more events or more epochs may change that."
                if difference["low"] <= 0
                else "The model is better than the baseline."
            )
        ),
        Paragraph(text=_final_text(numbers["final"])),
        Heading(text="Settings"),
        Table(header=("setting", "value"), rows=[(name, str(value)) for name, value in settings.items()]),
    ]
