"""Sliding windows over a passage with its question, and the spans that a head predicts in them.

In: encodings of a passage and of its question. Out: Windows, documents that each contain the whole question and a part
of the passage; and for each window the best spans of its part, as characters of the whole passage. The last token of a
part is a possible answer like any other, and each end is paired with the start that it was scored with.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from segue.model.reading import TokenDocument
from segue.tasks.layout import Layout, Part
from segue.text.tokenizer import Encoding

LEAST_ROOM = 16
"""Minimum number of passage tokens per window, however long the question is."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """A part of a passage with the question."""

    document: TokenDocument
    part: Part
    """The tokens of the passage; their character offsets are those of the whole passage."""
    cls: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """Output of a head for a window."""

    spans: tuple[tuple[float, int, int], ...]
    """Log-probability, start and end character of each span; the best first."""
    null: float | None
    """No-answer score of this window, in the units of the head."""


def windows(
    layout: Layout, passage: Encoding, question: Encoding, *, longest: int, stride: int, question_first: bool
) -> list[Window]:
    """Return windows of at most `longest` tokens, each advanced by `stride` passage tokens; if a long question leaves
    less room than a stride, by half of the room."""
    room = max(LEAST_ROOM, longest - len(question.ids) - layout.special_tokens(2))
    step = stride if stride < room else room // 2
    made = []
    for start in range(0, max(1, len(passage.ids) - room + step), step):
        cut = slice(start, start + room)
        part = Encoding(ids=passage.ids[cut], starts=passage.starts[cut], ends=passage.ends[cut])
        arranged = layout.arrange_encoded([question, part] if question_first else [part, question])
        own = arranged.parts[1 if question_first else 0]
        made.append(Window(document=arranged.document, part=own, cls=arranged.cls))
    return made


def token_span(part: Part, begin: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last token, in the document, of the smallest token span that covers these characters;
    None if the part does not contain them all."""
    if not len(part):
        return None
    first = int(np.searchsorted(part.ends, begin, side="right"))  # the first that ends after `begin`
    last = int(np.searchsorted(part.starts, end, side="left")) - 1  # the last that starts before `end`
    if first > last or part.starts[0] > begin or part.ends[-1] < end:
        return None
    return part.begin + first, part.begin + last


def characters(context: str, part: Part, first: int, last: int) -> tuple[int, int]:
    """Return the characters of a token span, without surrounding spaces."""
    begin, end = int(part.starts[first - part.begin]), int(part.ends[last - part.begin])
    text = context[begin:end]
    return begin + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())


def allowed(windows: Sequence[Window], *, length: int, device: torch.device) -> Tensor:
    """Return the mask of allowed starts and ends, [B, T]: the passage, and CLS, which stands for no answer."""
    allowed_BT = torch.zeros(len(windows), length, dtype=torch.bool)
    for row, window in enumerate(windows):
        allowed_BT[row, window.part.begin : window.part.begin + len(window.part)] = True
        allowed_BT[row, window.cls] = True
    return allowed_BT.to(device)


def best_spans(
    start_BA: Tensor, start_log_BA: Tensor, end_log_BAT: Tensor, allowed_BT: Tensor, *, max_length: int, count: int
) -> list[list[tuple[float, int, int]]]:
    """Return the best spans of each row: log-probability, first and last token. The end is at most `max_length` - 1
    tokens after the start; `allowed_BT` must not include CLS."""
    place_T = torch.arange(end_log_BAT.shape[2], device=end_log_BAT.device)
    length_BAT = place_T - start_BA[:, :, None] + 1
    fits_BAT = (length_BAT >= 1) & (length_BAT <= max_length) & allowed_BT[:, None]
    fits_BAT = fits_BAT & allowed_BT.gather(1, start_BA)[:, :, None]
    score_BAT = (start_log_BA[:, :, None] + end_log_BAT).masked_fill(~fits_BAT, -torch.inf)
    best = score_BAT.flatten(1).topk(min(count, score_BAT[0].numel()))
    row_BN, end_BN = best.indices // len(place_T), best.indices % len(place_T)
    first_BN = start_BA.gather(1, row_BN)
    return [
        [(value, start, end) for value, start, end in zip(*row, strict=True) if value > -torch.inf]
        for row in zip(best.values.tolist(), first_BN.tolist(), end_BN.tolist(), strict=True)
    ]
