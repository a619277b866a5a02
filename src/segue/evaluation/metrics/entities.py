"""Conversion between tags and entities, and entity-level metrics.

In: rows of tags (`B-PER`, `I-PER`, `O`; also without a type, as `B`), or sets of spans. Out: spans (type, start, end)
with the end excluded, and precision, recall and F1 over whole spans, as in seqeval's default mode and conlleval.

Tags that break their scheme are read leniently, as those two do: a span continues while its type stays the same; it
starts at B and S, and at I or E after O, after E or S, and after another type; it ends after E and S. So a stray I
opens an entity, and IOB1 and IOB2 are read alike. A tag that is not in the scheme is refused.

A type counts in the macro means if it occurs in gold or predicted. A ratio with denominator 0 is 0.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Literal, get_args

import numpy as np

from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, SEED, Floats, Metric, divide, measure
from segue.evaluation.metrics.inputs import check_lengths

Scheme = Literal["iob1", "iob2", "bioes"]
Span = tuple[str, int, int]
UNTYPED = "_"
"""Type of tags that have none, as in seqeval."""


def spans_of(tags: Sequence[str], scheme: Scheme) -> set[Span]:
    """Return the entities marked by tags."""
    spans: set[Span] = set()
    start, open_type = 0, None
    for position, tag in enumerate(tags):
        letter, kind = _parse(tag, scheme, position)
        if open_type is not None and (letter in "OBS" or kind != open_type):
            spans.add((open_type, start, position))
            open_type = None
        if letter != "O" and open_type is None:
            start, open_type = position, kind
        if letter in "ES":
            spans.add((kind, start, position + 1))
            open_type = None
    if open_type is not None:
        spans.add((open_type, start, len(tags)))
    return spans


def tags_of(spans: Iterable[Span], *, length: int, scheme: Scheme) -> list[str]:
    """Return the tags that mark these entities, which may not overlap."""
    _check_scheme(scheme)
    tags = ["O"] * length
    previous: Span | None = None
    for span in sorted(spans, key=lambda span: span[1:]):
        kind, start, end = span
        after = 0 if previous is None else previous[2]
        if not after <= start < end <= length:
            raise DataError(
                f"entities must lie one after another within {length} tokens; got "
                f"{span}{f' after {previous}' if previous is not None else ''}. Remove overlapping entities."
            )
        adjoins = previous is not None and previous[0] == kind and previous[2] == start
        letters = _letters(end - start, scheme, adjoins=adjoins)
        tags[start:end] = [letter if kind == UNTYPED else f"{letter}-{kind}" for letter in letters]
        previous = span
    return tags


def entity_f1(
    gold: Sequence[Collection[Span]],
    predicted: Sequence[Collection[Span]],
    *,
    resamples: int | None = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Metric]:
    """Return precision, recall, f1 over all entities; macro_precision, macro_recall, macro_f1; and for each type
    `precision/TYPE`, `recall/TYPE`, `f1/TYPE`. One collection of spans for each row; a span counts once."""
    check_lengths(gold, predicted)
    gold_sets, predicted_sets = [set(row) for row in gold], [set(row) for row in predicted]
    types = sorted({span[0] for row in (*gold_sets, *predicted_sets) for span in row})
    column = {kind: number for number, kind in enumerate(types)}
    counts_N3T = np.zeros((len(gold), 3, len(types)))
    for counts_3T, gold_set, predicted_set in zip(counts_N3T, gold_sets, predicted_sets, strict=True):
        for counts_T, spans in zip(counts_3T, (gold_set & predicted_set, gold_set, predicted_set), strict=True):
            for kind, _, _ in spans:
                counts_T[column[kind]] += 1
    counts_NS = counts_N3T.reshape(len(gold), 3 * len(types))

    def formula(weights_RN: Floats) -> dict[str, Floats]:
        both_RT, gold_RT, predicted_RT = np.split(weights_RN @ counts_NS, 3, axis=1)
        occurs_R = ((gold_RT + predicted_RT) > 0).sum(axis=1).astype(np.float64)
        values = _ratios(both_RT.sum(axis=1), gold_RT.sum(axis=1), predicted_RT.sum(axis=1))
        by_type = _ratios(both_RT, gold_RT, predicted_RT)
        for name, value_RT in by_type.items():
            values[f"macro_{name}"] = divide(value_RT.sum(axis=1), occurs_R)
        for number, kind in enumerate(types):
            values |= {f"{name}/{kind}": value_RT[:, number] for name, value_RT in by_type.items()}
        return values

    return measure(formula, np.ones(len(gold), dtype=np.int64), resamples=resamples, seed=seed)


def _ratios(both: Floats, gold: Floats, predicted: Floats) -> dict[str, Floats]:
    return {
        "precision": divide(both, predicted),
        "recall": divide(both, gold),
        "f1": divide(2 * both, gold + predicted),
    }


def _parse(tag: str, scheme: Scheme, position: int) -> tuple[str, str]:
    """Return the letter and the type of a tag."""
    _check_scheme(scheme)
    if tag == "O":
        return "O", UNTYPED
    known = "BIES" if scheme == "bioes" else "BI"
    letter, dash, kind = tag.partition("-")
    if len(letter) != 1 or letter not in known or (dash and not kind):
        raise DataError(
            f"a tag of the scheme {scheme} must be O, or one of {', '.join(known)} and a type, as B-PER; got {tag!r} "
            f"at token {position}. Choose the scheme that the data has: {', '.join(get_args(Scheme))}."
        )
    return letter, kind or UNTYPED


def _letters(length: int, scheme: Scheme, *, adjoins: bool) -> str:
    """Return the tag letters of an entity; in IOB1 only one that directly follows another of its type begins with B."""
    if scheme == "iob1":
        return ("B" if adjoins else "I") + "I" * (length - 1)
    if scheme == "iob2":
        return "B" + "I" * (length - 1)
    return "S" if length == 1 else "B" + "I" * (length - 2) + "E"


def _check_scheme(scheme: Scheme) -> None:
    if scheme not in get_args(Scheme):
        raise DataError(f"the tag scheme must be one of {', '.join(get_args(Scheme))}; got {scheme!r}.")
