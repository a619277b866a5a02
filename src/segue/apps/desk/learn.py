"""From knowledge to a model that was measured on questions it had not seen.

Questions are held back in turn (`rounds`), the parts learn from the others, and what they say of those held back
decides what each part counts, how sure an answer is, and the threshold (`crosswise`). Then the parts learn from all. To
know what a question outside looks like, topics are hidden in turn, and their questions are asked.
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
"""One topic of so many is hidden at a time to see what is outside,"""
LEAST_TOPICS = 10
"""if there are so many."""
MANY_ASKED = 3000
"""Questions from which the first fifth of the topics is enough."""
WORTH = 0.003
"""Mean reciprocal rank by which what is tried must be better to be used: it makes every answer slower."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What decides: weights of the parts, of the signals, and the thresholds."""

    weights_K: NDArray[np.float64]
    base_K: NDArray[np.float64]
    """Weights without a network or a reader of pairs, for whether a question is inside: hidden topics cannot be hidden
    from these."""
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
    outcomes: Outcomes
    """By confidences that were fitted without the question; what a threshold is chosen by."""
    crosswise: Counts
    """Where the threshold, too, was chosen without the question."""
    calibration: float
    """Expected calibration error of the confidence, on questions that it was not fitted to."""
    error: float
    """Share of wrong answers that was accepted."""
    outside_share: float
    """Share of questions outside that the threshold counts on."""
    choice: str
    """What was tried and chosen, for the report; empty where nothing was."""
    outside_found: tuple[int, int] | None
    """How many of the questions of hidden topics, and of known ones outside, are recognised, and of how many."""

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
    outside_share: float | None = None,
) -> Learned:
    """All that decides, measured. `error` is the share of wrong answers that is accepted; `outside_share` the share of
    questions outside that is expected, None for that of the known ones. Where there are enough
    questions, vectors are matched (`matcher`) and `trainers` fine-tune a model; each is kept if the right topics of the
    held-out questions come further to the front with it."""
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
    """With what is learned from some questions."""
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
    """The first round with a network or a reader of pairs, if that is better; it is the only one that these are asked
    in."""
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
    """The mean reciprocal rank of the right topic, with weights that were fitted to other questions."""
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
    *,
    match: bool,
    seed: int,
    told: Callable[[str], object],
) -> list[tuple[int, Scored]]:
    """What desks without some of the topics say to their questions, by the numbers of these. With `match` their vectors
    are matched, without these questions too."""
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
    """Without some topics."""
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


# --------------------------------------------------------------------------------------------------- what is decided


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
    """What each question is held back with; those that were shortened are by themselves."""
    return [f"shortened {n}" if one is None else knowledge.asked[one].group for n, (_, _, one) in enumerate(asked)]


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
