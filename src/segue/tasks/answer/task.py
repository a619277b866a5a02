"""Extractive question answering: the answer is a span of a passage, or none if the training examples have such
questions."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from segue.checkpoint.heads import HeadConfig
from segue.config import ReadConfig, Section
from segue.config.schema import Length, SmallCount
from segue.data.tables import Row
from segue.errors import ConfigError, DataError
from segue.evaluation.metrics.answers import Script, answer_scores, answers, best_threshold
from segue.evaluation.metrics.bootstrap import RESAMPLES, Metric
from segue.model.answers import BeamAnswerer, SimpleAnswerer, Spans
from segue.tasks.answer.rows import Gold, given_answers, gold_of
from segue.tasks.answer.windows import Found, Window, allowed, best_spans, characters, token_span, windows
from segue.tasks.layout import Layout
from segue.tasks.reader import Reader
from segue.tasks.task import Column, Comparison, Example, Item, Prediction, TaskKind, UnusableRowError

CONTEXT = ("context", "passage", "paragraph", "document", "text")
QUESTION = ("question", "query")
ANSWERS = ("answers", "answer", "answer_text")
CANDIDATES = 20
"""Number of candidate spans kept per window, and of starts that the simple head considers."""
JUDGED_AT_ONCE = 1 << 16
"""Number of end scores computed at a time: the beam head scores every end for each start."""
ROWS_LOOKED_AT = 500
"""Number of rows from which the language of a table is detected."""


class AnswerSettings(Section):
    """Settings of `answer`."""

    head: Literal["beam", "simple"] = "beam"
    """Answer head. beam: the end depends on the start, and answerability has its own score, as in XLNet. simple: start
    and end are independent, as in BERT."""
    window: Length = 384
    """Maximum window length in tokens: the question and a part of the passage. It may be longer than a segment, up to
    the longest passage: it is then read segment by segment with memory, the question first."""
    stride: Length = 128
    """Number of passage tokens to advance per window."""
    question_first: bool | None = None
    """Whether the question comes before the passage. Default: no for XLNet; yes for BERT, models that read in one
    direction, and windows longer than a segment, so that the passage is read with the question known."""
    max_answer_length: Length = 64
    """Maximum number of tokens in an answer."""
    n_best: SmallCount = 3
    """Number of candidate answers to list per prediction."""
    unanswerable: bool | None = None
    """Whether questions may have no answer. Default: as marked in the training examples."""
    null_threshold: Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)] = 0.0
    """With `unanswerable`: a question with a higher no-answer score gets no answer; at 0 both are equally likely."""
    script: Script | None = None
    """Evaluation script whose exact match and F1 to compute: squad1, squad2 or cmrc. Default: squad2 if questions may
    have no answer, cmrc for Chinese, else squad1."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The best answer to a question, before the no-answer threshold is applied."""

    text: str
    no_answer: float | None
    """No-answer score; None if every question has an answer."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The task `answer`."""

    settings: AnswerSettings
    """Settings, with `unanswerable` and `script` resolved."""

    def to_values(self) -> dict[str, Any]:
        return {"settings": self.settings.model_dump(exclude_none=True)}

    def describe(self, examples: Sequence[Example]) -> list[str]:
        golds: list[Gold] = [example.gold for example in examples]
        lengths = sorted(end - begin for gold in golds for begin, end in gold.spans[:1])
        without = sum(not gold.texts for gold in golds)
        lines = [f"{len(golds):,} questions, {without:,} of them without an answer ({without / len(golds):.1%})"]
        if lengths:
            lines[0] += f"; answers have {lengths[len(lengths) // 2]} characters (median), at most {lengths[-1]}"
        lines.append(f"exact match and F1 are counted as the script of {self.settings.script} does")
        absent = sum(len(gold.texts) - len(gold.spans) for gold in golds)
        for count, what in (
            (sum(gold.moved for gold in golds), "were not where answer_start says; the nearest place was taken"),
            (
                sum(gold.guessed for gold in golds),
                "have no answer_start and stand in several places; the first was taken",
            ),
            (absent, "are not in their context; other answers to their question are"),
        ):
            if count:
                lines.append(f"{count:,} answers {what}")
        return lines

    @property
    def metric(self) -> str:
        return "f1"

    def head(self, read: ReadConfig, summary: str) -> HeadConfig:
        return HeadConfig(kind="beam_answerer" if self.settings.head == "beam" else "simple_answerer")

    def example(self, number: int, row: Row, *, labelled: bool) -> Example:
        context, question = _text(row["context"], "context"), _text(row["question"], "question")
        gold = None
        if labelled:
            gold = gold_of(given_answers(row), context, unanswerable=bool(self.settings.unanswerable))
        return Example(number=number, texts=(context, question), gold=gold)

    def items(self, example: Example, layout: Layout) -> list[Item]:
        passage, question = map(layout.tokenizer.encode_with_offsets, example.texts)
        longest = self._longest(layout)
        made = windows(
            layout,
            passage,
            question,
            longest=longest,
            stride=self.settings.stride,
            question_first=self._question_first(layout, longest),
        )
        spans = [None if example.gold is None else _first_span(window, example.gold) for window in made]
        if len(made) > 1:
            layout.remarks["passages are read in several windows"] += 1
        if example.gold is not None and example.gold.spans:
            self._remark(example, made, spans, layout)
        return [
            Item(
                documents=(window.document,),
                gold=None if example.gold is None else span or (window.cls, window.cls),
                extra=(window, example.texts[0]),
            )
            for window, span in zip(made, spans, strict=True)
        ]

    def loss(self, model: nn.Module, items: Sequence[Item], reader: Reader, *, class_weights: Tensor | None) -> Tensor:
        hidden_BTD, cls_B, allowed_BT = self._read(model, items, reader)
        start_B, end_B = torch.tensor([item.gold for item in items], device=hidden_BTD.device).unbind(dim=1)
        spans = Spans(
            start_B=start_B, end_B=end_B, impossible_B=start_B == cls_B if self.settings.unanswerable else None
        )
        if isinstance(model, BeamAnswerer):
            loss = model.judge(hidden_BTD, cls_B=cls_B, allowed_BQ=allowed_BT, spans=spans).loss
        else:
            assert isinstance(model, SimpleAnswerer)
            loss = model.judge(hidden_BTD, allowed_BQ=allowed_BT, spans=spans).loss
        assert loss is not None
        return loss

    def class_weights(self, examples: Sequence[Example]) -> Tensor | None:
        return None

    def chance(self, examples: Sequence[Example]) -> float | None:
        return None  # depends on the number of tokens, which is not known for examples

    def answers(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> list[Any]:
        hidden_BTD, cls_B, allowed_BT = self._read(model, items, reader)
        starts = model.num_starts if isinstance(model, BeamAnswerer) else 1
        rows = max(1, JUDGED_AT_ONCE // (starts * hidden_BTD.shape[1]))
        found: list[Found] = []
        for begin in range(0, len(items), rows):
            part = slice(begin, begin + rows)
            found += self._judge(model, items[part], hidden_BTD[part], cls_B[part], allowed_BT[part])
        return found

    def prediction(self, example: Example, items: Sequence[Item], parts: Sequence[Any]) -> Prediction:
        context = example.texts[0]
        best: dict[str, tuple[float, int, int]] = {}
        for part in parts:
            for span in part.spans:
                text = context[span[1] : span[2]]
                if text and (text not in best or span[0] > best[text][0]):
                    best[text] = span
        ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[1][1:]))[: self.settings.n_best]
        listed: list[dict[str, Any]] = [
            {"answer": text, "probability": round(math.exp(score), 6), "start": begin, "end": end}
            for text, (score, begin, end) in ranked
        ]
        nothing = {"answer": "", "probability": 0.0, "start": None, "end": None}
        columns: dict[str, Any] = (listed[0] if listed else nothing) | {"n_best": listed}
        value = Answered(text=columns["answer"], no_answer=self._no_answer(parts))
        if value.no_answer is not None:
            against = round(1 / (1 + math.exp(-max(-700.0, value.no_answer))), 6)
            if value.no_answer > self.settings.null_threshold:
                columns |= nothing | {"probability": against}
            columns["no_answer_probability"] = against
        return Prediction(value=value, columns=columns, confidence=columns["probability"])

    def measure(
        self,
        examples: Sequence[Example],
        predictions: Sequence[Prediction],
        *,
        resamples: int | None = RESAMPLES,
    ) -> dict[str, Metric]:
        gold = [example.gold.texts for example in examples]
        predicted = [prediction.value.text for prediction in predictions]
        assert self.settings.script is not None
        if self.settings.script != "squad2":
            return answers(gold, predicted, script=self.settings.script, resamples=resamples)
        if not self.settings.unanswerable:
            return answers(gold, predicted, script="squad2", resamples=resamples)
        against = [prediction.value.no_answer for prediction in predictions]
        metrics = answers(
            gold,
            predicted,
            script="squad2",
            no_answer=against,
            threshold=self.settings.null_threshold,
            resamples=resamples,
        )
        best = best_threshold(gold, predicted, against)
        for name, number in (("best_f1", best.score), ("best_f1_threshold", best.value)):
            metrics[name] = Metric(name=name, value=number, low=None, high=None)
        return metrics

    def compare(self, example: Example, prediction: Prediction) -> Comparison:
        given, golds = prediction.columns["answer"], example.gold.texts
        if golds:
            assert self.settings.script is not None
            off = 1 - float(answer_scores([golds], [given], script=self.settings.script).f1_N[0])
        else:
            off = float(bool(given))
        return Comparison(
            gold=" / ".join(dict.fromkeys(golds)) or "(no answer)",
            predicted=given or "(no answer)",
            badness=max(off * (prediction.confidence or 0.0), 1e-12) if off > 0 else 0.0,
        )

    def _longest(self, layout: Layout) -> int:
        """Return the maximum window length in tokens: the setting, or less if fewer tokens are read at once."""
        limits = [self.settings.window]
        if layout.max_length is not None:
            limits.append(layout.max_length)
        if layout.config.memory is None and layout.segment_length is not None:
            limits.append(layout.segment_length)  # segments are independent, so each must hold the question
        return min(limits)

    def _question_first(self, layout: Layout, longest: int) -> bool:
        if self.settings.question_first is not None:
            return self.settings.question_first
        if layout.config.objective != "permutation":
            return True
        return layout.segment_length is not None and longest > layout.segment_length

    def _remark(
        self, example: Example, made: Sequence[Window], spans: Sequence[tuple[int, int] | None], layout: Layout
    ) -> None:
        """Count remarks on how the answer lies in the windows."""
        context = example.texts[0]
        holding = [(window, span) for window, span in zip(made, spans, strict=True) if span is not None]
        layout.remarks["windows do not contain the answer, and are trained to predict none"] += len(made) - len(holding)
        if not holding:
            layout.remarks["answers are not fully contained in any window, and cannot be learned"] += 1
            return
        window, (first, last) = holding[0]
        if characters(context, window.part, first, last) not in example.gold.spans:
            layout.remarks["answers begin or end inside a subword; the shortest span that covers them is learned"] += 1
        if last - first >= self.settings.max_answer_length:
            layout.remarks["answers are longer than task.max_answer_length, and cannot be predicted"] += 1

    def _read(self, model: nn.Module, items: Sequence[Item], reader: Reader) -> tuple[Tensor, Tensor, Tensor]:
        """Return the hidden states of whole windows, the positions of CLS, and the mask of allowed starts and ends."""
        assert isinstance(model, BeamAnswerer | SimpleAnswerer)
        hidden_BTD, _ = reader.every_token(model.trunk, [item.documents[0] for item in items]).tokens()
        own = [item.extra[0] for item in items]
        cls_B = torch.tensor([window.cls for window in own], device=hidden_BTD.device)
        return hidden_BTD, cls_B, allowed(own, length=hidden_BTD.shape[1], device=hidden_BTD.device)

    def _judge(
        self, model: nn.Module, items: Sequence[Item], hidden_BTD: Tensor, cls_B: Tensor, allowed_BT: Tensor
    ) -> list[Found]:
        if isinstance(model, BeamAnswerer):
            beam = model.judge(hidden_BTD, cls_B=cls_B, allowed_BQ=allowed_BT)
            assert beam.start_index_BA is not None
            assert beam.start_log_probability_BA is not None
            start_BA, start_log_BA = beam.start_index_BA, beam.start_log_probability_BA.float()
            end_log_BAT = beam.end_logits.float().log_softmax(dim=-1)
            null_B = beam.impossible_B.float()
        else:
            assert isinstance(model, SimpleAnswerer)
            simple = model.judge(hidden_BTD, allowed_BQ=allowed_BT)
            start_log_BT = simple.start_logits_BQ.float().log_softmax(dim=-1)
            end_log_BT = simple.end_logits_BQ.float().log_softmax(dim=-1)
            start_log_BA, start_BA = start_log_BT.topk(min(CANDIDATES, start_log_BT.shape[1]))
            end_log_BAT = end_log_BT[:, None].expand(-1, start_BA.shape[1], -1)
            null_B = (start_log_BT + end_log_BT).gather(1, cls_B[:, None]).squeeze(1)
        passage_BT = allowed_BT.scatter(1, cls_B[:, None], False)
        spans = best_spans(
            start_BA,
            start_log_BA,
            end_log_BAT,
            passage_BT,
            max_length=self.settings.max_answer_length,
            count=CANDIDATES,
        )
        found = []
        for item, null, row in zip(items, null_B.tolist(), spans, strict=True):
            window, context = item.extra
            places = [(score, *characters(context, window.part, first, last)) for score, first, last in row]
            found.append(Found(spans=tuple(places), null=null if self.settings.unanswerable else None))
        return found

    def _no_answer(self, parts: Sequence[Found]) -> float | None:
        """Return the lowest no-answer score of all windows: for the beam head its logit, for the simple head the score
        of CLS minus that of the best span."""
        nulls = [part.null for part in parts if part.null is not None]
        if not nulls:
            return None
        if self.settings.head == "beam":
            return min(nulls)
        best = max((span[0] for part in parts for span in part.spans), default=-1e4)
        return min(nulls) - best


def learn(rows: Sequence[tuple[int, Row]], settings: AnswerSettings) -> Answer:
    """Create the task from the training rows: decide whether questions may have no answer, and which evaluation script
    applies."""
    if settings.stride >= settings.window:
        raise ConfigError(
            f"task.stride must be less than task.window, or parts of the passage are never read; got {settings.stride} "
            f"and {settings.window}. Use a third of the window."
        )
    with_answer = impossible = 0
    for _, row in rows:
        with suppress(UnusableRowError, DataError):  # counted or raised when the row becomes an example
            given = given_answers(row)
            with_answer += bool(given.answers)
            impossible += bool(given.impossible and not given.answers)
    if not with_answer:
        raise DataError(
            f"training examples must have answers; got {len(rows):,} rows, none with one. Check the column answers, or "
            "answer; a test set without answers is for segue predict."
        )
    unanswerable = impossible > 0 if settings.unanswerable is None else settings.unanswerable
    script = settings.script
    if script is None:
        script = "squad2" if unanswerable else "cmrc" if _is_chinese(rows) else "squad1"
    elif unanswerable and script != "squad2":
        raise ConfigError(
            f"task.script must be squad2 where questions may have no answer; got {script}. Leave it out, or set "
            "task.unanswerable=false to leave those questions out."
        )
    return Answer(settings=settings.model_copy(update={"unanswerable": unanswerable, "script": script}))


def restore(values: Mapping[str, Any]) -> Answer:
    """Restore the task from saved values."""
    return Answer(settings=AnswerSettings.model_validate(values["settings"]))


ANSWER = TaskKind(
    name="answer",
    help="Find the answer to a question in a passage: SQuAD, CMRC, DRCD, or a table of passages and questions.",
    columns=(
        Column(role="context", names=CONTEXT),
        Column(role="question", names=QUESTION),
        Column(role="answer", names=ANSWERS, answer=True),
        Column(role="answer_start", names=("answer_start", "start"), answer=True, optional=True),
        Column(role="impossible", names=("impossible", "is_impossible"), answer=True, optional=True),
    ),
    settings=AnswerSettings,
    learn=learn,
    restore=restore,
)


def _text(value: Any, what: str) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    if not text.strip():
        raise UnusableRowError(f"an empty {what}")
    return text


def _first_span(window: Window, gold: Gold) -> tuple[int, int] | None:
    """Return the token span of the first answer that the window contains whole."""
    return next((span for place in gold.spans if (span := token_span(window.part, *place)) is not None), None)


def _is_chinese(rows: Sequence[tuple[int, Row]]) -> bool:
    """Return True if most letters are Chinese."""
    letters = chinese = 0
    for _, row in rows[:ROWS_LOOKED_AT]:
        text = f"{row['question']} {row['context']}"
        letters += sum(character.isalpha() for character in text)
        chinese += sum("\u4e00" <= character <= "\u9fff" for character in text)
    return chinese * 2 > letters
