"""Scores of models, compressors and n-grams on a suite.

- pairs: accuracy on minimal pairs: the good sentence must be the more likely one (`segue evaluate --pairs`).
- last-word (LAMBADA): the last word of a passage given everything before it. Correct if every token of it is the most
  likely one after those before it; perplexity is of the whole word.
- gap (CHID): which of the candidates fills the gap. A causal model compares the log-probabilities of the whole texts. A
  permutation model compares those of the tokens that the candidate touches, predicted from left to right after all
  others; a masked model those of the same tokens, masked together.
- text: bits per character. A permutation model reads in forward order. Unknown tokens make the number too low; their
  share is given beside it.
"""

import gzip
import lzma
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.kneser_ney import KneserNey, Vocabulary, words
from benchmarks.suite_data import GAP, Suite, read_rows, read_text, sample_texts, training_files
from segue.data.pairs import Pair, read_pairs
from segue.evaluation.metrics.pairs import pair_accuracy
from segue.infer.documents import text_parts
from segue.infer.pairs import PairSettings, score_pairs
from segue.infer.score import ScoreSettings, ScoreTotals, TextScore, score, score_texts
from segue.infer.text_model import TextModel
from segue.model import Batch, LanguageModel
from segue.model.language_model import conditional_batch, order_batch

Values = dict[str, Any]
BATCH_TOKENS = 4096
MOST_UNKNOWN = 0.05
"""Share of unknown tokens above which a suite is in a language that the tokeniser does not know."""
MOST_TOKENS = 1.5
"""Tokens per character above which it is in such a language too, unless the vocabulary is one of bytes alone."""
LARGEST_OF_BYTES = 300
ORDERS = 8
"""Number of random orders of a permutation model on minimal pairs, besides pseudo-likelihood."""
CHARACTER_ORDERS = (5, 8)
WORD_ORDER = 5


class NotMeasuredError(Exception):
    """Raised with the reason why something is not measured."""


# --------------------------------------------------------------------------------------------------------------- models


def measure_model(loaded: TextModel, suite: Suite, data: Path, *, limit: int | None) -> Values:
    """Return the metrics of a model; `limit` takes only the first items or characters."""
    path = data / suite.file
    check_language(loaded, sample_texts(suite, path))
    match suite.kind:
        case "pairs":
            return pairs_of_model(loaded, read_pairs(path)[:limit])
        case "last-word":
            return last_words(loaded, [row["text"] for row in read_rows(path)[:limit]])
        case "gap":
            return gaps(loaded, read_rows(path)[:limit])
        case "text":
            return bits_of_model(loaded, read_text(path)[:limit])


def check_language(loaded: TextModel, texts: Iterator[str]) -> None:
    """Raise NotMeasuredError if a tokeniser does not know the language: it has unknown tokens, or encodes characters as
    bytes."""
    sample = list(texts)
    unknown = unknown_share(loaded, iter(sample))
    if unknown > MOST_UNKNOWN:
        raise NotMeasuredError(f"{unknown:.0%} of the tokens are unknown to the tokeniser")
    length = sum(len(loaded.tokenizer.encode(text)) for text in sample) / sum(map(len, sample))
    if length > MOST_TOKENS and loaded.tokenizer.size > LARGEST_OF_BYTES:
        raise NotMeasuredError(f"the tokeniser spells it in bytes, {length:.1f} tokens for each character")


def unknown_share(loaded: TextModel, texts: Iterator[str]) -> float:
    unk = loaded.tokenizer.specials.get("unk")
    ids = np.concatenate([loaded.tokenizer.encode(text) for text in texts])
    return 0.0 if unk is None else float((ids == unk).mean())


def pairs_of_model(loaded: TextModel, pairs: Sequence[Pair]) -> Values:
    ways = {"accuracy": PairSettings(segment_length=loaded.segment_length)}
    if loaded.model.config.objective == "permutation":
        ways["accuracy of random orders"] = replace(ways["accuracy"], orders=ORDERS)
    values: Values = {}
    for name, settings in ways.items():
        sentences = [(pair.good, pair.bad) for pair in pairs]
        scores = score_pairs(loaded.model, loaded.tokenizer, sentences, settings)
        values |= _accuracy(pairs, scores.values_N2, name=name)
    return values


def _accuracy(pairs: Sequence[Pair], values_N2: NDArray[np.float64], *, name: str = "accuracy") -> Values:
    found = pair_accuracy(
        *values_N2.T, paradigms=[pair.paradigm for pair in pairs], phenomena=[pair.phenomenon for pair in pairs]
    )
    return {
        name: found.accuracy.value,
        f"{name}, 95 %": [found.accuracy.low, found.accuracy.high],
        f"{name}, mean of paradigms": found.mean_of_paradigms,
        f"{name}, ties": found.ties,
        f"{name}, phenomena": {phenomenon: group.accuracy for phenomenon, group in found.phenomena.items()},
    }


def bits_of_model(loaded: TextModel, text: str) -> Values:
    if loaded.model.config.objective == "masked":
        raise NotMeasuredError("a masked model gives a text no probability")
    totals = ScoreTotals()
    settings = ScoreSettings(segment_length=loaded.segment_length, batch_tokens=BATCH_TOKENS)
    for _ in score(loaded.model, loaded.tokenizer, text_parts([text]), settings, totals=totals):
        pass
    return {
        "bits per character": totals.bits_per_character,
        "perplexity of a token": totals.perplexity,
        "tokens": totals.tokens,
        "characters": totals.characters,
        "unknown tokens": unknown_share(loaded, iter([text])),
    }


@torch.no_grad()
def last_words(loaded: TextModel, texts: Sequence[str]) -> Values:
    """Predict last words. The passage is read at once, without memory, after the end of a document."""
    if loaded.model.config.objective == "masked":
        raise NotMeasuredError("a masked model does not predict what follows")
    model = _without_memory(loaded.model)
    eod = loaded.tokenizer.specials.get("eod")
    rows: list[tuple[list[int], list[int]]] = []
    for text in texts:
        text = text.rstrip()
        begin = len(text.removesuffix(text.split()[-1]).rstrip())  # the space before the word is part of it
        encoding = loaded.tokenizer.encode_with_offsets(text)
        first = int(np.searchsorted(encoding.ends, begin, side="right"))
        ids = encoding.ids.tolist()
        rows.append(([*([] if eod is None else [eod]), *ids[:first]], ids[first:]))
    right, log_probabilities = 0, 0.0
    for part in _of_like_length([len(source) + len(target) for source, target in rows]):
        batch = _conditional(model, [_shortened(model, *rows[number]) for number in part])
        output = model.trunk(batch)
        hidden = output.hidden_BQD if output.predicted_BPD is None else output.predicted_BPD
        assert batch.target_mask is not None
        assert batch.targets is not None
        owner = batch.target_mask.nonzero()[:, 0]
        logits = model.logits(hidden[batch.target_mask][..., : model.config.width]).log_softmax(dim=-1)
        targets = batch.targets[batch.target_mask]
        log_probabilities += float(logits.double().gather(1, targets[:, None]).sum())
        wrong = torch.zeros(len(part), dtype=torch.long).index_add(0, owner, (logits.argmax(1) != targets).long())
        right += int((wrong == 0).sum())
    return {
        "accuracy": right / len(texts),
        "perplexity of the word": math.exp(-log_probabilities / len(texts)),
        "passages": len(texts),
    }


def _conditional(model: LanguageModel, rows: Sequence[tuple[list[int], list[int]]]) -> Batch:
    source_BX, source_real_BX = _padded([source for source, _ in rows])
    target_BT, target_real_BT = _padded([target for _, target in rows])
    return conditional_batch(
        model.config, source_BX, target_BT, source_real_BX=source_real_BX, target_real_BT=target_real_BT
    )


def _shortened(model: LanguageModel, source: list[int], target: list[int]) -> tuple[list[int], list[int]]:
    """Truncate the context to the positions that the model has."""
    limit = model.config.learned_positions
    return (source, target) if limit is None else (source[-max(1, limit - len(target)) :], target)


def gaps(loaded: TextModel, rows: Sequence[dict[str, Any]]) -> Values:
    texts, spans = [], []
    for row in rows:
        begin = row["content"].index(GAP)
        for candidate in row["candidates"]:
            texts.append(row["content"].replace(GAP, candidate, 1))
            spans.append((begin, begin + len(candidate)))
    if loaded.model.config.objective == "causal":
        settings = ScoreSettings(segment_length=loaded.segment_length, batch_tokens=BATCH_TOKENS)
        found = list(score_texts(loaded.model, loaded.tokenizer, texts, settings))
        scores = np.array([row.log_probability for row in found if isinstance(row, TextScore)])
    else:
        scores = _gap_scores(loaded, texts, spans)
    chosen = scores.reshape(len(rows), -1).argmax(axis=1)
    right = chosen == np.array([row["answer"] for row in rows])
    return {"accuracy": float(right.mean()), "gaps": len(rows), "candidates": len(rows[0]["candidates"])}


@torch.no_grad()
def _gap_scores(loaded: TextModel, texts: Sequence[str], spans: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """Return the log-probabilities of the tokens in the spans."""
    model = _without_memory(loaded.model)
    permutation = model.config.objective == "permutation"
    eod = loaded.tokenizer.specials.get("eod") if permutation else None
    limit = model.config.learned_positions
    sequences: list[list[int]] = []
    places: list[list[int]] = []
    for text, (begin, end) in zip(texts, spans, strict=True):
        encoding = loaded.tokenizer.encode_with_offsets(text)
        touched = np.flatnonzero((encoding.ends > begin) & (encoding.starts < end))
        ids = [*([] if eod is None else [eod]), *encoding.ids.tolist()]
        at = (touched + (eod is not None)).tolist()
        cut = 0 if limit is None or len(ids) <= limit else max(0, min(at[0] - limit // 2, len(ids) - limit))
        sequences.append(ids[cut:][:limit])
        places.append([place - cut for place in at])
    scores = np.zeros(len(texts))
    for part in _of_like_length([len(ids) for ids in sequences]):
        ids_BQ, real_BQ = _padded([sequences[number] for number in part])
        predicted_BP, counts_BP = _padded([places[number] for number in part])
        targets_BP = ids_BQ.gather(1, predicted_BP)
        if permutation:
            order = [_last(len(ids_BQ[0]), places[number], len(sequences[number])) for number in part]
            batch = order_batch(ids_BQ, torch.tensor(order), real_BQ=real_BQ)
        else:
            masked_BQ = torch.zeros_like(real_BQ)
            for row, number in enumerate(part):
                masked_BQ[row, places[number]] = True
            mask = loaded.tokenizer.specials["mask"]
            batch = Batch(ids_BQ=ids_BQ.masked_fill(masked_BQ, mask), real_BQ=real_BQ)
        nll = model(replace(batch, predicted_BP=predicted_BP, targets=targets_BP, target_mask=counts_BP)).nll
        scores[part] = -(nll.double() * counts_BP).sum(dim=1).numpy()
    return scores


def _last(width: int, places: Sequence[int], length: int) -> list[int]:
    """Return an order in which these positions come after all others of the text, and padding after them."""
    chosen = set(places)
    return [*(place for place in range(length) if place not in chosen), *places, *range(length, width)]


def _without_memory(model: LanguageModel) -> LanguageModel:
    return (model if model.config.memory is None else model.adjusted(memory=None)).eval()


def _of_like_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    begin = 0
    while begin < len(order):
        count = max(1, BATCH_TOKENS // lengths[order[begin]])
        yield order[begin : begin + count]
        begin += count


def _padded(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, rows))
    real_BQ = torch.tensor([[place < len(row) for place in range(width)] for row in rows])
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows]), real_BQ


# ------------------------------------------------------------------------------------------------------------ baselines


def measure_compressor(name: str, suite: Suite, data: Path, *, limit: int | None) -> Values:
    """Return bits per character of the text alone; xz also after the training text, as the size that it adds."""
    if suite.kind != "text":
        raise NotMeasuredError("a compressor gives texts a length only")
    text = read_text(data / suite.file)[:limit]
    raw = text.encode()
    if name == "gzip":
        return {"bits per character": 8 * len(gzip.compress(raw, 9)) / len(text), "trained on": "nothing"}
    values: Values = {"bits per character": 8 * len(_xz(raw)) / len(text), "trained on": "nothing"}
    before = "".join(read_text(path) for path in training_files(suite, data)).encode()
    if before:
        added = len(_xz(before + raw)) - len(_xz(before))
        values |= {"after the training text": 8 * added / len(text), "training text": suite.trained_on}
    return values


def _xz(raw: bytes) -> bytes:
    return lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME)


def measure_ngrams(suite: Suite, data: Path, *, limit: int | None) -> Values:
    """Evaluate modified Kneser-Ney n-grams (`benchmarks.kneser_ney`), trained on the text that the suite names."""
    paths = training_files(suite, data)
    if not paths:
        raise NotMeasuredError("there is no training text for it")
    training = "\n".join(read_text(path) for path in paths)
    values: Values = {"trained on": suite.trained_on, "training characters": len(training)}
    if suite.kind == "pairs":
        return values | _ngram_pairs(suite, training, read_pairs(data / suite.file)[:limit])
    text = read_text(data / suite.file)[:limit]
    for order in CHARACTER_ORDERS:
        values[f"{order}-grams of characters"] = _character_bits(training, text, order=order)
    values["bits per character"] = values[f"{CHARACTER_ORDERS[0]}-grams of characters"]
    tokens = _tokenised(text)
    vocabulary = Vocabulary(_tokenised(training))
    encoded = vocabulary.encode(tokens)
    if (encoded != 0).all():  # otherwise the spelling of unknown words would be missing
        model = KneserNey(vocabulary.encode(_tokenised(training)), vocabulary_size=vocabulary.size, order=WORD_ORDER)
        bits = -float(model.log_probabilities(encoded).sum()) / math.log(2) / len(text)
        values[f"{WORD_ORDER}-grams of words"] = bits
    return values


def _tokenised(text: str) -> list[str]:
    """Return the parts between spaces, and line ends, which is lossless for tokenised text such as WikiText."""
    return [word for line in text.split("\n") for word in (*line.split(), "\n")][:-1]


def _character_bits(training: str, text: str, *, order: int) -> float:
    """Return bits per character; an unseen character costs its Unicode number in addition."""
    vocabulary = Vocabulary(training)
    model = KneserNey(vocabulary.encode(training), vocabulary_size=vocabulary.size, order=order)
    encoded = vocabulary.encode(text)
    bits = -float(model.log_probabilities(encoded).sum()) / math.log(2)
    return (bits + int((encoded == 0).sum()) * math.log2(0x110000)) / len(text)


def _ngram_pairs(suite: Suite, training: str, pairs: Sequence[Pair]) -> Values:
    """Score pairs, each sentence after a line end. Words that were seen once are unknown."""
    cut = words if suite.symbols == "words" else iter
    vocabulary = Vocabulary(cut(training), at_least=2)
    order = WORD_ORDER
    model = KneserNey(vocabulary.encode(cut(training)), vocabulary_size=vocabulary.size, order=order)
    sentences = [["\n", *cut(text)] for pair in pairs for text in (pair.good, pair.bad)]
    lengths = np.array([len(sentence) for sentence in sentences])
    begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    known = np.arange(lengths.sum()) - np.repeat(begins, lengths)
    encoded = vocabulary.encode([symbol for sentence in sentences for symbol in sentence])
    found = np.where(known > 0, model.log_probabilities(encoded, known=known), 0.0)
    sums = np.add.reduceat(found, begins)
    described = {"order": order, "symbols": suite.symbols, "vocabulary": vocabulary.size}
    return described | _accuracy(pairs, np.rint(sums * 2**32).reshape(-1, 2))
