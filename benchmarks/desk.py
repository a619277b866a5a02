"""How good is a desk? Intents, out-of-scope questions, retrieval, thresholds and speed, beside baselines.

Each part is a result of its own, so the same command continues with what is missing.

    .venv/bin/python -m benchmarks.desk --data DATA
    .venv/bin/python -m benchmarks.desk --data DATA --parts intents-banking77-5 speed --no-finetune

DATA has the folders banking77, clinc150, insuranceqa, lcqmc and bq. Baselines are scikit-learn's: TF-IDF with logistic
regression, BM25 (the topic of the nearest question), NB-SVM (Wang and Manning 2012). Speeds are meaningful only on an
otherwise idle machine: --busy marks them.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.desk_baselines import bm25_rankings, nb_svm, nearest_by_bm25, tfidf_scores
from benchmarks.desk_data import Intents, Retrieval, banking77, clinc150, few, insuranceqa, pairs
from benchmarks.provenance import RESULTS, Result, newest, origin, record, seconds_since
from segue.apps.desk.build import Built, build
from segue.apps.desk.confidence import calibration_error, threshold_for
from segue.apps.desk.knowledge import Asked, Knowledge, Topic
from segue.apps.desk.model import DeskModel

SIZES: tuple[int | None, ...] = (None, 10, 5)
ERRORS = (0.1, 0.05, 0.02, 0.01)
ENTRIES = 100_000
RATE = 20
"""Questions per second."""


def intent_knowledge(rows: list[tuple[str, str]], outside: list[str]) -> Knowledge:
    """Return knowledge with a topic for each intent; its answer is its name, which is not searched."""
    names = {name: place for place, name in enumerate(sorted({name for _, name in rows}))}
    topics = tuple(Topic(name=name, answer=None, source="") for name in names)
    asked = [Asked(text=text, topics=(names[name],), group=str(n)) for n, (text, name) in enumerate(rows)]
    asked += [Asked(text=text, topics=(), group=f"outside {n}") for n, text in enumerate(outside)]
    return Knowledge(topics=topics, asked=tuple(asked))


def tell(said: str) -> None:
    """Print progress; of the many steps of fine-tuning, one in a hundred."""
    if "step" not in said or ("00, loss" in said):
        print(f"    {said}", flush=True)


@dataclass(frozen=True, kw_only=True)
class How:
    """Training settings of desks."""

    model: str | None
    finetune: bool
    seeds: int
    """Number of random samples of the questions, for the small sizes."""
    busy: bool


def learned(knowledge: Knowledge, how: How) -> tuple[Built, float]:
    """Train a desk; return it and the duration in seconds."""
    started = time.perf_counter()
    built = build(knowledge, model=how.model, error=0.05, seed=0, finetune=how.finetune, told=tell)
    return built, time.perf_counter() - started


def intents(data: Intents, size: int | None, how: How) -> Result:
    """Measure accuracy, the errors of thresholds, and out-of-scope questions, if there are some."""
    found = []
    for seed in range(how.seeds if size is not None else 1):
        found.append(_intents(data, few(data.train, size, seed=seed), how))
        print(found[-1], flush=True)
    return {"a topic": size or "all", "test questions": len(data.test), "draws": found}


def _intents(data: Intents, rows: list[tuple[str, str]], how: How) -> Result:
    texts, golds = [text for text, _ in data.test], [name for _, name in data.test]
    built, seconds = learned(intent_knowledge(rows, data.outside), how)
    desk = built.model
    judged = desk.judge(texts)
    names = [topic.name for topic in desk.knowledge.topics]
    right = np.array([names[int(one.ranked.topics[0])] == gold for one, gold in zip(judged, golds, strict=True)])
    sure = np.array([one.confidence for one in judged])
    inside = np.array([one.inside for one in judged])
    scores, labels = tfidf_scores(rows, texts)
    values: Result = {
        "questions": len(rows),
        "desk": round(float(right.mean()), 4),
        "TF-IDF + LR": round(_share([labels[place] for place in scores.argmax(1)], golds), 4),
        "BM25": round(_share(nearest_by_bm25(rows, texts), golds), 4),
        "NB-SVM": round(_share(nb_svm(rows, texts), golds), 4),
        "thresholds": _thresholds(built, sure, inside, right),
        "calibration error": round(calibration_error(sure, right), 4),
        **_learning(built, seconds),
    }
    if data.outside_test:
        values["outside"] = _outside(desk, data.outside_test, inside, scores, rows)
    return values


def _learning(built: Built, seconds: float) -> Result:
    """Return the facts that are reported for every desk."""
    return {
        "parts alone, held back": {name: round(value, 4) for name, value in built.measured.alone.items()},
        "weights": [round(float(value), 3) for value in built.model.fitted.weights_K],
        "tried": built.measured.choice,
        "seconds to learn": round(seconds, 1),
    }


def _share(found: list[str], golds: list[str]) -> float:
    return float(np.mean([one == gold for one, gold in zip(found, golds, strict=True)]))


def _thresholds(built: Built, sure: Any, inside: Any, right: Any) -> list[dict[str, float]]:
    """Return the requested error rates, and the actual ones on the test questions."""
    outside = built.model.fitted.outside
    rows = []
    for error in ERRORS:
        threshold = threshold_for(built.measured.outcomes, error=error)
        held = built.measured.outcomes.at(threshold)
        answered = np.where(inside >= outside, sure, 0.0) >= threshold
        rows.append(
            {
                "asked error": error,
                "held back: answered": round(held.share_answered, 4),
                "held back: error": round(held.share_wrong, 4),
                "answered": round(float(answered.mean()), 4),
                "error": round(float(1 - right[answered].mean()), 4) if answered.any() else 0.0,
            }
        )
    return rows


def _outside(
    desk: DeskModel, outside: list[str], inside: Any, scores: Any, rows: list[tuple[str, str]]
) -> dict[str, float]:
    """Return the share of out-of-scope questions that are refused if 95 % of in-scope questions are accepted."""
    found = np.array([one.inside for one in desk.judge(outside)])
    theirs, _ = tfidf_scores(rows, outside)
    return {
        "desk": round(float((found < np.quantile(inside, 0.05)).mean()), 4),
        "maximum softmax of TF-IDF + LR": round(float((theirs.max(1) < np.quantile(scores.max(1), 0.05)).mean()), 4),
        "desk, as it was learned": round(float((found < desk.fitted.outside).mean()), 4),
        "inside kept, as it was learned": round(float((inside >= desk.fitted.outside).mean()), 4),
    }


def retrieval(data: Retrieval, how: How) -> Result:
    """Measure MRR and recall at ten, of the desk and of BM25. A training question that is in the pool itself is also
    about its own entry: otherwise the desk would learn that the same words mean something else."""
    places = {text: place for place, text in enumerate(data.pool)}
    topics = tuple(Topic(name=text[:80], answer=text, source="") for text in data.pool)
    asked = tuple(
        Asked(
            text=text, topics=tuple(dict.fromkeys(places[one] for one in (text, *right) if one in places)), group=str(n)
        )
        for n, (text, right) in enumerate(data.train)
    )
    built, seconds = learned(Knowledge(topics=topics, asked=asked), how)
    texts = [text for text, _ in data.test]
    golds = [{places[one] for one in right} for _, right in data.test]
    own = [places.get(text) for text in texts]
    ranked = [one.ranked.topics[:11].tolist() for one in built.model.judge(texts)]
    theirs = bm25_rankings(data.pool, texts, characters=data.chinese)
    return {
        "pool": len(topics),
        "questions to learn from": len(asked),
        "test questions": len(texts),
        "desk": _ranking(ranked, golds, own),
        "BM25": _ranking(theirs, golds, own),
        **_learning(built, seconds),
    }


def _ranking(ranked: list[list[int]], golds: list[set[int]], own: list[int | None]) -> dict[str, float]:
    """Return the mean reciprocal rank and the recall at ten. The question's own entry in the pool is skipped."""
    first = []
    for some, gold, itself in zip(ranked, golds, own, strict=True):
        others = [topic for topic in some if topic != itself][:10]
        first.append(next((place for place, topic in enumerate(others, start=1) if topic in gold), None))
    return {
        "MRR@10": round(statistics.mean(1 / place if place else 0.0 for place in first), 4),
        "recall@1": round(statistics.mean(place == 1 for place in first), 4),
        "recall@10": round(statistics.mean(place is not None for place in first), 4),
    }


def speed(data: Intents, how: How) -> Result:
    """Send questions at a steady rate to a desk of many entries, made of real questions with a word of another in
    each."""
    draw = np.random.default_rng(0)
    texts = [text for text, _ in data.train]
    words = [word for text in texts for word in text.split()]
    made = []
    for n in range(ENTRIES):
        some = texts[n % len(texts)].split()
        some[int(draw.integers(len(some)))] = words[int(draw.integers(len(words)))]
        made.append(" ".join(some))
    entries = list(dict.fromkeys(made))
    knowledge = Knowledge(
        topics=tuple(Topic(name=f"topic {n}", answer=f"Answer {n}.", source="") for n in range(len(entries))),
        asked=tuple(Asked(text=text, topics=(n,), group=str(n)) for n, text in enumerate(entries)),
    )
    built, seconds = learned(knowledge, how)
    times: list[float] = []
    begun = time.perf_counter()
    for n, (text, _) in enumerate(data.test[:600]):
        due = begun + n / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        built.model.ask(text)
        times.append(time.perf_counter() - due)
    return {
        "entries": len(entries),
        "seconds to learn": round(seconds, 1),
        "questions a second": RATE,
        "p50 ms": round(1000 * float(np.quantile(times, 0.5)), 1),
        "p95 ms": round(1000 * float(np.quantile(times, 0.95)), 1),
        "machine was busy with other work": how.busy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--model", help='model of the vectors, or "none". Default: the packaged one of the language')
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results go. Default: benchmarks/results")
    parser.add_argument("--parts", nargs="*", help="only these")
    parser.add_argument("--seeds", type=int, default=3, help="draws of the questions for small sizes. Default: 3")
    parser.add_argument("--no-finetune", dest="finetune", action="store_false", help="no network is tried")
    parser.add_argument("--again", action="store_true", help="also what has a result of this code")
    parser.add_argument("--busy", action="store_true", help="the machine does other work: its speeds mean little")
    arguments = parser.parse_args()
    data = arguments.data
    how = How(model=arguments.model, finetune=arguments.finetune, seeds=arguments.seeds, busy=arguments.busy)
    sets = {"banking77": banking77, "clinc150": clinc150}
    parts: dict[str, Callable[[], Result]] = {
        f"intents-{name}-{size or 'all'}": partial(lambda read, size: intents(read(data), size, how), read, size)
        for name, read in sets.items()
        for size in SIZES
    }
    parts |= {
        "retrieval-bq": lambda: retrieval(pairs(data, "bq"), how),
        "retrieval-lcqmc": lambda: retrieval(pairs(data, "lcqmc"), how),
        "retrieval-insuranceqa-en": lambda: retrieval(insuranceqa(data, chinese=False), how),
        "retrieval-insuranceqa-zh": lambda: retrieval(insuranceqa(data, chinese=True), how),
        "speed": lambda: speed(banking77(data), how),
    }
    for name in arguments.parts or parts:
        kind = f"desk-{name}"
        if not arguments.again and newest(arguments.results, kind) is not None:
            print(f"{name}: has a result")
            continue
        print(name, flush=True)
        began, where = time.monotonic(), origin()
        values = parts[name]()
        more = {"vectors": how.model or "packaged", "busy": how.busy, "seconds": seconds_since(began)}
        record(kind, {**values, **more}, origin=where, folder=arguments.results)
        print(values, flush=True)


if __name__ == "__main__":
    main()
