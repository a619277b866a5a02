"""How good is a monitor? Sentiment, calibration, changes, speed, many texts, kills; beside baselines.

Each part is a result of its own, so the same command continues with what is missing.

    .venv/bin/python -m benchmarks.monitor --data DATA
    .venv/bin/python -m benchmarks.monitor --data DATA --parts store --texts 10000000 --store FOLDER
    .venv/bin/python -m benchmarks.monitor --data DATA --parts phrasebank-network fin-news-zh-network

DATA has the folders financial_phrasebank, fin_news_zh and stocknet. Speeds are meaningful only on an otherwise idle
machine: --busy marks them.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.monitor_baselines import choose, nb_svm, tfidf
from benchmarks.monitor_data import companies, financial_news, phrasebank, tweets
from benchmarks.monitor_network import measured, with_network
from benchmarks.monitor_shifts import shifts
from benchmarks.monitor_store import many_texts, soak
from benchmarks.provenance import RESULTS, Result, newest, origin, record, seconds_since
from segue.api.tables import memory_table
from segue.apps.cells import UTC, parse_time
from segue.apps.monitor.build import build
from segue.apps.monitor.calibrate import calibration_error
from segue.apps.monitor.entities import entities_of, read_entities
from segue.apps.monitor.labelled import SENTIMENTS, Labelled, gathered
from segue.apps.monitor.learn import fit, learn
from segue.apps.monitor.linear import learn_vocabulary
from segue.apps.monitor.model import MonitorModel
from segue.apps.monitor.reading import made_batch, take
from segue.apps.monitor.settings import MonitorSettings
from segue.apps.monitor.store import MONITOR
from segue.apps.monitor.stream import Stream
from segue.apps.monitor.terms import terms_of
from segue.apps.monitor.texts import Rows
from segue.apps.monitor.watch import DAY, Seen

FOLDS = 10
COMPANIES = 40
"""Number of companies with most texts, for the experiment with changes; it uses every second one, and settings were
chosen on the others."""
MONTHS, SPANS = 6, 4
"""Months that a model has not seen, and the number of such periods."""


def tell(said: str) -> None:
    """Print progress."""
    print(f"    {said}", flush=True)


def learned(rows: list[Labelled], entities: Any = None) -> MonitorModel:
    """Train a monitor's model."""
    known = entities_of(()) if entities is None else entities
    return build(gathered(rows), known, seed=0, told=lambda _: None).model


def probabilities(model: MonitorModel, texts: list[str]) -> Any:
    """Return probabilities [N, 3]."""
    found = [model.read(text).sentiment for text in texts]
    return np.array([[one.negative, one.neutral, one.positive] for one in found])


def ten_folds(data: Path) -> Result:
    """Cross-validate on financial_phrasebank: every sentence is classified by a model trained on the other nine parts.
    Penalties and kinds of n-grams of all methods are chosen on the first nine parts."""
    rows = phrasebank(data)
    order = np.random.default_rng(0).permutation(len(rows))
    answers: dict[str, list[int]] = {"monitor": [], "TF-IDF + LR, tuned": [], "NB-SVM": []}
    gold: list[int] = []
    penalty, tuned = 0.0, None
    for number, part in enumerate(np.array_split(order, FOLDS), start=1):
        away = set(part.tolist())
        rest = [rows[n] for n in range(len(rows)) if n not in away]
        texts = [rows[n][0] for n in part]
        gold += [SENTIMENTS.index(rows[n][1]) for n in part]
        given, labels = [text for text, _ in rest], [label for _, label in rest]
        if tuned is None:
            whole = gathered([Labelled(text=text, sentiment=SENTIMENTS.index(label)) for text, label in rest])
            penalty = learn(whole, seed=0, told=lambda _: None).inverse_penalties["sentiment"]
            tuned = choose(given, labels, chinese=False)
        answers["monitor"] += linear_answers(given, [SENTIMENTS.index(one) for one in labels], texts, penalty)
        answers["TF-IDF + LR, tuned"] += [SENTIMENTS.index(one) for one in tfidf(given, labels, texts, tuned)]
        answers["NB-SVM"] += [SENTIMENTS.index(one) for one in nb_svm(given, labels, texts, chinese=False)]
        tell(f"fold {number}: " + ", ".join(f"{name} {measured(some, gold)}" for name, some in answers.items()))
    found: Result = {name: measured(some, gold) for name, some in answers.items()}
    return {**found, "sentences": len(gold), "inverse penalty": penalty, "chosen for TF-IDF + LR": str(tuned)}


def linear_answers(texts: list[str], labels: list[int], others: list[str], inverse_penalty: float) -> list[int]:
    """Return the predictions of the linear part of a monitor; the calibration that follows changes few of them."""
    terms = [terms_of(text) for text in texts]
    vocabulary = learn_vocabulary(terms)
    weight_VC, bias_C = fit(
        [vocabulary.vector(one) for one in terms],
        labels,
        width=len(vocabulary.terms),
        classes=len(SENTIMENTS),
        inverse_penalty=inverse_penalty,
    )
    found = []
    for text in others:
        columns, values = vocabulary.vector(terms_of(text))
        found.append(int(np.argmax(values @ weight_VC[columns] + bias_C)))
    return found


def news(data: Path) -> Result:
    """Train on headlines of fin_news_zh, and test on news with bodies."""
    train, test = financial_news(data)
    gold = [int(row.sentiment or 0) for row in test]
    texts = [row.text for row in test]
    model = learned(train)
    found = probabilities(model, texts)
    given, labels = [row.text for row in train], [str(row.sentiment) for row in train]
    result: Result = {"monitor": measured(found.argmax(1).tolist(), gold)}
    theirs = tfidf(given, labels, texts, choose(given, labels, chinese=True))
    result["TF-IDF + LR, tuned"] = measured([int(one) for one in theirs], gold)
    result["NB-SVM"] = measured([int(one) for one in nb_svm(given, labels, texts, chinese=True)], gold)
    return {**result, "learned from": len(train), "told": len(test)}


def first_fold(data: Path) -> tuple[list[Labelled], list[Labelled]]:
    """Return the first of the ten parts of financial_phrasebank as test rows, and the others as training rows."""
    rows = [Labelled(text=text, sentiment=SENTIMENTS.index(label)) for text, label in phrasebank(data)]
    part = np.array_split(np.random.default_rng(0).permutation(len(rows)), FOLDS)[0]
    away = {rows[n].text for n in part.tolist()}
    return [row for row in rows if row.text not in away], [rows[n] for n in part.tolist()]


def calibration(data: Path) -> Result:
    """Measure calibration on fin_news_zh headlines: each period of months is classified by a model trained on
    everything before it."""
    rows = list(gathered(financial_news(data)[0]).rows)
    end = rows[-1].time or 0.0
    result: Result = {}
    everything: list[Any] = []
    for back in range(SPANS, 0, -1):
        cut, stop = (end - some * MONTHS * 30 * DAY for some in (back, back - 1))
        before = [row for row in rows if (row.time or 0.0) < cut]
        after = [row for row in rows if cut <= (row.time or 0.0) < stop or (back == 1 and row.time == end)]
        found = probabilities(learned(before), [row.text for row in after])
        gold = [int(row.sentiment or 0) for row in after]
        everything += zip(found, gold, strict=True)
        told = {"learned from": len(before), "told": len(after), **_calibrated(found, gold)}
        result["the last" if back == 1 else f"{back} before the end"] = told
        tell(str(told))
    whole = _calibrated(np.array([one for one, _ in everything]), [gold for _, gold in everything])
    return {"months of a stretch": MONTHS, **result, "all": {"told": len(everything), **whole}}


def _calibrated(found: Any, gold: list[int]) -> dict[str, float]:
    """Return the calibration error, and its mean if the probabilities were correct, since so few rows have some by
    chance."""
    draw = np.random.default_rng(0)
    drawn = [[int(draw.choice(len(one), p=one / one.sum())) for one in found] for _ in range(20)]
    return {
        "calibration error": round(calibration_error(found, gold), 4),
        "by chance": round(float(np.mean([calibration_error(found, some) for some in drawn])), 4),
        **measured(found.argmax(1).tolist(), gold),
    }


@cache
def english_monitor(data: Path) -> MonitorModel:
    """Return a model trained on financial_phrasebank, with the companies of stocknet."""
    rows = [Labelled(text=text, sentiment=SENTIMENTS.index(label)) for text, label in phrasebank(data)]
    return learned(rows, read_entities(memory_table(companies(data), name="companies")))


def changes(data: Path) -> Result:
    """Measure the detection of changes planted in the texts of companies of stocknet."""
    model = english_monitor(data)
    streams: dict[str, list[Seen]] = {}
    for number, row in enumerate(sorted(tweets(data), key=lambda row: row["time"])):
        for code, one in model.read(row["text"]).entities.items():
            when = parse_time(row["time"], UTC) or 0.0
            seen = Seen(time=when, number=number, negative=one.negative, positive=one.positive)
            streams.setdefault(code, []).append(seen)
    most = dict(sorted(streams.items(), key=lambda item: -len(item[1]))[:COMPANIES:2])
    negative = [text for text, label in phrasebank(data) if label == "negative"]
    bad = [(one.negative, one.positive) for one in (model.read(text).sentiment for text in negative)]
    told = [pair for pair in bad if pair[0] >= 0.5]
    return {**shifts(most, told, tell), "texts": sum(map(len, most.values()))}


def throughput(data: Path, busy: bool) -> Result:
    """Measure the whole pipeline, from rows to the database, with alarms; and scikit-learn's TF-IDF with a
    regression."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    model, rows = english_monitor(data), tweets(data)[:20_000]
    with tempfile.TemporaryDirectory() as name:
        database = MONITOR.database_at(Path(name) / MONITOR.sqlite, alone=True)
        database.open()
        stream = Stream(MonitorSettings().rules())
        began, computed = time.perf_counter(), time.process_time()
        for start in range(0, len(rows), 200):
            batch = made_batch("tweets", rows[start : start + 200], Rows(source="tweets", zone=UTC))
            take(database, stream, model, "0001", batch)
        seconds, computed = time.perf_counter() - began, time.process_time() - computed
        database.close()
    began = time.process_time()
    for row in rows:
        model.read(row["text"])
    reading = time.process_time() - began
    labelled = phrasebank(data)
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    theirs = LogisticRegression(C=10, max_iter=500).fit(
        vectorizer.fit_transform([text for text, _ in labelled]), [label for _, label in labelled]
    )
    began = time.process_time()
    for start in range(0, len(rows), 200):
        theirs.predict_proba(vectorizer.transform([row["text"] for row in rows[start : start + 200]]))
    return {
        "texts": len(rows),
        "texts a second, whole pipeline": round(len(rows) / seconds),
        "texts a second of one core's time": {
            "whole pipeline": round(len(rows) / computed),
            "reading alone": round(len(rows) / reading),
            "TF-IDF + LR of scikit-learn, sentiment alone": round(len(rows) / (time.process_time() - began)),
        },
        "machine was busy with other work": busy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results go. Default: benchmarks/results")
    parser.add_argument("--parts", nargs="*", help="only these")
    parser.add_argument("--model", default="auto", help="network of the parts with one. Default: the packaged one")
    parser.add_argument("--texts", type=int, default=10_000_000, help="texts in the store. Default: ten million")
    parser.add_argument(
        "--store", type=Path, default=Path("monitor-store"), help="where they go; kept. Default: monitor-store"
    )
    parser.add_argument("--kills", type=int, default=100, help="kills of the soak. Default: 100")
    parser.add_argument("--again", action="store_true", help="also what has a result of this code")
    parser.add_argument("--busy", action="store_true", help="the machine does other work: its speeds mean little")
    arguments = parser.parse_args()
    data = arguments.data
    parts: dict[str, Callable[[], Result]] = {
        "phrasebank": lambda: ten_folds(data),
        "fin-news-zh": lambda: news(data),
        "phrasebank-network": lambda: with_network(*first_fold(data), arguments.model, tell),
        "fin-news-zh-network": lambda: with_network(*financial_news(data), arguments.model, tell),
        "calibration": lambda: calibration(data),
        "changes": lambda: changes(data),
        "throughput": lambda: throughput(data, arguments.busy),
        "store": lambda: many_texts(arguments.texts, arguments.store, arguments.busy, tell),
        "soak": lambda: soak(english_monitor(data), tweets(data), arguments.kills, tell),
    }
    for name in arguments.parts or parts:
        kind = f"monitor-{name}"
        if not arguments.again and newest(arguments.results, kind) is not None:
            print(f"{name}: has a result")
            continue
        print(name, flush=True)
        began, where = time.monotonic(), origin()
        values = parts[name]()
        record(kind, {**values, "seconds": seconds_since(began)}, origin=where, folder=arguments.results)
        print(values, flush=True)


if __name__ == "__main__":
    main()
