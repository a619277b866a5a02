"""From knowledge to a model that was measured on questions it had not seen.

Questions are held back in turn (whole dialogues together), the parts learn from the others, and what they say of those
held back decides what each part counts, how sure an answer is, and the threshold. Then the parts learn from all. To
know what a question outside looks like, some topics are hidden in one more round, and their questions are asked.

Where there are few questions, each is held back alone. Where most topics have a single question there is nothing to
hold back; then these questions are asked with a third of their words left out, which the report says.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from segue.apps.desk.confidence import (
    Point,
    curve,
    fit_logistic,
    outside_threshold,
    probability,
    signals,
    stack,
    threshold_for,
)
from segue.apps.desk.encoder import Encoder
from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.network import Network
from segue.apps.desk.parts import PARTS, Parts, Vectors, fit_parts
from segue.apps.desk.ranker import Ranked, Scored, fit_weights, put_forward, rank
from segue.apps.desk.terms import is_chinese

FOLDS = 5
MANY = 600
"""Held-back questions that are enough to measure: no more folds are asked than it takes."""
ENOUGH = 50
"""Held-back questions with which a fifth can be held back at a time; with fewer it is one at a time,"""
LEAST = 8
"""down to so many, and half of all questions; with fewer, shortened ones are asked."""
HIDDEN = 0.2
"""Share of the topics that are hidden to see what is outside,"""
LEAST_TOPICS = 10
"""if there are so many."""
MOST_ASKED = 3000
"""Questions that are asked in a round."""
WORTH = 0.003
"""Share of the questions by which a network must be better to be used: it makes every answer slower."""

Ask = tuple[str, tuple[int, ...], int | None]
"""A question, its topics, and its number, if it has one."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What decides: weights of the parts, of the signals, and the thresholds."""

    weights_K: NDArray[np.float64]
    base_K: NDArray[np.float64]
    """Weights without the network, for whether a question is inside: hidden topics cannot be hidden from it."""
    right_S: NDArray[np.float64]
    inside_S: NDArray[np.float64]
    threshold: float
    outside: float
    """A question with a smaller probability of being inside is outside."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A question that was held back, and what came of it."""

    question: str
    topics: tuple[int, ...]
    ranked: tuple[int, ...]
    """The best topics, at most ten."""
    confidence: float
    inside: float

    @property
    def right(self) -> bool:
        """Whether the best topic is one of its own."""
        return bool(self.ranked) and self.ranked[0] in self.topics


@dataclass(frozen=True, kw_only=True)
class Measured:
    """How good the model is on what it had not seen."""

    held: tuple[Held, ...]
    alone: dict[str, float]
    """Share right of each part by itself."""
    shortened: bool
    """Whether questions were shortened, because there were too few to hold back."""
    curve: tuple[Point, ...]
    error: float
    """Share of wrong answers that was accepted."""
    choice: str
    """What was tried and chosen, for the report; empty where nothing was."""
    outside_found: float | None
    """Share of the questions of hidden topics, and of known ones outside, that are told to be outside."""

    @property
    def top1(self) -> float:
        """Share of the questions with a topic whose best topic is right."""
        inside = [one for one in self.held if one.topics]
        return sum(one.right for one in inside) / max(1, len(inside))

    def recall(self, k: int) -> float:
        """Share of them with a right topic among the first."""
        inside = [one for one in self.held if one.topics]
        return sum(bool(set(one.ranked[:k]) & set(one.topics)) for one in inside) / max(1, len(inside))


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What `learn` gives."""

    parts: Parts
    fitted: Fitted
    measured: Measured
    network: Network | None
    """None where there was none to try, or it did not help."""


Train = Callable[[Sequence[str], Sequence[tuple[int, ...]]], Network]
"""Fine-tunes a network on questions with their topics."""


def learn(
    knowledge: Knowledge,
    encoder: Encoder | None,
    *,
    error: float,
    seed: int,
    told: Callable[[str], object],
    train: Train | None = None,
) -> Learned:
    """All that decides, measured. `error` is the share of wrong answers that is accepted. Where there are many
    questions, `train` makes a network, which is kept if it gets more of the held-back questions right."""
    vectors = None
    if encoder is not None:
        told("vectors")
        vectors = Vectors(
            asked_QE=encoder.vectors([one.text for one in knowledge.asked]),
            answers_TE=encoder.vectors([topic.answer or "" for topic in knowledge.topics]),
        )
    rounds = [
        _Round(asked=some, scores=_scores(parts, some, encoder, vectors), rest=rest)
        for parts, some, rest in _rounds(knowledge, vectors, seed=seed, told=told)
    ]
    asked = [one for some in rounds for one in some.asked]
    scores = [one for some in rounds for one in some.scores]
    golds = [gold for _, gold, _ in asked]
    base_K = _weights(scores, golds)
    network, choice = None, ""
    weights_K = base_K
    if train is not None and len(rounds) == 1 and len(asked) >= ENOUGH and rounds[0].rest:
        rest = [knowledge.asked[n] for n in rounds[0].rest if knowledge.asked[n].topics]
        network = train([one.text for one in rest], [one.topics for one in rest])
        with_it = _with_network(scores, network, [text for text, _, _ in asked])
        new_K = _weights(with_it, golds)
        before, after = _top1(scores, golds, base_K), _top1(with_it, golds, new_K)
        kept = after >= before + WORTH
        choice = (
            f"A fine-tuned network was tried: with it {after:.1%} of the held-back questions have the right topic "
            f"first, without it {before:.1%}. It is {'used' if kept else 'not used'}."
        )
        if kept:
            scores, weights_K = with_it, new_K
        else:
            network = None
    hidden = _hidden(knowledge, vectors, encoder, base_K, seed=seed, told=told)
    fitted, measured = _decided(asked, scores, hidden, weights_K, base_K, error=error, choice=choice)
    told("learning from all questions")
    parts = fit_parts(knowledge, range(len(knowledge.asked)), vectors)
    return Learned(parts=parts, fitted=fitted, measured=measured, network=network)


@dataclass(frozen=True, kw_only=True)
class _Round:
    asked: list[Ask]
    scores: list[Scored]
    rest: list[int]
    """Numbers of the questions that were learned from; none where all were."""


def _weights(scores: Sequence[Scored], golds: Sequence[tuple[int, ...]]) -> NDArray[np.float64]:
    inside = [(one, gold) for one, gold in zip(scores, golds, strict=True) if gold]
    return fit_weights([one for one, _ in inside], [gold for _, gold in inside])


def _top1(scores: Sequence[Scored], golds: Sequence[tuple[int, ...]], weights_K: NDArray[np.float64]) -> float:
    right = [int(rank(one, weights_K).topics[0]) in gold for one, gold in zip(scores, golds, strict=True) if gold]
    return sum(right) / max(1, len(right))


def scores_of(parts: Parts, questions: Sequence[str], encoder: Encoder | None, network: Network | None) -> list[Scored]:
    """For each question that is asked."""
    found = _scores(parts, [(text, (), None) for text in questions], encoder, None)
    return found if network is None else _with_network(found, network, questions)


def _with_network(scores: Sequence[Scored], network: Network, questions: Sequence[str]) -> list[Scored]:
    found = []
    for one, network_T in zip(scores, network.scores(questions), strict=True):
        scores_KC = one.scores_KC.copy()
        scores_KC[PARTS.index("network")] = network_T[one.topics]
        found.append(Scored(topics=one.topics, scores_KC=scores_KC))
    return found


def _scores(parts: Parts, asked: Sequence[Ask], encoder: Encoder | None, vectors: Vectors | None) -> list[Scored]:
    new = [text for text, _, number in asked if number is None or vectors is None]
    fresh = iter(encoder.vectors(new) if encoder is not None and new else ())
    found = []
    for text, _, number in asked:
        vector_E = None
        if encoder is not None:
            vector_E = next(fresh) if number is None or vectors is None else vectors.asked_QE[number]
        found.append(put_forward(parts.scores(text, vector_E)))
    return found


# --------------------------------------------------------------------------------------------------- what is held back


def _rounds(
    knowledge: Knowledge, vectors: Vectors | None, *, seed: int, told: Callable[[str], object]
) -> Iterator[tuple[Parts, list[Ask], list[int]]]:
    """Parts that learned from some questions, the others, and the numbers of the first."""
    counts = Counter(topic for one in knowledge.asked for topic in one.topics)
    groups = list(dict.fromkeys(one.group for one in knowledge.asked))
    order = np.random.default_rng(seed).permutation(len(groups))
    articles = len(counts) < len(knowledge.topics) / 2  # most answers are to be found by their own words
    numbers = [
        number
        for number, one in enumerate(knowledge.asked)
        if not one.topics or articles or any(counts[topic] > 1 for topic in one.topics)
    ]
    usable = sum(bool(knowledge.asked[number].topics) for number in numbers)
    many = FOLDS if usable >= ENOUGH else len(groups)
    fold_of = {groups[group]: place % many for place, group in enumerate(order.tolist())}
    folds: list[list[int]] = [[] for _ in range(many)]
    for number in numbers:
        folds[fold_of[knowledge.asked[number].group]].append(number)
    if usable < ENOUGH and (usable < LEAST or 2 * usable < sum(bool(one.topics) for one in knowledge.asked)):
        told("learning, to be asked with shortened questions")
        everything = range(len(knowledge.asked))
        draw = np.random.default_rng(seed)
        outside: list[Ask] = [(one.text, (), number) for number, one in enumerate(knowledge.asked) if not one.topics]
        short: list[Ask] = [(_shorter(one.text, draw), one.topics, None) for one in knowledge.asked if one.topics]
        yield fit_parts(knowledge, everything, vectors), short[:MOST_ASKED] + outside, []
        return
    for place, fold in enumerate(folds[: math.ceil(many * min(1.0, MANY / usable))], start=1):
        told(f"round {place}: learning without {len(fold):,} questions, and asking them")
        away = set(fold)
        rest = [number for number in range(len(knowledge.asked)) if number not in away]
        if fold:
            asked: list[Ask] = [(knowledge.asked[n].text, knowledge.asked[n].topics, n) for n in fold[:MOST_ASKED]]
            yield fit_parts(knowledge, rest, vectors), asked, rest


def _shorter(text: str, draw: np.random.Generator) -> str:
    """With a third of its words left out, or of its characters in a script without spaces."""
    chinese = is_chinese(text)
    words = list(text) if chinese else text.split()
    kept = sorted(draw.permutation(len(words))[: max(1, len(words) - len(words) // 3)].tolist())
    return ("" if chinese else " ").join(words[place] for place in kept)


def _hidden(
    knowledge: Knowledge,
    vectors: Vectors | None,
    encoder: Encoder | None,
    weights_K: NDArray[np.float64],
    *,
    seed: int,
    told: Callable[[str], object],
) -> list[Ranked]:
    """What a desk without some of the topics says to their questions."""
    topics = len(knowledge.topics)
    if topics < LEAST_TOPICS:
        return []
    away = set(np.random.default_rng(seed + 1).permutation(topics)[: int(topics * HIDDEN)].tolist())
    hidden = [number for number, one in enumerate(knowledge.asked) if one.topics and set(one.topics) <= away]
    if not hidden:
        return []
    told(f"hiding {len(away):,} topics, and asking their {len(hidden):,} questions")
    kept_topics = [topic for topic in range(topics) if topic not in away]
    place_of = {topic: place for place, topic in enumerate(kept_topics)}
    less = Knowledge(
        topics=tuple(knowledge.topics[topic] for topic in kept_topics),
        asked=tuple(
            type(one)(text=one.text, group=one.group, topics=tuple(place_of[t] for t in one.topics if t in place_of))
            for one in knowledge.asked
        ),
    )
    seen = None if vectors is None else Vectors(asked_QE=vectors.asked_QE, answers_TE=vectors.answers_TE[kept_topics])
    parts = fit_parts(less, range(len(less.asked)), seen)
    asked: list[Ask] = [(knowledge.asked[number].text, (), number) for number in hidden[:MOST_ASKED]]
    return [rank(one, weights_K) for one in _scores(parts, asked, encoder, vectors)]


# --------------------------------------------------------------------------------------------------- what is decided


def _decided(
    asked: Sequence[Ask],
    scores: Sequence[Scored],
    hidden: Sequence[Ranked],
    weights_K: NDArray[np.float64],
    base_K: NDArray[np.float64],
    *,
    error: float,
    choice: str,
) -> tuple[Fitted, Measured]:
    ranked = [rank(one, weights_K) for one in scores]
    signals_NS = stack([signals(one) for one in ranked])
    base_NS = stack([signals(rank(one, base_K)) for one in scores])
    hidden_NS = stack([signals(one) for one in hidden])
    right_N = np.array(
        [int(one.topics[0]) in gold for one, (_, gold, _) in zip(ranked, asked, strict=True)], dtype=bool
    )
    inside_N = np.array([bool(gold) for _, gold, _ in asked], dtype=bool)
    right_S = fit_logistic(signals_NS, right_N)
    inside_S = fit_logistic(
        np.concatenate([base_NS, hidden_NS]), np.concatenate([inside_N, np.zeros(len(hidden_NS), dtype=bool)])
    )
    confidence_N, within_N = probability(signals_NS, right_S), probability(base_NS, inside_S)
    some_outside = bool(len(hidden_NS)) or not inside_N.all()
    outside = outside_threshold(within_N[inside_N]) if some_outside else 0.0
    answered_N = np.where(within_N >= outside, confidence_N, 0.0)
    threshold = threshold_for(answered_N, right_N, error=error)
    told_outside = np.concatenate([within_N[~inside_N], probability(hidden_NS, inside_S)]) < outside
    measured = Measured(
        held=tuple(
            Held(
                question=text,
                topics=gold,
                ranked=tuple(one.topics[:10].tolist()),
                confidence=float(sure),
                inside=float(within),
            )
            for (text, gold, _), one, sure, within in zip(asked, ranked, answered_N, within_N, strict=True)
        ),
        alone=_alone(asked, scores),
        shortened=any(number is None for _, _, number in asked),
        choice=choice,
        curve=tuple(curve(answered_N, right_N)) if len(answered_N) else (),
        error=error,
        outside_found=float(told_outside.mean()) if some_outside and len(told_outside) else None,
    )
    fitted = Fitted(
        weights_K=weights_K,
        base_K=base_K,
        right_S=right_S,
        inside_S=inside_S,
        threshold=threshold,
        outside=outside,
    )
    return fitted, measured


def _alone(asked: Sequence[Ask], scores: Sequence[Scored]) -> dict[str, float]:
    """Each part by itself."""
    inside = [(one, gold) for one, (_, gold, _) in zip(scores, asked, strict=True) if gold]
    found = {}
    for part, name in enumerate(PARTS):
        if any(one.scores_KC[part].any() for one, _ in inside):
            right = [int(one.topics[one.scores_KC[part].argmax()]) in gold for one, gold in inside]
            found[name] = sum(right) / len(inside)
    return found
