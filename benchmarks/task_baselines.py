"""Baselines of the results table: for each task a trivial answer, and the appropriate classical method.

In: rows of a table, as `segue finetune` reads them. Out: the task's own metric of each. Rows become examples, and
predictions become numbers, by the code of the tasks, so that baselines and models are evaluated alike. Only training
rows are used for training. Penalties of classifiers are chosen on the validation rows of each data set; all other
settings are the same for all data sets, and were chosen on training and validation rows only.

| task | trivial | classical |
|---|---|---|
| classify | the most frequent class | TF-IDF, logistic regression; NB-SVM |
| pair | the most frequent class | TF-IDF of both texts, their distance and their product, logistic regression |
| regress | the mean | cosine of TF-IDF vectors of single words (Chinese: 1 and 2 characters) |
| tag | the most frequent tag of each token | logistic regression over a window of five tokens, valid tags only |
| answer | the first sentence | the sentence nearest to the question by TF-IDF, trimmed |
| rank | all documents equal, which counts as the worst order | cosine of TF-IDF vectors |
| generate | the source itself | the target of the nearest training source by TF-IDF |

TF-IDF is of words and pairs of words, or of 1 to 3 Chinese characters, with sublinear counts; a regression uses the
100,000 most frequent ones. NB-SVM (Wang and Manning 2012) is one linear SVM for each class, on the binary counts of the
same n-grams, each scaled by the log of its ratio in and outside the class. Trimmed: without the words (Chinese:
characters) at both ends that the question has too, and without punctuation there.
"""

import re
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse  # type: ignore[import-untyped]
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
from sklearn.feature_extraction import FeatureHasher  # type: ignore[import-untyped]
from sklearn.feature_extraction.text import (  # type: ignore[import-untyped]
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.linear_model import LogisticRegression, SGDClassifier  # type: ignore[import-untyped]
from sklearn.svm import LinearSVC  # type: ignore[import-untyped]
from threadpoolctl import threadpool_limits

from benchmarks.desk_baselines import log_count_ratio
from benchmarks.task_data import Rows
from segue.data.tables import Table
from segue.data.tables.reader import TableRows
from segue.errors import DataError
from segue.evaluation.baselines import INVERSE_PENALTIES, INVERSE_PENALTY, MOST_FEATURES, MOST_STEPS, class_shares
from segue.evaluation.metrics.entities import Span, spans_of
from segue.tasks.answer import Answer, Answered
from segue.tasks.classify import Classify
from segue.tasks.examples import column_names, gathered, rows_with_roles, understand
from segue.tasks.regress import Regress
from segue.tasks.table import task_kind
from segue.tasks.tag import Tag
from segue.tasks.tag.pieces import decode, in_characters, unit_kinds
from segue.tasks.tag.rows import Marked, units_of
from segue.tasks.task import Example, Prediction, Task
from segue.text.ngrams import WORD, Texts
from segue.train.joining import has_class

NB_SVM_PENALTIES = (0.01, 0.1, 1.0)
TAG_PASSES = 10
"""Number of passes over the tokens of the training rows."""
TAG_FEATURES = 2**18
"""Number of buckets for hashed features of tokens."""
TAG_PENALTY = 1e-6
ROWS_DECODED = 64
"""Number of rows decoded at a time."""
_SENTENCE_END = re.compile(r"(?<=[。！？；!?;])|(?<=\.)\s|\n")


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """One result beside those of the models."""

    name: str
    value: float
    low: float | None
    high: float | None
    """Upper end of the 95 % interval."""
    metric: str
    seconds: float
    """Processor time for training and prediction; reading rows and the interval are not counted."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A task with its examples: the data that a method may use. The gold values of the test examples are for
    `measure`."""

    task: Task
    language: str
    train: list[Example]
    valid: list[Example]
    test: list[Example]


Method = Callable[[Asked], Sequence[Any]]
"""Returns a value for each test example, as the task's `measure` compares it with gold."""


def baselines(task: str, language: str, train: Rows, test: Rows, *, valid: Rows) -> list[Baseline]:
    """Return the trivial answer first, then the classical methods."""
    if task not in METHODS:
        raise DataError(f"there are baselines for {', '.join(METHODS)}; got {task!r}. Compare it in another way.")
    if language not in ("en", "zh"):
        raise DataError(f'the language of a data set must be "en" or "zh"; got {language!r}.')
    asked = _asked(task, language, train, valid, test)
    found = []
    for name, method in METHODS[task].items():
        began = time.process_time()
        values = method(asked)
        seconds = time.process_time() - began
        metrics = asked.task.measure(asked.test, [Prediction(value=value, columns={}) for value in values])
        metric = metrics[asked.task.metric]
        found.append(
            Baseline(
                name=name, value=metric.value, low=metric.low, high=metric.high, metric=metric.name, seconds=seconds
            )
        )
    return found


def _asked(task: str, language: str, train: Rows, valid: Rows, test: Rows) -> Asked:
    """Convert tables as `segue finetune` does."""
    kind = task_kind(task)
    named = {"the training rows": train, "the validation rows": valid, "the test rows": test}
    tables = [_table(name, rows) for name, rows in named.items()]
    rows = [gathered(kind, rows_with_roles(table, column_names(kind, table, {}, labelled=True))) for table in tables]
    learned = kind.learn(rows[0], kind.settings())
    examples = [
        understand(learned, table, part, labelled=True).examples for table, part in zip(tables, rows, strict=True)
    ]
    return Asked(task=learned, language=language, train=examples[0], valid=examples[1], test=examples[2])


def _table(source: str, rows: Rows) -> Table:
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return Table(source, lambda _: TableRows(columns, "row", iter(enumerate(rows, 1))), once=False)


# ------------------------------------------------------------------------------------------------- texts as vectors


def counted_words(*, characters: bool, most: int = MOST_FEATURES) -> Any:
    """Return a vectoriser of scikit-learn: words and pairs of words; with `characters`, runs of one to three
    characters."""
    if characters:
        return TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True, max_features=most)
    return TfidfVectorizer(token_pattern=WORD, ngram_range=(1, 2), sublinear_tf=True, max_features=most)


def vectors(words: Any, texts: Texts) -> Any:
    """Return a row for each example: for one text its vector; for two, both with their distance and their product."""
    first, *others = (words.transform(column) for column in zip(*texts, strict=True))
    if not others:
        return first
    (second,) = others
    return sparse.hstack([first, second, abs(first - second), first.multiply(second)], format="csr")


def fitted(train: Any, gold_N: Any, *, inverse_penalty: float = INVERSE_PENALTY, most_steps: int = MOST_STEPS) -> Any:
    """Fit a logistic regression of scikit-learn; a class is a number."""
    alone = threadpool_limits(1, user_api="blas")  # sums are short: threads would only wait
    with warnings.catch_warnings(), alone:
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        return LogisticRegression(C=inverse_penalty, max_iter=most_steps).fit(train, gold_N)


def _vocabulary(language: str, texts: Sequence[str]) -> Any:
    """Return a vocabulary for methods that learn a weight for each n-gram: those of the training texts are enough."""
    return counted_words(characters=language == "zh").fit(texts)


class _Similar:
    """Cosines of texts. N-grams are hashed: those that are not in the training texts are the rarest, and count most."""

    def __init__(self, language: str, texts: Sequence[str], *, pairs: bool = True) -> None:
        if language == "zh":
            self._counts = HashingVectorizer(
                analyzer="char", ngram_range=(1, 3 if pairs else 2), norm=None, alternate_sign=False
            )
        else:
            self._counts = HashingVectorizer(
                token_pattern=WORD, ngram_range=(1, 2 if pairs else 1), norm=None, alternate_sign=False
            )
        self._weights = TfidfTransformer(sublinear_tf=True).fit(self._counts.transform(texts))

    def vectors(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Return vectors [texts, n-grams], each of length 1."""
        return self._weights.transform(self._counts.transform(texts))

    def to_one(self, text: str, others: Sequence[str]) -> NDArray[np.float64]:
        """Return the cosine of each of the others."""
        cosines: NDArray[np.float64] = (self.vectors(others) @ self.vectors([text]).T).toarray()[:, 0]
        return cosines


# ------------------------------------------------------------------------------------- classify, pair and regress


def _shares(asked: Asked) -> list[Any]:
    """Return the share of each class in training, whatever the text."""
    assert isinstance(asked.task, Classify)
    return [class_shares(has_class(asked.task, asked.train))] * len(asked.test)


def _classify(asked: Asked) -> list[Any]:
    """Classify one text or two: return probabilities of all classes of the training rows."""
    words = _vocabulary(asked.language, [text for example in asked.train for text in example.texts])
    train, valid, test = (
        vectors(words, [example.texts for example in part]) for part in (asked.train, asked.valid, asked.test)
    )
    gold_N, kept_N = _classes(asked.train), _classes(asked.valid)
    models = [fitted(train, gold_N, inverse_penalty=penalty) for penalty in INVERSE_PENALTIES]
    model = max(models, key=lambda one: _quality(one, valid, kept_N))
    return _of_all_classes(asked, model.classes_, model.predict_proba(test))


def _quality(model: Any, valid: Any, gold_N: NDArray[np.int64]) -> tuple[float, float]:
    """Return the accuracy; of equally accurate models, the one that is surest of the gold classes is better."""
    found_NC = model.predict_proba(valid)
    sure_NC = np.where(model.classes_ == gold_N[:, None], found_NC, 0)
    right = float((model.classes_[found_NC.argmax(axis=1)] == gold_N).mean())
    return right, float(np.log(np.maximum(sure_NC.sum(axis=1), 1e-12)).mean())


def _nb_svm(asked: Asked) -> list[Any]:
    """Classify one text: return 1 for the class with the highest margin."""
    words = counted_words(characters=asked.language == "zh")
    words.set_params(binary=True, use_idf=False, norm=None, sublinear_tf=False)
    train = words.fit_transform([example.texts[0] for example in asked.train])
    valid, test = (words.transform([example.texts[0] for example in part]) for part in (asked.valid, asked.test))
    gold_N, kept_N = _classes(asked.train), _classes(asked.valid)
    classes = np.unique(gold_N)
    ratios = [log_count_ratio(train, gold_N == one) for one in classes]
    best, found_NC = -1.0, np.zeros((0, 0))
    for penalty in NB_SVM_PENALTIES:
        models = [
            LinearSVC(C=penalty, random_state=0).fit(train.multiply(ratio_V).tocsr(), gold_N == one)
            for one, ratio_V in zip(classes, ratios, strict=True)
        ]
        margins = [
            np.stack(
                [
                    model.decision_function(part.multiply(ratio_V).tocsr())
                    for model, ratio_V in zip(models, ratios, strict=True)
                ],
                axis=1,
            )
            for part in (valid, test)
        ]
        right = float((classes[margins[0].argmax(axis=1)] == kept_N).mean())
        if right > best:
            best, found_NC = right, np.eye(len(classes))[margins[1].argmax(axis=1)]
    return _of_all_classes(asked, classes, found_NC)


def _classes(examples: Sequence[Example]) -> NDArray[np.int64]:
    return np.array([example.gold for example in examples])


def _of_all_classes(asked: Asked, classes: Any, found: NDArray[np.float64]) -> list[Any]:
    """Return rows with a value for each class of the task: 0 for unseen ones."""
    assert isinstance(asked.task, Classify)
    found_NC = np.zeros((len(asked.test), len(asked.task.labels)))
    found_NC[:, classes] = found
    return list(found_NC)


def _mean(asked: Asked) -> list[Any]:
    return [float(np.mean([example.gold for example in asked.train]))] * len(asked.test)


def _cosine(asked: Asked) -> list[Any]:
    assert isinstance(asked.task, Regress)
    if len(asked.task.roles) != 2:
        raise DataError("the baseline of regress compares two texts; got rows with one. Add a column for the second.")
    similar = _Similar(asked.language, [text for example in asked.train for text in example.texts], pairs=False)
    first, second = (similar.vectors([example.texts[place] for example in asked.test]) for place in (0, 1))
    return list(np.asarray(first.multiply(second).sum(axis=1)).ravel())


# -------------------------------------------------------------------------------------------------------------- tag


def _units(marked: Marked) -> list[str]:
    """Return the tokens; for a text its words and single Chinese characters."""
    return [marked.text[start:end] for start, end in zip(marked.starts, marked.ends, strict=True)]


def _unit_tags(marked: Marked, types: Sequence[str]) -> list[int]:
    """Return tags: O is 0, B of type k is 1 + 2k, I of type k is 2 + 2k, as everywhere in the task."""
    tags = [0] * len(marked.starts)
    for kind, first, end in unit_kinds(marked, types)[0]:
        tags[first:end] = [1 + 2 * kind] + [2 + 2 * kind] * (end - first - 1)
    return tags


def _look_up(asked: Asked) -> list[Any]:
    """Predict the most frequent tag of each token. Invalid tags are read as in the metric: an I after O begins an
    entity."""
    assert isinstance(asked.task, Tag)
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for example in asked.train:
        for unit, tag in zip(_units(example.extra), _unit_tags(example.extra, asked.task.types), strict=True):
            counts[unit][tag] += 1
    usual = {unit: found.most_common(1)[0][0] for unit, found in counts.items()}
    names = ["O", *(f"{letter}-{number}" for number in range(len(asked.task.types)) for letter in "BI")]
    answers = []
    for example in asked.test:
        spans = spans_of([names[usual.get(unit, 0)] for unit in _units(example.extra)], "iob2")
        answers.append({_characters(int(kind), first, end, asked.task, example) for kind, first, end in spans})
    return answers


def _window(asked: Asked) -> list[Any]:
    assert isinstance(asked.task, Tag)
    hasher = FeatureHasher(n_features=TAG_FEATURES, input_type="string", alternate_sign=False)
    train, test = (
        hasher.transform(found for example in part for found in _features(_units(example.extra)))
        for part in (asked.train, asked.test)
    )
    tags = [tag for example in asked.train for tag in _unit_tags(example.extra, asked.task.types)]
    model = SGDClassifier(loss="log_loss", alpha=TAG_PENALTY, max_iter=TAG_PASSES, tol=None, random_state=0)
    model.fit(train, tags)
    scores = np.full((test.shape[0], 1 + 2 * len(asked.task.types)), np.log(1e-12))
    scores[:, model.classes_] = np.log(np.maximum(model.predict_proba(test), 1e-12))
    ends = np.cumsum([len(example.extra.starts) for example in asked.test])
    return list(_decoded(asked, asked.task, np.split(scores, ends[:-1])))


def _decoded(asked: Asked, task: Tag, scores: Sequence[NDArray[np.float64]]) -> Iterator[set[Span]]:
    for begin in range(0, len(scores), ROWS_DECODED):
        rows = scores[begin : begin + ROWS_DECODED]
        lengths = [len(row) for row in rows]
        padded = np.zeros((len(rows), max(lengths), rows[0].shape[1]))
        for place, row in enumerate(rows):
            padded[place, : len(row)] = row
        for place, (found, _) in enumerate(decode(padded, np.zeros(padded.shape[:2], dtype=np.bool_), lengths)):
            example = asked.test[begin + place]
            yield {_characters(one.kind, one.first, one.end, task, example) for one in found}


def _characters(kind: int, first: int, end: int, task: Tag, example: Example) -> Span:
    return in_characters(task.types[kind], first, end, example.extra)


def _features(units: Sequence[str]) -> Iterator[list[str]]:
    """Yield features of each unit: itself, its shape, prefixes and suffixes, the two before and after it, and these
    together."""
    padded = ["<", "<", *units, ">", ">"]
    lower = [unit.lower() for unit in padded]
    shapes = [_shape(unit) for unit in padded]
    for place in range(2, len(units) + 2):
        found = [f"u={padded[place]}"]
        found += [f"b{size}={lower[place][:size]}" for size in (1, 2, 3, 4) if size < len(lower[place])]
        found += [f"e{size}={lower[place][-size:]}" for size in (1, 2, 3, 4) if size < len(lower[place])]
        for offset in (-2, -1, 0, 1, 2):
            found += [f"w{offset}={lower[place + offset]}", f"s{offset}={shapes[place + offset]}"]
        for offset in (-2, -1, 0, 1):
            found.append(f"p{offset}={lower[place + offset]} {lower[place + offset + 1]}")
        for offset in (-2, -1, 0):
            found.append(f"t{offset}={' '.join(lower[place + offset : place + offset + 3])}")
        found.append(f"f={' '.join(shapes[place - 1 : place + 2])}")
        yield found


def _shape(unit: str) -> str:
    """Return the shape of a unit, Aa for Words and Aa9 for Names7: capitals, small letters, digits, other letters and
    the rest, runs as one."""
    kinds = [
        "A" if sign.isupper() else "a" if sign.islower() else "9" if sign.isdigit() else "c" if sign.isalpha() else sign
        for sign in unit
    ]
    return "".join(kind for place, kind in enumerate(kinds) if place == 0 or kind != kinds[place - 1])


# ----------------------------------------------------------------------------------------- answer, rank and generate


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE_END.split(text) if any(map(str.isalnum, part))] or [text.strip()]


def _answered(asked: Asked, texts: Sequence[str]) -> list[Any]:
    assert isinstance(asked.task, Answer)
    # Every question gets an answer: nothing here can detect unanswerable ones.
    against = asked.task.settings.null_threshold - 1 if asked.task.settings.unanswerable else None
    return [Answered(text=text, no_answer=against) for text in texts]


def _first_sentence(asked: Asked) -> list[Any]:
    return _answered(asked, [_sentences(example.texts[0])[0] for example in asked.test])


def _nearest_sentence(asked: Asked) -> list[Any]:
    passages = dict.fromkeys(example.texts[0] for example in asked.train)
    similar = _Similar(asked.language, [sentence for passage in passages for sentence in _sentences(passage)])
    texts = []
    for example in asked.test:
        passage, question = example.texts
        sentences = _sentences(passage)
        texts.append(_trimmed(sentences[int(similar.to_one(question, sentences).argmax())], question))
    return _answered(asked, texts)


def _trimmed(sentence: str, question: str) -> str:
    """Remove what the question already says at both ends; return the whole sentence if nothing is left."""
    known = {question[start:end].lower() for start, end in zip(*units_of(question, whole_words=True), strict=True)}
    places = [
        (int(start), int(end))
        for start, end in zip(*units_of(sentence, whole_words=True), strict=True)
        if sentence[start].isalnum() and sentence[start:end].lower() not in known
    ]
    return sentence[places[0][0] : places[-1][1]] if places else sentence


def _alike(asked: Asked) -> list[Any]:
    return [np.zeros(len(example.gold)) for example in asked.test]


def _near_query(asked: Asked) -> list[Any]:
    documents = dict.fromkeys(text for example in asked.train for text in example.texts[1:])
    similar = _Similar(asked.language, list(documents))
    return [similar.to_one(example.texts[0], example.texts[1:]) for example in asked.test]


def _source(asked: Asked) -> list[Any]:
    return [" ".join(example.texts) for example in asked.test]


def _nearest_target(asked: Asked) -> list[Any]:
    sources = [" ".join(example.texts) for example in asked.train]
    similar = _Similar(asked.language, sources)
    cosines = similar.vectors(_source(asked)) @ similar.vectors(sources).T
    return [asked.train[int(row.toarray().argmax())].gold[0] for row in cosines]


METHODS: dict[str, dict[str, Method]] = {
    "classify": {"majority class": _shares, "TF-IDF, logistic regression": _classify, "NB-SVM": _nb_svm},
    "pair": {"majority class": _shares, "TF-IDF of both, logistic regression": _classify},
    "regress": {"mean": _mean, "cosine of TF-IDF": _cosine},
    "tag": {"usual tag of each token": _look_up, "logistic regression over a window": _window},
    "answer": {"first sentence": _first_sentence, "nearest sentence by TF-IDF": _nearest_sentence},
    "rank": {"all documents alike": _alike, "cosine of TF-IDF": _near_query},
    "generate": {"the source": _source, "target of the nearest source": _nearest_target},
}
