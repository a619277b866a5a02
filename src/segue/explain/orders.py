"""A factorisation order step by step: visibility in both streams, and the change of predictions as tokens are revealed.

In: an XLNet with its tokeniser, and a text. Out: WatchedOrder, of the last tokens of the text; the text before them is
memory. After n steps the first n tokens of the order are revealed, and every other token is predicted from them: the
prediction of the next token in the order is its factor in the likelihood of the text under this order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from segue.errors import ConfigError, DataError
from segue.explain.scores import attention
from segue.infer.score import Order
from segue.infer.segments import make_plan
from segue.infer.text_model import TextModel
from segue.model import Batch, LanguageModel, Memory
from segue.model.language_model import order_batch
from segue.model.masks import order_to_rank, permutation_mask
from segue.model.segmenting import segments

MOST_WATCHED = 48
"""Maximum number of watched tokens."""
ORDERS = 24
"""Number of random orders whose mean is compared with one order."""
ROWS = 16
"""Steps computed together."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class WatchedOrder:
    """The T watched tokens under one order."""

    tokens: tuple[str, ...]
    before: int
    """Number of tokens of the text before them, which are in memory."""
    order_T: NDArray[np.int64]
    """`order_T[n]` is the position that is predicted n-th."""
    content_TT: NDArray[np.bool_]
    """True if the content at q sees the content at k."""
    query_TT: NDArray[np.bool_]
    """True if the prediction at q sees the content at k."""
    log_probability_XT: Floats
    """log p of each token after each of X = T + 1 steps; NaN for revealed ones."""
    likeliest_XT: tuple[tuple[str, ...], ...]
    """The likeliest token at each position after each step."""
    one_T: Floats
    """log p of each token in its turn: their sum is log p of the text under this order."""
    orders_XT: Floats
    """log p of each token in its turn, for X random orders."""

    @property
    def mean(self) -> Floats:
        """Mean of log p of each token over the random orders: the training objective of the model."""
        return np.asarray(self.orders_XT.mean(axis=0))


def watch_order(
    source: TextModel, text: str, *, order: Order | Sequence[int] = "random", seed: int = 0, orders: int = ORDERS
) -> WatchedOrder:
    """Return the last tokens of a text, at most MOST_WATCHED, under an order."""
    config = source.model.config
    if config.objective != "permutation":
        raise ConfigError(
            f'a factorisation order needs objective "permutation"; got "{config.objective}". Use an XLNet.'
        )
    model = make_plan(source.model, segment_length=source.segment_length).model
    ids_T = source.tokenizer.encode(text)
    if not len(ids_T):
        raise DataError("a text to explain must have at least one token; got none. Give another text.")
    count = min(len(ids_T), MOST_WATCHED, source.segment_length)
    device = next(model.parameters()).device
    memory = _remembered(model, source, ids_T[: len(ids_T) - count])
    ids_BQ = torch.from_numpy(ids_T[len(ids_T) - count :].astype(np.int64))[None].to(device)
    own_T = _order(order, count, seed)
    order_BQ = torch.from_numpy(own_T)[None].to(device)
    seen = attention(model, order_batch(ids_BQ, order_BQ), memory)
    past = seen.memory_length
    log_XT, likeliest_XT = _revealed(model, ids_BQ, order_BQ, memory)
    random = np.random.default_rng(seed)
    several = torch.from_numpy(np.stack([random.permutation(count) for _ in range(orders)])).to(device)
    return WatchedOrder(
        tokens=tuple(source.tokenizer.token(int(index)) for index in ids_BQ[0]),
        before=len(ids_T) - count,
        order_T=own_T,
        content_TT=seen.content[0].view.mask_BQK[0, :, past:].cpu().numpy(),
        query_TT=seen.query[0].view.mask_BQK[0, :, past:].cpu().numpy(),
        log_probability_XT=log_XT,
        likeliest_XT=tuple(tuple(source.tokenizer.token(int(n)) for n in row) for row in likeliest_XT),
        one_T=_log_probabilities(model, ids_BQ, order_BQ, memory)[0],
        orders_XT=_log_probabilities(model, ids_BQ, several, memory),
    )


def _order(order: Order | Sequence[int], count: int, seed: int) -> NDArray[np.int64]:
    match order:
        case "forward":
            return np.arange(count)
        case "backward":
            return np.arange(count)[::-1].copy()
        case "random":
            return np.random.default_rng([seed, 1]).permutation(count)
    given = np.array(order, dtype=np.int64)
    if sorted(given.tolist()) != list(range(count)):
        raise DataError(
            f"an order must list the {count} positions that are watched once, from 0; got {given.tolist()[:20]}. Use a "
            "permutation of them."
        )
    return given


@torch.no_grad()
def _remembered(model: LanguageModel, source: TextModel, ids_T: NDArray[np.int64]) -> Memory | None:
    """Return the memory of the preceding text, read from left to right."""
    memory: Memory | None = None
    device = next(model.parameters()).device
    for span in segments(len(ids_T), source.segment_length):
        ids_BQ = torch.from_numpy(ids_T[span.start : span.stop].astype(np.int64))[None].to(device)
        memory = model(order_batch(ids_BQ, torch.arange(len(span), device=device)[None]), memory).memory
    return memory


@torch.no_grad()
def _log_probabilities(model: LanguageModel, ids_BQ: Tensor, order_XQ: Tensor, memory: Memory | None) -> Floats:
    """Return log p of each token in its turn, for each order."""
    rows = len(order_XQ)
    batch = order_batch(ids_BQ.expand(rows, -1), order_XQ)
    output = model(batch, None if memory is None else memory.select([0] * rows), remember=False)
    return np.asarray(-output.nll.double().cpu().numpy())


@torch.no_grad()
def _revealed(
    model: LanguageModel, ids_BQ: Tensor, order_BQ: Tensor, memory: Memory | None
) -> tuple[Floats, NDArray[np.int64]]:
    """Return log p of every token that is not revealed, and the likeliest token at each position, after each step."""
    count = ids_BQ.shape[1]
    rank_BQ = order_to_rank(order_BQ)
    step_X = torch.arange(count + 1, device=ids_BQ.device)
    found, likeliest = [], []
    for some in torch.split(step_X, ROWS):
        # A token that is not revealed has the rank of the step: it sees the revealed ones, and none sees it.
        rank = rank_BQ.clamp(max=count).expand(len(some), -1).minimum(some[:, None])
        ids = ids_BQ.expand(len(some), -1)
        batch = Batch(
            ids_BQ=ids,
            visible_BQQ=permutation_mask(rank, torch.ones_like(ids, dtype=torch.bool)),
            predicted_BP=torch.arange(count, device=ids.device).expand(len(some), -1).contiguous(),
        )
        output = model.trunk(batch, None if memory is None else memory.select([0] * len(some)), remember=False)
        log_XTV = model.logits(output.predicted_BPD).log_softmax(dim=-1)
        log_XT = log_XTV.gather(2, ids[:, :, None])[..., 0].double()
        found.append(log_XT.masked_fill(rank_BQ < some[:, None], torch.nan).cpu().numpy())
        likeliest.append(log_XTV.argmax(dim=-1).cpu().numpy())
    return np.concatenate(found), np.concatenate(likeliest)
