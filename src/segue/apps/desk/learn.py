"""From knowledge to a model that was measured on questions it had not seen.

Questions are held back in turn (`rounds`), the parts learn from the others, and what they say of those held back
decides what each part counts, how sure an answer is, and the threshold. Then the parts learn from all. To know what a
question outside looks like, some topics are hidden in one more round, and their questions are asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.matcher import Matcher, fit_matcher
from segue.apps.desk.network import Network
from segue.apps.desk.pairs import LEAST as LEAST_PAIRS
from segue.apps.desk.pairs import PairReader
from segue.apps.desk.parts import PARTS, Parts, Vectors, fit_parts
from segue.apps.desk.ranker import Ranked, Scored, fit_weights, put_forward, rank
from segue.apps.desk.rounds import ENOUGH, FOLDS, MOST_ASKED, Ask, rounds_of
from segue.apps.desk.second import Trainers, choices_of, with_network, with_pairs
from segue.apps.encoder import Encoder

HIDDEN = 0.2
"""Share of the topics that are hidden to see what is outside,"""
LEAST_TOPICS = 10
"""if there are so many."""
WORTH = 0.003
"""Mean reciprocal rank by which what is tried must be better to be used: it makes every answer slower."""


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
    """0 where nothing is answered: outside, or a topic without an answer."""
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
    matcher: Matcher | None
    """What was learned on top of the vectors, if that helps."""
    fitted: Fitted
    measured: Measured
    network: Network | None
    pairs: PairReader | None
    """None where there was none to try, or it did not help."""


def learn(
    knowledge: Knowledge,
    encoder: Encoder | None,
    *,
    error: float,
    seed: int,
    told: Callable[[str], object],
    trainers: Trainers | None = None,
) -> Learned:
    """All that decides, measured. `error` is the share of wrong answers that is accepted. Where there are enough
    questions, vectors are matched (`matcher`) and `trainers` fine-tune a model; each is kept if the right topics of the
    held-out questions come further to the front with it."""
    vectors = None
    if encoder is not None:
        told("vectors")
        vectors = Vectors(
            asked_QE=encoder.vectors([one.text for one in knowledge.asked]),
            answers_TE=encoder.vectors([topic.answer or "" for topic in knowledge.topics]),
        )
        vectors.answers_TE[[topic.answer is None for topic in knowledge.topics]] = 0
    rounds = [
        _Round(parts=parts, asked=some, scores=_scores(parts, some, encoder, vectors), rest=rest)
        for parts, some, rest in rounds_of(knowledge, vectors, seed=seed, told=told)
    ]
    measurable = 0 < len(rounds) <= FOLDS and len(rounds[0].asked) >= ENOUGH and bool(rounds[0].rest)
    choices: list[str] = []
    matcher = None
    if encoder is not None and vectors is not None and measurable:
        told("learning to match vectors")
        rounds, matched = _try_matcher(knowledge, encoder, vectors, rounds, choices, seed=seed)
        if matched:
            matcher = _matcher(knowledge, vectors, range(len(knowledge.asked)), seed=seed)
    base_K = _weights(rounds)
    network, pairs, weights_K = None, None, base_K
    if trainers is not None and measurable:
        seen = (
            vectors if matcher is None or vectors is None else _matched(knowledge, vectors, rounds[0].rest, seed=seed)
        )
        rounds, network, pairs = _try_network(knowledge, trainers, seen, rounds, base_K, choices, seed=seed)
        weights_K = _weights(rounds)
    hidden = _hidden(knowledge, vectors, encoder, base_K, match=matcher is not None, seed=seed, told=told)
    fitted, measured = _decided(
        [one for some in rounds for one in some.asked],
        [one for some in rounds for one in some.scores],
        hidden,
        weights_K,
        base_K,
        _answerable(knowledge),
        error=error,
        choice=" ".join(choices),
    )
    told("learning from all questions")
    everything = range(len(knowledge.asked))
    if matcher is not None and vectors is not None and encoder is not None:
        vectors = vectors.matched(matcher)
    parts = fit_parts(knowledge, everything, vectors)
    return Learned(parts=parts, matcher=matcher, fitted=fitted, measured=measured, network=network, pairs=pairs)


@dataclass(frozen=True, kw_only=True)
class _Round:
    parts: Parts
    asked: list[Ask]
    scores: list[Scored]
    rest: list[int]
    """Numbers of the questions that were learned from; none where all were."""


def _try_matcher(
    knowledge: Knowledge,
    encoder: Encoder,
    vectors: Vectors,
    rounds: list[_Round],
    choices: list[str],
    *,
    seed: int,
) -> tuple[list[_Round], bool]:
    """The rounds with matched vectors, if that is better."""
    new = []
    for one in rounds:
        matched = _matched(knowledge, vectors, one.rest, seed=seed)
        if matched is None:
            return rounds, False
        parts = fit_parts(knowledge, one.rest, matched, like=one.parts)
        new.append(replace(one, parts=parts, scores=_scores(parts, one.asked, encoder, matched)))
    before, after = _reciprocal(rounds), _reciprocal(new)
    kept = after >= before + WORTH
    choices.append(
        f"Matching of vectors was learned: with it the mean reciprocal rank of the right topic is {after:.3f} on the "
        f"held-out questions, without it {before:.3f}. It is {'used' if kept else 'not used'}."
    )
    return (new if kept else rounds), kept


def _matcher(knowledge: Knowledge, vectors: Vectors, rows: Sequence[int], *, seed: int) -> Matcher | None:
    golds = [one.topics for one in knowledge.asked]
    return fit_matcher(vectors.asked_QE, vectors.answers_TE, golds, rows, seed=seed)


def _matched(knowledge: Knowledge, vectors: Vectors, rows: Sequence[int], *, seed: int) -> Vectors | None:
    """With what is learned from some questions."""
    found = _matcher(knowledge, vectors, rows, seed=seed)
    return None if found is None else vectors.matched(found)


def _try_network(
    knowledge: Knowledge,
    trainers: Trainers,
    vectors: Vectors | None,
    rounds: list[_Round],
    base_K: NDArray[np.float64],
    choices: list[str],
    *,
    seed: int,
) -> tuple[list[_Round], Network | None, PairReader | None]:
    """The first round with a network or a reader of pairs, if that is better; it is the only one that these are asked
    in."""
    first = rounds[0]
    questions = [text for text, _, _ in first.asked]
    network, pairs = None, None
    if trainers.network is not None and len(rounds) == 1:
        rest = [knowledge.asked[n] for n in first.rest if knowledge.asked[n].topics]
        network = trainers.network([one.text for one in rest], [one.topics for one in rest])
        what, scores = "A fine-tuned network", with_network(first.scores, network, questions)
    elif trainers.pairs is not None and first.parts.linear is None and len(first.rest) >= LEAST_PAIRS:
        some = choices_of(knowledge, first.parts, first.rest, vectors, base_K, seed=seed)
        if len(some) < LEAST_PAIRS:
            return rounds, None, None
        pairs = trainers.pairs(some)
        what, scores = "A reader of pairs", with_pairs(first.scores, pairs, first.parts, questions, base_K)
    else:
        return rounds, None, None
    before, after = _reciprocal([first]), _reciprocal([replace(first, scores=scores)])
    kept = after >= before + WORTH
    choices.append(
        f"{what} was tried: with it the mean reciprocal rank of the right topic is {after:.3f} on the held-out "
        f"questions, without it {before:.3f}. It is {'used' if kept else 'not used'}."
    )
    return ([replace(first, scores=scores)], network, pairs) if kept else (rounds, None, None)


def _weights(rounds: Sequence[_Round]) -> NDArray[np.float64]:
    inside = [(one, gold) for some in rounds for one, (_, gold, _) in zip(some.scores, some.asked, strict=True) if gold]
    return fit_weights([one for one, _ in inside], [gold for _, gold in inside])


def _reciprocal(rounds: Sequence[_Round]) -> float:
    """The mean reciprocal rank of the right topic, with the weights that fit best."""
    weights_K = _weights(rounds)
    found = []
    for some in rounds:
        for one, (_, gold, _) in zip(some.scores, some.asked, strict=True):
            if gold:
                places = np.flatnonzero(np.isin(rank(one, weights_K).topics, list(gold)))
                found.append(1 / (1 + int(places[0])) if len(places) else 0.0)
    return sum(found) / max(1, len(found))


def _scores(parts: Parts, asked: Sequence[Ask], encoder: Encoder | None, vectors: Vectors | None) -> list[Scored]:
    """`vectors` are those of the known questions; others are made."""
    new = [text for text, _, number in asked if number is None or vectors is None]
    fresh = iter(encoder.vectors(new) if encoder is not None and new else ())
    found = []
    for text, _, number in asked:
        vector_E = None
        if encoder is not None:
            vector_E = next(fresh) if number is None or vectors is None else vectors.asked_QE[number]
        found.append(put_forward(parts.scores(text, vector_E)))
    return found


# ------------------------------------------------------------------------------------------------------ what is outside


def _hidden(
    knowledge: Knowledge,
    vectors: Vectors | None,
    encoder: Encoder | None,
    weights_K: NDArray[np.float64],
    *,
    match: bool,
    seed: int,
    told: Callable[[str], object],
) -> list[Ranked]:
    """What a desk without some of the topics says to their questions. With `match` its vectors are matched, without
    these questions too."""
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
    if match and seen is not None:
        seen = _matched(less, seen, range(len(less.asked)), seed=seed) or seen
    parts = fit_parts(less, range(len(less.asked)), seen)
    asked: list[Ask] = [(knowledge.asked[number].text, (), number) for number in hidden[:MOST_ASKED]]
    return [rank(one, weights_K) for one in _scores(parts, asked, encoder, seen)]


# --------------------------------------------------------------------------------------------------- what is decided


def _decided(
    asked: Sequence[Ask],
    scores: Sequence[Scored],
    hidden: Sequence[Ranked],
    weights_K: NDArray[np.float64],
    base_K: NDArray[np.float64],
    answerable_T: NDArray[np.bool_],
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
    given_N = answerable_T[[int(one.topics[0]) for one in ranked]] if ranked else np.zeros(0, dtype=bool)
    answered_N = np.where((within_N >= outside) & given_N, confidence_N, 0.0)
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


def _answerable(knowledge: Knowledge) -> NDArray[np.bool_]:
    """Topics with an answer: the others go to a person, and do not count as answered. Where none has one, the desk only
    recognises topics, and all of them count."""
    found_T = np.array([topic.answer is not None for topic in knowledge.topics], dtype=bool)
    return found_T if found_T.any() else ~found_T


def _alone(asked: Sequence[Ask], scores: Sequence[Scored]) -> dict[str, float]:
    """Each part by itself."""
    inside = [(one, gold) for one, (_, gold, _) in zip(scores, asked, strict=True) if gold]
    found = {}
    for part, name in enumerate(PARTS):
        if any(one.scores_KC[part].any() for one, _ in inside):
            right = [int(one.topics[one.scores_KC[part].argmax()]) in gold for one, gold in inside]
            found[name] = sum(right) / len(inside)
    return found
