"""Training of a model from knowledge, and its evaluation on held-out questions.

Questions are held out in turn (`rounds`) and scored by parts fitted to the others; from these scores follow the weights
of the parts, the confidences and the thresholds (`crosswise`). Then the parts are fitted to all questions. As examples
of out-of-scope questions, topics are hidden in turn, and their questions are asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from segue.apps.desk.confidence import Counts, Outcomes, Point, curve
from segue.apps.desk.crosswise import FOLDS as CROSSED
from segue.apps.desk.crosswise import Evidence, decide, folds_of, weights_for
from segue.apps.desk.knowledge import Knowledge
from segue.apps.desk.matcher import Matcher, fit_matcher
from segue.apps.desk.network import Network
from segue.apps.desk.pairs import LEAST as LEAST_PAIRS
from segue.apps.desk.pairs import PairReader
from segue.apps.desk.parts import PARTS, Parts, Vectors, fit_parts
from segue.apps.desk.ranker import Scored, fit_weights, put_forward, rank
from segue.apps.desk.rounds import ENOUGH, FOLDS, MOST_ASKED, Ask, rounds_of
from segue.apps.desk.second import Trainers, choices_of, with_network, with_pairs
from segue.apps.encoder import Encoder
from segue.errors import ConfigError

HIDDEN = 5
"""One in this many topics is hidden at a time."""
LEAST_TOPICS = 10
"""Minimum number of topics to hide any."""
MANY_ASKED = 3000
"""Number of questions above which only the first fifth of the topics is hidden."""
WORTH = 0.003
"""Minimum gain in mean reciprocal rank for an additional model to be used, because it makes every answer slower."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Fitted weights of the parts and of the signals, and thresholds."""

    weights_K: NDArray[np.float64]
    base_K: NDArray[np.float64]
    """Weights without a fine-tuned model, for the scope of a question: topics cannot be hidden from such a model."""
    right_S: NDArray[np.float64]
    inside_S: NDArray[np.float64]
    threshold: float
    outside: float
    """Scope threshold: a question with a smaller probability of being in scope is out of scope."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """A held-out question and its outcome."""

    question: str
    topics: tuple[int, ...]
    ranked: tuple[int, ...]
    """First topics, at most ten."""
    confidence: float
    """Confidence; 0 if nothing is answered, because the question looks out of scope or its topic has no answer."""
    inside: float

    @property
    def right(self) -> bool:
        """True if the first topic is correct."""
        return bool(self.ranked) and self.ranked[0] in self.topics


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Evaluation of a model on held-out questions."""

    held: tuple[Held, ...]
    alone: dict[str, float]
    """Accuracy of each part on its own."""
    shortened: bool
    """Whether questions were shortened, because too few could be held out."""
    curve: tuple[Point, ...]
    outcomes: Outcomes
    """Outcomes by confidences fitted without the question, from which the threshold is chosen."""
    crosswise: Counts
    """Counts with thresholds that were chosen without the question, too."""
    calibration: float
    """Expected calibration error of the confidence, on questions that it was not fitted to."""
    error: float
    """Accepted share of wrong answers."""
    outside_share: float
    """Expected share of out-of-scope questions."""
    choice: str
    """Sentences on the models that were tried and chosen, for the report; empty if there were none."""
    outside_found: tuple[int, int] | None
    """Number of out-of-scope questions (of hidden topics, or known as such) that are recognised, and their total."""

    @property
    def top1(self) -> float:
        """Share of in-scope questions whose first topic is correct."""
        inside = [one for one in self.held if one.topics]
        return sum(one.right for one in inside) / max(1, len(inside))

    def recall(self, k: int) -> float:
        """Return the share of in-scope questions with a correct topic among the first k."""
        inside = [one for one in self.held if one.topics]
        return sum(bool(set(one.ranked[:k]) & set(one.topics)) for one in inside) / max(1, len(inside))


@dataclass(frozen=True, kw_only=True)
class Learned:
    """A trained and evaluated model."""

    parts: Parts
    matcher: Matcher | None
    """Bi-encoder; None if it did not help."""
    fitted: Fitted
    measured: Measured
    network: Network | None
    pairs: PairReader | None
    """Fine-tuned models; None if they were not tried, or did not help."""


def learn(
    knowledge: Knowledge,
    encoder: Encoder | None,
    *,
    error: float,
    seed: int,
    told: Callable[[str], object],
    trainers: Trainers | None = None,
    outside_share: float | None = None,
) -> Learned:
    """Train and evaluate a model.

    `error` is the accepted share of wrong answers, `outside_share` the expected share of out-of-scope questions; None
    for their share among the held-out questions. If there are enough questions, a bi-encoder is trained (`matcher`),
    and `trainers` fine-tune a model; each is kept if it raises the mean reciprocal rank on held-out questions.
    """
    if outside_share and len(knowledge.topics) < LEAST_TOPICS and not knowledge.outside:
        raise ConfigError(
            f"an outside share of {outside_share} needs examples of questions outside; got none, and "
            f"{len(knowledge.topics)} topics, where from {LEAST_TOPICS} some can be hidden to serve as such. Add rows "
            "with the intent oos."
        )
    vectors = None
    if encoder is not None:
        told("computing embeddings")
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
        told("training embeddings to match")
        rounds, matched = _try_matcher(knowledge, encoder, vectors, rounds, choices, seed=seed)
        if matched:
            matcher = _matcher(knowledge, vectors, range(len(knowledge.asked)), seed=seed)
    plain, network, pairs = rounds, None, None
    if trainers is not None and measurable:
        seen = (
            vectors if matcher is None or vectors is None else _matched(knowledge, vectors, rounds[0].rest, seed=seed)
        )
        rounds, network, pairs = _try_network(knowledge, trainers, seen, rounds, choices, seed=seed)
        plain = plain[: len(rounds)]
    hidden = _hidden(knowledge, vectors, encoder, match=matcher is not None, seed=seed, told=told)
    fitted, measured = _decided(
        knowledge,
        rounds,
        plain,
        hidden,
        error=error,
        outside_share=outside_share,
        choice=" ".join(choices),
        seed=seed,
    )
    told("training on all questions")
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
    """Indices of the training questions; empty if all were used."""


def _try_matcher(
    knowledge: Knowledge,
    encoder: Encoder,
    vectors: Vectors,
    rounds: list[_Round],
    choices: list[str],
    *,
    seed: int,
) -> tuple[list[_Round], bool]:
    """Train bi-encoders for all rounds; return the rounds with them if they help, and whether they do."""
    new = []
    for one in rounds:
        matched = _matched(knowledge, vectors, one.rest, seed=seed)
        if matched is None:
            return rounds, False
        parts = fit_parts(knowledge, one.rest, matched, like=one.parts)
        new.append(replace(one, parts=parts, scores=_scores(parts, one.asked, encoder, matched)))
    before, after = _reciprocal(knowledge, rounds, seed=seed), _reciprocal(knowledge, new, seed=seed)
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
    """Return the embeddings after a bi-encoder trained on some questions; None if it cannot be trained."""
    found = _matcher(knowledge, vectors, rows, seed=seed)
    return None if found is None else vectors.matched(found)


def _try_network(
    knowledge: Knowledge,
    trainers: Trainers,
    vectors: Vectors | None,
    rounds: list[_Round],
    choices: list[str],
    *,
    seed: int,
) -> tuple[list[_Round], Network | None, PairReader | None]:
    """Fine-tune a classifier or a cross-encoder for the first round; return that round with it if it helps, or all
    rounds without it."""
    first = rounds[0]
    questions = [text for text, _, _ in first.asked]
    network, pairs = None, None
    base_K = _weights(rounds)
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
    new = replace(first, scores=scores)
    before, after = _reciprocal(knowledge, [first], seed=seed), _reciprocal(knowledge, [new], seed=seed)
    kept = after >= before + WORTH
    choices.append(
        f"{what} was tried: with it the mean reciprocal rank of the right topic is {after:.3f} on the held-out "
        f"questions, without it {before:.3f}. It is {'used' if kept else 'not used'}."
    )
    return ([new], network, pairs) if kept else (rounds, None, None)


def _weights(rounds: Sequence[_Round]) -> NDArray[np.float64]:
    inside = [(one, gold) for some in rounds for one, (_, gold, _) in zip(some.scores, some.asked, strict=True) if gold]
    return fit_weights([one for one, _ in inside], [gold for _, gold in inside])


def _reciprocal(knowledge: Knowledge, rounds: Sequence[_Round], *, seed: int) -> float:
    """Return the mean reciprocal rank of the correct topic, with weights fitted to other questions."""
    asked = [one for some in rounds for one in some.asked]
    scores = [one for some in rounds for one in some.scores]
    golds = [gold for _, gold, _ in asked]
    groups = _groups(knowledge, asked)
    fold_of = folds_of(groups, seed=seed)
    folds_N = np.array([fold_of[group] for group in groups])
    found = []
    for fold in range(CROSSED):
        weights_K = weights_for(scores, golds, folds_N != fold)
        for place in np.flatnonzero(folds_N == fold).tolist():
            if golds[place]:
                places = np.flatnonzero(np.isin(rank(scores[place], weights_K).topics, list(golds[place])))
                found.append(1 / (1 + int(places[0])) if len(places) else 0.0)
    return sum(found) / max(1, len(found))


def _scores(parts: Parts, asked: Sequence[Ask], encoder: Encoder | None, vectors: Vectors | None) -> list[Scored]:
    """Score questions; embeddings of known questions are taken from `vectors`, those of others are computed."""
    new = [text for text, _, number in asked if number is None or vectors is None]
    fresh = iter(encoder.vectors(new) if encoder is not None and new else ())
    found = []
    for text, _, number in asked:
        vector_E = None
        if encoder is not None:
            vector_E = next(fresh) if number is None or vectors is None else vectors.asked_QE[number]
        found.append(put_forward(parts.scores(text, vector_E)))
    return found


# -------------------------------------------------------------------------------------------------------- out of scope


def _hidden(
    knowledge: Knowledge,
    vectors: Vectors | None,
    encoder: Encoder | None,
    *,
    match: bool,
    seed: int,
    told: Callable[[str], object],
) -> list[tuple[int, Scored]]:
    """Return indices of questions, and their scores by parts from which their topics were hidden. With `match`, a
    bi-encoder is trained each time, without these questions too."""
    topics = len(knowledge.topics)
    if topics < LEAST_TOPICS:
        return []
    order = np.random.default_rng(seed + 1).permutation(topics).tolist()
    found: list[tuple[int, Scored]] = []
    for first in range(HIDDEN if len(knowledge.asked) <= MANY_ASKED else 1):
        away = set(order[first::HIDDEN])
        hidden = [number for number, one in enumerate(knowledge.asked) if one.topics and set(one.topics) <= away]
        if hidden:
            told(f"hiding {len(away):,} topics, and testing on their {len(hidden):,} questions")
            less, seen = _without(knowledge, vectors, away)
            if match and seen is not None:
                seen = _matched(less, seen, range(len(less.asked)), seed=seed) or seen
            parts = fit_parts(less, range(len(less.asked)), seen)
            asked: list[Ask] = [(knowledge.asked[number].text, (), number) for number in hidden[:MOST_ASKED]]
            found += zip(hidden, _scores(parts, asked, encoder, seen), strict=False)
    return found


def _without(knowledge: Knowledge, vectors: Vectors | None, away: set[int]) -> tuple[Knowledge, Vectors | None]:
    """Return the knowledge and its embeddings without some topics."""
    kept = [topic for topic in range(len(knowledge.topics)) if topic not in away]
    place_of = {topic: place for place, topic in enumerate(kept)}
    less = Knowledge(
        topics=tuple(knowledge.topics[topic] for topic in kept),
        asked=tuple(
            type(one)(text=one.text, group=one.group, topics=tuple(place_of[t] for t in one.topics if t in place_of))
            for one in knowledge.asked
        ),
    )
    seen = None if vectors is None else Vectors(asked_QE=vectors.asked_QE, answers_TE=vectors.answers_TE[kept])
    return less, seen


# ------------------------------------------------------------------------------------------------------- thresholds


def _decided(
    knowledge: Knowledge,
    rounds: Sequence["_Round"],
    plain: Sequence["_Round"],
    hidden: Sequence[tuple[int, Scored]],
    *,
    error: float,
    outside_share: float | None,
    choice: str,
    seed: int,
) -> tuple[Fitted, Measured]:
    asked = [one for some in rounds for one in some.asked]
    scores = [one for some in rounds for one in some.scores]
    groups = _groups(knowledge, asked)
    fold_of = folds_of([*groups, *(knowledge.asked[number].group for number, _ in hidden)], seed=seed)
    same = all(one is other for one, other in zip(rounds, plain, strict=True))
    decided = decide(
        Evidence(
            golds=[gold for _, gold, _ in asked],
            scores=scores,
            plain=scores if same else [one for some in plain for one in some.scores],
            hidden=[one for _, one in hidden],
            folds_N=np.array([fold_of[group] for group in groups], dtype=np.int64),
            hidden_folds_M=np.array([fold_of[knowledge.asked[number].group] for number, _ in hidden], dtype=np.int64),
            answerable_T=_answerable(knowledge),
        ),
        error=error,
        outside_share=outside_share,
    )
    sure_N = decided.outcomes.confidence_N[: len(asked)]
    held = zip(asked, decided.ranked, sure_N.tolist(), decided.inside_N.tolist(), strict=True)
    known = sum(not gold for _, gold, _ in asked) / max(1, len(asked))
    measured = Measured(
        held=tuple(
            Held(question=text, topics=gold, ranked=tuple(one.topics[:10].tolist()), confidence=sure, inside=within)
            for (text, gold, _), one, sure, within in held
        ),
        alone=_alone(asked, scores),
        shortened=any(number is None for _, _, number in asked),
        choice=choice,
        curve=tuple(curve(decided.outcomes)),
        outcomes=decided.outcomes,
        crosswise=decided.counts,
        calibration=decided.calibration,
        error=error,
        outside_share=known if outside_share is None else outside_share,
        outside_found=decided.found,
    )
    fitted = Fitted(
        weights_K=decided.weights_K,
        base_K=decided.base_K,
        right_S=decided.right_S,
        inside_S=decided.inside_S,
        threshold=decided.threshold,
        outside=decided.outside,
    )
    return fitted, measured


def _groups(knowledge: Knowledge, asked: Sequence[Ask]) -> list[str]:
    """Return the group with which each question is held out; shortened questions are groups of their own."""
    return [f"shortened {n}" if one is None else knowledge.asked[one].group for n, (_, _, one) in enumerate(asked)]


def _answerable(knowledge: Knowledge) -> NDArray[np.bool_]:
    """Return True for topics with an answer; questions of the others go to a person and do not count as answered. If no
    topic has an answer, the desk only recognises topics, and all of them count."""
    found_T = np.array([topic.answer is not None for topic in knowledge.topics], dtype=bool)
    return found_T if found_T.any() else ~found_T


def _alone(asked: Sequence[Ask], scores: Sequence[Scored]) -> dict[str, float]:
    """Return the accuracy of each part on its own."""
    inside = [(one, gold) for one, (_, gold, _) in zip(scores, asked, strict=True) if gold]
    found = {}
    for part, name in enumerate(PARTS):
        if any(one.scores_KC[part].any() for one, _ in inside):
            right = [int(one.topics[one.scores_KC[part].argmax()]) in gold for one, gold in inside]
            found[name] = sum(right) / len(inside)
    return found
