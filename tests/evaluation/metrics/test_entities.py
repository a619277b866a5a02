import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.errors import DataError
from segue.evaluation.metrics.entities import Scheme, Span, entity_f1, spans_of, tags_of
from tests.examples import examples

seqeval = pytest.importorskip("seqeval.metrics")

TYPES = ("PER", "LOC", "T-X")
TAGS = {
    "iob1": ["O", *(f"{letter}-{kind}" for letter in "BI" for kind in TYPES), "B", "I"],
    "iob2": ["O", *(f"{letter}-{kind}" for letter in "BI" for kind in TYPES)],
    "bioes": ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in TYPES), "S", "E"],
}
SCHEMES: list[Scheme] = ["iob1", "iob2", "bioes"]


def convert(tags: list[str], *, source: Scheme, target: Scheme) -> list[str]:
    return tags_of(spans_of(tags, source), length=len(tags), scheme=target)


@pytest.mark.parametrize("scheme", SCHEMES)
@settings(deadline=None, max_examples=examples(300))
@given(data=st.data())
def test_any_tags_as_seqeval(scheme: Scheme, data: st.DataObject) -> None:
    tag = st.sampled_from(TAGS[scheme])
    rows = data.draw(st.lists(st.lists(st.tuples(tag, tag), max_size=12), min_size=1, max_size=4))
    gold = [[g for g, _ in row] for row in rows]
    predicted = [[p for _, p in row] for row in rows]
    for tags in gold:
        expected = {(kind, start, end + 1) for kind, start, end in seqeval.sequence_labeling.get_entities(tags)}
        assert spans_of(tags, scheme) == expected
    got = entity_f1(*([spans_of(tags, scheme) for tags in side] for side in (gold, predicted)), resamples=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, average in [("", "micro"), ("macro_", "macro")]:
            if average == "macro" and not any(spans_of(tags, scheme) for tags in gold + predicted):
                continue  # seqeval takes the mean of nothing
            p, r, f, _ = seqeval.sequence_labeling.precision_recall_fscore_support(gold, predicted, average=average)
            for key, expected in [("precision", p), ("recall", r), ("f1", f)]:
                assert got[name + key].value == pytest.approx(expected, abs=1e-12)
        by_type = seqeval.sequence_labeling.precision_recall_fscore_support(gold, predicted, average=None)
    types = sorted({span[0] for tags in gold + predicted for span in spans_of(tags, scheme)})
    assert len(got) == 6 + 3 * len(types)
    for number, kind in enumerate(types):
        for key, values in zip(("precision", "recall", "f1"), by_type, strict=False):
            assert got[f"{key}/{kind}"].value == pytest.approx(values[number], abs=1e-12)


@pytest.mark.parametrize(
    ("scheme", "tags", "spans"),
    [
        ("iob2", "B-A I-A O B-B", {("A", 0, 2), ("B", 3, 4)}),
        ("iob2", "B-A B-A", {("A", 0, 1), ("A", 1, 2)}),
        ("iob2", "O I-A I-B I-B", {("A", 1, 2), ("B", 2, 4)}),  # stray I
        ("iob1", "I-A I-A B-A I-A I-B", {("A", 0, 2), ("A", 2, 4), ("B", 4, 5)}),
        ("bioes", "S-A B-A I-A E-A S-A", {("A", 0, 1), ("A", 1, 4), ("A", 4, 5)}),
        ("bioes", "B-A O E-A I-A", {("A", 0, 1), ("A", 2, 3), ("A", 3, 4)}),
        ("bioes", "B-A E-B", {("A", 0, 1), ("B", 1, 2)}),
        ("iob2", "B I O B", {("_", 0, 2), ("_", 3, 4)}),
        ("iob2", "", set()),
    ],
)
def test_spans_by_hand(scheme: Scheme, tags: str, spans: set[Span]) -> None:
    assert spans_of(tags.split(), scheme) == spans


def test_one_sentence_in_three_schemes() -> None:
    rows: dict[Scheme, list[str]] = {
        "iob1": ["I-A", "O", "I-A", "I-A", "B-A", "I-B", "I-B", "I-B"],
        "iob2": ["B-A", "O", "B-A", "I-A", "B-A", "B-B", "I-B", "I-B"],
        "bioes": ["S-A", "O", "B-A", "E-A", "S-A", "B-B", "I-B", "E-B"],
    }
    for source in SCHEMES:
        for target in SCHEMES:
            assert convert(rows[source], source=source, target=target) == rows[target]


@settings(deadline=None)
@given(st.sampled_from(SCHEMES), st.sampled_from(SCHEMES), st.data())
def test_converting_keeps_the_entities(source: Scheme, target: Scheme, data: st.DataObject) -> None:
    tags = data.draw(st.lists(st.sampled_from(TAGS[source]), max_size=15))
    converted = convert(tags, source=source, target=target)
    assert len(converted) == len(tags)
    assert spans_of(converted, target) == spans_of(tags, source)
    assert convert(converted, source=target, target=target) == converted


def test_scores_by_hand() -> None:
    gold = [{("PER", 0, 2), ("LOC", 3, 4)}, {("PER", 0, 1)}]
    predicted = [{("PER", 0, 2), ("LOC", 3, 5)}, {("ORG", 0, 1), ("PER", 4, 5)}]
    got = entity_f1(gold, predicted, resamples=None)
    assert got["precision"].value == 1 / 4
    assert got["recall"].value == pytest.approx(1 / 3)
    assert got["f1"].value == pytest.approx(2 / 7)
    assert got["f1/PER"].value == 0.5
    assert got["f1/ORG"].value == 0
    assert got["macro_f1"].value == pytest.approx(0.5 / 3)


def test_intervals_are_those_of_the_slow_way() -> None:
    random = np.random.default_rng(0)
    gold = [{(kind, i, i + 1) for i, kind in enumerate(random.choice(["A", "B", "C"], 4))} for _ in range(80)]
    predicted = [{span for span in row if random.random() < 0.7} | {("A", 9, 10)} for row in gold]
    got = entity_f1(gold, predicted, resamples=1000)
    slow = []
    for _ in range(500):
        rows = random.integers(0, 80, 80)
        part = entity_f1([gold[r] for r in rows], [predicted[r] for r in rows], resamples=None)
        slow.append((part["f1"].value, part["macro_f1"].value, part["recall/B"].value))
    for name, values in zip(("f1", "macro_f1", "recall/B"), zip(*slow, strict=True), strict=True):
        low, high = np.percentile(values, [2.5, 97.5])
        assert got[name].low == pytest.approx(low, abs=0.015)
        assert got[name].high == pytest.approx(high, abs=0.015)


def test_no_entity_anywhere_is_zero() -> None:
    got = entity_f1([set()], [set()])
    assert set(got) == {"precision", "recall", "f1", "macro_precision", "macro_recall", "macro_f1"}
    assert all(metric.value == 0 for metric in got.values())


def test_what_is_refused() -> None:
    with pytest.raises(DataError, match="at least one example"):
        entity_f1([], [])
    with pytest.raises(DataError, match="got 1 and 2"):
        entity_f1([set()], [set(), set()])
    for tag in ("E-PER", "X-PER", "PER", "B-", "", "BPER"):
        with pytest.raises(DataError, match="at token 1"):
            spans_of(["O", tag], "iob2")
    with pytest.raises(DataError, match="one of iob1, iob2, bioes"):
        tags_of(set(), length=1, scheme="iobes")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="after"):
        tags_of({("A", 0, 2), ("B", 1, 3)}, length=3, scheme="iob2")
    with pytest.raises(DataError, match="within 3 tokens"):
        tags_of({("A", 2, 4)}, length=3, scheme="iob2")
