"""Infilling of gaps in a text, in any order, by a permutation model (XLNet), which sees the context on both sides.

In: ids with None for missing tokens, or a text with markers for missing words. Out: the ids or the text with the gaps
filled, and for each filled position its log-probability and its place in the order. The caller gives the length of a
gap.

The known tokens are context: they see each other and nothing that is filled in. A filled token sees them and the tokens
filled before it. So filling position by position is exactly one pass under that factorisation order, and the
log-probabilities add up to that of all gaps given the context. Every step queries the query stream at the open
positions.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from segue.errors import ConfigError, DataError
from segue.infer.sampling import Sampler, SamplingSettings
from segue.model import Batch, LanguageModel, Memory
from segue.model.masks import permutation_mask
from segue.text.byte_pairs import BytePairTokenizer
from segue.text.fast import FastTokenizer
from segue.text.pieces import SPACE_MARK, PieceTokenizer
from segue.text.released import ReleasedPieces
from segue.text.tokenizer import Tokenizer
from segue.text.word_pieces import WordPieceTokenizer
from segue.text.words import WordTokenizer

Order = Literal["left_to_right", "right_to_left", "random", "surest_first"]
"""Order of filling: `random` uses the seed of the settings; `surest_first` chooses, again after each token, the
position whose likeliest token has the highest probability."""
ORDERS: tuple[Order, ...] = get_args(Order)
# Possible prefixes of a text that suppress the space mark that a released tokeniser puts before its first word.
_ANCHORS = ("。", ".", "a")


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A filled position."""

    position: int
    """Index of the position in the ids."""
    token: int
    log_probability: float
    """Log-probability under the model, given the context and everything filled before."""
    alternatives: tuple[tuple[int, float], ...]
    """The model's likeliest tokens there, as many as the settings request."""


@dataclass(frozen=True, kw_only=True)
class Infilled:
    """Ids without gaps."""

    ids: tuple[int, ...]
    filled: tuple[Filled, ...]
    """The filled positions, in the order of filling."""

    @property
    def log_probability(self) -> float:
        """Log-probability of all filled tokens, given the context."""
        return sum(one.log_probability for one in self.filled)


@dataclass(frozen=True, kw_only=True)
class InfilledText:
    """A text without gaps."""

    text: str
    """The whole text; unchanged outside the gaps."""
    gaps: tuple[str, ...]
    """Text of each gap, from left to right."""
    pieces: tuple[str, ...]
    """Token of each filled position in readable form, in the order of filling."""
    result: Infilled


@torch.no_grad()
def infill(
    model: LanguageModel,
    tokens: Sequence[int | None],
    *,
    order: Order | Sequence[int] = "left_to_right",
    settings: SamplingSettings | None = None,
    allowed: Mapping[int, Sequence[int]] | None = None,
    memory: Memory | None = None,
) -> Infilled:
    """Fill every position that is None. An order may also be the list of these positions. Without `settings`, each
    position gets the likeliest token.

    `allowed` gives, for some positions, the only ids that may come there. The repetition penalty considers the known
    and filled tokens that are nearest on both sides. `memory` is that of earlier text, with one row.
    """
    _check(model, tokens)
    model.eval()
    settings = SamplingSettings(greedy=True) if settings is None else settings
    sampler = Sampler(settings, vocabulary_size=model.config.vocabulary.size)
    device = next(model.parameters()).device
    gaps = [place for place, token in enumerate(tokens) if token is None]
    planned = _planned(gaps, order, seed=settings.seed)
    ids_Q = torch.tensor([0 if token is None else token for token in tokens], device=device)
    # An open position has the last rank: nothing sees its content, and it sees all known tokens.
    rank_Q = torch.tensor([len(gaps) if token is None else -1 for token in tokens], device=device)
    filled: list[Filled] = []
    still_open = list(gaps)
    while still_open:
        asked = still_open if planned is None else [planned[len(filled)]]
        logits_PV = _ask(model, ids_Q, rank_Q, asked, memory)
        only = [None if allowed is None else allowed.get(place) for place in asked]
        number = 0 if planned is not None else _surest(logits_PV, sampler.settings, only)
        place = asked[number]
        chosen = sampler.choose(logits_PV[number], _near(ids_Q, rank_Q, place, settings), allowed=only[number])
        ids_Q[place], rank_Q[place] = chosen.token, len(filled)
        still_open.remove(place)
        filled.append(
            Filled(
                position=place,
                token=chosen.token,
                log_probability=chosen.log_probability,
                alternatives=chosen.alternatives,
            )
        )
    return Infilled(ids=tuple(ids_Q.tolist()), filled=tuple(filled))


def infill_text(
    model: LanguageModel,
    tokenizer: Tokenizer,
    text: str,
    *,
    gap: str = "___",
    lengths: int | Sequence[int] = 3,
    order: Order = "left_to_right",
    settings: SamplingSettings | None = None,
) -> InfilledText:
    """Fill every `gap` in the text with this many tokens: the same for all, or a number for each. They are the
    likeliest ones, unless `settings` say otherwise.

    Adjacent markers are one longer gap. Special tokens are never generated. The text begins as after the end of another
    document, if the tokeniser has eod. With pieces that begin with their space, a space before a gap belongs to the
    gap, whose first token must then begin with one.
    """
    if tokenizer.size > model.config.vocabulary.size:
        raise DataError(
            f"the model must know every id of the tokeniser; got {model.config.vocabulary.size} ids for "
            f"{tokenizer.size}. Use the tokeniser of the model."
        )
    template = _template(tokenizer, text, gap=gap, lengths=lengths)
    specials = set(tokenizer.specials.values())
    forbidden = [*specials, *range(tokenizer.size, model.config.vocabulary.size)]
    settings = (SamplingSettings(greedy=True) if settings is None else settings).forbidding(forbidden)
    allowed = dict.fromkeys(template.spaced, _space_ids(tokenizer, specials)) if template.spaced else None
    result = infill(model, template.tokens, order=order, settings=settings, allowed=allowed)
    written = [_written(tokenizer, result.ids, start, end) for start, end in template.gaps]
    return InfilledText(
        text="".join(part + fill for part, fill in zip(template.parts, [*written, ""], strict=True)),
        gaps=tuple(written),
        pieces=tuple(tokenizer.token(one.token) for one in result.filled),
        result=result,
    )


# --------------------------------------------------------------------------------------------------- one step


def _ask(model: LanguageModel, ids_Q: Tensor, rank_Q: Tensor, asked: Sequence[int], memory: Memory | None) -> Tensor:
    """Return the logits at the given positions, from the context and the filled tokens; [P, V]."""
    batch = Batch(
        ids_BQ=ids_Q[None],
        visible_BQQ=permutation_mask(rank_Q[None], rank_Q[None] >= 0),
        predicted_BP=torch.tensor([list(asked)], device=ids_Q.device),
    )
    hidden_BPD = model.trunk(batch, memory, remember=False).predicted_BPD
    assert hidden_BPD is not None
    return model.logits(hidden_BPD[0, :, : model.config.width])


def _surest(logits_PV: Tensor, settings: SamplingSettings, only: Sequence[Sequence[int] | None]) -> int:
    """Return the index of the position whose likeliest allowed token has the highest probability under the model."""
    log_p_PV = logits_PV.double().log_softmax(dim=1)
    forbidden = [index for index, bias in settings.logit_bias.items() if bias == -torch.inf]
    log_p_PV[:, forbidden] = -torch.inf
    best = [row if ids is None else row[list(ids)] for row, ids in zip(log_p_PV, only, strict=True)]
    return int(torch.stack([row.max() for row in best]).argmax())


def _near(ids_Q: Tensor, rank_Q: Tensor, place: int, settings: SamplingSettings) -> list[int]:
    """Return the visible tokens, the nearest to the position last, so that a penalty treats them as the latest."""
    if settings.repetition_penalty == 1:
        return []
    ids, ranks = ids_Q.tolist(), rank_Q.tolist()
    there = [other for other in range(len(ids)) if ranks[other] < ranks[place]]
    return [ids[other] for other in sorted(there, key=lambda other: -abs(other - place))]


def _planned(gaps: Sequence[int], order: Order | Sequence[int], *, seed: int) -> list[int] | None:
    """Return the positions in the order of filling; None if each step decides."""
    if not isinstance(order, str):
        if sorted(order) != list(gaps):
            raise DataError(
                f"an order must list every place of a gap once; got {list(order)} for the places {list(gaps)}. "
                "Use a permutation of them."
            )
        return list(order)
    if order not in ORDERS:
        raise ConfigError(f"order must be one of {', '.join(ORDERS)}; got {order!r}. Use one of them.")
    if order == "surest_first":
        return None
    if order == "random":
        # Another kind of generator than the sampler's, so that tokens do not depend on the same random numbers.
        return [int(place) for place in np.random.default_rng(seed).permutation(gaps)]
    return list(gaps) if order == "left_to_right" else list(reversed(gaps))


def _check(model: LanguageModel, tokens: Sequence[int | None]) -> None:
    config = model.config
    if config.objective != "permutation":
        raise DataError(
            f'infilling needs objective "permutation", which predicts in any order; got "{config.objective}". '
            "Use an XLNet."
        )
    if None not in tokens:
        raise DataError(f"infilling needs a gap; got {len(tokens)} tokens without one. Put None where one is missing.")
    wrong = next((token for token in tokens if token is not None and not 0 <= token < config.vocabulary.size), None)
    if wrong is not None:
        raise DataError(
            f"ids must be from 0 to {config.vocabulary.size - 1}; got {wrong}. They belong to another tokeniser."
        )
    limit = config.learned_positions
    if limit is not None and len(tokens) > limit:
        raise DataError(
            f"text and gaps must fit into the {limit} positions of the model; got {len(tokens)} tokens. "
            "Use a shorter text or shorter gaps, or a model with relative positions."
        )


# --------------------------------------------------------------------------------------------------- text and gaps


@dataclass(frozen=True, kw_only=True)
class _Template:
    parts: tuple[str, ...]
    """The text before, between and after the gaps, without the spaces that belong to the gaps."""
    tokens: tuple[int | None, ...]
    gaps: tuple[tuple[int, int], ...]
    """Begin and end of each gap in the tokens."""
    spaced: tuple[int, ...]
    """First positions of gaps that begin with a space."""


def _template(tokenizer: Tokenizer, text: str, *, gap: str, lengths: int | Sequence[int]) -> _Template:
    if not gap:
        raise ConfigError('the marker of a gap must not be empty; got an empty text. Use "___".')
    # Parts of the text and runs of markers alternate; the text comes first and last, and may be empty.
    found = re.split(f"((?:{re.escape(gap)})+)", text)
    sizes = _sizes([len(run) // len(gap) for run in found[1::2]], lengths, gap=gap)
    marks_spaces = isinstance(tokenizer, PieceTokenizer | ReleasedPieces | FastTokenizer | BytePairTokenizer)
    parts, gaps, spaced = found[0::2], [], []
    tokens: list[int | None] = [tokenizer.specials["eod"]] if "eod" in tokenizer.specials else []
    for number, part in enumerate(parts):
        if marks_spaces and number < len(sizes) and part.endswith(" "):
            parts[number] = part = part[:-1]
            spaced.append(number)
        tokens += _encode_part(tokenizer, part, inside=number > 0)
        if number < len(sizes):
            gaps.append((len(tokens), len(tokens) + sizes[number]))
            tokens += [None] * sizes[number]
    return _Template(
        parts=tuple(parts),
        tokens=tuple(tokens),
        gaps=tuple(gaps),
        spaced=tuple(gaps[number][0] for number in spaced),
    )


def _sizes(runs: Sequence[int], lengths: int | Sequence[int], *, gap: str) -> list[int]:
    """Return the number of tokens of each run of markers."""
    count = sum(runs)
    if not count:
        raise DataError(f"infilling needs a gap in the text; got none. Write {gap} where words are missing.")
    each = [lengths] * count if isinstance(lengths, int) else list(lengths)
    if len(each) != count:
        raise DataError(
            f"there must be a length for each gap; got {len(each)} for {count} gaps. "
            f"Give {count}, or one number for all."
        )
    short = next((length for length in each if length < 1), None)
    if short is not None:
        raise DataError(f"a gap must have at least 1 token; got a length of {short}. Use 1 or more.")
    ends = np.cumsum(runs).tolist()
    return [sum(each[end - run : end]) for run, end in zip(runs, ends, strict=True)]


def _encode_part(tokenizer: Tokenizer, part: str, *, inside: bool) -> list[int]:
    """Return the ids of a part; inside a text, no space is added before it."""
    ids: list[int] = tokenizer.encode(part).tolist()
    if not inside or not ids or part[0].isspace() or not _begins_with_space(tokenizer, ids[0]):
        return ids
    for anchor in _ANCHORS:
        encoding = tokenizer.encode_with_offsets(anchor + part)
        cut = int((encoding.starts < len(anchor)).sum())
        rest: list[int] = encoding.ids[cut:].tolist()
        if encoding.ends[cut - 1] == len(anchor) and rest and not _begins_with_space(tokenizer, rest[0]):
            return rest
    raise DataError(
        f"a text after a gap must be cut into tokens without a space before it; got {part[:20]!r}, which this "
        "tokeniser cannot. Put a space after the gap."
    )


def _begins_with_space(tokenizer: Tokenizer, index: int) -> bool:
    return tokenizer.token(index).startswith(SPACE_MARK)


def _space_ids(tokenizer: Tokenizer, specials: set[int]) -> tuple[int, ...]:
    """Return the tokens that begin with a space and have more than that."""
    shown = ((index, tokenizer.token(index)) for index in range(tokenizer.size) if index not in specials)
    return tuple(index for index, token in shown if token.startswith(SPACE_MARK) and token.strip(SPACE_MARK))


def _written(tokenizer: Tokenizer, ids: Sequence[int], start: int, end: int) -> str:
    """Return the text of a gap: the text that its tokens add to the text before them."""
    text = tokenizer.decode(ids[:end])[len(tokenizer.decode(ids[:start])) :]
    # Spaces between words are implied; the text around the gap has them or not.
    return text.strip(" ") if isinstance(tokenizer, WordTokenizer | WordPieceTokenizer) else text
