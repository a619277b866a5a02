"""Sequence tagging: entities in a text, or a class for each token, such as names, places, parts of speech or Chinese
words.

Rows become a text with units and entities (`rows`); the model classifies pieces (`pieces`); the metrics are computed on
entities in the tokens or characters of the row.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from segue.checkpoint.heads import HeadConfig
from segue.config import ReadConfig, Section
from segue.data.tables import Row
from segue.errors import DataError
from segue.evaluation.metrics.bootstrap import RESAMPLES, Metric
from segue.evaluation.metrics.entities import UNTYPED, Span, entity_f1
from segue.model.heads import TokenTagger
from segue.tasks.labels import index_of
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader
from segue.tasks.tag.pieces import (
    Pieces,
    cut_at_units,
    decode,
    found_in,
    in_characters,
    in_units,
    pieces_of,
    tag_pieces,
    unit_kinds,
)
from segue.tasks.tag.rows import (
    AnyScheme,
    Form,
    Marked,
    answer_of,
    check_scheme,
    entities_of,
    mark,
    marks_text,
    mostly_unspaced,
    scheme_of,
    span_tags,
    token_spans,
    tokens_and_tags,
)
from segue.tasks.task import Column, Comparison, Example, Item, Prediction, TaskKind, UnusableRowError

TOKENS = ("tokens", "words", "token", "word", "characters", "form")
TEXT = ("text", "sentence", "content", "document", "body", "review", "title")
TAGS = ("ner_tags", "entities", "tags", "ner", "spans", "labels", "label", "tag")
MOST_TYPES = 1000
MARKED_WITH = {"iob1": "IOB1", "iob2": "IOB2", "bioes": "BIOES", "plain": "plain classes"}

INEXACT = (
    "training entities begin or end inside a subword or word, or overlap others, and cannot be found exactly "
    "(task.whole_words=false and task.cut_pieces=true let entities begin anywhere)"
)


class TagSettings(Section):
    """Settings of `tag`."""

    scheme: Literal["iob1", "iob2", "bioes", "plain"] | None = None
    """Tagging scheme. plain: a class for each token, such as parts of speech. Default: detected."""
    joiner: str | None = None
    """Text between tokens as the model reads them. Default: a space, or nothing in Chinese."""
    end_inclusive: bool = False
    """Whether end offsets of entities are inclusive."""
    whole_words: bool = True
    """For rows with a text: whether entities must begin and end at word boundaries (words are runs of letters and
    digits)."""
    cut_pieces: bool = False
    """Whether to split pieces that hold several tokens, words or Chinese characters, so that entities can begin
    anywhere."""


@dataclass(frozen=True, kw_only=True)
class Tag:
    """The task `tag`."""

    types: tuple[str, ...]
    scheme: AnyScheme
    """Scheme of predicted tags; it has no meaning for rows with a text."""
    unspaced: bool
    """True if the language has no spaces between words."""
    from_text: bool
    """True if training rows had texts, not tokens."""
    settings: TagSettings

    def to_values(self) -> dict[str, Any]:
        return {
            "types": list(self.types),
            "scheme": self.scheme,
            "unspaced": self.unspaced,
            "from_text": self.from_text,
            "settings": self.settings.model_dump(exclude_none=True),
        }

    @property
    def form(self) -> Form:
        joiner = self.settings.joiner
        return Form(
            scheme=self.scheme,
            joiner=joiner if joiner is not None or self.unspaced else " ",
            end_inclusive=self.settings.end_inclusive,
            whole_words=self.settings.whole_words,
            prefers_text=self.from_text,
        )

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the pieces."""
        ends = ["" if kind == UNTYPED else f"-{kind}" for kind in self.types]
        return ("O", *(f"{letter}{end}" for end in ends for letter in "BI"))

    def describe(self, examples: Sequence[Example]) -> list[str]:
        counts = Counter(kind for example in examples for kind, _, _ in example.gold)
        total = sum(counts.values())
        shown = ", ".join(f"{kind} {count:,} ({count / total:.1%})" for kind, count in counts.most_common(12))
        more = f", and {len(counts) - 12} more" if len(counts) > 12 else ""
        lines = [f"{total:,} entities: {shown}{more}"]
        if not self.from_text:
            given = "as task.scheme says" if self.settings.scheme is not None else "as the training tags show"
            lines.append(f"tags: {MARKED_WITH[self.scheme]}, {given}")
        repaired = sum(example.extra.repaired for example in examples)
        if repaired:
            lines.append(f"{repaired:,} tags break their scheme (I after O, for example); read as seqeval reads them")
        mismatched = sum(example.extra.mismatched for example in examples)
        if mismatched:
            lines.append(f"{mismatched:,} entities have another text than stands at their offsets; the offsets count")
        overlapping = sum(unit_kinds(example.extra, self.types)[1] for example in examples)
        if overlapping:
            lines.append(f"{overlapping:,} entities overlap longer ones and are not learned; as answers they count")
        return lines

    @property
    def metric(self) -> str:
        return "f1"

    def head(self, read: ReadConfig, summary: str) -> HeadConfig:
        return HeadConfig(kind="token_tagger", num_labels=len(self.tags), labels=self.tags)

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        marked = mark(row, self.form, labelled=labelled)
        for kind, _, _ in marked.spans or ():
            index_of(kind, self.types)
        return Example(number=number, texts=(marked.text,), gold=marked.spans, extra=marked)

    def items(self, example: Example, layout: Layout) -> list[Item]:
        marked: Marked = example.extra
        encoding = layout.tokenizer.encode_with_offsets(marked.text)
        if self.settings.cut_pieces:
            encoding = cut_at_units(encoding, marked, layout.tokenizer)
        arranged = layout.arrange_encoded([encoding])
        pieces = pieces_of(marked, arranged.parts[0])
        tags = None
        if marked.spans is not None:
            tags = tag_pieces(unit_kinds(marked, self.types)[0], pieces, units=len(marked.starts))
            there = {
                span for kind, first, end in found_in(tags) for span in self._spans(kind, first, end, pieces, marked)
            }
            lost = len(marked.spans - there)
            if lost:
                layout.remarks[INEXACT] += lost
        return [Item(documents=(arranged.document,), gold=tags, extra=pieces, weight=len(pieces))]

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        assert isinstance(model, TokenTagger)
        logits_BTC = self._logits(model, items, reader)
        tags_BT = torch.zeros(logits_BTC.shape[:2], dtype=torch.long)
        tagged_BT = torch.zeros(logits_BTC.shape[:2], dtype=torch.bool)
        for row, item in enumerate(items):
            place = slice(item.extra.begin, item.extra.begin + len(item.extra))
            tags_BT[row, place] = torch.from_numpy(item.gold)
            tagged_BT[row, place] = True
        device = logits_BTC.device
        return model.cost(logits_BTC, tags_BT.to(device), tagged_BT.to(device), weight_C=class_weights)

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        counts = self._counts(examples)
        inverse = np.where(counts > 0, 1 / np.maximum(counts, 1), 0.0)
        return torch.from_numpy(inverse * counts.sum() / (inverse * counts).sum()).float()

    def chance(self, examples: Sequence[Example]) -> float | None:
        counts = self._counts(examples)
        share = counts[counts > 0] / counts.sum()
        return float(-(share * np.log(share)).sum())

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        logits_BTC = self._logits(model, items, reader)
        score_BTC = logits_BTC.float().log_softmax(dim=-1).cpu().double().numpy()
        lengths = [len(item.extra) for item in items]
        own_BTC = np.zeros((len(items), max(1, *lengths), score_BTC.shape[2]))
        glued_BT = np.zeros(own_BTC.shape[:2], dtype=np.bool_)
        for row, item in enumerate(items):
            pieces: Pieces = item.extra
            own_BTC[row, : len(pieces)] = score_BTC[row, pieces.begin : pieces.begin + len(pieces)]
            glued_BT[row, : len(pieces)] = pieces.glued
            if self.scheme == "plain":  # every token has a class
                own_BTC[row, : len(pieces), 0][~pieces.blank] = -np.inf
        return decode(own_BTC, glued_BT, lengths)

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        marked: Marked = example.extra
        found, confidence = parts[0]
        entities: dict[Span, float] = {}
        for one in found:
            for span in self._spans(one.kind, one.first, one.end, items[0].extra, marked):
                entities[span] = one.probability
        columns: dict[str, Any]
        if marked.tokens:
            place = {int(start): number for number, start in enumerate(marked.starts)}
            after = {int(end): number + 1 for number, end in enumerate(marked.ends)}
            in_tokens = [(kind, place[start], after[end]) for kind, start, end in entities]
            columns = {"prediction": span_tags(in_tokens, length=len(marked.starts), scheme=self.scheme)}
        else:
            columns = {
                "entities": [
                    {
                        "type": kind,
                        "start": start,
                        "end": end,
                        "text": marked.text[start:end],
                        "probability": round(probability, 6),
                    }
                    for (kind, start, end), probability in entities.items()
                ]
            }
        return Prediction(value=frozenset(entities), columns=columns, confidence=confidence)

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        return entity_f1(
            [example.gold for example in examples],
            [prediction.value for prediction in predictions],
            resamples=resamples,
        )

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        """Compare entities; only those that are in one of the two are shown."""
        missed, added = example.gold - prediction.value, prediction.value - example.gold
        text = example.extra.text
        shown = [
            "; ".join(f"{kind}: {text[start:end]}" for kind, start, end in sorted(some, key=lambda span: span[1:]))
            for some in (missed, added)
        ]
        badness = max(prediction.confidence or 0.0, 1e-12) if missed or added else 0.0
        return Comparison(gold=shown[0] or "(nothing else)", predicted=shown[1] or "(nothing else)", badness=badness)

    def _logits(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> Tensor:
        assert isinstance(model, TokenTagger)
        return model.logits(reader.every_token(model.trunk, [item.documents[0] for item in items]))

    def _spans(self, kind: int, first: int, end: int, pieces: Pieces, marked: Marked) -> list[Span]:
        """Return the characters of an entity in pieces; with plain classes, of every token separately."""
        units = in_units(first, end, pieces, marked)
        if units is None:
            return []
        if self.scheme == "plain":
            return [in_characters(self.types[kind], unit, unit + 1, marked) for unit in range(*units)]
        return [in_characters(self.types[kind], *units, marked)]

    def _counts(self, examples: Sequence[Example]) -> Any:
        """Return the frequency of each tag over units: pieces are not known yet, and differ little."""
        counts = np.zeros(len(self.tags))
        for example in examples:
            marked: Marked = example.extra
            left = len(marked.starts)
            for kind, first, end in unit_kinds(marked, self.types)[0]:
                counts[1 + 2 * kind] += 1
                counts[2 + 2 * kind] += end - first - 1
                left -= end - first
            counts[0] += left
        return counts


def learn(rows: Sequence[tuple[int, Row]], settings: TagSettings) -> Tag:
    """Create the task with the entity types and the scheme of the training rows."""
    tag_rows: list[list[str]] = []
    texts: list[str] = []
    types: set[str] = set()
    told = mismatched = 0
    for number, row in rows:
        try:
            value = answer_of(row)
            if marks_text(row, value):
                text = str(row.get("text") or "")
                for kind, start, end, surface in entities_of(value, end_inclusive=settings.end_inclusive):
                    types.add(kind)
                    told += surface is not None
                    mismatched += surface is not None and text[max(0, start) : end] != surface
                texts.append(text)
            else:
                tokens, tags = tokens_and_tags(row, value)
                tag_rows.append(tags)
                texts.append("".join(tokens))
        except UnusableRowError:
            continue  # counted when the row becomes an example
        except DataError as error:
            raise DataError(f"record {number}: {error}") from None
    if 2 * mismatched > told:
        raise DataError(
            f"the text of entities must match their offsets; it does not for {mismatched:,} of {told:,}. Offsets count "
            f"characters from 0; the end is {'the last one' if settings.end_inclusive else 'excluded'}: set "
            f"task.end_inclusive={'false' if settings.end_inclusive else 'true'} if it is not."
        )
    scheme = settings.scheme or (scheme_of(tag_rows) if tag_rows else "iob2")
    for tags in tag_rows:
        check_scheme(tags, scheme)
        types |= {kind for kind, _, _ in token_spans(tags, scheme)}
    return Tag(
        types=_checked(types),
        scheme=scheme,
        unspaced=mostly_unspaced(texts),
        from_text=not tag_rows,
        settings=settings,
    )


def _checked(types: set[str]) -> tuple[str, ...]:
    if not types:
        raise DataError(
            "training examples must have entities; got only O tags, or no entities anywhere. Check the column of the "
            "tags."
        )
    if len(types) > MOST_TYPES:
        raise DataError(
            f"entities may have at most {MOST_TYPES:,} types; got {len(types):,}. Check the column of the tags, and "
            "whether types and texts are swapped."
        )
    return tuple(sorted(types))


def restore(values: Mapping[str, Any]) -> Tag:
    """Restore the task from saved values."""
    return Tag(
        types=tuple(values["types"]),
        scheme=values["scheme"],
        unspaced=values["unspaced"],
        from_text=values["from_text"],
        settings=TagSettings.model_validate(values["settings"]),
    )


TAG = TaskKind(
    name="tag",
    help="Tag entities in a text or its tokens (IOB1, IOB2, BIOES). With task.scheme=plain, one class per token.",
    columns=(
        Column(role="tokens", names=TOKENS, optional=True),
        Column(role="text", names=TEXT, optional=True),
        Column(role="tags", names=TAGS, answer=True),
    ),
    settings=TagSettings,
    learn=learn,
    restore=restore,
)
