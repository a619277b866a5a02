"""Scores of texts under a model: the log-probability of every token, and its sums over lines and documents.

In: a model, its tokeniser, documents. Out: a row for each token, line or document, in order, as they are ready.

- causal: each token given those before it in its document, as far as memory reaches (`segue.infer.segments`).
- permutation: each token given memory, and those before it in an order of its segment: forward, backward, random, or
  a given one. An order never extends beyond a segment. The product over a text is its probability under that order.
  With `pseudo`, each token given all others of its window, as in a masked model.
- masked: each token given all others of its window: a pseudo-likelihood, which is not a probability of the text and can
  only be compared with other pseudo-likelihoods. It uses no memory, and needs a forward pass of the window per token.

A text of a causal or permutation model begins as after the end of another document, with the special token eod if the
tokeniser has it. Without it, the first token has no probability in a causal model, and does not count. The end of a
text is not scored.

Log-probabilities are natural. They are rounded to 2**-32, so that sums of them are exact: tokens, lines and documents
add up to the same number, in any order (up to two million nats; above, to sixteen digits).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from segue.errors import ConfigError, DataError
from segue.infer.documents import Document, TextPart, Tokens, pools, text_parts
from segue.infer.score_rows import (
    DocumentRows,
    Found,
    LineRows,
    ScoreRow,
    TokenRows,
)
from segue.infer.score_rows import ScoreTotals as ScoreTotals
from segue.infer.score_rows import TextScore as TextScore
from segue.infer.score_rows import TokenScore as TokenScore
from segue.infer.segments import POOL, ReadingPlan, RowMaker, Step, in_order, make_plan, recalled, steps
from segue.model import Batch, LanguageModel, Memory, Output
from segue.model.language_model import order_batch
from segue.model.masks import mask_without
from segue.text.tokenizer import Tokenizer

By = Literal["token", "line", "document"]
Order = Literal["forward", "backward", "random"]
_LOGITS = 2**23
"""Maximum number of logits computed together, to determine the likeliest tokens."""


Scored: TypeAlias = tuple[int, Tokens, Found]
"""A row of a batch, some of its tokens, and their scores."""


@dataclass(frozen=True, kw_only=True)
class ScoreSettings:
    """The settings of `score`."""

    by: By = "document"
    order: Order | Sequence[int] = "forward"
    """Factorisation order, for permutation models. A sequence lists the positions of a document, counted from 0, in the
    order in which they are predicted: every document must then have that many tokens and fit into a segment."""
    seed: int = 0
    """Seed for random orders; each document and segment has a different order."""
    pseudo: bool = False
    """Whether a permutation model predicts each token from all others of its window; a masked model always does."""
    segment_length: int = 512
    """Segment length in positions."""
    batch_tokens: int = 4096
    """Tokens read at a time, over all documents of a batch; affects only speed and memory."""
    likeliest: bool = False
    """Whether to report for each token if it was the likeliest; takes a pass over the vocabulary for each."""

    def __post_init__(self) -> None:
        if self.by not in ("token", "line", "document"):
            raise ConfigError(f"by must be token, line or document; got {self.by!r}. Use one of them.")
        if isinstance(self.order, str) and self.order not in ("forward", "backward", "random"):
            raise ConfigError(f"order must be forward, backward or random; got {self.order!r}. Use one of them.")
        if not isinstance(self.order, str) and sorted(self.order) != list(range(len(self.order))):
            raise ConfigError(
                f"an order must list every position once, from 0; got {list(self.order)[:20]}. Use a permutation of "
                f"range({len(self.order)})."
            )
        for name, least in (("seed", 0), ("segment_length", 1), ("batch_tokens", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}; got {getattr(self, name)}. Use {least} or more.")


def score(
    model: LanguageModel,
    tokenizer: Tokenizer,
    documents: Iterable[TextPart],
    settings: ScoreSettings = ScoreSettings(),  # noqa: B008  (it is frozen)
    *,
    totals: ScoreTotals | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[ScoreRow]:
    """Yield the rows of all documents (`text_parts` of texts, or `TextFiles`). `totals` are updated; `progress` is
    called with the number of tokens just read."""
    counts = ScoreTotals() if totals is None else totals
    scorer = _Scorer(model, tokenizer, settings)
    shown = cache(tokenizer.token)

    def read(some: list[Document]) -> Iterator[Scored]:
        for row, tokens, found in scorer.read(some):
            if progress is not None:
                progress(len(tokens))
            yield row, tokens, found

    def begin(document: Document) -> RowMaker[Found, ScoreRow]:
        if settings.by == "token":
            return TokenRows(document, counts, shown)
        return LineRows(document, counts) if settings.by == "line" else DocumentRows(document, counts)

    limit = POOL * settings.batch_tokens
    ahead = pools(documents, tokenizer, limit=limit, keep_lines=settings.by == "line")
    return in_order(ahead, plan=scorer.plan, batch_tokens=settings.batch_tokens, read=read, begin=begin)


def score_texts(
    model: LanguageModel,
    tokenizer: Tokenizer,
    texts: Iterable[str],
    settings: ScoreSettings = ScoreSettings(),  # noqa: B008  (it is frozen)
) -> Iterator[ScoreRow]:
    """Yield the rows of texts, each a document."""
    return score(model, tokenizer, text_parts(texts), settings)


# -------------------------------------------------------------------------------------------------------------- reading


class _Scorer:
    """Reads documents in batches and yields log-probabilities."""

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, settings: ScoreSettings) -> None:
        self.settings, self.objective = settings, model.config.objective
        self.device = next(model.parameters()).device
        self.eod, self.mask = tokenizer.specials.get("eod"), tokenizer.specials.get("mask")
        self.pseudo = settings.pseudo or self.objective == "masked"
        if self.objective != "permutation" and settings.order != "forward":
            raise ConfigError(
                f'a factorisation order needs objective "permutation"; got {settings.order!r} for "{self.objective}". '
                "Leave it out."
            )
        if settings.pseudo and (self.objective == "causal" or settings.order != "forward"):
            raise ConfigError(
                'pseudo-likelihood needs objective "permutation" or "masked", and has no order; got '
                f'"{self.objective}" and order {settings.order!r}. Leave one of them out.'
            )
        if self.objective == "masked" and self.mask is None:
            raise DataError(
                "a masked model needs a tokeniser with the special token mask; got one without. Use its own."
            )
        self.plan: ReadingPlan = make_plan(model, segment_length=settings.segment_length, memory=not self.pseudo)

    def read(self, documents: list[Document]) -> Iterator[Scored]:
        """Yield the log-probabilities of all tokens, in steps."""
        memory: Memory | None = None
        causal = self.objective == "causal"
        first = None if self.objective == "masked" else self.eod
        for step in steps(documents, self.plan, first=first, predicts_next=causal):
            with torch.no_grad():
                if self.pseudo:
                    found_BQ = self._pseudo(step)
                else:
                    batch = _next_tokens(step) if causal else self._ordered(step, documents)
                    goes_on = any(documents[row].fill(1) for row in step.rows)
                    found_BQ, memory = self._likelihood(step, batch, recalled(memory, step), remember=goes_on)
            for number, (row, tokens) in enumerate(zip(step.rows, step.tokens, strict=True)):
                likeliest_Q = None if found_BQ.likeliest is None else found_BQ.likeliest[number]
                found = Found(found_BQ.values[number], likeliest_Q).cut(step.known, step.known + len(tokens))
                scored = found.values[int(causal and not step.known) :]
                if not np.isfinite(scored).all():
                    raise DataError(
                        f"log-probabilities must be finite; got {scored[~np.isfinite(scored)][0]} in "
                        f"{documents[row].place}. The weights are broken: try segue doctor MODEL."
                    )
                yield int(row), tokens, found

    def _likelihood(
        self, step: Step, batch: Batch | None, memory: Memory | None, *, remember: bool
    ) -> tuple[Found, Memory | None]:
        """Return the scores of each known or new token; NaN for the first token in a causal model."""
        if batch is None:
            nothing_BQ = np.zeros(step.ids_BQ.shape, dtype=np.bool_) if self.settings.likeliest else None
            return Found(np.full(step.ids_BQ.shape, np.nan), nothing_BQ), None
        batch = batch.to(self.device)
        result = self.plan.model(batch, memory, remember=remember)
        values_BQ = -result.nll.double().cpu().numpy()
        likeliest_BQ = self._likeliest(result.output, batch)
        if self.objective == "causal":
            values_BQ = np.pad(values_BQ, ((0, 0), (1, 0)), constant_values=np.nan)
            likeliest_BQ = None if likeliest_BQ is None else np.pad(likeliest_BQ, ((0, 0), (1, 0)))
        return Found(values_BQ, likeliest_BQ), result.memory

    def _likeliest(self, output: Output, batch: Batch) -> NDArray[np.bool_] | None:
        """Return True for each target that no other token is likelier than at its position."""
        if not self.settings.likeliest:
            return None
        assert batch.targets is not None
        model = self.plan.model
        hidden = output.hidden_BQD if output.predicted_BPD is None else output.predicted_BPD
        hidden_ND, targets_N = hidden[..., : model.config.width].flatten(0, -2), batch.targets.flatten()
        size = max(1, _LOGITS // model.config.vocabulary.size)
        parts = []
        for part_ND, part_N in zip(torch.split(hidden_ND, size), torch.split(targets_N, size), strict=True):
            logits_NV = model.logits(part_ND)
            parts.append(logits_NV.gather(1, part_N[:, None])[:, 0] >= logits_NV.amax(dim=1))
        return np.asarray(torch.cat(parts).view(batch.targets.shape).cpu().numpy())

    def _ordered(self, step: Step, documents: list[Document]) -> Batch:
        """Return a batch with known tokens first in the order, new ones in the requested order, padding last."""
        width = step.ids_BQ.shape[1]
        order_BQ = np.tile(np.arange(width), (len(step.tokens), 1))
        for number, (row, tokens) in enumerate(zip(step.rows, step.tokens, strict=True)):
            new = self._order(step, documents[row], len(tokens))
            order_BQ[number, step.known : step.known + len(tokens)] = step.known + new
        real_BQ = step.real_BQ
        return order_batch(
            torch.from_numpy(step.ids_BQ),
            torch.from_numpy(order_BQ),
            real_BQ=None if real_BQ.all() else torch.from_numpy(real_BQ),
        )

    def _order(self, step: Step, document: Document, count: int) -> NDArray[np.int64]:
        match self.settings.order:
            case "forward":
                return np.arange(count)
            case "backward":
                return np.arange(count)[::-1]
            case "random":
                return np.random.default_rng([self.settings.seed, document.number, step.number]).permutation(count)
        given = np.array(self.settings.order, dtype=np.int64)
        if step.number or count != len(given) or document.fill(1):
            raise DataError(
                f"{document.place} must have the {len(given)} tokens of the order, in one segment of "
                f"{self.plan.length}; got {document.tokens}. Give another order, or a longer segment."
            )
        return given

    def _pseudo(self, step: Step) -> Found:
        """Score each new token from all others of its window: a row for each, with it masked or seen by none."""
        values_BQ = np.zeros(step.ids_BQ.shape)
        likeliest_BQ = np.zeros(step.ids_BQ.shape, dtype=np.bool_) if self.settings.likeliest else None
        real_BQ = step.real_BQ
        at = [(n, step.known + place) for n, tokens in enumerate(step.tokens) for place in range(len(tokens))]
        size = max(1, self.settings.batch_tokens // step.ids_BQ.shape[1])
        for begin in range(0, len(at), size):
            rows, places = np.array(at[begin : begin + size]).T
            each = np.arange(len(rows))
            ids_BQ = step.ids_BQ[rows]
            targets = ids_BQ[each, places]
            at_B, visible_BQQ = torch.from_numpy(places), None
            if self.objective == "masked":
                assert self.mask is not None
                ids_BQ[each, places] = self.mask
            else:
                visible_BQQ = mask_without(at_B, length=ids_BQ.shape[1])
            batch = Batch(
                ids_BQ=torch.from_numpy(ids_BQ),
                real_BQ=None if real_BQ[rows].all() else torch.from_numpy(real_BQ[rows]),
                predicted_BP=at_B[:, None],
                targets=torch.from_numpy(targets)[:, None],
                visible_BQQ=visible_BQQ,
            )
            batch = batch.to(self.device)
            result = self.plan.model(batch)
            values_BQ[rows, places] = -result.nll.double().cpu().numpy()[:, 0]
            found_N1 = self._likeliest(result.output, batch)
            if likeliest_BQ is not None and found_N1 is not None:
                likeliest_BQ[rows, places] = found_N1[:, 0]
        return Found(values_BQ, likeliest_BQ)


def _next_tokens(step: Step) -> Batch | None:
    """Return a batch in which each token is predicted from those before it; None if no row has two tokens."""
    if step.ids_BQ.shape[1] < 2:
        return None
    real_BQ = torch.from_numpy(step.real_BQ)
    ids_BQ = torch.from_numpy(step.ids_BQ)
    return Batch(
        ids_BQ=ids_BQ[:, :-1],
        targets=ids_BQ[:, 1:],
        target_mask=real_BQ[:, 1:],
        # The last token of a row is predicted, and not read.
        real_BQ=None if bool(real_BQ.all()) else real_BQ[:, 1:],
    )
