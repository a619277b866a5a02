"""Generation of a text from a text: translation, replies, summaries. Source and target pass through one trunk, and the
softmax of the language model predicts the target.

A row is read as `source SEP target END`, a dialogue as `turn SEP turn SEP target END`. SEP is the tokeniser's sep, or
else eod or eop; END is its eod, or else eop, cls or sep. A causal model reads from left to right; a permutation model
reads the source in both directions and predicts the target from left to right. The loss is on the target and END.

The segmentation of a source depends on the source and the settings alone, never on the target, so that training and
prediction read the same. The last segment holds the target and as much of the source as leaves room for
`task.max_target_length`; earlier tokens are read segment by segment into the memory. Without memory there is one
segment.

Prediction reads the source once; then one token of each hypothesis at a time, with a memory that is long enough to drop
nothing. A hypothesis has exactly the log-probability that the loss would give it.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from segue.checkpoint.heads import HeadConfig
from segue.config import ModelConfig, ReadConfig, Section
from segue.config.schema import Length, SmallCount
from segue.data.tables import Row
from segue.errors import ConfigError, DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, Metric, measure_means
from segue.evaluation.metrics.translation import Tokenize, translation
from segue.infer.beam import BeamSettings, Hypothesis, beam_search
from segue.model import Batch, LanguageModel, Memory
from segue.model.cache import Cache
from segue.model.language_model import conditional_batch
from segue.model.reading import TokenDocument, read_documents
from segue.model.streaming import Streamer
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader
from segue.tasks.task import Column, Comparison, Example, Item, Prediction, TaskKind, UnusableRowError
from segue.text.tokenizer import Tokenizer
from segue.text.unicode import REPLACEMENT

SOURCE = (
    *("source", "src", "input", "prompt", "en", "english", "question", "query", "dialogue", "dialog", "turns"),
    *("history", "context", "document", "article", "content", "body", "post", "message", "text"),
)
TARGET = (
    *("target", "tgt", "output", "completion", "de", "german", "zh", "chinese", "fr", "answer", "answers", "reply"),
    *("response", "summary", "highlights", "abstract", "headline", "title"),
)
_CHINESE = re.compile("[\u3400-\u9fff\uf900-\ufaff]")
_LETTER = re.compile(r"\w")

Ids = NDArray[np.int64]


class GenerateSettings(Section):
    """Settings of `generate`."""

    beam: SmallCount = 4
    """Beam width; 1 is greedy decoding."""
    length_penalty: Annotated[float, Field(ge=0, le=1e3, allow_inf_nan=False)] = 0.6
    """Length penalty: hypotheses are compared by log-probability / ((5 + length) / 6) ** length_penalty, so larger
    values favour longer texts."""
    max_target_length: Length = 128
    """Maximum number of generated tokens; the last segment of a long source leaves room for them."""
    no_repeat: Length | None = None
    """Forbid repeated n-grams of this many tokens. Default: repetition is allowed."""
    n_best: SmallCount = 1
    """Number of texts to return per source, at most the beam width."""
    tokenize: Tokenize | None = None
    """Tokenisation for BLEU. Default: zh if most letters of the references are Chinese, else 13a."""


@dataclass(frozen=True, kw_only=True)
class _Marks:
    """Tokeniser, special tokens and maximum target length."""

    tokenizer: Tokenizer
    separator: int
    end: int
    max_target_length: int


@dataclass(frozen=True, kw_only=True)
class _Extra:
    """Values that accompany the document of an item."""

    source: int
    """Number of source tokens, including SEP."""
    marks: _Marks


@dataclass(frozen=True, kw_only=True)
class Generate:
    """The task `generate`."""

    settings: GenerateSettings

    def to_values(self) -> dict[str, Any]:
        return {"settings": self.settings.model_dump(exclude_none=True)}

    def describe(self, examples: Sequence[Example]) -> list[str]:
        sources = [sum(map(len, example.texts)) for example in examples]
        targets = [len(example.gold[0]) for example in examples]
        turns = max(len(example.texts) for example in examples)
        lines = [
            f"sources: median {median(sources):,.0f} characters, longest {max(sources):,}"
            + (f", up to {turns} turns" if turns > 1 else "")
            + f"; targets: median {median(targets):,.0f}, longest {max(targets):,}"
        ]
        different = len({example.gold[0] for example in examples})
        if different == 1:
            lines.append("All targets are the same: the model will learn to write just that one.")
        return lines

    @property
    def metric(self) -> str:
        return "chrf"

    def head(self, read: ReadConfig, summary: str) -> HeadConfig | None:
        return None

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        turns = _texts(row["source"], "source")
        if not labelled:
            return Example(number=number, texts=turns)
        return Example(number=number, texts=turns, gold=_texts(row["target"], "target"))

    def items(self, example: Example, layout: Layout) -> list[Item]:
        marks = _marks(layout, self.settings)
        source = np.concatenate(
            [part for turn in example.texts for part in (layout.tokenizer.encode(turn), np.array([marks.separator]))]
        )
        if layout.max_length is not None and len(source) > layout.max_length:
            layout.truncated += 1
            source = np.append(source[: layout.max_length - 1], marks.separator)
        ids = source
        if example.gold is not None:
            ids = np.concatenate([source, layout.tokenizer.encode(example.gold[0]), np.array([marks.end])])
        _check_room(len(source), len(ids) - len(source), marks, layout.config, number=example.number)
        document = TokenDocument(ids=ids.astype(np.int64), segments=np.zeros(len(ids), dtype=np.int64))
        extra = _Extra(source=len(source), marks=marks)
        return [Item(documents=(document,), extra=extra, weight=max(1, len(ids) - len(source)))]

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        assert isinstance(model, LanguageModel)
        config, device = model.config, next(model.parameters()).device
        tails, memory = _read_sources(model, items, reader)
        source_BX, source_real_BX = _padded(tails, device)
        target_BT, target_real_BT = _padded([item.documents[0].ids[item.extra.source :] for item in items], device)
        batch = conditional_batch(
            config, source_BX, target_BT, source_real_BX=source_real_BX, target_real_BT=target_real_BT
        )
        assert batch.targets is not None
        assert batch.target_mask is not None
        _count(reader, batch)
        output = model.trunk(batch, memory)
        if output.predicted_BPD is not None:
            return model.loss(output.predicted_BPD, batch.targets, batch.target_mask)[0]
        # The softmax is the most expensive part of a small model: it is computed for target positions only.
        at_BT = (~batch.target_mask).long().argsort(dim=1, stable=True)[:, : target_BT.shape[1]]
        hidden_BTD = output.hidden_BQD[:, :, : config.width].gather(1, at_BT[:, :, None].expand(-1, -1, config.width))
        return model.loss(hidden_BTD, batch.targets.gather(1, at_BT), batch.target_mask.gather(1, at_BT))[0]

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        return None

    def chance(self, examples: Sequence[Example]) -> float | None:
        return None  # depends on tokens, and examples are text

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        assert isinstance(model, LanguageModel)
        marks: _Marks = items[0].extra.marks
        device = next(model.parameters()).device
        tails, memory = _read_sources(model, items, reader)
        source_BX, real_BX = _padded(tails, device)
        if memory is None and model.config.memory is not None and model.config.memory.initial == "zeros":
            memory = model.new_memory(len(items))
        # Token by token, the model must see what it sees at once in the loss: no token may drop out of the memory.
        longest = (0 if memory is None else memory.length) + source_BX.shape[1] + marks.max_target_length + 2
        model = model.adjusted(memory={"length": longest}, directions="forward")
        streamer = Streamer(model, memory_length=longest, most_at_once=1)
        forbidden = [n for n in marks.tokenizer.specials.values() if n != marks.end]
        forbidden += range(marks.tokenizer.size, model.config.vocabulary.size)

        def step(token_N: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
            hidden_ND = streamer.read(token_N[:, None], cache)[:, 0]
            next_NV = streamer.logits(hidden_ND).float().log_softmax(dim=-1)
            next_NV[:, forbidden] = -torch.inf
            return next_NV, cache

        first_BV, after = _after_source(model, source_BX, real_BX, memory)
        first_BV[:, [*forbidden, marks.end]] = -torch.inf  # the generated text must not be empty
        return beam_search(
            first_BV,
            streamer.cache_of(after),
            step=step,
            select=_rows,
            settings=BeamSettings(
                end=marks.end,
                beam=self.settings.beam,
                max_length=marks.max_target_length,
                count=self.settings.n_best,
                length_penalty=self.settings.length_penalty,
                no_repeat=self.settings.no_repeat,
            ),
        )

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        hypotheses: list[Hypothesis] = parts[0]
        tokenizer = items[0].extra.marks.tokenizer
        # Bytes that are not a character are an error of the model, not part of the text.
        texts = [tokenizer.decode(one.tokens).replace(REPLACEMENT, "").strip() for one in hypotheses]
        means = [round(one.mean_log_probability, 6) for one in hypotheses]
        columns: dict[str, Any] = {"prediction": texts[0], "log_probability": means[0]}
        if self.settings.n_best > 1:
            columns["n_best"] = [
                {"prediction": text, "log_probability": mean} for text, mean in zip(texts, means, strict=True)
            ]
        return Prediction(value=texts[0], columns=columns, confidence=math.exp(means[0]))

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        predicted = [prediction.value for prediction in predictions]
        references = [example.gold for example in examples]
        tokenize = self.settings.tokenize or (
            "zh" if mostly_chinese("".join(golds[0] for golds in references)) else "13a"
        )
        exact = np.array([text in golds for text, golds in zip(predicted, references, strict=True)], dtype=np.float64)
        return translation(predicted, references, tokenize=tokenize, resamples=resamples).metrics | measure_means(
            {"exact_match": exact}, resamples=resamples
        )

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        """Compare texts; the badness is 100 minus chrF."""
        from sacrebleu.metrics.chrf import CHRF  # slow to import, and used once in a run

        likeness = CHRF().sentence_score(prediction.value, list(example.gold)).score
        return Comparison(
            gold=" / ".join(example.gold),
            predicted=prediction.value or "(nothing)",
            badness=0.0 if prediction.value in example.gold else max(100 - likeness, 1e-12),
        )


def learn(rows: Sequence[tuple[int, Row]], settings: GenerateSettings) -> Generate:
    """Create the task and check its settings; nothing is learned from the rows."""
    if settings.n_best > settings.beam:
        raise ConfigError(
            f"task.n_best must be at most task.beam; got {settings.n_best} and {settings.beam}. "
            f"Set task.beam={settings.n_best}."
        )
    return Generate(settings=settings)


def restore(values: Mapping[str, Any]) -> Generate:
    """Restore the task from saved values."""
    return Generate(settings=GenerateSettings.model_validate(values["settings"]))


GENERATE = TaskKind(
    name="generate",
    help="Generate a text from a text: translation, replies, summaries.",
    columns=(Column(role="source", names=SOURCE), Column(role="target", names=TARGET, answer=True)),
    settings=GenerateSettings,
    learn=learn,
    restore=restore,
)


def mostly_chinese(text: str) -> bool:
    """Return True if at least half of the letters are Chinese characters."""
    return 2 * len(_CHINESE.findall(text)) >= max(1, len(_LETTER.findall(text)))


# ------------------------------------------------------------------------------------------------ rows and tokens


def _texts(value: Any, role: str) -> tuple[str, ...]:
    """Return the turns of a source, or the references of a target; usually one."""
    values = value if isinstance(value, list | tuple) else [value]
    wrong = next((part for part in values if isinstance(part, dict | list | tuple)), None)
    if wrong is not None:
        raise DataError(
            f"a {role} must be a text or a list of texts; got {str(wrong)[:80]!r} in it. Take the text out."
        )
    texts = tuple(text for part in values if part is not None and (text := str(part).strip()))
    if not texts:
        raise UnusableRowError(f"an empty {role}")
    return texts


def _marks(layout: Layout, settings: GenerateSettings) -> _Marks:
    config, specials = layout.config, layout.tokenizer.specials
    if config.objective == "masked":
        raise ConfigError(
            'the task generate needs a model of objective "causal" or "permutation", which predicts one token after '
            'the other; got "masked". Use a Transformer-XL, GPT or XLNet.'
        )
    if getattr(config.positions, "count_from", "start") == "end":
        raise ConfigError(
            'the task generate needs positions that count from the start; got count_from "end", which would tell the '
            "model how long the target is. Use another model."
        )
    separator = next((specials[name] for name in ("sep", "eod", "eop") if name in specials), None)
    end = next((specials[name] for name in ("eod", "eop", "cls", "sep") if name in specials), None)
    if separator is None or end is None:
        raise DataError(
            "the task generate needs a tokeniser with sep, eod or eop, to end a text with; got one without. "
            "Train the model with a unigram or bpe tokeniser."
        )
    limit = config.learned_positions
    longest = settings.max_target_length if limit is None else min(settings.max_target_length, limit // 2)
    return _Marks(tokenizer=layout.tokenizer, separator=separator, end=end, max_target_length=longest)


def _check_room(source: int, target: int, marks: _Marks, config: ModelConfig, *, number: int) -> None:
    limit = config.learned_positions
    if limit is None:
        return
    needed = source + max(target, marks.max_target_length + 1)
    if needed > limit:
        room = limit - max(target, marks.max_target_length + 1)
        remedy = f"Set read.max_length={room} to cut sources" if room > 1 else "Use shorter targets"
        raise DataError(
            f"source and target must fit into the {limit} positions of the model; got {source} tokens and room for "
            f"{needed - source} in record {number}. {remedy}, or use a model with relative positions."
        )


# --------------------------------------------------------------------------------------------- reading, generating


def _read_sources(model: LanguageModel, items: Sequence[Item], reader: Reader) -> tuple[list[Ids], Memory | None]:
    """Return the rest of each source that belongs to the last segment, and the memory of what precedes it."""
    sources = [item.documents[0].ids[: item.extra.source] for item in items]
    if model.config.memory is None:
        return sources, None
    length = reader.segment_length
    kept = max(1, length - min(items[0].extra.marks.max_target_length + 1, length // 2))
    long = [row for row, source in enumerate(sources) if len(source) > kept]
    if not long:
        return sources, None
    heads = [
        TokenDocument(ids=sources[row][:-kept], segments=np.zeros(len(sources[row]) - kept, np.int64)) for row in long
    ]
    reading = read_documents(
        model.trunk,
        heads,
        segment_length=length,
        gradient_segments=reader.gradient_segments - 1,  # the last one follows later
        remember=True,
    )
    reader.tokens += reading.tokens_read
    reader.positions += reading.positions_computed
    assert reading.memory is not None
    memory = reading.memory.select(torch.from_numpy(reading.order))
    short = [row for row in range(len(sources)) if row not in set(long)]
    if short:
        new = model.new_memory(len(short))
        assert new is not None
        size = max(memory.length, new.length if bool(new.valid_BM.any()) else 0)
        memory = Memory.join([memory.resized(size), new.resized(size)]).select(np.argsort([*long, *short]).tolist())
    return [source[-kept:] for source in sources], memory


def _rows(cache: Cache, rows_N: Tensor) -> Cache:
    """Return the cache of these rows."""
    same = len(rows_N) == cache.rows and bool((rows_N == torch.arange(len(rows_N), device=rows_N.device)).all())
    return cache if same else cache.select(rows_N)


def _after_source(
    model: LanguageModel, ids_NQ: Tensor, real_NQ: Tensor | None, memory: Memory | None
) -> tuple[Tensor, Memory]:
    """Read sources; return the log-probabilities of the next token in each row, [N, V], and the memory after them."""
    rows, width = ids_NQ.shape
    lengths_N = torch.full((rows,), width, device=ids_NQ.device) if real_NQ is None else real_NQ.sum(dim=1)
    if model.config.objective == "permutation":  # an extra position, which no token attends to, predicts its token
        batch = _with_query(ids_NQ, lengths_N)
    else:
        batch = Batch(ids_BQ=ids_NQ, real_BQ=real_NQ)
    output = model.trunk(batch, memory)
    memory = output.memory
    assert memory is not None
    if output.predicted_BPD is not None:
        hidden_ND = output.predicted_BPD[:, 0]
        memory = replace(  # the position is the last of every row, and the next token takes it
            memory,
            hidden_LBMD=memory.hidden_LBMD[:, :, :-1],
            valid_BM=memory.valid_BM[:, :-1],
            position_B=memory.position_B - 1,
        )
    else:
        hidden_ND = output.hidden_BQD[torch.arange(rows, device=ids_NQ.device), lengths_N - 1]
    logits_NV = model.logits(hidden_ND)
    return logits_NV.float().log_softmax(dim=-1), memory.compact()


def _with_query(ids_NQ: Tensor, lengths_N: Tensor) -> Batch:
    """Return the rows with an extra position after the last token of each."""
    ids_NQ = torch.cat([ids_NQ, torch.zeros_like(ids_NQ[:, :1])], dim=1)
    place_Q = torch.arange(ids_NQ.shape[1], device=ids_NQ.device)
    at_N1 = lengths_N[:, None]
    return Batch(
        ids_BQ=ids_NQ,
        real_BQ=place_Q <= at_N1,
        visible_BQQ=(place_Q < at_N1)[:, None].expand(-1, len(place_Q), -1),
        predicted_BP=at_N1,
    )


def _padded(rows: Sequence[Ids], device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return rows of ids with padding on the right, and the mask of real tokens; None: all."""
    width = max(map(len, rows))
    ids, real = np.zeros((len(rows), width), dtype=np.int64), np.zeros((len(rows), width), dtype=np.bool_)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        real[number, : len(row)] = True
    return torch.from_numpy(ids).to(device), None if real.all() else torch.from_numpy(real).to(device)


def _count(reader: Reader, batch: Batch) -> None:
    reader.positions += batch.ids_BQ.numel()
    reader.tokens += batch.ids_BQ.numel() if batch.real_BQ is None else int(batch.real_BQ.sum())
